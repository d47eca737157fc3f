#!/usr/bin/env python3
"""Opens the folders that `trireme quantize` writes with transformers and compressed-tensors, and compares logits.

    venv/bin/python check_quantize.py PROGRAM       in the environment of make_goldens.py, with compressed-tensors from PyPI

In f32 logits agree to 1e-5 of the largest where activations stay as they are; for int8 only transformers rounds them, and here
it does not. Where both round them, each layer is compared by itself, with the input that the program gave it: in f32 last bits
differ, a last bit makes an activation the next number of e4m3, and that reaches all numbers of the layers after it. So a change
of 1e-7 in the embeddings moves the logits of transformers alone by up to 6 %, as much as the two differ, which is shown.
"""

import functools
import json
import os
import subprocess
import sys
import tempfile

import compressed_tensors.compressors.nvfp4.base as nvfp4
import numpy as np
import torch
import transformers

MODEL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../configs/models/kjv-7m")
EXACT = ["fp8-weights", "fp8-block-weights", "int8", "int4", "int4-128", "nvfp4", "mxfp4"]
ROUNDED = ["fp8", "fp8-block"]


def read_saved(folder):
    """The tensors that `trireme compare --save` kept, with a dimension for the batch in front."""
    with open(os.path.join(folder, "rank-0/tensors.json")) as file:
        entries = json.load(file)["tensors"]
    return {t["name"]: torch.from_numpy(np.load(os.path.join(folder, "rank-0", t["file"])))[None] for t in entries}


def difference(found, expected):
    return ((found - expected).abs().max() / expected.abs().max()).item()


def layer_differences(model, kept):
    """Each product of `model` with the input that the program gave it, against what the program made of that."""
    for i, layer in enumerate(model.model.layers):
        at, attention, mlp = f"model.layers.{i}.", layer.self_attn, layer.mlp
        products = {}

        def products_of(x, modules, names):
            products["+".join(at + name for name in names)] = torch.cat([module(x) for module in modules], -1)

        x = layer.input_layernorm(kept[at + "input_layernorm:1" if i > 0 else "model.embed_tokens"])
        names = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]
        products_of(x, [attention.q_proj, attention.k_proj, attention.v_proj], names)
        products_of(kept[at + "attention.joined"], [attention.o_proj], ["self_attn.o_proj"])
        x = layer.post_attention_layernorm(kept[at + "post_attention_layernorm:1"])
        products_of(x, [mlp.gate_proj, mlp.up_proj], ["mlp.gate_proj", "mlp.up_proj"])
        gate, up = kept[f"{at}mlp.gate_proj+{at}mlp.up_proj"].chunk(2, -1)
        products_of(mlp.act_fn(gate) * up, [mlp.down_proj], ["mlp.down_proj"])
        for name, product in products.items():
            yield difference(kept[name], product)


def check(program, form, work):
    folder, kept = os.path.join(work, form), os.path.join(work, form + "-kept")
    subprocess.run([program, "quantize", MODEL, "--to", form, "-o", folder, "-q"], check=True)
    command = [program, "compare", folder, "--backend", "host", "--prompt-tokens", "40", "--save", kept]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    kept = read_saved(kept)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    if form not in ROUNDED:
        for module in model.modules():
            module.quantization_enabled = False  # of activations: weights become floats when the model runs first
    embeddings = kept["model.embed_tokens"]
    with torch.no_grad():
        logits = model(inputs_embeds=embeddings).logits
        found = difference(kept["logits"], logits)
        if form not in ROUNDED:
            print(f"{form}: {found:.2g} of the largest logit, at most 1e-5")
            return found < 1e-5
        worst = max(layer_differences(model, kept))
        torch.manual_seed(0)
        moved = model(inputs_embeds=embeddings * (1 + 1e-7 * torch.randn_like(embeddings))).logits
        alone = difference(moved, logits)
    print(f"{form}: {worst:.2g} of the largest of a layer, at most 2e-6; logits {found:.2g}, by a last bit {alone:.2g}")
    return worst < 2e-6 and found < 0.1


def main():
    # compressed-tensors makes bf16 of floats of 4 bits unless asked for another type.
    nvfp4.unpack_fp4_from_uint8 = functools.partial(nvfp4.unpack_fp4_from_uint8, dtype=torch.float32)
    with tempfile.TemporaryDirectory() as work:
        sys.exit(0 if all([check(sys.argv[1], form, work) for form in EXACT + ROUNDED]) else 1)


if __name__ == "__main__":
    main()
