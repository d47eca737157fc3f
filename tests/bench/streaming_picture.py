#!/usr/bin/env python3
"""The table of bench_streaming --json as a picture: tokens per second against what stays on the device.

usage: streaming_picture.py TABLE.json [PACKED.json] > picture.svg
"""
import json
import math
import sys

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 400, 64, 20, 34, 48


def main():
    tables = []
    for name in sys.argv[1:]:
        with open(name, encoding="utf-8") as file:
            tables.append(json.load(file))
    lines = [[(r["percent"], 1 / r["step_seconds"], 1 / r["bound_seconds"]) for r in table["rows"]] for table in tables]
    table, rates = tables[0], [rate for line in lines for rate in line]
    rows = table["rows"]
    low = math.floor(math.log10(min(r[1] for r in rates)))
    high = math.ceil(math.log10(max(r[2] for r in rates)))

    def x(percent):
        return LEFT + percent / 100 * (WIDTH - LEFT - RIGHT)

    def y(rate):
        return HEIGHT - BOTTOM - (math.log10(rate) - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" '
           'font-size="12">', f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for power in range(low, high + 1):
        for digit in range(1, 10 if power < high else 2):
            at = y(digit * 10 ** power)
            out.append(f'<line x1="{LEFT}" y1="{at:.1f}" x2="{WIDTH - RIGHT}" y2="{at:.1f}" '
                       f'stroke="{"#999" if digit == 1 else "#eee"}"/>')
            if digit in (1, 2, 5):
                out.append(f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{digit * 10 ** power:g}</text>')
    for percent in range(0, 101, 10):
        out.append(f'<text x="{x(percent):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{percent}</text>')
    # the bound between the points: the link's time falls with what stays, down to a resident step
    share = rows[0]["streamed"] / table["link_bytes_per_second"]
    resident = rows[-1]["step_seconds"]
    bound = [(p, 1 / max(share * (1 - p / 100), resident)) for p in range(0, 101)]
    out.append('<polyline fill="none" stroke="#c60" stroke-width="1.5" stroke-dasharray="5 3" points="' +
               " ".join(f"{x(p):.1f},{y(rate):.1f}" for p, rate in bound) + '"/>')
    for line, colour, above in zip(lines, ("#06c", "#082"), (False, True)):
        out.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="' +
                   " ".join(f"{x(p):.1f},{y(rate):.1f}" for p, rate, _ in line) + '"/>')
        for percent, rate, _ in line:
            out.append(f'<circle cx="{x(percent):.1f}" cy="{y(rate):.1f}" r="4" fill="{colour}"/>')
            if above or len(lines) == 1:
                out.append(f'<text x="{x(percent) - 6:.1f}" y="{y(rate) - 8:.1f}" text-anchor="end">{rate:.3g}</text>')
            elif percent < 100:
                out.append(f'<text x="{x(percent) + 6:.1f}" y="{y(rate) + 16:.1f}">{rate:.3g}</text>')
    link = table["link_bytes_per_second"] / 1e9
    out.append(f'<text x="{LEFT}" y="20">{table["shape"]}, {table["ranks"]} rank(s): tokens per second of one sequence; '
               f'dashed: all weights in equal shares at {link:.1f} GB/s{"; green: packed" if len(lines) > 1 else ""}</text>')
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 10}" text-anchor="middle">'
               'weights that stay on the device, %</text></svg>')
    print("\n".join(out))


main()
