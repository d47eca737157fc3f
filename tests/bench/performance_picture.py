#!/usr/bin/env python3
"""Pictures of docs/performance.md.

    performance_picture.py roofline TABLE.json [PEERS.json] > roofline.svg
    performance_picture.py timeline TABLE.json PROFILE.json... > timeline.svg

TABLE is what table.py wrote, PEERS what peers_llm.py wrote, PROFILE what `trireme bench SHAPE --profile --json` wrote: a decode step, or with
`--tokens 1` a prompt. The roofline has whole steps on one GPU: operations against operations for each byte of weights and cache. The
timeline has one layer of each profile from left to right, and in dark what its weights take at the memory's rate, or its products at the products' rate.
"""
import json
import math
import sys
from xml.sax.saxutils import escape

import roofs

ENGINES = {"trireme": "#06c", "llama.cpp": "#c60", "gpt-fast": "#082"}
KINDS = {"matmul": "#7ab", "matmul_glu": "#9c7", "norm_matmul": "#8b9", "qkv_attention": "#d96", "attention": "#d96", "norm": "#b9d", "all_reduce_norm": "#e77",
         "dist_collective": "#e77"}


class Picture:
    def __init__(self, width, height):
        self.out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
                    f'<rect width="{width}" height="{height}" fill="#fff"/>']

    def line(self, points, colour, width=1.0, dash=""):
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        text = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.out.append(f'<polyline fill="none" stroke="{colour}" stroke-width="{width}"{dashes} points="{text}"/>')

    def text(self, x, y, words, anchor="start", more=""):
        self.out.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {more}>{escape(words)}</text>')

    def box(self, x, y, width, height, colour, title=""):
        self.out.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.5):.1f}" height="{height}" fill="{colour}" stroke="#fff" stroke-width="0.5">'
                        f"<title>{escape(title)}</title></rect>")

    def dot(self, x, y, colour, title):
        self.out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{colour}"><title>{escape(title)}</title></circle>')

    def print(self):
        print("\n".join(self.out + ["</svg>"]))


def load(name):
    with open(name, encoding="utf-8") as file:
        return json.load(file)


def points_of(table, peers):
    """(engine, work, operations a byte, operations a second) of what was measured on one GPU with the 8B shape."""
    shape = "llama-3-8b"
    figures = []
    for row in table["rows"]:
        if row["gpus"] == 1 and "value" in row and "8b" in row["name"]:
            words = row["name"].split()
            batch = int(words[-2]) if words[-1] == "sequences" else 1
            figures.append(("trireme", f"prefill {words[-1]}" if "prompt" in words else f"batch {batch}", row["value"]))
    for row in peers["rows"]:
        if row["engine"] != "trireme" and not row["work"].startswith(("offload", "load")):
            figures.append((row["engine"], row["work"].replace("decode", "batch 1"), row["value"]))
    for engine, work, rate in figures:
        kind, count = work.split()
        count = int(count)
        if kind == "prefill":
            flops, size, tokens = roofs.prompt_flops(shape, count), roofs.step_bytes(shape, 1, count), count
        else:
            flops, size, tokens = roofs.step_flops(shape, count, 192), roofs.step_bytes(shape, count, 192), count
        yield engine, work, flops / size, flops * rate / tokens


def roofline(names):
    table = load(names[0])
    peers = load(names[1]) if len(names) > 1 else {"rows": []}
    machine, width, height, left, bottom, top = table["machine"], 760, 440, 70, 50, 40
    low, high = 0.5, 16384
    floor, ceiling = 1e12, 1.2e15

    def x(intensity):
        return left + math.log(intensity / low) / math.log(high / low) * (width - left - 20)

    def y(rate):
        return height - bottom - math.log(rate / floor) / math.log(ceiling / floor) * (height - bottom - top)

    picture = Picture(width, height)
    for power in range(0, 15, 2):
        picture.line([(x(2.0 ** power), height - bottom), (x(2.0 ** power), top)], "#eee")
        picture.text(x(2.0 ** power), height - bottom + 16, str(2 ** power), "middle")
    for rate in (1, 3, 10, 30, 100, 300, 1000):
        picture.line([(left, y(rate * 1e12)), (width - 20, y(rate * 1e12))], "#eee")
        picture.text(left - 6, y(rate * 1e12) + 4, str(rate), "end")
    read, product = machine["read_bytes_per_second"], machine["product_flops"]
    picture.line([(x(low), y(max(low * read, floor))), (x(product / read), y(product)), (x(high), y(product))], "#444", 2)
    picture.text(x(3), y(3 * read) - 14, f"memory {read * 1e-12:.2f} TB/s", "end")
    picture.text(x(900), y(product) - 8, f"bf16 product {product * 1e-12:.0f} TFLOP/s")
    for engine, work, intensity, rate in points_of(table, peers):
        picture.dot(x(intensity), y(rate), ENGINES[engine], f"{engine}, {work}: {rate * 1e-12:.1f} TFLOP/s")
        if engine == "trireme":
            kind, count = work.split()
            label = f"prompt of {count}" if kind == "prefill" else f"{count} sequence" + ("s" if count != "1" else "")
            picture.text(x(intensity) + 8, y(rate) + (24 if kind == "prefill" and count != "2048" else 16), label, "middle" if kind == "prefill" else "start")
    seen = {engine for engine, *_ in points_of(table, peers)}
    for i, engine in enumerate(e for e in ENGINES if e in seen):
        picture.dot(width - 130, height - bottom - 70 + 18 * i, ENGINES[engine], engine)
        picture.text(width - 118, height - bottom - 66 + 18 * i, engine)
    picture.text(left, 20, f"Llama-3-8B, bf16, one GPU, whole steps; {table['date']}, {table['commit']}")
    picture.text((left + width) / 2, height - 12, "operations for each byte of weights and cache", "middle")
    picture.text(16, height / 2, "TFLOP/s", "middle", f'transform="rotate(-90 16 {height / 2})"')
    picture.print()


def least_seconds(machine, shape, row, tokens):
    """What a product of a layer takes at the roofs, by the weights its name tells of; 0 where it has none."""
    hidden, intermediate, _, heads, kv_heads, size, vocab = roofs.SHAPES[shape]
    name, numbers = row["layer"], 0
    for part, count in (("q_proj", heads * size * hidden), ("k_proj", kv_heads * size * hidden), ("v_proj", kv_heads * size * hidden),
                        ("o_proj", heads * size * hidden), ("down_proj", intermediate * hidden)):
        numbers += count if part in name else 0
    if (row["kind"] in ("matmul_glu", "norm_matmul") and "mlp.activation" in name) or "gate_proj" in name:
        numbers += 2 * intermediate * hidden
    if name == "logits":
        numbers, tokens = vocab * hidden, 1
    return max(2 * numbers / machine["read_bytes_per_second"], 2 * numbers * tokens / machine["product_flops"])


def track(picture, machine, report, at, left, width):
    rows = sorted(report["profile"], key=lambda row: row["order"])
    blocks = max(row["layers"] for row in rows)
    layer = [row for row in rows if row["layers"] > blocks // 2]
    prompts = report["generated_tokens"] == 1
    tokens = report["batch"] * (report["prompt_tokens"] if prompts else 1)
    step = report["first_token_seconds" if prompts else "decode_step_seconds"]["median"]
    total = sum(row["milliseconds"] / row["layers"] for row in layer)
    what = f"a prompt of {tokens} tokens" if prompts else f"decode, {report['batch']} sequence(s)"
    picture.text(left, at, f"{report['model']}, {what}: {total * 1e3:.0f} us a layer one by one; "
                           f"the whole step{'' if prompts else ' captured'} {step * 1e3:.2f} ms")
    x, ends = left, [0.0] * 3
    for row in layer:
        us = row["milliseconds"] / row["layers"] * 1e3
        wide, least = us / (total * 1e3) * width, least_seconds(machine, report["model"], row, tokens) * 1e6
        name = row["layer"].replace("model.layers.*.", "").replace("self_attn.", "").replace("mlp.", "")
        title = f"{name} ({row['kernel']}): {us:.1f} us" + (f", at the roof {least:.1f}" if least else "")
        picture.box(x, at + 10, wide, 34, KINDS.get(row["kind"], "#ccc"), title)
        if least:
            picture.box(x, at + 34, min(wide, least / (total * 1e3) * width), 10, "#356", title)
        label = f"{name} {us:.1f}"
        line = next((n for n, end in enumerate(ends) if end < x), 2)
        ends[line] = x + 7 * len(label)
        picture.text(x + 2, at + 60 + 14 * line, label, more='font-size="10"')
        x += wide


def timeline(names):
    table, reports = load(names[0]), [load(name) for name in names[1:]]
    width, left = 980, 16
    picture = Picture(width, 40 + 120 * len(reports))
    picture.text(left, 20, "One layer, kernel by kernel, us; dark: weights at the memory's rate or operations at the products' rate, as measured in the same run")
    for i, report in enumerate(reports):
        track(picture, table["machine"], report, 50 + 120 * i, left, width - 2 * left - 60)
    picture.print()


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in ("roofline", "timeline"):
        raise SystemExit(__doc__)
    (roofline if sys.argv[1] == "roofline" else timeline)(sys.argv[2:])


main()
