#!/usr/bin/env python3
"""Writes a folder with a model of random bf16 weights, for measurements that read weights from files.

    python3 make_model.py FOLDER [--layers 32] [--hidden 4096] [--intermediate 14336] [--heads 32] [--kv-heads 8] [--vocab 128256]
        [--context 8192] [--tokenizer]

A Llama, one safetensors file per 4 layers, written by as many processes as there are processors. Weights are pieces of one array of normal numbers
with a spread of 0.02. --tokenizer adds a byte-level BPE of random tokens, as large as Llama-3's (128256 tokens, some 250000 merges), so that
`trireme run` can be timed.
"""
import argparse
import array
import itertools
import json
import math
import multiprocessing
import os
import random
import struct

POOL = 1 << 21  # numbers
SPECIAL = ("<|begin_of_text|>", "<|end_of_text|>")
SPLIT = ("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+")


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


def write_part(path, part, pool, one):
    """One safetensors file; starts at a place in the pool that depends on its name."""
    header, end, at = {}, 0, sum(path.encode()) * 7919 % POOL
    for tensor, shape in part:
        size = 2 * math.prod(shape)
        header[tensor] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor, shape in part:
            left = math.prod(shape)
            if len(shape) == 1:
                file.write(one)
                continue
            while left > 0:
                n = min(left, POOL - at)
                file.write(pool[2 * at:2 * (at + n)])
                left, at = left - n, (at + n + 4099) % POOL


def vocabulary(vocab):
    """Tokens of a byte-level BPE and its merges: the two special ones, all bytes, all pairs of 60 of them, and triples."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = [chr(b) for b in printable] + [chr(256 + i) for i in range(256 - len(printable))]
    pairs = ["".join(letters) for letters in itertools.product(letters[:60], repeat=2)]
    triples = ["".join(letters) for letters in itertools.product(letters[:60], repeat=3)]
    known = (letters + pairs + random.sample(triples, len(triples)))[:vocab - 2]
    return [*SPECIAL, *known], [f"{token[:i]} {token[i:]}" for token in known for i in range(1, len(token))]


def write_tokenizer(folder, vocab):
    tokens, merges = vocabulary(vocab)
    special = [{"id": i, "content": name, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
               for i, name in enumerate(SPECIAL)]
    text = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": SPLIT}, "behavior": "Isolated", "invert": False},
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]},
            "post_processor": None, "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": False, "byte_fallback": False, "ignore_merges": True,
                      "vocab": {token: i for i, token in enumerate(tokens)}, "merges": merges}}
    with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as file:
        json.dump(text, file, ensure_ascii=False, indent=2)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("folder")
    for name, value in (("layers", 32), ("hidden", 4096), ("intermediate", 14336), ("heads", 32), ("kv-heads", 8), ("vocab", 128256),
                        ("context", 8192)):
        arguments.add_argument("--" + name, type=int, default=value)
    arguments.add_argument("--tokenizer", action="store_true")
    o = arguments.parse_args()
    os.makedirs(o.folder, exist_ok=True)
    random.seed(1)
    floats = array.array("f", (random.gauss(0, 0.02) for _ in range(POOL)))
    pool = memoryview(array.array("H", floats.tobytes())[1::2]).cast("B")  # truncated to bf16
    one = (array.array("H", [0x3F80]) * o.hidden).tobytes()
    index, parts, writers = {}, list(tensors(o)), []
    fork = multiprocessing.get_context("fork")
    gate = fork.Semaphore(os.cpu_count())

    def write(path, part):
        with gate:
            write_part(path, part, pool, one)

    for k, part in enumerate(parts):
        name = f"model-{k + 1:05d}-of-{len(parts):05d}.safetensors"
        index.update((tensor, name) for tensor, _ in part)
        writers.append(fork.Process(target=write, args=(os.path.join(o.folder, name), part)))
        writers[-1].start()
    with open(os.path.join(o.folder, "model.safetensors.index.json"), "w") as file:
        json.dump({"metadata": {}, "weight_map": index}, file)
    with open(os.path.join(o.folder, "config.json"), "w") as file:
        json.dump({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16", "hidden_act": "silu", "hidden_size": o.hidden,
                   "intermediate_size": o.intermediate, "num_hidden_layers": o.layers, "num_attention_heads": o.heads, "num_key_value_heads": o.kv_heads,
                   "vocab_size": o.vocab, "max_position_embeddings": o.context, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
                   "tie_word_embeddings": False, "bos_token_id": 0, "eos_token_id": 1}, file)
    if o.tokenizer:
        write_tokenizer(o.folder, o.vocab)
    for writer in writers:
        writer.join()
        if writer.exitcode != 0:
            raise SystemExit("a file could not be written")


if __name__ == "__main__":
    main()
