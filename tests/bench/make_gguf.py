#!/usr/bin/env python3
"""Writes a GGUF file with a Llama or a mixture of experts of random weights, for llama.cpp beside trireme.

    python3 make_gguf.py FILE [--shape llama-3-8b] [--layers N] [--tokenizer]

The format as ggml's docs/gguf.md has it (version 3). Weights are bf16, pieces of one array of normal numbers with a spread of 0.02; experts of
gpt-oss are MXFP4, random numbers with scales of 2^-6. --tokenizer adds
that of make_model.py, which a server needs; without it there is none.
"""
import argparse
import array
import math
import random
import struct

import make_model
import roofs

F32, BF16, MXFP4 = 0, 30, 39  # ggml's types
# hidden, width of an expert, layers, query heads, key-value heads, head size, vocabulary, experts, experts of a token
MIXTURES = {"qwen3-30b-a3b": (2048, 768, 48, 32, 4, 128, 151936, 128, 8), "gpt-oss-120b": (2880, 2880, 36, 64, 8, 64, 201088, 128, 4),
            "gpt-oss-20b": (2880, 2880, 24, 64, 8, 64, 201088, 32, 4)}
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


def mixture_metadata(shape, layers):
    hidden, width, _, heads, kv_heads, size, vocab, experts, chosen = MIXTURES[shape]
    name = "gpt-oss" if is_gpt_oss(shape) else "qwen3moe"
    keys = {"context_length": 32768, "embedding_length": hidden, "block_count": layers, "feed_forward_length": width,
            "attention.head_count": heads, "attention.head_count_kv": kv_heads, "attention.key_length": size, "attention.value_length": size,
            "rope.freq_base": 150000.0, "rope.dimension_count": size, "attention.layer_norm_rms_epsilon": 1e-5, "vocab_size": vocab,
            "expert_count": experts, "expert_used_count": chosen, "expert_feed_forward_length": width}
    keys.update({"attention.sliding_window": 128} if is_gpt_oss(shape) else {})
    return {"general.architecture": name, "general.name": shape, **{f"{name}.{k}": v for k, v in keys.items()}}


def is_gpt_oss(shape):
    return shape.startswith("gpt-oss")


def mixture_tensors(shape, layers):
    hidden, width, _, heads, kv_heads, size, vocab, experts, _ = MIXTURES[shape]
    yield "token_embd.weight", (vocab, hidden), BF16
    yield "output_norm.weight", (hidden,), F32
    yield "output.weight", (vocab, hidden), BF16
    for i in range(layers):
        rows = {"attn_q": heads * size, "attn_k": kv_heads * size, "attn_v": kv_heads * size, "attn_output": hidden}
        of_experts = {"gate": (experts, width, hidden), "up": (experts, width, hidden), "down": (experts, hidden, width)}
        norms = ("attn_norm", "post_attention_norm") if is_gpt_oss(shape) else ("attn_norm", "ffn_norm")
        for name in norms:
            yield f"blk.{i}.{name}.weight", (hidden,), F32
        for name, n in rows.items():
            yield f"blk.{i}.{name}.weight", (n, heads * size if name == "attn_output" else hidden), BF16
        yield f"blk.{i}.ffn_gate_inp.weight", (experts, hidden), F32
        for name, dims in of_experts.items():
            yield f"blk.{i}.ffn_{name}_exps.weight", dims, MXFP4 if is_gpt_oss(shape) else BF16
        if not is_gpt_oss(shape):
            yield f"blk.{i}.attn_q_norm.weight", (size,), F32
            yield f"blk.{i}.attn_k_norm.weight", (size,), F32
            continue
        yield f"blk.{i}.attn_sinks.weight", (heads,), F32
        for name, n in rows.items():
            yield f"blk.{i}.{name}.bias", (n,), F32
        yield f"blk.{i}.ffn_gate_inp.bias", (experts,), F32
        for name, dims in of_experts.items():
            yield f"blk.{i}.ffn_{name}_exps.bias", dims[:2], F32


def metadata(shape, layers):
    hidden, intermediate, _, heads, kv_heads, size, vocab = roofs.SHAPES[shape]
    return {"general.architecture": "llama", "general.name": shape, "general.file_type": 32, "llama.context_length": 131072,
            "llama.embedding_length": hidden, "llama.block_count": layers, "llama.feed_forward_length": intermediate,
            "llama.attention.head_count": heads, "llama.attention.head_count_kv": kv_heads, "llama.rope.freq_base": 500000.0,
            "llama.rope.dimension_count": size, "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.vocab_size": vocab}


def tensors(shape, layers):
    """Names, dims, rows first as in a checkpoint, and types. Norms are f32, as llama.cpp's converter writes them."""
    hidden, intermediate, _, heads, kv_heads, size, vocab = roofs.SHAPES[shape]
    yield "token_embd.weight", (vocab, hidden), BF16
    yield "output_norm.weight", (hidden,), F32
    yield "output.weight", (vocab, hidden), BF16
    for i in range(layers):
        for name, dims in (("attn_norm", (hidden,)), ("attn_q", (heads * size, hidden)), ("attn_k", (kv_heads * size, hidden)),
                           ("attn_v", (kv_heads * size, hidden)), ("attn_output", (hidden, heads * size)), ("ffn_norm", (hidden,)),
                           ("ffn_gate", (intermediate, hidden)), ("ffn_up", (intermediate, hidden)), ("ffn_down", (hidden, intermediate))):
            yield f"blk.{i}.{name}.weight", dims, F32 if len(dims) == 1 else BF16


def aligned(offset):
    return (offset + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


def bytes_of(dims, kind):
    return math.prod(dims) // 32 * 17 if kind == MXFP4 else math.prod(dims) * (4 if kind == F32 else 2)


def pools():
    """Bytes to take weights of each type from."""
    floats = array.array("f", (random.gauss(0, 0.02) for _ in range(POOL)))
    blocks = bytearray(random.randbytes(POOL * 17))
    blocks[::17] = bytes([121]) * POOL
    return {F32: memoryview(floats).cast("B"), BF16: memoryview(array.array("H", floats.tobytes())[1::2]).cast("B"),  # truncated
            MXFP4: memoryview(blocks)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--shape", default="llama-3-8b", choices=sorted([*roofs.SHAPES, *MIXTURES]))
    parser.add_argument("--layers", type=int, default=None)
    parser.add_argument("--tokenizer", action="store_true")
    options = parser.parse_args()
    is_mixture = options.shape in MIXTURES
    layers = options.layers or (MIXTURES if is_mixture else roofs.SHAPES)[options.shape][2]
    random.seed(1)
    known = (mixture_metadata if is_mixture else metadata)(options.shape, layers)
    listed = list((mixture_tensors if is_mixture else tensors)(options.shape, layers))
    known.update(tokenizer(listed[0][1][0]) if options.tokenizer else {"tokenizer.ggml.model": "no_vocab"})
    pool_of = pools()
    header = b"GGUF" + struct.pack("<IQQ", 3, len(listed), len(known)) + b"".join(entry(k, v) for k, v in known.items())
    offset = 0
    for name, dims, kind in listed:
        header += text(name) + struct.pack("<I", len(dims)) + b"".join(struct.pack("<Q", d) for d in reversed(dims))
        header += struct.pack("<IQ", kind, offset)
        offset = aligned(offset + bytes_of(dims, kind))
    with open(options.file, "wb", buffering=0) as file:
        file.write(header + bytes(aligned(len(header)) - len(header)))
        for number, (_, dims, kind) in enumerate(listed):
            left = bytes_of(dims, kind)
            padding = bytes(aligned(left) - left)
            if kind == F32 and len(dims) == 1:
                left -= file.write(struct.pack("<f", 1.0) * dims[0])
            pool = pool_of[kind]
            at = number * 69904 * 17 % len(pool)  # a whole block, and a whole number
            while left > 0:
                n = file.write(pool[at:at + min(left, len(pool) - at)])
                left, at = left - n, 0 if kind == MXFP4 else (at + n + 8200) % len(pool)
            if padding:
                file.write(padding)


if __name__ == "__main__":
    main()
