#!/usr/bin/env python3
"""Makes LoRA adapters of some checkpoints of ../hf with PEFT, and what they compute.

    python3 -m venv venv && venv/bin/pip install -r requirements.txt
    venv/bin/python make_adapters.py

Every adapter is a folder <golden>/<name> as PEFT saves it, with a folder expected/ whose model.safetensors holds:

    prompt.<i>.tokens  i32 [n]
    prompt.<i>.logits  f32 [n, vocab]  of one pass over the prompt
"""

import os
import shutil

import torch
import transformers
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file

HERE = os.path.dirname(os.path.abspath(__file__))
ADAPTERS = [
    ("llama", "all", dict(r=4, lora_alpha=8, target_modules="all-linear")),
    (
        "llama",
        "patterns",
        dict(
            r=3,
            lora_alpha=4,
            use_rslora=True,
            target_modules=["q_proj", "v_proj", "down_proj"],
            rank_pattern={"layers.0.self_attn.q_proj": 2, r"layers\.\d+\.mlp\.(up|down)_proj": 5},
            alpha_pattern={"v_proj": 7, "model.layers.1.mlp.down_proj": 3},
        ),
    ),
    ("llama", "regex", dict(r=8, lora_alpha=8, target_modules=r".*layers\.1\.(self_attn|mlp)\.(k|gate|up)_proj")),
    ("gpt2", "all", dict(r=4, lora_alpha=6, fan_in_fan_out=True, target_modules=["c_attn", "c_proj", "c_fc"])),
    ("phi3", "fused", dict(r=4, lora_alpha=8, target_modules=["qkv_proj", "o_proj", "gate_up_proj", "down_proj"])),
    ("glm4", "interleaved", dict(r=4, lora_alpha=8, target_modules=["q_proj", "k_proj", "gate_up_proj"])),
    ("llama-bf16", "all", dict(r=4, lora_alpha=8, target_modules="all-linear")),
]


def make(golden, name, config, seed):
    torch.manual_seed(seed)
    folder = os.path.join(HERE, golden, name)
    shutil.rmtree(folder, ignore_errors=True)
    base = os.path.join(HERE, "..", "hf", golden)
    model = transformers.AutoModelForCausalLM.from_pretrained(base, attn_implementation="eager", dtype="auto")
    vocab = model.config.vocab_size
    model = get_peft_model(model.eval(), LoraConfig(task_type="CAUSAL_LM", **config))
    for key, parameter in model.named_parameters():
        if "lora_" in key:
            # smaller where roundings add up
            torch.nn.init.normal_(parameter.data, std=0.2 if model.dtype == torch.bfloat16 else 0.4)
    model.peft_config["default"].base_model_name_or_path = golden
    model.save_pretrained(folder)
    os.remove(os.path.join(folder, "README.md"))
    expected = {}
    for i, n in enumerate([19, 11]):
        tokens = torch.randint(3, vocab, (n,))
        with torch.no_grad():
            logits = model(tokens[None]).logits[0]
        expected[f"prompt.{i}.tokens"] = tokens.to(torch.int32)
        expected[f"prompt.{i}.logits"] = logits.to(torch.float32).contiguous()
    os.mkdir(os.path.join(folder, "expected"))
    save_file(expected, os.path.join(folder, "expected", "model.safetensors"))


for seed, (golden, name, config) in enumerate(ADAPTERS):
    make(golden, name, config, seed)
