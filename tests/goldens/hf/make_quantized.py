#!/usr/bin/env python3
"""Makes the tiny quantized checkpoints of this folder, quant-*, and what transformers computes with them.

    venv/bin/python make_quantized.py [name ...]        in the environment of make_goldens.py
    venv/bin/python make_quantized.py --check [name ...]

The linear layers of a random model are quantized by the formulas below and stored as the method does it. The expected logits are
those of transformers with the weights that the stored numbers stand for, in the model's type, and with activations as they are, or
as what the numbers stand for to which a method of fp8 quantizes them (ACTIVATIONS).
--check loads the checkpoints with the methods' own code where that runs on a CPU (compressed-tensors from PyPI; fp8 by
transformers itself) and compares the weights that it makes of them.
"""

import functools
import json
import os
import re
import shutil
import sys

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file

from make_goldens import BASE, GPT_OSS, HERE, LATENT, MIXTURE, measure, randomise

AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]
F8 = torch.float8_e4m3fn
INPUT_SCALE = 0.02
# Some activations are larger, few by much: kernels that leave x as it is do not clip it either.
MOST_ACTIVATION = 10.0


def blocks(weight, block_n, block_k, most):
    """The scale of every block, so that the largest of it becomes `most`; and the same, one for every element."""
    rows, columns = weight.shape
    n, k = -(-rows // block_n), -(-columns // block_k)
    padded = torch.zeros(n * block_n, k * block_k)
    padded[:rows, :columns] = weight
    largest = padded.reshape(n, block_n, k, block_k).abs().amax((1, 3))
    scale = largest / most
    whole = scale.repeat_interleave(block_n, 0).repeat_interleave(block_k, 1)[:rows, :columns]
    return scale, whole


def pack(numbers, order=range(8), bits=4):
    """[rows, columns] of small numbers -> int32 [rows, columns * bits / 32], the first of `order` in the lowest bits."""
    per = 32 // bits
    rows, columns = numbers.shape
    numbers = np.pad(numbers.astype(np.uint64), ((0, 0), (0, -columns % per))).reshape(rows, -1, per)
    words = np.zeros(numbers.shape[:2], np.uint64)
    for i, place in enumerate(list(order)[:per]):
        words |= numbers[:, :, place] << np.uint64(bits * i)
    return torch.from_numpy(words.astype(np.uint32).view(np.int32).copy())


# Each: weight [out, in] -> (tensors by suffix, the weight they stand for). Scales have the type `of` at most.


def fp8_block(weight, of, block=(16, 16)):
    scale, whole = blocks(weight, *block, 448.0)
    numbers = (weight / whole).to(F8)
    return {"weight": numbers, "weight_scale_inv": scale}, numbers.float() * whole


def fp8_tensor(weight, of):
    scale = (weight.abs().max() / 448.0).to(of)
    numbers = (weight / scale.float()).to(F8)
    extra = {"weight_scale": scale, "input_scale": torch.tensor(INPUT_SCALE, dtype=of)}
    return {"weight": numbers, **extra}, numbers.float() * scale.float()


def fp8_row(weight, of):
    scale = (weight.abs().amax(1, keepdim=True) / 448.0).to(of)
    numbers = (weight / scale.float()).to(F8)
    return {"weight": numbers, "weight_scale": scale}, numbers.float() * scale.float()


def int8_row(weight, of):
    scale = (weight.abs().amax(1, keepdim=True) / 127.0).to(of)
    numbers = (weight / scale.float()).round().clamp(-128, 127).to(torch.int8)
    return {"weight": numbers, "weight_scale": scale}, numbers.float() * scale.float()


def groups_of(weight, of, group, symmetric, bits=4):
    """Numbers from 0 on, scales [out, groups], zero points [out, groups], and the weight they stand for."""
    out, columns = weight.shape
    parts = weight.reshape(out, columns // group, group)
    top = 2**bits - 1
    if symmetric:
        scale = (parts.abs().amax(2) / (2 ** (bits - 1) - 0.5)).to(of)
        zero = torch.full_like(scale, 2 ** (bits - 1), dtype=torch.float32)
    else:
        low, high = parts.amin(2).clamp(max=0), parts.amax(2).clamp(min=0)
        scale = ((high - low) / top).to(of)
        zero = (-low / scale.float()).round().clamp(0, top)
    numbers = (parts / scale.float()[:, :, None] + zero[:, :, None]).round().clamp(0, top)
    meant = ((numbers - zero[:, :, None]) * scale.float()[:, :, None]).reshape(out, columns)
    return numbers.reshape(out, columns).numpy(), scale, zero.numpy(), meant


def packed(weight, of, group=16, symmetric=True, bits=4):
    numbers, scale, zero, meant = groups_of(weight, of, group, symmetric, bits)
    tensors = {"weight_packed": pack(numbers, bits=bits), "weight_scale": scale, "weight_shape": torch.tensor(weight.shape)}
    if not symmetric:
        tensors["weight_zero_point"] = pack(zero.T).T.contiguous()
    return tensors, meant


def gptq(weight, of, group=16, symmetric=False, bits=4):
    numbers, scale, zero, meant = groups_of(weight, of, group, symmetric, bits)
    return {
        "qweight": pack(numbers, bits=bits).T.contiguous(),
        "qzeros": pack(zero.T, bits=bits) - sum(1 << i for i in range(0, 32, bits)),
        "scales": scale.T.contiguous(),
        "g_idx": (torch.arange(weight.shape[1]) // group).to(torch.int32),
    }, meant


def awq(weight, of, group=16):
    numbers, scale, zero, meant = groups_of(weight, of, group, False)
    return {
        "qweight": pack(numbers.T, AWQ_ORDER),
        "qzeros": pack(zero.T, AWQ_ORDER),
        "scales": scale.T.contiguous(),
    }, meant


def mxfp4(weight, of):
    """Numbers e2m1 [..., columns], two in a byte, with a power of two for 32 of them."""
    table = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
    parts = weight.reshape(*weight.shape[:-1], -1, 32)
    exponent = (parts.abs().amax(-1) / 6.0).log2().ceil()
    scaled = parts / exponent.exp2()[..., None]
    code = (scaled.abs()[..., None] - table).abs().argmin(-1)
    meant = (table[code] * scaled.sign() * exponent.exp2()[..., None]).reshape(weight.shape)
    code = code + 8 * (scaled < 0)
    packed_codes = (code[..., 0::2] | code[..., 1::2] << 4).to(torch.uint8)
    return {"blocks": packed_codes, "scales": (exponent + 127).to(torch.uint8)}, meant


def small_floats(weight, scale):
    """The codes e2m1 of weight over scale, which is one for every element, and what they stand for."""
    table = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
    scaled = weight / scale
    code = (scaled.abs()[..., None] - table).abs().argmin(-1)
    code = torch.where(scaled < 0, code + 8, code)
    return (code[..., 0::2] | code[..., 1::2] << 4).to(torch.uint8), torch.cat([table, -table])[code] * scale


def nvfp4(weight, of, modelopt=False):
    """Groups of 16 with scales e4m3, and one for all that compressed-tensors divides by and ModelOpt multiplies by."""
    whole = 448.0 * 6.0 / weight.abs().max()
    whole = 1.0 / (1.0 / whole) if modelopt else whole
    scale = (weight.unflatten(1, (-1, 16)).abs().amax(2) / 6.0 * whole).to(F8)
    meant = scale.float() * (1.0 / whole) if modelopt else scale.float() / whole
    codes, meant = small_floats(weight, meant.repeat_interleave(16, 1))
    if modelopt:
        extra = {"weight_scale_2": 1.0 / whole, "input_scale": torch.tensor(INPUT_SCALE)}
        return {"weight": codes, "weight_scale": scale, **extra}, meant
    return {"weight_packed": codes, "weight_scale": scale, "weight_global_scale": whole.reshape(1)}, meant


def mxfp4_linear(weight, of):
    exponent = (weight.unflatten(1, (-1, 32)).abs().amax(2) / 6.0).log2().ceil()
    codes, meant = small_floats(weight, exponent.exp2().repeat_interleave(32, 1))
    return {"weight_packed": codes, "weight_scale": (exponent + 127).to(torch.uint8)}, meant


FP8_TOKEN = {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True, "symmetric": True}


def compressed(form, activations=None, **weights):
    weights = {"dynamic": False, "symmetric": True, **weights}
    group = {"weights": weights, "input_activations": activations, "output_activations": None, "targets": ["Linear"]}
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "quantization_status": "compressed",
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
    }


t = transformers
LLAMA = (t.LlamaForCausalLM, t.LlamaConfig, BASE)
QWEN2 = (t.Qwen2ForCausalLM, t.Qwen2Config, BASE)
PHI3 = (t.Phi3ForCausalLM, t.Phi3Config, BASE)
LLAMA4 = (
    t.Llama4ForCausalLM,
    t.Llama4TextConfig,
    {**BASE, "intermediate_size": 24, "intermediate_size_mlp": 40, "head_dim": 8, "num_local_experts": 6, "num_experts_per_tok": 1},
)
MIXTRAL = (t.MixtralForCausalLM, t.MixtralConfig, {**BASE, "num_local_experts": 6, "num_experts_per_tok": 2})
QWEN2_MOE = (t.Qwen2MoeForCausalLM, t.Qwen2MoeConfig, {**MIXTURE, "shared_expert_intermediate_size": 40})
QWEN3_MOE = (t.Qwen3MoeForCausalLM, t.Qwen3MoeConfig, {**MIXTURE, "head_dim": 16, "norm_topk_prob": True})
# Experts of a block, so many that two, three and four ranks can have some; and a layer without experts.
WIDE_MIXTURE = {**MIXTURE, "head_dim": 16, "num_experts": 12, "moe_intermediate_size": 128, "mlp_only_layers": [0]}
GLM4 = (t.Glm4ForCausalLM, t.Glm4Config, {**BASE, "head_dim": 16})
GPT = (t.GptOssForCausalLM, t.GptOssConfig, GPT_OSS)
V3 = (
    t.DeepseekV3ForCausalLM,
    t.DeepseekV3Config,
    {
        **BASE,
        **LATENT,
        "num_hidden_layers": 2,
        "q_lora_rank": 16,
        "kv_lora_rank": 32,
        "qk_nope_head_dim": 16,
        "n_routed_experts": 12,  # all of a token: rounded inputs do not decide the choice
        "num_experts_per_tok": 12,
        "moe_intermediate_size": 128,
        "n_shared_experts": 1,
        "n_group": 1,
        "topk_group": 1,
    },
)
F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
# name: model, type, quantize, its type of scales, quantization_config
GOLDENS = {
    "quant-fp8": (
        LLAMA, F32, fp8_block, F32,
        dict(quant_method="fp8", fmt="e4m3", activation_scheme="dynamic", weight_block_size=[16, 16],
             modules_to_not_convert=["lm_head"]),
    ),
    # Blocks that are cut off at the end of 48 columns.
    "quant-fp8-rest": (
        LLAMA, F32, lambda w, of: fp8_block(w, of, (16, 32)), F32,
        dict(quant_method="fp8", activation_scheme="dynamic", weight_block_size=[16, 32]),
    ),
    # Parts of one weight, in whole blocks.
    "quant-fp8-phi3": (PHI3, F32, fp8_block, F32, dict(quant_method="fp8", weight_block_size=[16, 16])),
    # Interleaved rope: rows of q and k are reordered, with a block for each head, and with scales of rows.
    "quant-fp8-glm4": (GLM4, F32, fp8_block, F32, dict(quant_method="fp8", weight_block_size=[16, 16])),
    # Latent attention: rotated rows at the end of a head, a weight that is used as floats, blocks that are cut off.
    "quant-fp8-deepseek": (
        V3, F32, lambda w, of: fp8_block(w, of, (128, 128)), F32, dict(quant_method="fp8", weight_block_size=[128, 128]),
    ),
    "quant-gptq-glm4": (
        GLM4, F32, gptq, F16, dict(quant_method="gptq", bits=4, group_size=16, sym=False, desc_act=False),
    ),
    "quant-fp8-tensor": (LLAMA, F32, fp8_tensor, F32, dict(quant_method="fp8", activation_scheme="static")),
    "quant-fbgemm": (QWEN2, F32, fp8_row, F32, dict(quant_method="fbgemm_fp8", activation_scale_ub=MOST_ACTIVATION)),
    "quant-float": (
        LLAMA, BF16, fp8_row, BF16, compressed("float-quantized", num_bits=8, type="float", strategy="channel"),
    ),
    "quant-float-dynamic": (
        QWEN2, F32, fp8_row, F32,
        compressed("float-quantized", FP8_TOKEN, num_bits=8, type="float", strategy="channel"),
    ),
    "quant-modelopt": (LLAMA, F32, fp8_tensor, F32, dict(quant_method="modelopt", quant_algo="FP8", ignore=["lm_head"])),
    "quant-int8": (LLAMA, F32, int8_row, F32, compressed("int-quantized", num_bits=8, type="int", strategy="channel")),
    "quant-int4": (
        LLAMA, F32, packed, F32,
        compressed("pack-quantized", num_bits=4, type="int", strategy="group", group_size=16),
    ),
    "quant-int4-zeros": (
        QWEN2, F32, lambda w, of: packed(w, of, symmetric=False), F32,
        compressed("pack-quantized", num_bits=4, type="int", strategy="group", group_size=16, symmetric=False),
    ),
    "quant-nvfp4": (
        LLAMA, F32, nvfp4, F32,
        compressed("nvfp4-pack-quantized", num_bits=4, type="float", strategy="tensor_group", group_size=16,
                   scale_dtype="torch.float8_e4m3fn"),
    ),
    "quant-nvfp4-modelopt": (
        LLAMA, F32, lambda w, of: nvfp4(w, of, True), F32,
        dict(quant_method="modelopt", quant_algo="NVFP4", ignore=["lm_head"]),
    ),
    "quant-mxfp4-linear": (
        (t.LlamaForCausalLM, t.LlamaConfig, {**BASE, "hidden_size": 64, "intermediate_size": 96}), F32, mxfp4_linear, F32,
        compressed("mxfp4-pack-quantized", num_bits=4, type="float", strategy="group", group_size=32,
                   scale_dtype="torch.uint8"),
    ),
    "quant-moe-nvfp4": (
        (t.Qwen3MoeForCausalLM, t.Qwen3MoeConfig, {**MIXTURE, "head_dim": 16, "moe_intermediate_size": 48}), F32, nvfp4, F32,
        compressed("nvfp4-pack-quantized", num_bits=4, type="float", strategy="tensor_group", group_size=16,
                   scale_dtype="torch.float8_e4m3fn"),
    ),
    "quant-packed8": (
        LLAMA, F32, lambda w, of: packed(w, of, group=w.shape[1], bits=8), F32,
        compressed("pack-quantized", num_bits=8, type="int", strategy="channel"),
    ),
    "quant-gptq": (LLAMA, F32, gptq, F16, dict(quant_method="gptq", bits=4, group_size=16, sym=False, desc_act=False)),
    "quant-gptq-phi3": (
        PHI3, F16, lambda w, of: gptq(w, of, symmetric=True), F16,
        dict(quant_method="gptq", bits=4, group_size=16, sym=True, desc_act=False, checkpoint_format="gptq"),
    ),
    "quant-gptq8": (
        LLAMA, F32, lambda w, of: gptq(w, of, w.shape[1], True, 8), F16,
        dict(quant_method="gptq", bits=8, group_size=-1, sym=True),
    ),
    # A second block of columns, which is cut off.
    "quant-moe-fp8": (
        (t.Qwen3MoeForCausalLM, t.Qwen3MoeConfig, {**WIDE_MIXTURE, "hidden_size": 136}), F32, lambda w, of: fp8_block(w, of, (128, 128)), F32,
        dict(quant_method="fp8", fmt="e4m3", activation_scheme="dynamic", weight_block_size=[128, 128]),
    ),
    # As transformers keeps experts: all in one weight.
    "quant-moe-stacked": (
        (t.Qwen3MoeForCausalLM, t.Qwen3MoeConfig, WIDE_MIXTURE), F32, lambda w, of: fp8_block(w, of, (128, 128)), F32,
        dict(quant_method="fp8", fmt="e4m3", activation_scheme="dynamic", weight_block_size=[128, 128]),
    ),
    # Llama 4: experts in one weight the other way round, with a scale for each of their outputs.
    "quant-moe-turned": (LLAMA4, F32, fp8_row, F32, dict(quant_method="fbgemm_fp8", activation_scale_ub=1200.0)),
    "quant-moe-float": (
        QWEN3_MOE, BF16, fp8_row, BF16, compressed("float-quantized", num_bits=8, type="float", strategy="channel"),
    ),
    "quant-moe-tensor": (
        MIXTRAL, F32, fp8_tensor, F32, compressed("float-quantized", num_bits=8, type="float", strategy="tensor"),
    ),
    "quant-moe-int8": (
        MIXTRAL, F32, int8_row, F32, compressed("int-quantized", num_bits=8, type="int", strategy="channel"),
    ),
    "quant-moe-int4": (
        QWEN3_MOE, F32, lambda w, of: packed(w, of, 8), F32,
        compressed("pack-quantized", num_bits=4, type="int", strategy="group", group_size=8),
    ),
    "quant-moe-gptq": (
        QWEN2_MOE, F32, lambda w, of: gptq(w, of, 8), F16,
        dict(quant_method="gptq", bits=4, group_size=8, sym=False, desc_act=False),
    ),
    "quant-moe-awq": (
        MIXTRAL, F32, lambda w, of: awq(w, of, 8), F16,
        dict(quant_method="awq", bits=4, group_size=8, version="gemm", zero_point=True),
    ),
    # Experts alone, as gpt-oss is published.
    "quant-mxfp4": (
        GPT, F32, mxfp4, F32,
        dict(quant_method="mxfp4", modules_to_not_convert=["model.layers.*.self_attn", "model.layers.*.mlp.router",
                                                           "model.embed_tokens", "lm_head"]),
    ),
    # Tokens take all experts: in bf16 a last bit of a logit could choose another.
    "quant-mxfp4-bf16": (
        (*GPT[:2], {**GPT_OSS, "num_experts_per_tok": 4}), BF16, mxfp4, BF16, dict(quant_method="mxfp4"),
    ),
    "quant-awq": (
        QWEN2, F32, awq, F16, dict(quant_method="awq", bits=4, group_size=16, version="gemm", zero_point=True),
    ),
}


# What quantized() multiplies scales by; changed for a while by hinges_on_ties().
nudge = 1.0


def quantized(x, group=None, scale=None, most=None):
    """x as numbers of e4m3 by a scale, or by one for every group of columns (None: all of a row), at most `most`."""
    parts = x.float().unflatten(-1, (-1, group or x.shape[-1])) if x.shape[-1] % (group or 1) == 0 else None
    if parts is None:  # the last group has fewer columns
        whole = x.shape[-1] // group * group
        return torch.cat([quantized(x[..., :whole], group), quantized(x[..., whole:])], -1)
    if scale is None:
        scale = parts.abs().amax(-1, keepdim=True) / 448.0
        scale = scale.clamp(max=most) if most is not None else scale
    scale = scale * nudge
    return ((parts / scale).clamp(-448.0, 448.0).to(F8).float() * scale).flatten(-2).to(x.dtype)


# name: what a quantized layer makes of its input. Experts leave it as it is.
ACTIVATIONS = {
    "quant-fp8": lambda x: quantized(x, 16),
    "quant-fp8-rest": lambda x: quantized(x, 32),
    "quant-fp8-phi3": lambda x: quantized(x, 16),
    "quant-fp8-glm4": lambda x: quantized(x, 16),
    "quant-fp8-deepseek": lambda x: quantized(x, 128),
    "quant-moe-fp8": lambda x: quantized(x, 128),
    "quant-moe-stacked": lambda x: quantized(x, 128),
    "quant-fp8-tensor": lambda x: quantized(x, scale=INPUT_SCALE),
    "quant-modelopt": lambda x: quantized(x, scale=INPUT_SCALE),
    "quant-fbgemm": lambda x: quantized(x, most=MOST_ACTIVATION / 448.0),
    "quant-float-dynamic": quantized,
}


def hinges_on_ties(model, goldens):
    """Whether some x lies so near the middle of two numbers that sums in another order round it the other way, and that is seen."""
    global nudge
    worst = 0.0
    for nudge in (1 - 2e-6, 1 + 2e-6):
        for key, nudged in measure(model).items():
            if key.endswith("logits"):
                worst = max(worst, ((nudged - goldens[key]).abs().max() / goldens[key].abs().max()).item())
    nudge = 1.0
    return worst > 1e-3


# Whose output projection is quantized, too.
HEADS = ("quant-gptq", "quant-float", "quant-float-dynamic")
# Whose experts alone are quantized: where the inputs of linear layers round would decide the choice of experts.
EXPERTS_ONLY = ("quant-moe-turned",)
# What is used as floats, and so is its input.
FLOATS = ("kv_b_proj",)
# What checkpoints leave as it is.
PLAIN = ("shared_expert_gate", "router", "lm_head")


def quantize_experts(model, tensors, quantize, of):
    """Stored one by one; transformers has them stacked, gate and up in one."""
    for full, module in model.named_modules():
        if not hasattr(module, "gate_up_proj") or not hasattr(module, "num_experts"):
            continue
        if full + ".gate_up_proj" in tensors:
            for part in ("gate_up_proj", "down_proj"):
                turned = tensors.pop(f"{full}.{part}").float()
                each = [quantize(turned[e].T, of) for e in range(module.num_experts)]
                scales = torch.stack([stored["weight_scale"] for stored, _ in each])
                numbers = torch.stack([stored["weight"].view(torch.uint8).T for stored, _ in each])
                tensors[f"{full}.{part}"] = numbers.contiguous().view(F8)
                tensors[f"{full}.{part}_scale"] = (scales.transpose(1, 2) if part == "gate_up_proj" else scales).contiguous()
                with torch.no_grad():
                    getattr(module, part).copy_(torch.stack([meant.T for _, meant in each]))
            continue
        names = [name for name in tensors if re.search(r"experts\.\d+\.", name) and name.startswith(full.rsplit(".", 2)[0] + ".")]
        meant = {}
        for name in names:
            stored, meant[name] = quantize(tensors.pop(name).float(), of)
            tensors.update({name.removesuffix("weight") + suffix: value.contiguous() for suffix, value in stored.items()})
        with torch.no_grad():
            for e in range(module.num_experts):
                one = {name.split(".")[-2]: value for name, value in meant.items() if f"experts.{e}." in name}
                gate, up, down = [one.get(a, one.get(b)) for a, b in (("gate_proj", "w1"), ("up_proj", "w3"), ("down_proj", "w2"))]
                module.gate_up_proj[e].copy_(torch.cat([gate, up]).to(module.gate_up_proj.dtype))
                module.down_proj[e].copy_(down.to(module.down_proj.dtype))


def stack_experts(tensors, experts):
    """All experts of a layer in one weight, and their scales in one."""
    for first in [name for name in tensors if ".experts.0.gate_proj." in name]:
        def take(part):
            names = [first.replace(".experts.0.gate_proj.", f".experts.{e}.{part}.") for e in range(experts)]
            return torch.stack([tensors.pop(name).view(torch.uint8) if tensors[name].dtype == F8 else tensors.pop(name) for name in names])
        root, suffix = first.split("0.gate_proj.weight")
        gate_up, down = torch.cat([take("gate_proj"), take("up_proj")], 1), take("down_proj")
        kind = F8 if suffix == "" else F32
        tensors[f"{root}gate_up_proj{suffix}"] = gate_up.view(kind)
        tensors[f"{root}down_proj{suffix}"] = down.view(kind)


def write(name, seed):
    """False: another seed must do."""
    (model_class, config_class, options), dtype, quantize, of, method = GOLDENS[name]
    folder = os.path.join(HERE, name)
    shutil.rmtree(folder, ignore_errors=True)
    torch.manual_seed(seed)
    config = config_class(**options)
    config._attn_implementation = "eager"
    model = model_class(config)
    randomise(model)
    model = model.to(dtype).eval()
    model.save_pretrained(folder)
    tensors = load_file(os.path.join(folder, "model.safetensors"))
    for full, layer in model.named_modules():
        for part in ("gate_up_proj", "down_proj") if quantize is mxfp4 and full.endswith(".experts") else ():
            turned = tensors.pop(f"{full}.{part}").float().transpose(1, 2).contiguous()
            stored, meant = quantize(turned, of)
            tensors.update({f"{full}.{part}_{suffix}": value.contiguous() for suffix, value in stored.items()})
            with torch.no_grad():
                getattr(layer, part).copy_(meant.transpose(1, 2).to(dtype))
        is_linear = isinstance(layer, torch.nn.Linear) and quantize is not mxfp4 and name not in EXPERTS_ONLY
        if is_linear and (full.split(".")[-1] not in PLAIN or name in HEADS):
            stored, meant = quantize(tensors.pop(full + ".weight").float(), of)
            tensors.update({f"{full}.{suffix}": value.contiguous() for suffix, value in stored.items()})
            with torch.no_grad():
                layer.weight.copy_(meant.to(dtype))
            if name in ACTIVATIONS and full.split(".")[-1] not in FLOATS:
                layer.register_forward_pre_hook(lambda _, inputs: (ACTIVATIONS[name](inputs[0]),))
    quantize_experts(model, tensors, quantize, of)
    if name == "quant-moe-stacked":
        stack_experts(tensors, config.num_experts)
    goldens = measure(model)
    if name in ACTIVATIONS and hinges_on_ties(model, goldens):
        return False
    save_file(tensors, os.path.join(folder, "model.safetensors"), {"format": "pt"})
    path = os.path.join(folder, "config.json")
    with open(path) as file:
        config = json.load(file)
    config["quantization_config"] = {**method, "ignore": []} if name in HEADS and "ignore" in method else method
    with open(path, "w") as file:
        json.dump(config, file, indent=2, sort_keys=True)
        file.write("\n")
    os.mkdir(os.path.join(folder, "expected"))
    save_file(goldens, os.path.join(folder, "expected", "model.safetensors"))
    return True


def nvfp4_meaning(tensors, layer):
    """What compressed-tensors' format says that the numbers of a layer are: code * scale of the group / scale of all."""
    codes = tensors[layer + ".weight_packed"]
    table = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
    numbers = torch.cat([table, -table])[torch.stack([codes & 15, codes >> 4], -1).long()].flatten(1)
    scale = tensors[layer + ".weight_scale"].float() / tensors[layer + ".weight_global_scale"]
    return numbers * scale.repeat_interleave(16, 1)


def correct_experts(model, folder):
    """transformers 5.23 forgets weight_global_scale of experts (CompressedTensorsDequantize.convert hands only packed, scale and
    shape to compressed-tensors): each becomes as many times too large, gate and up by their own. Returns how often."""
    tensors = load_file(os.path.join(folder, "model.safetensors"))
    wrong = 0
    for full, experts in model.named_modules():
        for name in [n for n in tensors if re.fullmatch(re.escape(full) + r"\.\d+\.\w+\.weight_global_scale", n)]:
            expert, part = name[len(full) + 1 :].split(".")[:2]
            weight = (experts.down_proj if part == "down_proj" else experts.gate_up_proj).data[int(expert)]
            weight = weight if part == "down_proj" else weight.chunk(2)[part == "up_proj"]
            meaning = nvfp4_meaning(tensors, f"{full}.{expert}.{part}")
            if not torch.allclose(weight, meaning, rtol=1e-6):
                assert torch.allclose(weight, meaning * tensors[name], rtol=1e-6), name
                weight.copy_(meaning)
                wrong += 1
    return wrong


def check(name):
    """What the method's own code makes of the checkpoint gives the same logits."""
    (model_class, _, _), dtype, _, _, method = GOLDENS[name]
    options = {}
    if name == "quant-fp8":  # blocks that are cut off it takes for smaller ones
        options["quantization_config"] = transformers.FineGrainedFP8Config(dequantize=True)
    elif method["quant_method"] == "mxfp4":
        options["quantization_config"] = transformers.Mxfp4Config(dequantize=True)
    elif method["quant_method"] == "compressed-tensors":
        if method["format"].endswith("fp4-pack-quantized"):  # which becomes bf16 unless asked for another type
            import compressed_tensors.compressors.nvfp4.base as base

            base.unpack_fp4_from_uint8 = functools.partial(base.unpack_fp4_from_uint8, dtype=torch.float32)
        from transformers import CompressedTensorsConfig

        options["quantization_config"] = CompressedTensorsConfig(run_compressed=False)
    else:
        return "no code of its own that runs here"
    folder = os.path.join(HERE, name)
    model = model_class.from_pretrained(folder, attn_implementation="eager", dtype=dtype, **options).eval()
    expected = load_file(os.path.join(folder, "expected", "model.safetensors"))
    wrong = correct_experts(model, folder)
    found = measure(model)
    worst = max(
        ((found[key] - value).abs().max() / value.abs().max()).item()
        for key, value in expected.items()
        if key.endswith("logits")
    )
    corrected = f", with {wrong} weights of experts that lacked weight_global_scale" if wrong > 0 else ""
    return f"largest difference {worst:.2g} of the largest logit{corrected}"


def main():
    transformers.logging.set_verbosity_error()
    torch.backends.mkldnn.enabled = False  # the same arithmetic on every CPU
    only_check = "--check" in sys.argv
    wanted = [name for name in sys.argv[1:] if name != "--check"] or list(GOLDENS)
    for name in wanted:
        print(name, check(name) if only_check else "", flush=True)
        if not only_check:
            seed = sum(map(ord, name))
            while not write(name, seed):
                seed += 1


if __name__ == "__main__":
    main()
