#!/usr/bin/env python3
"""`trireme serve` and llama-server one after the other on one GPU, under the same loads over HTTP, each sent by `trireme bench serve`.

    peers_serving.py --trireme PROGRAM --model FOLDER [--llama-server PROGRAM --gguf FILE] [--loads LIST] [--roof FILE] [--json FILE]

FOLDER is made by make_model.py --tokenizer, FILE by make_gguf.py --tokenizer: the same shape, random weights. A load is
PROMPT/OUTPUT@CONCURRENCYxREQUESTS: so many requests in all, a new one when one ends, prompts of random tokens that no other load has, greedy,
ends ignored. Both servers have room for the largest of the loads; llama-server has no cache of earlier prompts in host memory (--cache-ram 0),
which would cost it time and find nothing, and is else as it comes or as --llama-options say. --roof names what bench_roof --json wrote. What one
request at a time and eight give before the first load is not counted.
"""
import argparse
import contextlib
import datetime
import json
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import roofs
import table

LOADS = "128/128@1x3,128/128@8x24,128/128@32x96,128/128@128x384,128/128@256x512,1024/128@32x64,1024/128@128x192,1024/1024@32x32"


def load_of(text):
    found = re.fullmatch(r"(\d+)/(\d+)@(\d+)x(\d+)", text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text} is no load, expected PROMPT/OUTPUT@CONCURRENCYxREQUESTS")
    return tuple(int(number) for number in found.groups())


def loads_of(text):
    return [load_of(part) for part in text.split(",")]


def command_of(engine, options, number):
    port = ["--port", str(number)]
    if engine == "trireme":
        return [options.trireme, "serve", options.model, *port, "--ranks", str(options.ranks), *options.trireme_options.split()]
    slots = max(load[2] for load in options.loads)
    context = max((load[0] + load[1] + 255) // 256 * 256 for load in options.loads)
    return [options.llama_server, "-m", options.gguf, *port, "-np", str(slots), "-c", str(slots * context), "-ngl", "99", "--cache-ram", "0",
            *options.llama_options.split()]


def is_ready(url):
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2) as reply:
            return reply.status == 200
    except (urllib.error.URLError, OSError):
        return False


def step_times(url):
    """Seconds of all steps so far, and of them those that rank 0's device was at work; none of another server."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as reply:
        text = reply.read().decode()
    found = [re.search(rf"^trireme_{name}_seconds_total\S* (\S+)$", text, re.MULTILINE) for name in ("step", "step_device")]
    return tuple(float(value.group(1)) for value in found) if all(found) else None


@contextlib.contextmanager
def server(engine, options):
    """Its address while it runs, and the seconds until it was ready."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as log, subprocess.Popen(command_of(engine, options, port), stdout=log, stderr=subprocess.STDOUT) as process:
        try:
            while not is_ready(url):
                if process.poll() is not None or time.monotonic() - began > options.start_seconds:
                    log.seek(0)
                    word = (log.read().strip() or "no word").splitlines()[-1]
                    raise RuntimeError(f"{engine} is not ready after {time.monotonic() - began:.0f} s: {word}")
                time.sleep(0.05)
            yield url, time.monotonic() - began
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def run_load(options, url, load, seconds, seed, observed=False):
    """Seeds differ, so that no load's prompts are in a cache from another's. `observed`: with the share of its steps that the device worked."""
    before = step_times(url) if observed else None
    prompt, output, concurrency, requests = load
    command = [options.trireme, "bench", "serve", url, "--prompt-tokens", str(prompt), "--tokens", str(output), "--concurrency", str(concurrency),
               "--requests", str(requests), "--seed", str(seed), "--json", "--quiet"]
    report = json.loads(table.run(command, seconds))
    if report["failed"] > 0:
        raise RuntimeError(f"{report['failed']} of {requests} requests failed")
    after = step_times(url) if observed else None
    report["at_work"] = (after[1] - before[1]) / (after[0] - before[0]) if after and after[0] > before[0] else None
    return report


def row_of(engine, load, report, options, machine):
    prompt, output, concurrency, _ = load
    roof = roofs.serving_rate(machine, options.shape, prompt, output, concurrency, options.ranks) if machine else None
    return {"engine": engine, "ranks": options.ranks, "prompt": prompt, "output": output, "concurrency": concurrency, "requests": report["requests"],
            "seconds": report["seconds"], "output_rate": report["output_tokens_per_second"], "token_rate": report["tokens_per_second"], "roof": roof,
            "first_ms": report["first_token_ms"], "between_ms": report["between_pieces_ms"], "per_token_ms": report["per_token_ms"],
            "at_work": report["at_work"]}


def print_row(row):
    first, between = row["first_ms"], row["between_ms"]
    share = f"{100 * row['output_rate'] / row['roof']:>5.1f} %" if row["roof"] else "      –"
    print(f"{row['prompt']}/{row['output']:<5} {row['concurrency']:>4} {row['engine']:<13} {row['output_rate']:>9.1f} {share} "
          f"first {first['p50']:>7.1f} {first['p99']:>7.1f}  between {between['p50']:>6.2f} {between['p90']:>6.2f} {between['p99']:>6.2f}"
          + (f"  at work {100 * row['at_work']:.1f} %" if row["at_work"] else ""), flush=True)


def write(options, machine, rows):
    if options.json:
        report = {"date": datetime.date.today().isoformat(), "commit": table.commit(), "shape": options.shape, "machine": machine, "rows": rows}
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)
            file.write("\n")


def measure(engine, options, machine, rows):
    """Rows of an engine, written as they come; how many of its loads failed."""
    failed = 0
    with server(engine, options) as (url, ready):
        print(f"{engine}: ready after {ready:.1f} s", flush=True)
        prompt, output = options.loads[0][:2]
        for seed, warm in enumerate(((prompt, min(output, 8), 1, 1), (prompt, min(output, 16), 8, 16))):
            run_load(options, url, warm, 60, 1000 + seed)
        for seed, load in enumerate(options.loads):
            try:
                report = run_load(options, url, load, options.load_seconds, seed, engine == "trireme")
                rows.append(row_of(engine, load, report, options, machine))
                print_row(rows[-1])
                write(options, machine, rows)
            except RuntimeError as error:
                failed += 1
                print(f"{engine} {load[0]}/{load[1]}@{load[2]}: {error}", flush=True)
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trireme", required=True, help="the program")
    parser.add_argument("--model", help="folder for trireme; left out without it")
    parser.add_argument("--llama-server", help="the program; left out without it")
    parser.add_argument("--gguf", help="llama-server's model")
    parser.add_argument("--loads", type=loads_of, default=LOADS)
    parser.add_argument("--shape", default="llama-3-8b", choices=sorted(roofs.SHAPES), help="of both, for the roofs")
    parser.add_argument("--roof", help="what bench_roof --json wrote")
    parser.add_argument("--ranks", type=int, default=1, help="GPUs of trireme")
    parser.add_argument("--trireme-options", default="", help="more for trireme serve")
    parser.add_argument("--llama-options", default="", help="more for llama-server")
    parser.add_argument("--start-seconds", type=float, default=60)
    parser.add_argument("--load-seconds", type=float, default=60)
    parser.add_argument("--json")
    options = parser.parse_args()
    machine = None
    if options.roof:
        with open(options.roof, encoding="utf-8") as file:
            machine = json.load(file)[0]
    rows, failed = [], 0
    for engine, given in (("trireme", options.model), ("llama-server", options.llama_server)):
        if not given:
            print(f"left out {engine}", file=sys.stderr)
            continue
        try:
            failed += measure(engine, options, machine, rows)
        except RuntimeError as error:
            failed += 1
            print(error, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
