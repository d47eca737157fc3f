#!/usr/bin/env python3
"""Makes the tiny random checkpoints of this folder and what Hugging Face transformers computes with them.

    python3 -m venv venv && venv/bin/pip install -r requirements.txt
    venv/bin/python make_goldens.py [name ...]

Every golden is a model folder (config.json, generation_config.json, model.safetensors or shards) with a folder expected/ whose
model.safetensors holds:

    prompt.<i>.tokens         i32 [n]
    prompt.<i>.rows           i32 [r]        positions whose logits were kept from one pass over the whole prompt
    prompt.<i>.logits         f32 [r, vocab]
    prompt.<i>.prefix         i32 [1]        tokens prefilled before decoding token by token to the prompt's end
    prompt.<i>.decode_rows    i32 [d]        positions whose logits were kept while decoding
    prompt.<i>.decode_logits  f32 [d, vocab]

Goldens that differ in config.json only share one set of weights through a symbolic link. Attention is eager; the
arithmetic is that of the checkpoint's type.
"""

import copy
import json
import os
import shutil
import sys

import numpy as np
import torch
import transformers
from safetensors.torch import save_file

HERE = os.path.dirname(os.path.abspath(__file__))
VOCAB = 96
BASE = dict(
    vocab_size=VOCAB,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=128,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=0,
)
LATENT = dict(  # a mixture behind a dense layer, with latent attention
    num_hidden_layers=3,
    num_key_value_heads=4,
    first_k_dense_replace=1,
    n_routed_experts=8,
    num_experts_per_tok=3,
    moe_intermediate_size=24,
    n_shared_experts=2,
    kv_lora_rank=20,
    qk_nope_head_dim=12,
    qk_rope_head_dim=8,
    v_head_dim=10,
)
MIXTURE = {**BASE, "num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 24}
DELTA = dict(  # the gated delta rule in three of four layers; eps keeps small rows from being scaled up with their errors
    num_hidden_layers=4,
    head_dim=16,
    rms_norm_eps=1e-2,
    linear_num_key_heads=2,
    linear_num_value_heads=4,
    linear_key_head_dim=8,
    linear_value_head_dim=12,
)
GRANITE_SCAN = dict(  # selective scans in most layers
    num_hidden_layers=3,
    layer_types=["linear_attention", "full_attention", "linear_attention"],
    mamba_n_heads=4,
    mamba_d_head=16,
    mamba_d_state=12,
    mamba_chunk_size=8,
    shared_intermediate_size=24,
    rms_norm_eps=1e-2,
    embedding_multiplier=1.5,
    residual_multiplier=0.4,
    attention_multiplier=0.2,
    logits_scaling=1.5,
)
NEMOTRON_H = dict(  # blocks of one half each; the least step is a number so that prompts and decoding agree
    layers_block_type=["linear_attention", "mlp", "full_attention", "linear_attention", "moe"],
    head_dim=8,
    mamba_num_heads=4,
    mamba_head_dim=12,
    n_groups=2,
    ssm_state_size=8,
    chunk_size=8,
    time_step_min=1e-9,
    layer_norm_epsilon=1e-2,
    n_routed_experts=8,
    num_experts_per_tok=3,
    moe_intermediate_size=24,
    moe_shared_expert_intermediate_size=20,
    routed_scaling_factor=2.5,
)
# A mixture of DeepSeek-V3's kind.
SIGMOID = {
    **BASE,
    "num_hidden_layers": 3,
    "first_k_dense_replace": 1,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 24,
    "n_shared_experts": 2,
    "routed_scaling_factor": 2.5,
}
GPT_OSS_YARN = dict(
    rope_type="yarn", factor=8.0, beta_fast=32.0, beta_slow=1.0, truncate=False, original_max_position_embeddings=16
)
GPT_OSS = {
    **BASE,
    "intermediate_size": 96,
    "num_attention_heads": 8,
    "head_dim": 16,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "sliding_window": 8,
    "swiglu_limit": 1.5,
    "rope_parameters": {"rope_theta": 1000.0, **GPT_OSS_YARN},
}
# Short, past every window below, past every original length below; not multiples of the KV block.
LENGTHS = (5, 23, 41)


ABSENT = object()  # the value of keys that a file lacks


def llama(name, share=None, dtype=torch.float32, shard=None, spell4=None, **options):
    return Golden(name, transformers.LlamaForCausalLM, transformers.LlamaConfig, {**BASE, **options}, share, dtype, shard, spell4)


class Golden:
    def __init__(
        self, name, model_class, config_class, options, share=None, dtype=torch.float32, shard=None, spell4=None, model_type=None
    ):
        self.model_type = model_type  # of the file, where transformers has another name for it
        self.name, self.model_class, self.config_class, self.options = name, model_class, config_class, options
        self.share, self.dtype, self.shard, self.spell4 = share, dtype, shard, spell4

    def folder(self):
        return os.path.join(HERE, self.name)

    def config(self):
        config = self.config_class(**self.options)
        config._attn_implementation = "eager"
        return config

    def make_model(self):
        if self.share:
            has_images = self.model_class.__name__.endswith("ForConditionalGeneration")
            shared_class = self.model_class if has_images else transformers.AutoModelForCausalLM
            weights = shared_class.from_pretrained(os.path.join(HERE, self.share)).state_dict()
            model = self.model_class(self.config())
            model.load_state_dict(weights)
        else:
            torch.manual_seed(sum(map(ord, self.name)))
            model = self.model_class(self.config())
            randomise(model)
        return model.to(self.dtype).eval()

    def write(self):
        folder = self.folder()
        shutil.rmtree(folder, ignore_errors=True)
        model = self.make_model()
        model.save_pretrained(folder, **({"max_shard_size": self.shard} if self.shard else {}))
        if self.share:
            os.remove(os.path.join(folder, "model.safetensors"))
            os.symlink(f"../{self.share}/model.safetensors", os.path.join(folder, "model.safetensors"))
        if self.spell4:
            self.respell(folder, {"torch_dtype": str(self.dtype).split(".")[1], "dtype": ABSENT, **self.spell4})
        # Loaded as a user would, so that the goldens see what the files say.
        model = self.model_class.from_pretrained(folder, attn_implementation="eager", dtype=self.dtype).eval()
        os.mkdir(os.path.join(folder, "expected"))
        save_file(measure(model), os.path.join(folder, "expected", "model.safetensors"))
        if self.model_type:
            self.respell(folder, {"model_type": self.model_type})

    def respell(self, folder, keys):
        """Rewrites config.json as transformers 4 did."""
        path = os.path.join(folder, "config.json")
        with open(path) as file:
            config = json.load(file)
        config.pop("rope_parameters", None)
        config["transformers_version"] = "4.44.0"
        config.update(keys)
        config = {key: value for key, value in config.items() if value is not ABSENT}
        with open(path, "w") as file:
            json.dump(config, file, indent=2, sort_keys=True)
            file.write("\n")


def randomise(model):
    """Weights whose logits are of order one, and that make every switch of a family matter."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("bias"):
                weight.normal_(0.0, 0.2)
            elif name.endswith("sinks"):
                weight.normal_(0.0, 2.0)
            elif weight.dim() == 1:  # norms: stored near 1, or near 0 where the norm adds it
                weight.add_(torch.randn_like(weight) * 0.2)
            elif "embed" in name or "wte" in name or "wpe" in name:
                weight.normal_(0.0, 0.5)
            else:
                weight.normal_(0.0, 1.5 / weight.shape[-1] ** 0.5)
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.normal_(0.0, 0.2)
            elif name.endswith("layer_scalar"):
                buffer.uniform_(0.5, 1.5)


def logits_of(model, tokens, cache):
    positions = torch.arange(cache.get_seq_length(), cache.get_seq_length() + len(tokens))[None] if cache is not None else None
    out = model(
        input_ids=torch.tensor([tokens]), position_ids=positions, past_key_values=cache, use_cache=cache is not None
    )
    return out.logits[0].float()


def measure(model):
    goldens = {}
    generator = np.random.default_rng(7)
    for i, length in enumerate(LENGTHS):
        tokens = generator.integers(3, VOCAB, length).tolist()
        rows = sorted({0, length // 2, length - 2, length - 1})
        prefix = length - 4
        decode_rows = list(range(prefix, length))
        with torch.no_grad():
            # A copy each: dynamic rope remembers the longest sequence a model has seen.
            whole = logits_of(copy.deepcopy(model), tokens, None)
            stepper, cache = copy.deepcopy(model), transformers.DynamicCache(config=model.config)
            steps = [logits_of(stepper, tokens[:prefix], cache)[-1]]
            for position in decode_rows:
                steps.append(logits_of(stepper, tokens[position : position + 1], cache)[-1])
        steps = torch.stack(steps)
        kept = [0, len(steps) - 1]
        goldens[f"prompt.{i}.tokens"] = torch.tensor(tokens, dtype=torch.int32)
        goldens[f"prompt.{i}.rows"] = torch.tensor(rows, dtype=torch.int32)
        goldens[f"prompt.{i}.logits"] = whole[rows].contiguous()
        goldens[f"prompt.{i}.prefix"] = torch.tensor([prefix], dtype=torch.int32)
        goldens[f"prompt.{i}.decode_rows"] = torch.tensor([prefix - 1 + k for k in kept], dtype=torch.int32)
        goldens[f"prompt.{i}.decode_logits"] = steps[kept].contiguous()
    return goldens


def rope(**parameters):
    return dict(rope_parameters={"rope_theta": 10000.0, **parameters})


def goldens():
    t = transformers
    mistral = {**BASE, "rms_norm_eps": 1e-5}
    latent = {**BASE, **LATENT, "rms_norm_eps": 1e-5}
    v3 = {**latent, "q_lora_rank": 16, "n_group": 4, "topk_group": 2, "routed_scaling_factor": 2.5}
    ministral3 = {
        **mistral,
        "head_dim": 16,
        **rope(
            rope_type="yarn",
            rope_theta=1000.0,
            factor=4.0,
            original_max_position_embeddings=12,
            mscale=1.0,
            mscale_all_dim=1.0,
            llama_4_scaling_beta=0.4,
        ),
    }
    phi = {**BASE, "original_max_position_embeddings": 16}
    gemma = {**BASE, "num_hidden_layers": 4, "head_dim": 16}
    wide = dict(head_dim=16, num_key_value_heads=4)
    qwen2_window = {**BASE, "use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1}
    gemma3 = {
        **gemma,
        "sliding_window": 8,
        "query_pre_attn_scalar": 24,
        "sliding_window_pattern": 3,
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 100000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1000.0},
        },
    }
    gemma4_rope = {
        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 100.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1000.0},
    }
    gemma4 = {
        **BASE,
        "num_hidden_layers": 3,
        "head_dim": 8,
        "global_head_dim": 16,
        "sliding_window": 8,
        "layer_types": ["sliding_attention", "full_attention", "full_attention"],
        "hidden_size_per_layer_input": 0,
        "rope_parameters": gemma4_rope,
    }
    gemma4_mixture = {
        **gemma4,
        "num_global_key_value_heads": 1,
        "attention_k_eq_v": True,
        "enable_moe_block": True,
        "num_experts": 6,
        "top_k_experts": 2,
        "moe_intermediate_size": 24,
        "final_logit_softcapping": 3.0,
    }
    granite = {
        **BASE,
        "embedding_multiplier": 3.0,
        "residual_multiplier": 0.4,
        "attention_multiplier": 0.2,
        "logits_scaling": 2.5,
    }
    # Chunks and steps of the queries' scale that the prompts reach.
    llama4 = {
        **BASE,
        "num_hidden_layers": 3,
        "intermediate_size": 24,
        "intermediate_size_mlp": 40,
        "head_dim": 8,
        "num_local_experts": 6,
        "num_experts_per_tok": 1,
        "no_rope_layer_interval": 3,
        "attention_chunk_size": 10,
        "floor_scale": 7,
        "attn_scale": 0.5,
        "rms_norm_eps": 1e-5,
    }
    windows = ["sliding_attention", "sliding_attention", "full_attention"]
    olmo3 = {
        **BASE,
        "num_hidden_layers": 3,
        "sliding_window": 7,
        "layer_types": windows,
        "rope_parameters": {
            "full_attention": {
                "rope_type": "yarn",
                "rope_theta": 10000.0,
                "factor": 8.0,
                "original_max_position_embeddings": 16,
                "attention_factor": 1.2,
            },
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        },
    }
    exaone4 = {**BASE, "num_hidden_layers": 3}
    vision = dict(
        hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, image_size=8, patch_size=4
    )
    # Text parts of models with images, small: only how they are wrapped matters.
    small = {**BASE, "hidden_size": 16, "intermediate_size": 24}
    pixtral = {**vision, "model_type": "pixtral", "head_dim": 4}

    qwen_vision = dict(
        depth=1,
        hidden_size=8,
        intermediate_size=8,
        num_heads=2,
        patch_size=2,
        out_hidden_size=16,
        num_position_embeddings=16,
        deepstack_visual_indexes=[0],
    )
    qwen2_5_vl = {**small, "model_type": "qwen2_5_vl_text", "rms_norm_eps": 1e-6, **rope(rope_type="default", mrope_section=[1, 1, 0])}

    def images(name, kind, text, share=None, spell4=None, **options):
        model_class, config_class = getattr(t, f"{kind}ForConditionalGeneration"), getattr(t, f"{kind}Config")
        options = dict(text_config=text, bos_token_id=1, eos_token_id=2, **options)
        return Golden(name, model_class, config_class, options, share=share, spell4=spell4)

    neox = {k: v for k, v in BASE.items() if k != "num_key_value_heads"}
    gpt2 = dict(
        vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=4, n_positions=64, bos_token_id=1, eos_token_id=2, pad_token_id=0
    )
    factors = [round(1.0 + 0.37 * i, 3) for i in range(4)]
    long_factors = [round(1.5 + 0.91 * i, 3) for i in range(4)]
    longrope = {**phi, **rope(rope_type="longrope", short_factor=factors, long_factor=long_factors)}

    def longrope_spelled(kind):
        scaling = dict(type=kind, short_factor=factors, long_factor=long_factors, original_max_position_embeddings=16)
        return dict(rope_theta=10000.0, rope_scaling=scaling)

    llama3 = dict(
        rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16
    )
    return [
        llama("llama"),
        llama("llama-v4", share="llama", spell4=dict(rope_theta=500.0, rope_scaling=None), **rope(rope_theta=500.0)),
        llama("llama-linear", share="llama", **rope(rope_type="linear", factor=4.0)),
        llama("llama-dynamic", share="llama", max_position_embeddings=16, **rope(rope_type="dynamic", factor=2.0)),
        llama("llama-llama3", share="llama", **rope(**llama3)),
        llama(
            "llama-llama3-v4",
            share="llama",
            spell4=dict(rope_theta=10000.0, rope_scaling=llama3),
            **rope(**llama3),
        ),
        # Tied, and an output projection of its own in the file.
        llama("llama-tied-head", share="llama", tie_word_embeddings=True),
        llama("llama-bias", attention_bias=True, mlp_bias=True, tie_word_embeddings=True, num_key_value_heads=1),
        llama("llama-head-dim", **wide),
        # A low theta and wide heads, so that the ramp between kept and interpolated frequencies has several steps.
        llama(
            "llama-yarn",
            share="llama-head-dim",
            **wide,
            **rope(rope_type="yarn", rope_theta=100.0, factor=8.0, original_max_position_embeddings=1024),
        ),
        llama(
            "llama-yarn-mscale",
            share="llama-head-dim",
            **wide,
            **rope(
                rope_type="yarn",
                rope_theta=100.0,
                factor=4.0,
                original_max_position_embeddings=32,
                beta_fast=4.0,
                beta_slow=0.8,
                mscale=1.0,
                mscale_all_dim=0.5,
                truncate=False,
            ),
        ),
        llama("llama-bf16", dtype=torch.bfloat16),
        llama("llama-f16", dtype=torch.float16),
        llama("llama-relu2", share="llama", hidden_act="relu2"),
        llama("llama-sharded", shard="20KB"),
        Golden("mistral", t.MistralForCausalLM, t.MistralConfig, {**mistral, "sliding_window": 7}),
        Golden("mistral-full", t.MistralForCausalLM, t.MistralConfig, {**mistral, "sliding_window": None}, share="mistral"),
        # Layers with and without a window, as AutoModel reads it: Ministral.
        Golden(
            "mistral-layer-types",
            t.MinistralForCausalLM,
            t.MinistralConfig,
            {**mistral, "sliding_window": 7, "head_dim": 8, "layer_types": ["full_attention", "sliding_attention"]},
            share="mistral",
            spell4=dict(rope_theta=10000.0, model_type="mistral", architectures=["MistralForCausalLM"]),
        ),
        Golden(
            "ministral",
            t.MinistralForCausalLM,
            t.MinistralConfig,
            {**mistral, "sliding_window": 9, "head_dim": 8, "layer_types": ["sliding_attention", "full_attention"]},
            share="mistral",
        ),
        Golden("ministral3", t.Ministral3ForCausalLM, t.Ministral3Config, ministral3),
        Golden("ministral3-bf16", t.Ministral3ForCausalLM, t.Ministral3Config, ministral3, dtype=torch.bfloat16),
        Golden("qwen2", t.Qwen2ForCausalLM, t.Qwen2Config, {**BASE, "tie_word_embeddings": True}),
        Golden("qwen2-window", t.Qwen2ForCausalLM, t.Qwen2Config, qwen2_window),
        Golden(
            "qwen2-window-v4",
            t.Qwen2ForCausalLM,
            t.Qwen2Config,
            qwen2_window,
            share="qwen2-window",
            spell4=dict(rope_theta=10000.0, layer_types=None),
        ),
        Golden("qwen3", t.Qwen3ForCausalLM, t.Qwen3Config, {**BASE, "head_dim": 16}),
        Golden("phi3", t.Phi3ForCausalLM, t.Phi3Config, {**phi, "sliding_window": 9}),
        Golden("phi3-longrope", t.Phi3ForCausalLM, t.Phi3Config, longrope, share="phi3"),
        Golden("phi3-longrope-v4", t.Phi3ForCausalLM, t.Phi3Config, longrope, share="phi3", spell4=longrope_spelled("su")),
        # An early name of longrope, and an original length that the default of Phi-3 (4096) goes before.
        Golden(
            "phi3-longrope-yarn",
            t.Phi3ForCausalLM,
            t.Phi3Config,
            longrope,
            share="phi3",
            spell4=dict(longrope_spelled("yarn"), original_max_position_embeddings=ABSENT),
        ),
        Golden(
            "phi3-partial",
            t.Phi3ForCausalLM,
            t.Phi3Config,
            {
                **phi,
                **rope(
                    rope_type="longrope",
                    partial_rotary_factor=0.5,
                    short_factor=factors[:2],
                    long_factor=long_factors[:2],
                ),
            },
            share="phi3",
        ),
        # Phi-4-mini: three quarters of each head are rotated, and the output projection is tied.
        Golden(
            "phi4-mini",
            t.Phi3ForCausalLM,
            t.Phi3Config,
            {
                **phi,
                "hidden_size": 64,
                "num_hidden_layers": 1,
                "tie_word_embeddings": True,
                **rope(
                    rope_type="longrope",
                    partial_rotary_factor=0.75,
                    short_factor=[round(1.0 + 0.11 * i, 3) for i in range(6)],
                    long_factor=[round(1.2 + 0.57 * i, 3) for i in range(6)],
                ),
            },
        ),
        Golden("gemma", t.GemmaForCausalLM, t.GemmaConfig, {**gemma, "num_hidden_layers": 2, "num_key_value_heads": 1}),
        Golden(
            "gemma2",
            t.Gemma2ForCausalLM,
            t.Gemma2Config,
            {**gemma, "sliding_window": 8, "query_pre_attn_scalar": 24, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0},
        ),
        Golden("gemma3", t.Gemma3ForCausalLM, t.Gemma3TextConfig, gemma3),
        # A key that transformers has and does not use.
        Golden("gemma3-softcap", t.Gemma3ForCausalLM, t.Gemma3TextConfig, {**gemma3, "attn_logit_softcapping": 0.5}, share="gemma3"),
        Golden(
            "gemma3-v4",
            t.Gemma3ForCausalLM,
            t.Gemma3TextConfig,
            gemma3,
            share="gemma3",
            spell4=dict(
                rope_theta=100000.0,
                rope_local_base_freq=1000.0,
                rope_scaling=dict(rope_type="linear", factor=8.0),
                sliding_window_pattern=3,
                layer_types=None,
            ),
        ),
        Golden(
            "gemma3-images",
            t.Gemma3ForConditionalGeneration,
            t.Gemma3Config,
            dict(text_config=gemma3, vision_config=vision, mm_tokens_per_image=4, bos_token_id=1, eos_token_id=[2, 7]),
        ),
        Golden("gemma-bf16", t.GemmaForCausalLM, t.GemmaConfig, {**gemma, "num_hidden_layers": 2}, dtype=torch.bfloat16),
        Golden("seed-oss", t.SeedOssForCausalLM, t.SeedOssConfig, {**BASE, "head_dim": 16}),
        Golden("starcoder2", t.Starcoder2ForCausalLM, t.Starcoder2Config, {**BASE, "sliding_window": 7}),
        Golden("smollm3", t.SmolLM3ForCausalLM, t.SmolLM3Config, {**BASE, "no_rope_layer_interval": 2}),
        Golden(
            "smollm3-window",
            t.SmolLM3ForCausalLM,
            t.SmolLM3Config,
            {**BASE, "no_rope_layers": [0, 1], "use_sliding_window": True, "sliding_window": 7},
            share="smollm3",
        ),
        Golden("granite", t.GraniteForCausalLM, t.GraniteConfig, granite),
        Golden("granite-bf16", t.GraniteForCausalLM, t.GraniteConfig, {**granite, "tie_word_embeddings": True}, dtype=torch.bfloat16),
        Golden("arcee", t.ArceeForCausalLM, t.ArceeConfig, BASE),
        Golden("nemotron", t.NemotronForCausalLM, t.NemotronConfig, {**BASE, "head_dim": 16}),
        Golden("olmo2", t.Olmo2ForCausalLM, t.Olmo2Config, BASE),
        Golden("olmo2-bf16", t.Olmo2ForCausalLM, t.Olmo2Config, BASE, dtype=torch.bfloat16),
        Golden("olmo3", t.Olmo3ForCausalLM, t.Olmo3Config, olmo3),
        Golden(
            "olmo3-v4",
            t.Olmo3ForCausalLM,
            t.Olmo3Config,
            {
                **olmo3,
                "rope_parameters": {
                    "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 500000.0},
                    "sliding_attention": {"rope_type": "default", "rope_theta": 500000.0},
                },
            },
            share="olmo3",
            spell4=dict(rope_theta=500000.0, rope_scaling=dict(rope_type="linear", factor=4.0)),
        ),
        Golden(
            "exaone4",
            t.Exaone4ForCausalLM,
            t.Exaone4Config,
            {**exaone4, "sliding_window": 7, "sliding_window_pattern": 3, **rope(**llama3)},
        ),
        Golden(
            "exaone4-full",
            t.Exaone4ForCausalLM,
            t.Exaone4Config,
            {**exaone4, "sliding_window": None, "layer_types": ["full_attention"] * 3},
            share="exaone4",
        ),
        Golden(
            "cohere2",
            t.Cohere2ForCausalLM,
            t.Cohere2Config,
            {**BASE, "num_hidden_layers": 3, "sliding_window": 7, "sliding_window_pattern": 3, "logit_scale": 0.3},
        ),
        Golden(
            "cohere2-bf16",
            t.Cohere2ForCausalLM,
            t.Cohere2Config,
            {**BASE, "sliding_window": 7, "sliding_window_pattern": 2, "attention_bias": True},
            dtype=torch.bfloat16,
        ),
        Golden("glm", t.GlmForCausalLM, t.GlmConfig, {**BASE, "head_dim": 16}),
        Golden("glm4", t.Glm4ForCausalLM, t.Glm4Config, {**BASE, "head_dim": 16}),
        Golden("ernie4-5", t.Ernie4_5ForCausalLM, t.Ernie4_5Config, {**BASE, "head_dim": 16, "use_bias": True}),
        images(
            "mistral3-images",
            "Mistral3",
            {**small, **ministral3, "hidden_size": 16, "model_type": "ministral3"},
            vision_config=pixtral,
            tie_word_embeddings=False,
        ),
        images(
            "llava-images",
            "Llava",
            {**small, "model_type": "llama"},
            vision_config={**vision, "model_type": "clip_vision_model", "projection_dim": 8},
        ),
        images(
            "internvl-images",
            "InternVL",
            {**small, "model_type": "qwen3", "head_dim": 4},
            vision_config={**vision, "image_size": [8, 8], "patch_size": [4, 4], "model_type": "internvl_vision"},
            tie_word_embeddings=False,
        ),
        images("idefics3-images", "Idefics3", {**small, "model_type": "llama"}, vision_config=vision),
        images("smolvlm-images", "SmolVLM", {**small, "model_type": "llama"}, vision_config=vision),
        Golden("apertus", t.ApertusForCausalLM, t.ApertusConfig, {**BASE, **rope(**llama3)}),
        Golden("apertus-bf16", t.ApertusForCausalLM, t.ApertusConfig, {**BASE, **rope(**llama3)}, dtype=torch.bfloat16),
        images(
            "qwen3-vl-images",
            "Qwen3VL",
            {
                **small,
                "model_type": "qwen3_vl_text",
                "head_dim": 8,
                **rope(rope_type="default", mrope_section=[2, 1, 1], mrope_interleaved=True),
            },
            vision_config=qwen_vision,
        ),
        images(
            "qwen2-5-vl-images",
            "Qwen2_5_VL",
            qwen2_5_vl,
            vision_config={**qwen_vision, "fullatt_block_indexes": [0], "window_size": 8},
            tie_word_embeddings=False,
        ),
        # Its files keep the text's keys beside the others.
        images(
            "qwen2-5-vl-images-v4",
            "Qwen2_5_VL",
            qwen2_5_vl,
            vision_config={**qwen_vision, "fullatt_block_indexes": [0], "window_size": 8},
            share="qwen2-5-vl-images",
            tie_word_embeddings=False,
            spell4=dict(
                {key: value for key, value in qwen2_5_vl.items() if key not in ("model_type", "rope_parameters")},
                text_config=ABSENT,
                rope_theta=10000.0,
                rope_scaling=dict(type="mrope", mrope_section=[1, 1, 0]),
            ),
        ),
        Golden("hunyuan", t.HunYuanDenseV1ForCausalLM, t.HunYuanDenseV1Config, {**BASE, "head_dim": 16}),
        Golden(
            "hunyuan-alpha",
            t.HunYuanDenseV1ForCausalLM,
            t.HunYuanDenseV1Config,
            {**BASE, "head_dim": 16, **rope(rope_type="dynamic", factor=1.0, alpha=50.0)},
            share="hunyuan",
        ),
        Golden("mixtral", t.MixtralForCausalLM, t.MixtralConfig, {**BASE, "num_local_experts": 6, "num_experts_per_tok": 2}),
        Golden(
            "qwen2-moe",
            t.Qwen2MoeForCausalLM,
            t.Qwen2MoeConfig,
            {**MIXTURE, "num_hidden_layers": 3, "shared_expert_intermediate_size": 40, "mlp_only_layers": [1]},
        ),
        Golden("gpt-oss", t.GptOssForCausalLM, t.GptOssConfig, GPT_OSS),
        Golden(
            "gpt-oss-v4",
            t.GptOssForCausalLM,
            t.GptOssConfig,
            GPT_OSS,
            share="gpt-oss",
            spell4=dict(rope_theta=1000.0, rope_scaling=GPT_OSS_YARN, layer_types=ABSENT, swiglu_alpha=ABSENT),
        ),
        Golden("qwen3-moe", t.Qwen3MoeForCausalLM, t.Qwen3MoeConfig, {**MIXTURE, "head_dim": 16, "norm_topk_prob": True}),
        Golden("olmoe", t.OlmoeForCausalLM, t.OlmoeConfig, {**MIXTURE, "intermediate_size": 24}),
        Golden(
            "granitemoe", t.GraniteMoeForCausalLM, t.GraniteMoeConfig, {**granite, "num_local_experts": 6, "num_experts_per_tok": 2}
        ),
        Golden(
            "granitemoeshared",
            t.GraniteMoeSharedForCausalLM,
            t.GraniteMoeSharedConfig,
            {**granite, "num_local_experts": 6, "num_experts_per_tok": 2, "shared_intermediate_size": 40},
        ),
        Golden(
            "ernie4-5-moe",
            t.Ernie4_5_MoeForCausalLM,
            t.Ernie4_5_MoeConfig,
            {
                **BASE,
                "num_hidden_layers": 3,
                "moe_num_experts": 8,
                "moe_k": 3,
                "moe_intermediate_size": 24,
                "moe_num_shared_experts": 2,
                "tie_word_embeddings": False,
            },
        ),
        Golden(
            "hunyuan-moe",
            t.HunYuanMoEV1ForCausalLM,
            t.HunYuanMoEV1Config,
            {
                **BASE,
                "intermediate_size": 24,
                "head_dim": 16,
                "num_experts": 6,
                "moe_topk": [2, 2],
                **rope(rope_type="dynamic", factor=1.0, alpha=50.0),
            },
        ),
        Golden(
            "minimax-m2",
            t.MiniMaxM2ForCausalLM,
            t.MiniMaxM2Config,
            {
                **BASE,
                "intermediate_size": 24,
                "head_dim": 16,
                "num_local_experts": 8,
                "num_experts_per_tok": 3,
                **rope(rope_type="default", partial_rotary_factor=0.5),
            },
        ),
        Golden(
            "minimax-m2-v4",
            t.MiniMaxM2ForCausalLM,
            t.MiniMaxM2Config,
            {
                **BASE,
                "intermediate_size": 24,
                "head_dim": 16,
                "num_local_experts": 8,
                "num_experts_per_tok": 3,
                **rope(rope_type="default", partial_rotary_factor=0.25),
            },
            share="minimax-m2",
            spell4=dict(rope_theta=10000.0, rotary_dim=4),
        ),
        Golden(
            "glm4-moe",
            t.Glm4MoeForCausalLM,
            t.Glm4MoeConfig,
            {**SIGMOID, "head_dim": 16, "attention_bias": True, "use_qk_norm": True, "n_group": 4, "topk_group": 2},
        ),
        # As GLM-4.5-Air: no norms on q and k, no groups.
        Golden(
            "glm4-moe-air",
            t.Glm4MoeForCausalLM,
            t.Glm4MoeConfig,
            {**SIGMOID, "num_hidden_layers": 2, "head_dim": 16, "n_shared_experts": 1, "norm_topk_prob": False},
            spell4=dict(rope_theta=10000.0, rope_scaling=None, partial_rotary_factor=0.5),
        ),
        Golden(
            "dots1",
            t.Dots1ForCausalLM,
            t.Dots1Config,
            {**SIGMOID, "norm_topk_prob": True, "sliding_window": 7, "max_window_layers": 1},
        ),
        Golden("llama4", t.Llama4ForCausalLM, t.Llama4TextConfig, llama4),
        # As Maverick: every other layer has experts, no norms on q and k.
        Golden(
            "llama4-dense",
            t.Llama4ForCausalLM,
            t.Llama4TextConfig,
            {**llama4, "num_hidden_layers": 2, "interleave_moe_layer_step": 2, "use_qk_norm": False, "no_rope_layers": [0, 1]},
        ),
        images(
            "llama4-images",
            "Llama4",
            {**llama4, "hidden_size": 16, "num_hidden_layers": 2, "no_rope_layer_interval": 2, "model_type": "llama4_text"},
            vision_config=dict(
                hidden_size=8,
                intermediate_size=32,
                num_hidden_layers=1,
                num_attention_heads=2,
                image_size=8,
                patch_size=4,
                vision_output_dim=8,
                projector_input_dim=8,
                projector_output_dim=8,
            ),
        ),
        Golden("gemma4", t.Gemma4ForCausalLM, t.Gemma4TextConfig, gemma4_mixture),
        # As published files spell the heads of full layers.
        Golden(
            "gemma4-v4",
            t.Gemma4ForCausalLM,
            t.Gemma4TextConfig,
            gemma4_mixture,
            share="gemma4",
            spell4=dict(
                rope_parameters=gemma4_rope, per_layer_config=ABSENT, global_head_dim=16, num_global_key_value_heads=1
            ),
        ),
        # The small ones: embeddings by layer, and layers with the keys and values of others.
        Golden(
            "gemma4-small",
            t.Gemma4ForCausalLM,
            t.Gemma4TextConfig,
            {
                **gemma4,
                "num_hidden_layers": 5,
                "layer_types": windows[:1] + windows[2:] + windows,
                "hidden_size_per_layer_input": 6,
                "vocab_size_per_layer_input": VOCAB,
                "num_kv_shared_layers": 3,
                "use_double_wide_mlp": True,
            },
        ),
        Golden("gemma4-dense", t.Gemma4ForCausalLM, t.Gemma4TextConfig, gemma4),
        Golden(
            "qwen3-next",
            t.Qwen3NextForCausalLM,
            t.Qwen3NextConfig,
            {**MIXTURE, **DELTA, "shared_expert_intermediate_size": 20, "mlp_only_layers": [1]},
        ),
        Golden("qwen3-5", t.Qwen3_5ForCausalLM, t.Qwen3_5TextConfig, {**BASE, **DELTA, "attention_bias": True}),
        Golden("qwen3-5-bf16", t.Qwen3_5ForCausalLM, t.Qwen3_5TextConfig, {**BASE, **DELTA}, dtype=torch.bfloat16),
        Golden(
            "qwen3-5-moe",
            t.Qwen3_5MoeForCausalLM,
            t.Qwen3_5MoeTextConfig,
            {
                **MIXTURE,
                **DELTA,
                "num_hidden_layers": 3,
                "layer_types": ["linear_attention", "full_attention", "linear_attention"],
                "linear_num_key_heads": 4,
                "linear_conv_kernel_dim": 3,
                "shared_expert_intermediate_size": 20,
            },
        ),
        images(
            "qwen3-5-images",
            "Qwen3_5",
            {
                **small,
                **DELTA,
                "model_type": "qwen3_5_text",
                "num_hidden_layers": 2,
                "head_dim": 8,
                "linear_key_head_dim": 16,
                "layer_types": ["linear_attention", "full_attention"],
                "tie_word_embeddings": False,
                **rope(rope_type="default", partial_rotary_factor=0.5, mrope_section=[1, 1, 0], mrope_interleaved=True),
            },
            vision_config=qwen_vision,
            tie_word_embeddings=False,
        ),
        images(
            "qwen3-5-moe-images",
            "Qwen3_5Moe",
            {
                **small,
                **DELTA,
                "model_type": "qwen3_5_moe_text",
                "num_hidden_layers": 2,
                "head_dim": 8,
                "layer_types": ["linear_attention", "full_attention"],
                "linear_key_head_dim": 16,
                "num_experts": 4,
                "num_experts_per_tok": 2,
                "moe_intermediate_size": 12,
                "shared_expert_intermediate_size": 10,
                "tie_word_embeddings": False,
            },
            vision_config=qwen_vision,
            tie_word_embeddings=False,
        ),
        images(
            "qwen3-vl-moe-images",
            "Qwen3VLMoe",
            {
                **small,
                "model_type": "qwen3_vl_moe_text",
                "head_dim": 8,
                "num_experts": 6,
                "num_experts_per_tok": 2,
                "moe_intermediate_size": 12,
                "tie_word_embeddings": False,
                **rope(rope_type="default", mrope_section=[2, 1, 1], mrope_interleaved=True),
            },
            vision_config=qwen_vision,
            tie_word_embeddings=False,
        ),
        images(
            "glm4v-moe-images",
            "Glm4vMoe",
            {
                **SIGMOID,
                "hidden_size": 16,
                "intermediate_size": 24,
                "num_hidden_layers": 2,
                "moe_intermediate_size": 12,
                "model_type": "glm4v_moe_text",
                "head_dim": 8,
                **rope(rope_type="default", partial_rotary_factor=0.5, mrope_section=[1, 1, 0]),
            },
            vision_config=dict(
                depth=1, hidden_size=8, intermediate_size=8, num_heads=2, patch_size=2, image_size=8, out_hidden_size=16
            ),
        ),
        images(
            "gemma4-images",
            "Gemma4",
            {**gemma4, "hidden_size": 16, "num_hidden_layers": 2, "layer_types": windows[1:], "model_type": "gemma4_text"},
            vision_config=dict(
                hidden_size=8,
                intermediate_size=8,
                num_hidden_layers=1,
                num_attention_heads=2,
                num_key_value_heads=2,
                head_dim=4,
                patch_size=2,
                position_embedding_size=8,
                pooling_kernel_size=2,
            ),
            audio_config=None,
        ),
        # Longrope whose magnitudes are given.
        Golden(
            "phimoe",
            t.PhimoeForCausalLM,
            t.PhimoeConfig,
            {
                **BASE,
                "num_local_experts": 6,
                "num_experts_per_tok": 2,
                "router_jitter_noise": 0.2,
                "attention_bias": True,
                "lm_head_bias": True,
                "original_max_position_embeddings": 16,
                **rope(
                    rope_type="longrope",
                    short_factor=factors,
                    long_factor=long_factors,
                    short_mscale=1.3,
                    long_mscale=1.3,
                    original_max_position_embeddings=16,
                ),
            },
        ),
        # DeepSeek-V2-Lite (queries at once, no groups), DeepSeek-V2, DeepSeek-V3, Kimi-K2 (no groups, another model_type).
        Golden("deepseek-v2-lite", t.DeepseekV2ForCausalLM, t.DeepseekV2Config, {**latent, "q_lora_rank": None}),
        Golden(
            "deepseek-v2",
            t.DeepseekV2ForCausalLM,
            t.DeepseekV2Config,
            {
                **latent,
                "q_lora_rank": 16,
                "topk_method": "group_limited_greedy",
                "n_group": 4,
                "topk_group": 2,
                "routed_scaling_factor": 3.0,
                **rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=12, mscale=0.707, mscale_all_dim=0.707),
            },
        ),
        Golden("deepseek-v3", t.DeepseekV3ForCausalLM, t.DeepseekV3Config, v3),
        # With all experts of a token, whose choice the last bits of bf16 would decide.
        Golden(
            "deepseek-v3-bf16",
            t.DeepseekV3ForCausalLM,
            t.DeepseekV3Config,
            {**v3, "n_routed_experts": 4, "num_experts_per_tok": 4, "n_group": 1, "topk_group": 1},
            dtype=torch.bfloat16,
        ),
        Golden(
            "deepseek-v3-yarn",
            t.DeepseekV3ForCausalLM,
            t.DeepseekV3Config,
            {
                **v3,
                "attention_bias": True,
                "rope_interleave": False,
                "norm_topk_prob": False,
                **rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=12, mscale=1.0, mscale_all_dim=0.5),
            },
        ),
        Golden(
            "kimi-k2",
            t.DeepseekV3ForCausalLM,
            t.DeepseekV3Config,
            {**v3, "n_group": 1, "topk_group": 1, "n_shared_experts": 1},
            model_type="kimi_k2",
            spell4=dict(
                rope_theta=10000.0,
                rope_scaling=dict(
                    type="yarn",
                    factor=4.0,
                    original_max_position_embeddings=12,
                    beta_fast=1.0,
                    beta_slow=1.0,
                    mscale=1.0,
                    mscale_all_dim=1.0,
                ),
                topk_method="noaux_tc",
                scoring_func="sigmoid",
                moe_layer_freq=1,
            ),
        ),
        # Sparse attention over fewer tokens than it may choose is full attention.
        Golden(
            "deepseek-v32",
            t.DeepseekV32ForCausalLM,
            t.DeepseekV32Config,
            {**v3, "num_hidden_layers": 2, "index_topk": 64, "index_head_dim": 16, "index_n_heads": 2},
        ),
        Golden(
            "glm-moe-dsa",
            t.GlmMoeDsaForCausalLM,
            t.GlmMoeDsaConfig,
            {
                **v3,
                "n_group": 1,
                "topk_group": 1,
                "n_shared_experts": 1,
                "index_topk": 64,
                "index_head_dim": 16,
                "index_n_heads": 2,
                "index_topk_freq": 2,
                "n_routed_experts": 6,
            },
        ),
        Golden(
            "granite-hybrid",
            t.GraniteMoeHybridForCausalLM,
            t.GraniteMoeHybridConfig,
            {**BASE, **GRANITE_SCAN, "intermediate_size": 20, "num_local_experts": 6, "num_experts_per_tok": 2},
        ),
        Golden(
            "granite-hybrid-dense",
            t.GraniteMoeHybridForCausalLM,
            t.GraniteMoeHybridConfig,
            {
                **BASE,
                **GRANITE_SCAN,
                "num_local_experts": 0,
                "mamba_n_groups": 2,
                "mamba_conv_bias": False,
                "mamba_proj_bias": True,
                "position_embedding_type": "rope",
                "tie_word_embeddings": True,
            },
        ),
        Golden(
            "nemotron-h",
            t.NemotronHForCausalLM,
            t.NemotronHConfig,
            {**BASE, **NEMOTRON_H},
            spell4=dict(
                hybrid_override_pattern="M-*ME",
                layers_block_type=ABSENT,
                num_hidden_layers=5,
                time_step_limit=[0.0, float("inf")],
            ),
        ),
        Golden(
            "nemotron-h-latent",
            t.NemotronHForCausalLM,
            t.NemotronHConfig,
            {
                **BASE,
                **NEMOTRON_H,
                "layers_block_type": ["moe", "linear_attention", "full_attention"],
                "moe_latent_size": 16,
                "n_group": 2,
                "topk_group": 1,
                "mlp_bias": False,
                "use_bias": True,
                "conv_kernel": 3,
            },
        ),
        Golden("gpt2", t.GPT2LMHeadModel, t.GPT2Config, gpt2),
        Golden("gpt2-scaled", t.GPT2LMHeadModel, t.GPT2Config, {**gpt2, "n_inner": 40, "scale_attn_by_inverse_layer_idx": True}),
        Golden("gpt-neox", t.GPTNeoXForCausalLM, t.GPTNeoXConfig, {**neox, **rope(rope_type="default", partial_rotary_factor=0.5)}),
        Golden(
            "gpt-neox-v4",
            t.GPTNeoXForCausalLM,
            t.GPTNeoXConfig,
            {**neox, **rope(rope_type="default", partial_rotary_factor=0.5)},
            share="gpt-neox",
            spell4=dict(rotary_pct=0.5, rotary_emb_base=10000),
        ),
        Golden(
            "gpt-neox-serial",
            t.GPTNeoXForCausalLM,
            t.GPTNeoXConfig,
            {**neox, "use_parallel_residual": False, "attention_bias": False, **rope(rope_type="default", partial_rotary_factor=1.0)},
        ),
    ]


def main():
    transformers.logging.set_verbosity_error()
    torch.backends.mkldnn.enabled = False  # the same arithmetic on every CPU
    wanted = sys.argv[1:]
    for golden in goldens():
        if not wanted or golden.name in wanted:
            print(golden.name, flush=True)
            golden.write()


if __name__ == "__main__":
    main()
