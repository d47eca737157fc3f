#!/usr/bin/env python3
"""Every row of the table of docs/performance.md's language models: value, roof and share of it, as JSON.

    table.py --build BUILD_FOLDER [--gpus N] [--ranks N] [--only TEXT] [--repeat 3] [--json FILE]

Measures the machine's roofs first (bench_roof), then row by row with `trireme bench` and bench_exchange, each a process of its own with
a time limit. Rows for more GPUs than --gpus (default: all there are) are listed as not run. Exits 1 if a row failed.
"""
import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile

import roofs

# Work, shape, GPUs, prompt, new tokens, sequences, goal.
STEPS = [
    ("decode", "llama-3-8b", 1, 128, 256, 1, 282),
    ("decode", "llama-3-8b", 2, 128, 256, 1, 500),
    ("decode", "llama-3-8b", 4, 128, 256, 1, 850),
    ("decode", "llama-3-70b", 4, 128, 128, 1, 110),
    ("decode", "llama-3.2-1b", 1, 128, 256, 1, 1450),
    ("decode", "llama-3-8b", 1, 128, 128, 8, None),
    ("decode", "llama-3-8b", 1, 128, 128, 32, None),
    ("decode", "llama-3-8b", 1, 128, 128, 128, 25000),
    ("prefill", "llama-3-8b", 1, 2048, 1, 1, 46000),
    ("prefill", "llama-3.1-8b", 1, 8192, 1, 1, 44000),
    ("prefill", "llama-3-8b", 2, 2048, 1, 1, None),
    ("prefill", "llama-3.1-8b", 2, 8192, 1, 1, None),
    ("prefill", "llama-3-8b", 4, 2048, 1, 1, 150000),
    ("prefill", "llama-3.1-8b", 4, 8192, 1, 1, 160000),
]
# Exchange, its name in bench_exchange, ranks, goal in microseconds.
EXCHANGES = [("all-reduce of 16 KiB", "chosen", 2, 2.6), ("all-reduce of 16 KiB", "chosen", 4, 3.2),
             ("all-reduce of 16 KiB with residual and norm", "fused_norm", 2, 3.2),
             ("all-reduce of 16 KiB with residual and norm", "fused_norm", 4, 3.8)]


def gpus_here():
    out = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    return out.stdout.count("GPU ")


def launched(ranks, command):
    return command if ranks == 1 else ["mpirun", "--bind-to", "none", "-np", str(ranks), *command]


def run(command, seconds):
    """The command's standard output; an error with its last line of talk where it fails."""
    try:
        out = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"not done after {seconds} s") from None
    if out.returncode != 0:
        raise RuntimeError(f"ended with {out.returncode}: {(out.stderr.strip() or 'no word').splitlines()[-1]}")
    return out.stdout


def bench_command(trireme, work, shape, prompt, tokens, batch, repeat, more=()):
    command = [trireme, "bench", shape, "--prompt-tokens", str(prompt), "--tokens", str(tokens), "--batch", str(batch), "--repeat", str(repeat), "--json", *more]
    return command


def bench_value(report, work):
    return report[{"decode": "decode_tokens_per_second", "prefill": "prefill_tokens_per_second"}[work]]


def roof_of(machine, work, shape, gpus, prompt, tokens, batch):
    if work == "prefill":
        return roofs.prompt_rate(machine, shape, prompt, gpus)
    return roofs.decode_rate(machine, shape, gpus, batch, prompt + tokens // 2)


def name_of(work, shape, prompt, batch):
    return f"{shape} " + (f"prompt of {prompt}" if work == "prefill" else "decode" + (f", {batch} sequences" if batch > 1 else ""))


def step_rows(options, machine):
    for work, shape, gpus, prompt, tokens, batch, goal in STEPS:
        row = {"name": name_of(work, shape, prompt, batch), "gpus": gpus, "unit": "tok/s", "goal": goal,
               "roof": roof_of(machine, work, shape, gpus, prompt, tokens, batch)}
        command = launched(gpus, bench_command(options.trireme, work, shape, prompt, tokens, batch, options.repeat))
        row["command"] = " ".join(["trireme" if part == options.trireme else part for part in command])

        def measure(row=row, command=command, work=work):
            report = json.loads(run(command, 120))
            value = bench_value(report, work)
            row.update(value=value["median"], least=value["min"], most=value["max"], step_ms=report["decode_step_seconds"]["median"] * 1e3,
                       first_token_ms=report["first_token_seconds"]["median"] * 1e3,
                       prompts_per_second=report["prefill_tokens_per_second"]["median"], load_seconds=report["load_seconds"])
            row["of_roof"] = row["value"] / row["roof"]
            row["reached"] = None if row["goal"] is None else row["value"] >= row["goal"]
        yield row, measure


def exchange_rows(options, machine):
    del machine
    measured = {}

    def sweep(ranks):
        if ranks not in measured:
            with tempfile.TemporaryDirectory() as folder:
                file = os.path.join(folder, "exchange.json")
                run(launched(ranks, [options.exchange, "--json", file]), 120)
                with open(file, encoding="utf-8") as text:
                    measured[ranks] = json.load(text)["rows"]
        return measured[ranks]

    for name, kind, ranks, goal in EXCHANGES:
        row = {"name": name, "gpus": ranks, "unit": "us", "goal": goal, "command": f"mpirun --bind-to none -np {ranks} bench_exchange --json FILE"}

        def measure(row=row, kind=kind, ranks=ranks):
            found = [r for r in sweep(ranks) if r["exchange"] == kind and r["bytes"] == 16384 and r["threads"] == 0]
            nccl = [r for r in sweep(ranks) if r["exchange"] == ("nccl" if kind == "chosen" else "nccl_norm") and r["bytes"] == 16384]
            row.update(value=found[0]["microseconds"], roof=found[0]["floor"], of_roof=found[0]["of_floor"],
                       nccl=nccl[0]["microseconds"] if nccl else None)
            row["reached"] = row["value"] <= row["goal"]
        yield row, measure


def commit():
    out = subprocess.run(["git", "-C", os.path.dirname(os.path.abspath(__file__)), "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return out.stdout.strip() or None


def show(row, file):
    if "value" not in row:
        print(f"{row['name']:<48} {row['gpus']:>4}  {row.get('failed') or row['not_run']}", file=file, flush=True)
        return
    goal = "" if row["goal"] is None else f"{row['goal']:>9g} {'reached' if row['reached'] else ''}"
    print(f"{row['name']:<48} {row['gpus']:>4} {row['value']:>10.1f} {row['unit']:<6} roof {row['roof']:>10.1f} {100 * row['of_roof']:>5.1f} % {goal}",
          file=file, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="folder with trireme, and bench programs in it or in tests/bench")
    parser.add_argument("--gpus", type=int, default=None)
    parser.add_argument("--only", default="", help="rows whose name has this")
    parser.add_argument("--ranks", type=int, default=None, help="rows of this many GPUs only")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--commit", default=None, help="what was built, where this is no checkout of it")
    parser.add_argument("--json")
    options = parser.parse_args()
    options.trireme = os.path.join(options.build, "trireme")

    def program(name):
        inner = os.path.join(options.build, "tests", "bench", name)
        return inner if os.path.exists(inner) else os.path.join(options.build, name)

    options.exchange = program("bench_exchange")
    gpus = gpus_here() if options.gpus is None else options.gpus
    if gpus < 1:
        raise SystemExit("table.py: there is no GPU")
    machine = roofs.measure(program("bench_roof"))
    print(f"memory {machine['read_bytes_per_second'] * 1e-12:.3f} TB/s, products {machine['product_flops'] * 1e-12:.0f} TFLOP/s, host link "
          f"{machine['host_bytes_per_second'] * 1e-9:.1f} GB/s, peer link {machine['peer_bytes_per_second'] * 1e-9:.0f} GB/s", file=sys.stderr)
    rows = []
    for row, measure in [*step_rows(options, machine), *exchange_rows(options, machine)]:
        if options.only not in row["name"] or options.ranks not in (None, row["gpus"]):
            continue
        if row["gpus"] > gpus:
            row["not_run"] = f"needs {row['gpus']} GPUs, there are {gpus}"
        else:
            try:
                measure()
            except (RuntimeError, OSError, ValueError, KeyError, IndexError) as error:
                row["failed"] = f"{type(error).__name__}: {error}"
        show(row, sys.stderr)
        rows.append(row)
    table = {"date": datetime.date.today().isoformat(), "commit": options.commit or commit(), "gpus": gpus, "machine": machine, "rows": rows}
    with (open(options.json, "w", encoding="utf-8") if options.json else sys.stdout) as file:
        json.dump(table, file, indent=1)
        file.write("\n")
    sys.exit(any("failed" in row for row in rows))


if __name__ == "__main__":
    main()
