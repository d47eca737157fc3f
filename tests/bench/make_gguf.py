#!/usr/bin/env python3
"""Writes a GGUF file with a Llama of random bf16 weights and no tokenizer, for llama.cpp beside trireme.

    python3 make_gguf.py FILE [--shape llama-3-8b] [--layers N]

The format as ggml's docs/gguf.md has it (version 3). Weights are pieces of one array of normal numbers with a spread of 0.02.
"""
import argparse
import array
import math
import random
import struct

import roofs

F32, BF16 = 0, 30  # ggml's types
ALIGNMENT = 32
POOL = 1 << 22  # numbers


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def entry(key, value):
    """One key of the metadata: a string, an unsigned number or a float."""
    if isinstance(value, str):
        return text(key) + struct.pack("<I", 8) + text(value)
    return text(key) + (struct.pack("<If", 6, value) if isinstance(value, float) else struct.pack("<II", 4, value))


def metadata(shape, layers):
    hidden, intermediate, _, heads, kv_heads, size, vocab = roofs.SHAPES[shape]
    return {"general.architecture": "llama", "general.name": shape, "general.file_type": 32, "llama.context_length": 131072,
            "llama.embedding_length": hidden, "llama.block_count": layers, "llama.feed_forward_length": intermediate,
            "llama.attention.head_count": heads, "llama.attention.head_count_kv": kv_heads, "llama.rope.freq_base": 500000.0,
            "llama.rope.dimension_count": size, "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.vocab_size": vocab,
            "tokenizer.ggml.model": "no_vocab"}


def tensors(shape, layers):
    """Names and dims, rows first as in a checkpoint."""
    hidden, intermediate, _, heads, kv_heads, size, vocab = roofs.SHAPES[shape]
    yield "token_embd.weight", (vocab, hidden)
    yield "output_norm.weight", (hidden,)
    yield "output.weight", (vocab, hidden)
    for i in range(layers):
        for name, dims in (("attn_norm", (hidden,)), ("attn_q", (heads * size, hidden)), ("attn_k", (kv_heads * size, hidden)),
                           ("attn_v", (kv_heads * size, hidden)), ("attn_output", (hidden, heads * size)), ("ffn_norm", (hidden,)),
                           ("ffn_gate", (intermediate, hidden)), ("ffn_up", (intermediate, hidden)), ("ffn_down", (hidden, intermediate))):
            yield f"blk.{i}.{name}.weight", dims


def aligned(offset):
    return (offset + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


def bytes_of(dims):
    return math.prod(dims) * (4 if len(dims) == 1 else 2)  # norms are f32, as llama.cpp's converter writes them


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--shape", default="llama-3-8b", choices=sorted(roofs.SHAPES))
    parser.add_argument("--layers", type=int, default=None)
    options = parser.parse_args()
    layers = options.layers or roofs.SHAPES[options.shape][2]
    known, listed = metadata(options.shape, layers), list(tensors(options.shape, layers))
    random.seed(1)
    floats = array.array("f", (random.gauss(0, 0.02) for _ in range(POOL)))
    pool = memoryview(array.array("H", floats.tobytes())[1::2]).cast("B")  # truncated to bf16
    header = b"GGUF" + struct.pack("<IQQ", 3, len(listed), len(known)) + b"".join(entry(k, v) for k, v in known.items())
    offset = 0
    for name, dims in listed:
        header += text(name) + struct.pack("<I", len(dims)) + b"".join(struct.pack("<Q", d) for d in reversed(dims))
        header += struct.pack("<IQ", F32 if len(dims) == 1 else BF16, offset)
        offset = aligned(offset + bytes_of(dims))
    at = 0
    with open(options.file, "wb", buffering=0) as file:
        file.write(header + bytes(aligned(len(header)) - len(header)))
        for _, dims in listed:
            left = bytes_of(dims)
            padding = bytes(aligned(left) - left)
            if len(dims) == 1:
                left -= file.write(struct.pack("<f", 1.0) * dims[0])
            while left > 0:
                n = file.write(pool[at:at + min(left, len(pool) - at)])
                left, at = left - n, (at + n + 8198) % len(pool)
            if padding:
                file.write(padding)


if __name__ == "__main__":
    main()
