#!/usr/bin/env python3
"""Draw docs/speed.svg from speed.csv: one group of bars for each kind of work, relative to Trireme.

usage: speed_chart.py > ../speed.svg
"""
import csv
import os

WIDTH, LEFT, BAR, GAP = 760, 150, 13, 14
SCALE = 330  # pixels of Trireme's bar
COLOURS = {"trireme": "#1f6fb2", "vllm": "#e08a1e", "llama.cpp": "#8a8a8a"}
NAMES = {"trireme": "Trireme", "vllm": "vLLM 0.26", "llama.cpp": "llama.cpp"}


def main():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "speed.csv")
    with open(path, encoding="utf-8") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    out = []
    y = 58
    for row in rows:
        bars = [(key, float(row[key])) for key in COLOURS if row[key]]
        middle = y + len(bars) * BAR / 2 + 4
        out.append(f'<text x="{LEFT - 8}" y="{middle:.0f}" text-anchor="end">{row["work"]}</text>')
        for key, value in bars:
            width = SCALE * value / float(row["trireme"])
            out.append(f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR - 2}" fill="{COLOURS[key]}"/>')
            out.append(f'<text x="{LEFT + width + 5:.1f}" y="{y + 10}" font-size="11">{value:,.0f}</text>')
            y += BAR
        y += GAP
    print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}" font-family="sans-serif" font-size="12">')
    print(f'<rect width="{WIDTH}" height="{y}" fill="white"/>')
    print('<text x="10" y="20" font-size="14">Tokens per second, Llama-3-8B shape, one H200; bars relative to Trireme, longer is faster</text>')
    x = 10
    for key, colour in COLOURS.items():
        print(f'<rect x="{x}" y="32" width="11" height="11" fill="{colour}"/><text x="{x + 16}" y="42">{NAMES[key]}</text>')
        x += 110
    print("\n".join(out))
    print("</svg>")


if __name__ == "__main__":
    main()
