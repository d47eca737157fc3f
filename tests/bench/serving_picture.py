#!/usr/bin/env python3
"""What bench_serving --json wrote as a picture: output tokens per second and times between tokens against requests at a time.

usage: serving_picture.py TABLE.json [MACHINE.json] > picture.svg    (MACHINE: what bench_roof --json says, for the roofs)
       serving_picture.py --rows TABLE.json                          (the rows of a table in Markdown)
"""
import json
import math
import sys

import roofs

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 460, 360, 60, 16, 40, 48
COLOURS = ("#06c", "#c60", "#082", "#909")


def loads(table):
    """Cases by their lengths, each by requests at a time."""
    found = {}
    for case in table["cases"]:
        found.setdefault((case["prompt"], case["output"]), []).append(case)
    return {key: sorted(cases, key=lambda case: case["concurrency"]) for key, cases in found.items()}


def print_rows(table):
    for (prompt, output), cases in loads(table).items():
        for c in cases:
            first, between = c["ttft_ms"], c["itl_ms"]
            print(f"| {prompt}/{output} | {c['concurrency']} | {c['output_rate']:,.0f} | {c['token_rate']:,.0f} | "
                  f"{first['p50']:.0f} / {first['p90']:.0f} / {first['p99']:.0f} | "
                  f"{between['p50']:.2f} / {between['p90']:.2f} / {between['p99']:.2f} | {c['device_percent']:.1f} % | {c['requests']} |")


class Plot:
    """Both axes by powers."""

    def __init__(self, left, title, xs, ys):
        self.left, self.out = left, []
        self.x_low, self.x_high = math.log2(min(xs)), math.log2(max(xs))
        self.y_low, self.y_high = math.floor(math.log10(min(ys))), math.ceil(math.log10(max(ys)))
        self.out.append(f'<text x="{left + LEFT}" y="22">{title}</text>')
        for power in range(self.y_low, self.y_high + 1):
            for digit in range(1, 10 if power < self.y_high else 2):
                at = self.y(digit * 10 ** power)
                self.out.append(f'<line x1="{left + LEFT}" y1="{at:.1f}" x2="{left + WIDTH - RIGHT}" y2="{at:.1f}" '
                                f'stroke="{"#999" if digit == 1 else "#eee"}"/>')
                if digit in (1, 2, 5):
                    self.out.append(f'<text x="{left + LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{digit * 10 ** power:g}</text>')
        for value in sorted(set(xs)):
            self.out.append(f'<text x="{self.x(value):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{value}</text>')
        self.out.append(f'<text x="{left + (LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 10}" text-anchor="middle">requests at a time</text>')

    def x(self, value):
        span = max(self.x_high - self.x_low, 1)
        return self.left + LEFT + 12 + (math.log2(value) - self.x_low) / span * (WIDTH - LEFT - RIGHT - 24)

    def y(self, value):
        return HEIGHT - BOTTOM - (math.log10(value) - self.y_low) / (self.y_high - self.y_low) * (HEIGHT - TOP - BOTTOM)

    def line(self, points, colour, dashed=False):
        if not points:
            return
        dash = ' stroke-dasharray="5 3"' if dashed else ""
        self.out.append(f'<polyline fill="none" stroke="{colour}" stroke-width="{1.5 if dashed else 2}"{dash} points="' +
                        " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points) + '"/>')
        if not dashed:
            self.out += [f'<circle cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="3.5" fill="{colour}"/>' for x, y in points]


def picture(table, machine):
    by_load, shape = loads(table), table["model"].removeprefix("preset:").split(":")[0]
    xs = [case["concurrency"] for case in table["cases"]]
    bounds = {}
    if machine is not None and shape in roofs.SHAPES:
        bounds = {key: [(c["concurrency"], roofs.serving_rate(machine, shape, *key, c["concurrency"])) for c in cases]
                  for key, cases in by_load.items()}
    rates = [case["output_rate"] for case in table["cases"]] + [rate for line in bounds.values() for _, rate in line]
    times = [case["itl_ms"][part] for case in table["cases"] for part in ("p50", "p99")]
    left = Plot(0, f"{shape}: output tokens per second{'; dashed: the roof' if bounds else ''}", xs, rates)
    right = Plot(WIDTH, "ms between tokens: p50; dashed: p99", xs, [max(value, 1e-3) for value in times])
    for i, (key, cases) in enumerate(by_load.items()):
        colour = COLOURS[i % len(COLOURS)]
        left.line([(c["concurrency"], c["output_rate"]) for c in cases], colour)
        left.line(bounds.get(key, []), colour, dashed=True)
        right.line([(c["concurrency"], max(c["itl_ms"]["p50"], 1e-3)) for c in cases], colour)
        right.line([(c["concurrency"], max(c["itl_ms"]["p99"], 1e-3)) for c in cases], colour, dashed=True)
        right.out.append(f'<text x="{WIDTH + LEFT + 16}" y="{TOP + 14 + 16 * i}" fill="{colour}">{key[0]} + {key[1]} tokens</text>')
    print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{2 * WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="12">')
    print(f'<rect width="{2 * WIDTH}" height="{HEIGHT}" fill="white"/>')
    print("\n".join(left.out + right.out + ["</svg>"]))


def main():
    arguments = [name for name in sys.argv[1:] if name != "--rows"]
    if not 1 <= len(arguments) <= 2:
        raise SystemExit(__doc__)
    read = []
    for name in arguments:
        with open(name, encoding="utf-8") as file:
            read.append(json.load(file))
    if "--rows" in sys.argv:
        print_rows(read[0])
        return
    machine = read[1] if len(read) > 1 else None
    picture(read[0], machine[0] if isinstance(machine, list) else machine)


main()
