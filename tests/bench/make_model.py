#!/usr/bin/env python3
"""Writes a folder with a model of random bf16 weights, for measurements that read weights from files.

    python3 make_model.py FOLDER [--layers 32] [--hidden 4096] [--intermediate 14336] [--heads 32] [--kv-heads 8] [--vocab 128256]

A Llama, one safetensors file per 4 layers. Weights are pieces of one array of normal numbers with a spread of 0.02.
"""
import argparse
import array
import json
import math
import os
import random
import struct

POOL = 1 << 21  # numbers


def tensors(o):
    head = o.hidden // o.heads
    yield [("model.embed_tokens.weight", [o.vocab, o.hidden]), ("lm_head.weight", [o.vocab, o.hidden]), ("model.norm.weight", [o.hidden])]
    for first in range(0, o.layers, 4):
        made = []
        for i in range(first, min(first + 4, o.layers)):
            for name, shape in (("self_attn.q_proj", [o.hidden, o.hidden]), ("self_attn.k_proj", [o.kv_heads * head, o.hidden]),
                                ("self_attn.v_proj", [o.kv_heads * head, o.hidden]), ("self_attn.o_proj", [o.hidden, o.hidden]),
                                ("mlp.gate_proj", [o.intermediate, o.hidden]), ("mlp.up_proj", [o.intermediate, o.hidden]),
                                ("mlp.down_proj", [o.hidden, o.intermediate]), ("input_layernorm", [o.hidden]), ("post_attention_layernorm", [o.hidden])):
                made.append((f"model.layers.{i}.{name}.weight", shape))
        yield made


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("folder")
    for name, value in ("layers", 32), ("hidden", 4096), ("intermediate", 14336), ("heads", 32), ("kv-heads", 8), ("vocab", 128256):
        arguments.add_argument("--" + name, type=int, default=value)
    o = arguments.parse_args()
    os.makedirs(o.folder, exist_ok=True)
    random.seed(1)
    floats = array.array("f", (random.gauss(0, 0.02) for _ in range(POOL)))
    pool = memoryview(array.array("H", floats.tobytes())[1::2]).cast("B")  # truncated to bf16
    one = array.array("H", [0x3F80]) * o.hidden
    index, at, parts = {}, 0, list(tensors(o))
    for k, part in enumerate(parts):
        name = f"model-{k + 1:05d}-of-{len(parts):05d}.safetensors"
        header, end = {}, 0
        for tensor, shape in part:
            size = 2 * math.prod(shape)
            header[tensor] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}
            index[tensor] = name
            end += size
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(os.path.join(o.folder, name), "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for tensor, shape in part:
                left = math.prod(shape)
                if len(shape) == 1:
                    file.write(one.tobytes())
                    continue
                while left > 0:
                    n = min(left, POOL - at)
                    file.write(pool[2 * at:2 * (at + n)])
                    left, at = left - n, (at + n + 4099) % POOL
    with open(os.path.join(o.folder, "model.safetensors.index.json"), "w") as file:
        json.dump({"metadata": {}, "weight_map": index}, file)
    with open(os.path.join(o.folder, "config.json"), "w") as file:
        json.dump({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16", "hidden_act": "silu", "hidden_size": o.hidden,
                   "intermediate_size": o.intermediate, "num_hidden_layers": o.layers, "num_attention_heads": o.heads, "num_key_value_heads": o.kv_heads,
                   "vocab_size": o.vocab, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": False,
                   "bos_token_id": 0, "eos_token_id": 1}, file)


if __name__ == "__main__":
    main()
