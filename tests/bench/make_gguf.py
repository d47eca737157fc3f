#!/usr/bin/env python3
"""Writes a GGUF file with a Llama of random bf16 weights, for llama.cpp beside trireme.

    python3 make_gguf.py FILE [--shape llama-3-8b] [--layers N] [--tokenizer]

The format as ggml's docs/gguf.md has it (version 3). Weights are pieces of one array of normal numbers with a spread of 0.02. --tokenizer adds
that of make_model.py, which a server needs; without it there is none.
"""
import argparse
import array
import math
import random
import struct

import make_model
import roofs

F32, BF16 = 0, 30  # ggml's types
ALIGNMENT = 32
POOL = 1 << 22  # numbers


def text(value):
    encoded = value.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def entry(key, value):
    """One key of the metadata: a string, an unsigned number, a float, or a list of strings or of signed numbers."""
    if isinstance(value, str):
        return text(key) + struct.pack("<I", 8) + text(value)
    if isinstance(value, list):
        strings = isinstance(value[0], str)
        return text(key) + struct.pack("<IIQ", 9, 8 if strings else 5, len(value)) + b"".join(text(v) if strings else struct.pack("<i", v) for v in value)
    return text(key) + (struct.pack("<If", 6, value) if isinstance(value, float) else struct.pack("<II", 4, value))


def tokenizer(vocab):
    tokens, merges = make_model.vocabulary(vocab)
    special = len(make_model.SPECIAL)
    return {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "llama-bpe", "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.merges": merges,
            "tokenizer.ggml.token_type": [3] * special + [1] * (vocab - special), "tokenizer.ggml.bos_token_id": 0, "tokenizer.ggml.eos_token_id": 1}


def metadata(shape, layers):
    hidden, intermediate, _, heads, kv_heads, size, vocab = roofs.SHAPES[shape]
    return {"general.architecture": "llama", "general.name": shape, "general.file_type": 32, "llama.context_length": 131072,
            "llama.embedding_length": hidden, "llama.block_count": layers, "llama.feed_forward_length": intermediate,
            "llama.attention.head_count": heads, "llama.attention.head_count_kv": kv_heads, "llama.rope.freq_base": 500000.0,
            "llama.rope.dimension_count": size, "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.vocab_size": vocab}


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
    parser.add_argument("--tokenizer", action="store_true")
    options = parser.parse_args()
    layers = options.layers or roofs.SHAPES[options.shape][2]
    random.seed(1)
    known, listed = metadata(options.shape, layers), list(tensors(options.shape, layers))
    known.update(tokenizer(known["llama.vocab_size"]) if options.tokenizer else {"tokenizer.ggml.model": "no_vocab"})
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
