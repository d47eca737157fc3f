"""Compares the tokenizer with Hugging Face tokenizers on hard and on random texts.

  pip install tokenizers
  compare.py --program build/tests/launcher_text/tokenize_main [--random 3000] [--seed 1] TOKENIZER.json...

Prints each difference, and exits with 1 if there is one.
"""

import argparse
import struct
import subprocess
import sys

from tokenizers import Tokenizer

import texts


def expected(tokenizer, text):
    """What Hugging Face makes of a text: ids without and with special tokens, decoded text with and without them."""
    string = text.decode("utf-8", "replace")
    plain = tokenizer.encode(string, add_special_tokens=False).ids
    ids = tokenizer.encode(string, add_special_tokens=True).ids
    return [plain, ids, tokenizer.decode(ids, skip_special_tokens=False).encode(),
            tokenizer.decode(ids, skip_special_tokens=True).encode()]


def read(lines):
    """One answer of tokenize_main."""
    out = []
    for kind in ("ids", "ids", "text", "text", "stream"):
        line = next(lines)
        name, _, rest = line.partition(" ")
        if name == "error":
            return line
        assert name == kind, line
        if kind == "ids":
            out.append([int(i) for i in rest.split()])
        elif kind == "text":
            out.append(bytes.fromhex(rest))
        elif rest != "same":
            out.append("the streaming decoder differs")
    return out


def compare(program, path, cases):
    tokenizer = Tokenizer.from_file(path)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    data = b"".join(struct.pack("<I", len(c)) + c for c in cases)
    run = subprocess.run([program, path], input=data, capture_output=True, timeout=600)
    if run.returncode != 0:
        print(f"{path}: exit code {run.returncode}: {run.stderr.decode()}")
        return 1
    lines, differences = iter(run.stdout.decode().splitlines()), 0
    for number, case in enumerate(cases):
        got = read(lines)
        try:
            want = expected(tokenizer, case)
        except BaseException as error:  # the Rust library panics on some input
            want = f"error {error}"
            if isinstance(got, str):
                continue
        if got != want:
            differences += 1
            if differences <= 10:
                print(f"{path}: text {number} {case[:200]!r}:\n  expected {str(want)[:600]}\n  got      {str(got)[:600]}")
                if isinstance(want, list) and isinstance(got, list):
                    for w, g, name in zip(want, got, ("ids", "special ids", "text", "plain text")):
                        if w != g:
                            at = next((i for i, (x, y) in enumerate(zip(w, g)) if x != y), min(len(w), len(g)))
                            print(f"  {name} differ at {at}: {w[at:at + 8]} / {g[at:at + 8]}")
    print(f"{path}: {len(cases)} texts, {differences} differences")
    return differences


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    parser.add_argument("--random", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("tokenizers", nargs="+")
    options = parser.parse_args()
    cases = texts.HARD + [texts.random_text(options.seed * 1000003 + i) for i in range(options.random)]
    sys.exit(1 if sum(compare(options.program, path, cases) for path in options.tokenizers) else 0)


if __name__ == "__main__":
    main()
