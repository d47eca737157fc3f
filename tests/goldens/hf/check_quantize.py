#!/usr/bin/env python3
"""Opens the folders that `trireme quantize` writes with transformers and compressed-tensors, and compares logits.

    venv/bin/python check_quantize.py PROGRAM       in the environment of make_goldens.py, with compressed-tensors from PyPI

A form may have a method behind a colon, which gets the tokens of a text of the model's own as samples.

In f32 logits agree to 1e-5 of the largest where activations stay as they are. Where both round them, each layer is compared by itself, with the input that the program gave it: in f32 last bits
differ, a last bit makes an activation the next number of 8 bits, and that reaches all numbers of the layers after it. So a change
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
EXACT = ["fp8-weights", "fp8-block-weights", "int8-weights", "int4", "int4-128", "nvfp4", "mxfp4"]
EXACT += ["int4-128:gptq", "int4:mse", "int4-128:awq", "int4-128:awq,gptq", "nvfp4:awq"]
ROUNDED = ["fp8", "fp8-block", "int8", "int8:smoothquant", "int8:smoothquant,gptq", "fp8:smoothquant"]


def read_saved(folder):
    """The tensors that `trireme compare --save` kept, with a dimension for the batch in front."""
    with open(os.path.join(folder, "rank-0/tensors.json")) as file:
        entries = json.load(file)["tensors"]
    return {t["name"]: torch.from_numpy(np.load(os.path.join(folder, "rank-0", t["file"])))[None] for t in entries}


def difference(found, expected):
    return ((found - expected).abs().max() / expected.abs().max()).item()


def row_differences(model, kept):
    """The rows of each product of `model` with the input that the program gave it, against what the program made of that."""
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
            yield (kept[name] - product).abs().amax(-1).flatten() / product.abs().max()


def check(program, form, work):
    folder, kept = os.path.join(work, form), os.path.join(work, form + "-kept")
    weights, _, method = form.partition(":")
    how = ["--method", method, "--samples", os.path.join(work, "text")] if method else []
    subprocess.run([program, "quantize", MODEL, "--to", weights, "-o", folder, "-q", *how], check=True)
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
        rows = torch.cat(list(row_differences(model, kept)))
        # Steps of int8 are so small beside a token's largest number that last bits of the norm before move one now and then.
        worst = torch.quantile(rows, 0.9 if form.startswith("int8") else 1.0).item()
        torch.manual_seed(0)
        moved = model(inputs_embeds=embeddings * (1 + 1e-7 * torch.randn_like(embeddings))).logits
        alone = difference(moved, logits)
    print(f"{form}: {worst:.2g} of the largest of a layer, at most 2e-6{' in 9 of 10 rows' if form.startswith('int8') else ''}; logits {found:.2g}, by a last bit {alone:.2g}")
    return worst < 2e-6 and found < 0.1


def main():
    # compressed-tensors makes bf16 of floats of 4 bits unless asked for another type.
    nvfp4.unpack_fp4_from_uint8 = functools.partial(nvfp4.unpack_fp4_from_uint8, dtype=torch.float32)
    with tempfile.TemporaryDirectory() as work:
        with open(os.path.join(work, "text"), "w") as text:
            command = [sys.argv[1], "run", MODEL, "-p", "And the LORD said", "-n", "900", "--temperature", "0.9", "--ignore-eos", "-q"]
            subprocess.run(command, check=True, stdout=text)
        sys.exit(0 if all([check(sys.argv[1], form, work) for form in EXACT + ROUNDED]) else 1)


if __name__ == "__main__":
    main()
