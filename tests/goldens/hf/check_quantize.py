#!/usr/bin/env python3
"""Opens the folders that `trireme quantize` writes with transformers and compressed-tensors, and compares logits.

    venv/bin/python check_quantize.py PROGRAM       in the environment of make_goldens.py, with compressed-tensors from PyPI

Forms that leave activations as they are agree to 1e-5 of the largest logit, in f32. The others are opened and shown: where
activations are rounded, a last bit makes another number, and for int8 only transformers rounds them.
"""

import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers

MODEL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../configs/models/kjv-7m")
EXACT = ["fp8-weights", "fp8-block-weights", "int4", "int4-128"]
ROUNDED = ["fp8", "fp8-block", "int8"]


def saved(folder, name):
    """A tensor that `trireme compare --save` kept."""
    with open(os.path.join(folder, "rank-0/tensors.json")) as file:
        entry = next(t for t in json.load(file)["tensors"] if t["name"] == name)
    return np.load(os.path.join(folder, "rank-0", entry["file"]))


def difference(program, form, work):
    folder, kept = os.path.join(work, form), os.path.join(work, form + "-kept")
    subprocess.run([program, "quantize", MODEL, "--to", form, "-o", folder, "-q"], check=True)
    command = [program, "compare", folder, "--backend", "host", "--prompt-tokens", "40", "--save", kept]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    embeddings = torch.from_numpy(saved(kept, "model.embed_tokens"))[None]
    with torch.no_grad():
        expected = model(inputs_embeds=embeddings).logits[0].numpy()
    return np.abs(expected - saved(kept, "logits")).max() / np.abs(expected).max()


def main():
    bad = False
    with tempfile.TemporaryDirectory() as work:
        for form in EXACT + ROUNDED:
            found = difference(sys.argv[1], form, work)
            wrong = found > (1e-5 if form in EXACT else 0.1)
            bad = bad or wrong
            print(f"{form}: {found:.2g} of the largest logit{', which is too much' if wrong else ''}")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
