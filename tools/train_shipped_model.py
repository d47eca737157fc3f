#!/usr/bin/env python3
"""Trains the small model that ships in configs/models/kjv-7m.

The text is the King James Version of the Bible (public domain) as Debian's package bible-kjv prints it:

    apt-get install bible-kjv
    bible -f gen1:1-rev22:21 </dev/null >kjv.txt
    python3 tools/train_shipped_model.py kjv.txt configs/models/kjv-7m --minutes 4

Needs torch, transformers, tokenizers, safetensors, and a GPU (it runs on a CPU, for hours). The tokenizer is trained first, then
the model, then both are checked: the greedy continuation of Genesis 1 must be the text itself.
"""
import argparse
import json
import math
import os
import re
import time

import torch
from safetensors.torch import save_file
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import LlamaConfig, LlamaForCausalLM

BOS, EOS = "<|begin_of_text|>", "<|end_of_text|>"
VOCABULARY = 4096
CONTEXT = 1024
# The split of Llama 3, so that the shipped tokenizer is of the kind most models have today.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# Chapters whose windows are seen more often, so that well-known passages are learnt by heart.
FAMOUS = [("Ge", 1), ("Ge", 2), ("Ge", 3), ("Exo", 20), ("Psa", 1), ("Psa", 23), ("Eccl", 3), ("Mat", 5), ("Mat", 6),
          ("John", 1), ("1Cor", 13)]


def read_chapters(path):
    """The text as (book, chapter, verses) in order: 'Ge1:1 In the beginning' is verse 1 of chapter 1 of Ge."""
    chapters = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            match = re.match(r"(\d?[A-Za-z]+)(\d+):(\d+) (.*)", line.rstrip("\n"))
            if match is None:
                raise SystemExit(f"{path}: not a verse: {line!r}")
            book, chapter, _, verse = match.groups()
            if not chapters or chapters[-1][:2] != (book, int(chapter)):
                chapters.append((book, int(chapter), []))
            chapters[-1][2].append(verse)
    return chapters


def train_tokenizer(texts):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, 0)])
    return tokenizer


def learning_rate(progress, peak):
    if progress < 0.02:
        return peak * progress / 0.02
    return peak * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * (progress - 0.02) / 0.98)))


def train(model, stream, starts, minutes, batch, peak, device):
    """`stream` [tokens]; windows start anywhere, one in eight at a famous chapter. Until the minutes are up."""
    optimizer = torch.optim.AdamW(
        [
            {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": 0.02},
            {"params": [p for p in model.parameters() if p.ndim == 1], "weight_decay": 0.0},
        ],
        lr=peak,
        betas=(0.9, 0.98),
        fused=device == "cuda",
    )
    window = torch.arange(CONTEXT + 1, device=device)
    starts = torch.tensor(starts, device=device)
    began, step, tokens = time.time(), 0, 0
    while (progress := (time.time() - began) / (60 * minutes)) < 1:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(progress, peak)
        at = torch.randint(0, len(stream) - CONTEXT - 1, (batch,), device=device)
        famous = starts[torch.randint(0, len(starts), (batch,), device=device)].clamp(max=len(stream) - CONTEXT - 2)
        at = torch.where(torch.rand(batch, device=device) < 0.125, famous, at)
        rows = stream[at[:, None] + window]
        with torch.autocast(device, dtype=torch.bfloat16):
            logits = model(rows[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.float().view(-1, VOCABULARY), rows[:, 1:].reshape(-1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step, tokens = step + 1, tokens + batch * CONTEXT
        if step % 250 == 0:
            print(f"step {step}: loss {loss.item():.3f}, {progress:.0%}", flush=True)
    return step, tokens, loss.item()


def save_model(folder, model, tokenizer):
    """An ordinary Hugging Face folder: bf16 weights in two shards of about equal size."""
    weights = {
        name: value.detach().to("cpu", torch.bfloat16).contiguous()
        for name, value in model.state_dict().items()
        if name != "lm_head.weight" and "rotary" not in name
    }
    total = sum(value.numel() * 2 for value in weights.values())
    shards, filled = [{}, {}], 0
    for name, value in weights.items():
        shards[0 if filled < total / 2 else 1][name] = value
        filled += value.numel() * 2
    index = {"metadata": {"total_size": total}, "weight_map": {}}
    for number, shard in enumerate(shards, 1):
        file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        save_file(shard, os.path.join(folder, file), metadata={"format": "pt"})
        index["weight_map"].update({name: file for name in shard})
    c = model.config
    documents = {
        "model.safetensors.index.json": index,
        "config.json": {
            "architectures": ["LlamaForCausalLM"],
            "attention_bias": False,
            "bos_token_id": 0,
            "eos_token_id": 1,
            "head_dim": c.hidden_size // c.num_attention_heads,
            "hidden_act": "silu",
            "hidden_size": c.hidden_size,
            "initializer_range": 0.02,
            "intermediate_size": c.intermediate_size,
            "max_position_embeddings": CONTEXT,
            "mlp_bias": False,
            "model_type": "llama",
            "num_attention_heads": c.num_attention_heads,
            "num_hidden_layers": c.num_hidden_layers,
            "num_key_value_heads": c.num_key_value_heads,
            "rms_norm_eps": 1e-5,
            "rope_scaling": None,
            "rope_theta": 10000.0,
            "tie_word_embeddings": True,
            "torch_dtype": "bfloat16",
            "use_cache": True,
            "vocab_size": VOCABULARY,
        },
        "generation_config.json": {"bos_token_id": 0, "eos_token_id": 1, "do_sample": False},
        "tokenizer_config.json": {
            "bos_token": BOS,
            "eos_token": EOS,
            "clean_up_tokenization_spaces": False,
            "model_max_length": CONTEXT,
            "tokenizer_class": "PreTrainedTokenizerFast",
        },
    }
    for name, document in documents.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            json.dump(document, file, indent=2, sort_keys=True)
            file.write("\n")
    tokenizer.save(os.path.join(folder, "tokenizer.json"))


@torch.no_grad()
def continue_greedily(model, ids, count, device):
    ids = list(ids)
    for _ in range(count):
        logits = model(torch.tensor([ids], device=device)).logits[0, -1]
        ids.append(int(logits.argmax()))
    return ids


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("text")
    parser.add_argument("folder")
    parser.add_argument("--minutes", type=float, default=4)
    parser.add_argument("--batch", type=int, default=48)
    parser.add_argument("--peak", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=1611)
    arguments = parser.parse_args()
    os.makedirs(arguments.folder, exist_ok=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(arguments.seed)

    chapters = read_chapters(arguments.text)
    texts = ["\n".join(verses) + "\n" for _, _, verses in chapters]
    tokenizer = train_tokenizer(texts)
    stream, starts = [], []
    for (book, chapter, _), text in zip(chapters, texts):
        if (book, chapter) in FAMOUS:
            starts.append(len(stream))
        stream += tokenizer.encode(text).ids  # with BOS
        stream.append(1)  # EOS
    if len(starts) != len(FAMOUS):
        raise SystemExit(f"{len(FAMOUS) - len(starts)} of the famous chapters are not in the text")
    print(f"{len(chapters)} chapters, {len(stream)} tokens", flush=True)

    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=256, intermediate_size=768, num_hidden_layers=8, num_attention_heads=8,
        num_key_value_heads=4, max_position_embeddings=CONTEXT, rms_norm_eps=1e-5, tie_word_embeddings=True,
        bos_token_id=0, eos_token_id=1,
    )
    model = LlamaForCausalLM(config).to(device)
    print(f"{sum(p.numel() for p in model.parameters())} parameters", flush=True)
    stream = torch.tensor(stream, device=device)
    steps, tokens, loss = train(model, stream, starts, arguments.minutes, arguments.batch, arguments.peak, device)
    print(f"{steps} steps, {tokens} tokens, last loss {loss:.3f}")

    save_model(arguments.folder, model, tokenizer)
    model = model.to(torch.bfloat16).float().eval()  # what was saved
    wrong = False
    for (book, chapter, _), text in zip(chapters, texts):
        if (book, chapter) not in FAMOUS:
            continue
        ids = tokenizer.encode(text).ids
        told = continue_greedily(model, ids[:8], 192, device)
        length = min(len(told), len(ids))
        same = next((i for i in range(length) if told[i] != ids[i]), length)
        wrong |= (book, chapter) == FAMOUS[0] and same < length
        print(f"{book} {chapter}: the first {same} of {length} tokens are the text")
    if wrong:
        raise SystemExit("the continuation of Genesis 1 is not the text")


if __name__ == "__main__":
    main()
