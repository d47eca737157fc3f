#!/usr/bin/env python3
"""Decoding over shapes, batches and context lengths: tokens per second, and the share of the memory's roof, to find where it falls off.

    sweep.py --trireme PROGRAM [--shapes LIST] [--batches LIST] [--contexts LIST] [--tokens 24] [--seconds 600] [--memory-gib 130] [--json FILE]

Each cell is a `trireme bench` of its own with random weights. A step reads all weights but the table of embeddings (with it where the head
shares it) and the keys and values of every sequence; the roof is that at --rate bytes per second. Prompts take steps of up to 8192 tokens, in
which sequences whose prompts are done decode already; so as many tokens as four times those steps are made if --tokens is less, and the roof is
that of the sequences that a step had on average, which is printed. Shapes whose context is shorter, and cells that do not fit into the memory,
are left out. Ends early after --seconds; exits 1 if a cell failed.
"""
import argparse
import json
import sys
import time

from table import bench_command, run

SHAPES = "qwen3-0.6b,qwen3-1.7b,qwen3-4b,qwen3-8b,qwen3-14b,qwen3-32b,mistral-7b,gemma-3-1b,gemma-3-4b"


STEP_TOKENS = 8192  # of prompts, at most


def layer_numbers(model):
    hidden, size = model["hidden"], model["head_dim"]
    return 2 * hidden * size * (model["heads"] + model["kv_heads"]) + 3 * hidden * model["intermediate"]


def step_bytes(model, batch, context):
    """Read by a decode step; windows are not taken off, so that a share above 1 is one of a model with windows."""
    weights = 2 * (model["layers"] * layer_numbers(model) + model["hidden"] * model["vocab"])
    return weights, 4 * model["layers"] * model["kv_heads"] * model["head_dim"] * batch * context


def cells(options, model):
    for context in options.contexts:
        for batch in options.batches:
            tokens = max(options.tokens, 4 * -(-batch * context // STEP_TOKENS) if batch > 1 else 0)
            weights, cache = step_bytes(model, batch, context + tokens)
            if context + tokens <= model["context_length"] and weights + cache + (8 << 30) <= options.memory_gib << 30:
                yield batch, context, tokens


def numbers(text):
    return [int(part) for part in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trireme", required=True)
    parser.add_argument("--shapes", default=SHAPES)
    parser.add_argument("--batches", type=numbers, default="1,8,64,256")
    parser.add_argument("--contexts", type=numbers, default="1000,32000,128000")
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--memory-gib", type=int, default=130)
    parser.add_argument("--rate", type=float, default=4.55e12)
    parser.add_argument("--json")
    options = parser.parse_args()
    end, rows, failed = time.monotonic() + options.seconds, [], 0
    print(f"{'shape':<14} {'batch':>5} {'context':>8} {'in a step':>9} {'tok/s':>10} {'ms/step':>9} {'roof ms':>9} {'share':>7}", flush=True)
    for shape in options.shapes.split(","):
        try:
            model = json.loads(run([options.trireme, "inspect", shape, "--json"], 60))["model"]
        except RuntimeError as error:
            raise SystemExit(f"{shape}: inspect {error}") from None
        for batch, context, tokens in cells(options, model):
            left = end - time.monotonic()
            if left < 1:
                break
            row = {"shape": shape, "batch": batch, "context": context, "tokens": tokens}
            try:
                report = json.loads(run(bench_command(options.trireme, "decode", shape, context, tokens, batch, 1), left))
                row.update(step_ms=report["decode_step_seconds"]["median"] * 1e3, rate=report["decode_tokens_per_second"]["median"])
                row["sequences"] = min(batch, row["rate"] * row["step_ms"] * 1e-3)
                row["roof_ms"] = sum(step_bytes(model, row["sequences"], context + tokens / 2)) / options.rate * 1e3
                row["share"] = row["roof_ms"] / row["step_ms"]
                print(f"{shape:<14} {batch:>5} {context:>8} {row['sequences']:>9.1f} {row['rate']:>10.1f} {row['step_ms']:>9.3f} {row['roof_ms']:>9.3f} "
                      f"{100 * row['share']:>5.1f} %", flush=True)
            except RuntimeError as error:
                row["failed"], failed = str(error), failed + 1
                print(f"{shape:<14} {batch:>5} {context:>8} {error}", flush=True)
            rows.append(row)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
