#!/usr/bin/env python3
"""How many JSON schemas of public collections are right: each valid instance accepted, each invalid one refused.

    schemas.py --program build/test/tests/bench/bench_schemas [--every 8] [--masks] [--verbose] PATH...

A PATH is a folder of MaskBench (maskbench/data of guidance-ai/jsonschemabench: one schema a file, with its tests) or of
the JSON-Schema-Test-Suite (tests/draft2020-12: a list of groups a file).
"""
import argparse
import collections
import json
import pathlib
import subprocess
import sys


def compact(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def shown(test):
    """A test that went wrong; of a valid instance the text around the byte that was refused."""
    data, taken = test["data"].encode(), test["taken"]
    around = (data[max(0, taken - 200):taken] + b" <HERE> " + data[taken:taken + 60]).decode(errors="replace")
    return f"strict {around}" if test["valid"] else f"LOOSE {test['data'][:300]}"


def without_nul(text):
    return "" if "\\u0000" in text else text


def groups(path, every):
    files = sorted(pathlib.Path(path).glob("*.json"))
    for file in files[::every]:
        content = json.loads(file.read_text())
        for index, group in enumerate(content if isinstance(content, list) else [content]):
            tests = [{"valid": test["valid"], "data": compact(test["data"])} for test in group.get("tests", [])]
            name = f"{file.name}#{index} {group.get('description', '')}" if isinstance(content, list) else file.name
            yield {"name": name, "schema": compact(group["schema"]), "tests": tests}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--every", type=int, default=1, help="take each n-th file")
    parser.add_argument("--masks", action="store_true", help="also measure masks over a vocabulary of 128 thousand tokens")
    parser.add_argument("--verbose", action="store_true", help="print each schema that is not right")
    parser.add_argument("paths", nargs="+")
    options = parser.parse_args()
    cases = [group for path in options.paths for group in groups(path, options.every)]
    # strings with NUL cannot be carried to the program: such schemas are refused, such instances not accepted
    lines = "".join(json.dumps({**case, "tests": [{**test, "data": without_nul(test["data"])} for test in case["tests"]]}) + "\n"
                    for case in cases if without_nul(case["schema"]))
    command = [options.program] + (["--masks"] if options.masks else [])
    out = subprocess.run(command, input=lines, stdout=subprocess.PIPE, check=True, text=True).stdout
    results = {}
    for line in out.splitlines():
        result = json.loads(line)
        if "name" in result:
            results[result["name"]] = result
        else:
            print(result)
    right = loose = strict = refused = 0
    reasons = collections.Counter()
    times = sorted(result["compile_ms"] for result in results.values())
    for case in cases:
        result = results.get(case["name"], {"error": "a NUL in the schema", "tests": []})
        wrong = [{**test, **found} for test, found in zip(case["tests"], result["tests"]) if test["valid"] != found["accepted"]]
        # a schema that nothing follows is refused, and rightly
        if "matches no text at all" in result.get("error", "") and not wrong:
            result.pop("error")
        is_loose = any(not test["valid"] for test in wrong) and "error" not in result
        right += "error" not in result and not wrong
        loose += is_loose
        refused += "error" in result
        strict += "error" not in result and bool(wrong) and not is_loose
        if "error" in result:
            reasons[result["error"].split(": ", 1)[-1][:70]] += 1
        if options.verbose and ("error" in result or wrong):
            print(case["name"], result.get("error", ""), [shown(test) for test in wrong[:3]]
                  if "error" not in result else "")
    print(f"{right} of {len(cases)} schemas are right ({100 * right / len(cases):.1f} %), {refused} refused, {strict} refuse a "
          f"valid instance, {loose} accept an invalid one")
    print(f"compile ms: median {times[len(times) // 2]:.2f}, p99 {times[len(times) * 99 // 100]:.2f}, longest {times[-1]:.2f}")
    for reason, count in reasons.most_common(25):
        print(f"{count:5} {reason}")
    sys.exit(loose > 0)


if __name__ == "__main__":
    main()
