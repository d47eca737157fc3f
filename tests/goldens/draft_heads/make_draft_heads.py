#!/usr/bin/env python3
"""Makes the tiny draft heads of this folder and what they predict, by the equations that were published.

    ../hf/venv/bin/python make_draft_heads.py [name ...]      (venv: see ../hf/make_goldens.py)

transformers runs the models, but not their heads. So a head is written out here: MTP by DeepSeek-V3 (arXiv 2412.19437, section
2.2) in the order of its published weights, around a decoder layer of transformers; EAGLE-3 by arXiv 2503.01840, with plain
attention. Row i of a head is made of token i + 1 and the hidden state of token i.

Every golden is a model folder, with a folder head/ if the head is one of EAGLE-3, and a folder expected/ whose model.safetensors
holds:

    prompt.<i>.tokens        i32 [n]
    prompt.<i>.logits        f32 [n - 1, draft vocab]  of the head's rows
    prompt.<i>.chain         i32 [4]                   tokens that the head drafts one after the other behind the prompt
    prompt.<i>.chain_logits  f32 [3, draft vocab]      of all but the first

In goldens named *-told the head is made so that it says what the model will say: the model's next token depends on the last one
alone, and so does the head's.
"""

import copy
import json
import os
import shutil
import sys

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "hf"))
from make_goldens import BASE, DELTA, LENGTHS, VOCAB, randomise  # noqa: E402

CHAIN = 4


def rms(x, weight, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


class Head:
    """A head of a model: rows of tokens and hidden states -> logits, and the hidden states for the next rows."""

    def first_hidden(self, out):
        """What the model's run gives the head, [n, hidden]."""
        raise NotImplementedError

    def run(self, tokens, hidden):
        raise NotImplementedError

    def token(self, index):
        return index

    def measure(self, tokens):
        with torch.no_grad():
            out = self.model.model(input_ids=torch.tensor([tokens]), output_hidden_states=True)
            hidden = self.first_hidden(out)[: len(tokens) - 1]
            own, made = tokens[1:], []
            logits, states = self.run(own, hidden)
            rows, chain, chain_logits = logits, [], []
            for _ in range(CHAIN):
                chain.append(self.token(int(logits[-1].argmax())))
                chain_logits.append(logits[-1])
                made.append(states[-1])
                logits, states = self.run(own + chain, torch.cat([hidden, torch.stack(made)]))
        return rows, chain, torch.stack(chain_logits[1:])


class Mtp(Head):
    def __init__(self, model, norm_offset):
        text = model.model
        self.model, self.eps, self.offset = model, model.config.rms_norm_eps, norm_offset
        config = copy.deepcopy(model.config)
        if getattr(config, "layer_types", None):
            config.layer_types = ["full_attention"] * len(text.layers)
        self.layer = type(text.layers[-1])(config, len(text.layers) - 1).eval()  # with a mixture if there is one
        width = model.config.hidden_size
        self.join = torch.nn.Linear(2 * width, width, bias=False)
        self.norms = torch.nn.ParameterList([torch.nn.Parameter(torch.full((width,), 1.0 - norm_offset)) for _ in range(3)])
        for part in (self.layer, self.join, self.norms):
            randomise(part)
        for weight in self.norms:
            weight.requires_grad_(False).add_(torch.randn(width) * 0.2)

    def first_hidden(self, out):
        return out.last_hidden_state[0]  # behind the final norm

    def norm(self, k, x):
        return rms(x, self.norms[k] + self.offset, self.eps)

    def run(self, tokens, hidden):
        text, n = self.model.model, len(tokens)
        positions = torch.arange(n)[None]
        mask = torch.full((n, n), float("-inf")).triu(1)[None, None]
        joined = torch.cat([self.norm(0, text.embed_tokens(torch.tensor(tokens))), self.norm(1, hidden)], dim=-1)
        x = self.join(joined)[None]
        x = self.layer(x, attention_mask=mask, position_ids=positions, position_embeddings=text.rotary_emb(x, positions))
        x = self.norm(2, (x[0] if isinstance(x, tuple) else x)[0])
        return self.model.lm_head(x), x

    def weights(self, prefix, layer, names):
        found = {f"{prefix}{name}.weight": weight.detach() for name, weight in zip(names, [*self.norms, self.join.weight])}
        for name, weight in self.layer.state_dict().items():
            if name in ("mlp.experts.gate_up_proj", "mlp.experts.down_proj"):
                for e, expert in enumerate(weight):  # as published files store them
                    parts = {"gate_proj": expert.chunk(2)[0], "up_proj": expert.chunk(2)[1]} if "gate_up" in name else {"down_proj": expert}
                    for part, value in parts.items():
                        found[f"{layer}mlp.experts.{e}.{part}.weight"] = value
            else:
                found[layer + name] = weight
        return {name: weight.clone().contiguous() for name, weight in found.items()}


class Eagle(Head):
    """q, k and v take [norm(embedding), norm(hidden state)]; the hidden state is the residual."""

    def __init__(self, model, config, taps, tokens, weights):
        self.model, self.config, self.taps, self.tokens, self.w = model, config, taps, tokens, weights

    def first_hidden(self, out):
        return torch.cat([out.hidden_states[tap][0] for tap in self.taps], dim=-1) @ self.w["fc.weight"].T

    def token(self, index):
        return int(self.tokens[index])

    def project(self, part, x):
        bias = self.w.get(f"midlayer.self_attn.{part}.bias", 0.0)
        return x @ self.w[f"midlayer.self_attn.{part}.weight"].T + bias

    def heads(self, part, x, n, turned):
        dim = self.config["head_dim"]
        x = self.project(part, x).view(len(x), n, dim).transpose(0, 1)
        if not turned:
            return x
        angles = torch.arange(x.shape[1])[:, None] / self.config["rope_theta"] ** (torch.arange(0, dim, 2) / dim)
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], dim=-1)

    def run(self, tokens, hidden):
        c, w, n = self.config, self.w, len(tokens)
        embedding = w.get("embed_tokens.weight", self.model.model.embed_tokens.weight)[torch.tensor(tokens)]
        norm = lambda name, x: rms(x, w[name + ".weight"], c["rms_norm_eps"])  # noqa: E731
        normed = norm("midlayer.hidden_norm", hidden)
        x = torch.cat([norm("midlayer.input_layernorm", embedding), normed], dim=-1)
        if c.get("norm_before_residual"):
            hidden = normed
        heads, kv = c["num_attention_heads"], c["num_key_value_heads"]
        q, k, v = (self.heads(p, x, m, p != "v_proj") for p, m in (("q_proj", heads), ("k_proj", kv), ("v_proj", kv)))
        k, v = (y.repeat_interleave(heads // kv, dim=0) for y in (k, v))
        scores = q @ k.transpose(1, 2) / c["head_dim"] ** 0.5 + torch.full((n, n), float("-inf")).triu(1)
        x = (scores.softmax(-1) @ v).transpose(0, 1).reshape(n, -1)
        hidden = hidden + self.project("o_proj", x)
        x = norm("midlayer.post_attention_layernorm", hidden)
        gate, up = (x @ w[f"midlayer.mlp.{p}_proj.weight"].T for p in ("gate", "up"))
        hidden = hidden + (torch.nn.functional.silu(gate) * up) @ w["midlayer.mlp.down_proj.weight"].T
        return norm("norm", hidden) @ w["lm_head.weight"].T, hidden


def write_json(path, value):
    with open(path, "w") as file:
        json.dump(value, file, indent=2, sort_keys=True)
        file.write("\n")


def finish(name, head):
    expected, generator = {}, np.random.default_rng(11)
    for i, length in enumerate(LENGTHS):
        tokens = generator.integers(3, VOCAB, length).tolist()
        rows, chain, chain_logits = head.measure(tokens)
        expected[f"prompt.{i}.tokens"] = torch.tensor(tokens, dtype=torch.int32)
        expected[f"prompt.{i}.logits"] = rows.float().contiguous()
        expected[f"prompt.{i}.chain"] = torch.tensor(chain, dtype=torch.int32)
        expected[f"prompt.{i}.chain_logits"] = chain_logits.float().contiguous()
    os.mkdir(os.path.join(HERE, name, "expected"))
    save_file(expected, os.path.join(HERE, name, "expected", "model.safetensors"))


def begin(name):
    folder = os.path.join(HERE, name)
    shutil.rmtree(folder, ignore_errors=True)
    torch.manual_seed(sum(map(ord, name)))
    return folder


def index_files(folder, files):
    places = {weight: file for file in files for weight in load_file(os.path.join(folder, file))}
    write_json(os.path.join(folder, "model.safetensors.index.json"), {"metadata": {}, "weight_map": places})


LAYER_NAMES = ("enorm", "hnorm", "shared_head.norm", "eh_proj")
ROOT_NAMES = ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm", "fc")


def mtp(name, base, prefix, layer, names, norm_offset=0.0, **keys):
    """The golden `base` of ../hf with an MTP layer in a file of its own."""
    folder = begin(name)
    os.mkdir(folder)
    source = f"../../hf/{base}"
    for file in ("config.json", "generation_config.json"):
        shutil.copy(os.path.join(HERE, "..", "hf", base, file), folder)
    with open(os.path.join(folder, "config.json")) as file:
        config = json.load(file)
    write_json(os.path.join(folder, "config.json"), {**config, **keys})
    os.symlink(f"{source}/model.safetensors", os.path.join(folder, "model-00001-of-00002.safetensors"))
    model = transformers.AutoModelForCausalLM.from_pretrained(os.path.join(HERE, "..", "hf", base), attn_implementation="eager").eval()
    head = Mtp(model, norm_offset)
    save_file(head.weights(prefix, layer, names), os.path.join(folder, "model-00002-of-00002.safetensors"))
    index_files(folder, ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"])
    finish(name, head)


def hush(model):
    """Makes the next token depend on the last one alone."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight", "o_proj.bias")):
                weight.zero_()
            elif "embed_tokens" in name or "lm_head" in name:
                weight.normal_(0.0, 0.5)


def told_mtp(name):
    folder = begin(name)
    config = transformers.Qwen3_5TextConfig(**{**BASE, **DELTA, "attention_bias": True})
    config._attn_implementation = "eager"
    model = transformers.Qwen3_5ForCausalLM(config).eval()
    randomise(model)
    hush(model)
    head = Mtp(model, 1.0)
    hush(head.layer)
    with torch.no_grad():
        head.join.weight.zero_()[:, : config.hidden_size] = torch.eye(config.hidden_size)
        head.norms[0].zero_()
        head.norms[2].copy_(model.model.norm.weight)
    model.save_pretrained(folder)
    os.rename(os.path.join(folder, "model.safetensors"), os.path.join(folder, "model-00001-of-00002.safetensors"))
    save_file(head.weights("mtp.", "mtp.layers.0.", ROOT_NAMES), os.path.join(folder, "model-00002-of-00002.safetensors"))
    index_files(folder, ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"])
    finish(name, head)


def eagle(name, told=False, own_embedding=False, layers=6, **keys):
    folder = begin(name)
    config = transformers.LlamaConfig(**{**BASE, "num_hidden_layers": layers, "rms_norm_eps": 1e-5, "intermediate_size": 24})
    config._attn_implementation = "eager"
    model = transformers.LlamaForCausalLM(config).eval()
    randomise(model)
    hidden, kv, dim = BASE["hidden_size"], BASE["num_key_value_heads"], 8
    tokens = np.arange(VOCAB)
    if keys.get("draft_vocab_size"):
        tokens = np.sort(np.random.default_rng(3).permutation(VOCAB)[: keys["draft_vocab_size"]])
    if told:
        kv = BASE["num_attention_heads"]
        hush(model)
        with torch.no_grad():  # tokens that the head does not have are never said
            model.lm_head.weight[np.setdiff1d(np.arange(VOCAB), tokens)] = 0.0
    own = dict(
        architectures=["LlamaForCausalLMEagle3"], model_type="llama", hidden_size=hidden, intermediate_size=40, num_hidden_layers=1,
        num_attention_heads=BASE["num_attention_heads"], num_key_value_heads=kv, head_dim=dim, hidden_act="silu", rms_norm_eps=1e-5,
        rope_theta=10000.0, max_position_embeddings=64, vocab_size=VOCAB, attention_bias=told, tie_word_embeddings=False,
        torch_dtype="float32", draft_vocab_size=VOCAB, **{k: v for k, v in keys.items() if k != "draft_vocab_size"},
    )
    own["draft_vocab_size"] = len(tokens)
    ids = keys.get("eagle_config", {}).get("eagle_aux_hidden_state_layer_ids")
    taps = [i + 1 for i in ids] if ids else keys.get("eagle_aux_hidden_state_layer_ids", [2, layers // 2, layers - 3])
    matrix = lambda out, rows: torch.randn(out, rows) * 1.5 / rows**0.5  # noqa: E731
    scale = lambda: 1.0 + torch.randn(hidden) * 0.2  # noqa: E731
    w = {"fc.weight": matrix(hidden, 3 * hidden), "norm.weight": scale(), "lm_head.weight": matrix(len(tokens), hidden)}
    for part, out in (("q_proj", hidden), ("k_proj", kv * dim), ("v_proj", kv * dim)):
        w[f"midlayer.self_attn.{part}.weight"] = matrix(out, 2 * hidden)
    w["midlayer.self_attn.o_proj.weight"] = matrix(hidden, hidden)
    for part, out, rows in (("gate_proj", 40, hidden), ("up_proj", 40, hidden), ("down_proj", hidden, 40)):
        w[f"midlayer.mlp.{part}.weight"] = matrix(out, rows)
    for part in ("input_layernorm", "hidden_norm", "post_attention_layernorm"):
        w[f"midlayer.{part}.weight"] = scale()
    if own_embedding:
        w["embed_tokens.weight"] = torch.randn(VOCAB, hidden) * 0.5
    if told:  # attention sees the own row alone and puts norm(embedding) in the place of the hidden state
        ones, eye = torch.ones(hidden), torch.eye(hidden)
        bias = torch.zeros(hidden).view(-1, dim).index_fill(1, torch.arange(dim // 2), 30.0).reshape(-1)
        for part in ("q_proj", "k_proj"):
            w[f"midlayer.self_attn.{part}.weight"].zero_()
            w[f"midlayer.self_attn.{part}.bias"] = bias.clone()
        w["midlayer.self_attn.v_proj.weight"] = torch.cat([eye, -eye], dim=1)
        w["midlayer.self_attn.o_proj.weight"] = eye
        w["midlayer.self_attn.v_proj.bias"], w["midlayer.self_attn.o_proj.bias"] = 0.0 * ones, 0.0 * ones
        w["fc.weight"].zero_()
        w["midlayer.mlp.down_proj.weight"].zero_()
        w["midlayer.input_layernorm.weight"], w["midlayer.hidden_norm.weight"] = ones.clone(), ones.clone()
        w["norm.weight"] = model.model.norm.weight.detach().clone()
        w["lm_head.weight"] = model.lm_head.weight.detach()[tokens].clone()
    head = Eagle(model, own, taps, tokens, w)
    files = {**w, "d2t": torch.tensor(tokens - np.arange(len(tokens))), "t2d": torch.tensor(np.isin(np.arange(VOCAB), tokens))}
    if len(tokens) == VOCAB:
        files.pop("d2t"), files.pop("t2d")
    model.save_pretrained(folder)
    os.mkdir(os.path.join(folder, "head"))
    write_json(os.path.join(folder, "head", "config.json"), own)
    save_file({k: v.contiguous() for k, v in files.items()}, os.path.join(folder, "head", "model.safetensors"))
    finish(name, head)


GOLDENS = {
    "deepseek-v3": lambda n: mtp(n, "deepseek-v3", "model.layers.3.", "model.layers.3.", LAYER_NAMES),
    "glm4-moe": lambda n: mtp(n, "glm4-moe", "model.layers.3.", "model.layers.3.", LAYER_NAMES, num_nextn_predict_layers=1),
    "qwen3-next": lambda n: mtp(n, "qwen3-next", "mtp.", "mtp.layers.0.", ROOT_NAMES, norm_offset=1.0),
    "qwen3-5": lambda n: mtp(n, "qwen3-5", "mtp.", "mtp.layers.0.", ROOT_NAMES, norm_offset=1.0),
    "qwen3-5-moe": lambda n: mtp(n, "qwen3-5-moe", "mtp.", "mtp.layers.0.", ROOT_NAMES, norm_offset=1.0),
    "qwen3-5-told": told_mtp,
    "eagle": lambda n: eagle(n, draft_vocab_size=40),
    "eagle-taps": lambda n: eagle(
        n, own_embedding=True, layers=3, norm_before_residual=True, eagle_config={"eagle_aux_hidden_state_layer_ids": [0, 0, 1]}
    ),
    "eagle-told": lambda n: eagle(n, told=True, layers=4, draft_vocab_size=40, eagle_aux_hidden_state_layer_ids=[1, 2, 3]),
}


def main():
    transformers.logging.set_verbosity_error()
    torch.backends.mkldnn.enabled = False  # the same arithmetic on every CPU
    for name, make in GOLDENS.items():
        if not sys.argv[1:] or name in sys.argv[1:]:
            print(name, flush=True)
            make(name)


if __name__ == "__main__":
    main()
