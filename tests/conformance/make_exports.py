"""Networks as torch.onnx.export writes them, from torchvision, transformers and plain torch with random weights, as
ONNX test cases: the model, inputs of several sizes and what onnxruntime makes of them.

usage: make_exports.py FOLDER [--full] [--only PATTERN] [--opset N] [--half | --qdq] (needs torch, torchvision, transformers, onnxscript, onnxruntime)

Every network is exported twice where both exporters can: by tracing (NAME_trace) and by torch.export (NAME_export).
Without --full the networks are narrow and not as deep, so that the set is small; with it they are ResNet-50 and so on as
published. Exporters that refuse a network are listed at the end."""

import argparse
import fnmatch
import json
import os
import sys
import warnings

import numpy as np
import onnx
import onnxruntime
import onnxruntime.quantization
import torch
import torchvision
import torchvision.models as vision
import transformers
from onnx import numpy_helper
from torch import nn

OPSET = {"trace": 17, "export": 20}


# ---- networks: (module, input names, dynamic axes by input, output names, sets of inputs) ------------------


def images(module, sizes, seed=0):
    """A network of images; sizes are [batch, channels, height, width], height and width open if they differ."""
    random = np.random.default_rng(seed)
    sets = [{"x": torch.from_numpy(random.standard_normal(size).astype(np.float32))} for size in sizes]
    axes = {0: "batch"}
    if len({tuple(size[2:]) for size in sizes}) > 1:
        axes |= {2: "height", 3: "width"}
    return module, {"x": axes}, ["y"], sets


def resnet50(full):
    return images(
        (
            vision.resnet50()
            if full
            else vision.ResNet(vision.resnet.Bottleneck, [2, 2, 2, 2], num_classes=50, width_per_group=8)
        ),
        [[2, 3, 224, 224], [1, 3, 224, 224], [3, 3, 192, 160]],
    )


def mobilenet(full):
    return images(
        vision.mobilenet_v3_large(width_mult=1.0 if full else 0.25, num_classes=50),
        [[2, 3, 224, 224], [1, 3, 224, 224], [3, 3, 96, 160]],
    )


def efficientnet(full):
    settings, last = vision.efficientnet._efficientnet_conf(
        "efficientnet_b0", width_mult=1.0 if full else 0.25, depth_mult=1.0
    )
    return images(
        vision.EfficientNet(settings, 0.2, last_channel=last, num_classes=50),
        [[2, 3, 224, 224], [1, 3, 224, 224], [3, 3, 96, 160]],
    )


def vit(full):
    module = vision.vit_b_16() if full else vision.VisionTransformer(64, 16, 3, 4, 64, 128, num_classes=50)
    nn.init.normal_(module.heads[0].weight, std=0.1)
    size = 224 if full else 64
    return images(module, [[2, 3, size, size], [1, 3, size, size], [5, 3, size, size]])


def convnext(full):
    blocks = [vision.convnext.CNBlockConfig(*row) for row in ([24, 48, 2], [48, 96, 2], [96, 192, 3], [192, None, 2])]
    return images(
        vision.convnext_tiny() if full else vision.ConvNeXt(blocks, num_classes=50, layer_scale=0.5),
        [[2, 3, 224, 224], [1, 3, 224, 224], [3, 3, 96, 160]],
    )


class UNet(nn.Module):
    """U-Net (Ronneberger and others, 2015) with batch norms; up by transposed convolutions or by interpolation."""

    def __init__(self, width, interpolate):
        super().__init__()
        widths = [3, width, 2 * width, 4 * width, 8 * width]
        self.down = nn.ModuleList(self.double(a, b) for a, b in zip(widths, widths[1:]))
        self.middle = self.double(8 * width, 16 * width)
        self.raise_ = nn.ModuleList(
            nn.Conv2d(2 * w, w, 1) if interpolate else nn.ConvTranspose2d(2 * w, w, 2, stride=2) for w in widths[:0:-1]
        )
        self.up = nn.ModuleList(self.double(2 * w, w) for w in widths[:0:-1])
        self.last = nn.Conv2d(width, 2, 1)
        self.interpolate = interpolate

    @staticmethod
    def double(inputs, outputs):
        layers = []
        for channels in (inputs, outputs):
            layers += [
                nn.Conv2d(channels, outputs, 3, padding=1, bias=False),
                nn.BatchNorm2d(outputs),
                nn.ReLU(inplace=True),
            ]
        return nn.Sequential(*layers)

    def forward(self, x):
        skips = []
        for block in self.down:
            x = block(x)
            skips.append(x)
            x = nn.functional.max_pool2d(x, 2)
        x = self.middle(x)
        for up, block, skip in zip(self.raise_, self.up, reversed(skips)):
            if self.interpolate:
                x = nn.functional.interpolate(x, size=skip.shape[2:], mode="bilinear", align_corners=False)
            x = block(torch.cat([skip, up(x)], dim=1))
        return self.last(x)


def unet(full):
    return images(UNet(64 if full else 8, False), [[2, 3, 96, 64], [1, 3, 64, 64], [1, 3, 128, 160]])


def unet_interpolated(full):
    return images(UNet(64 if full else 8, True), [[2, 3, 100, 70], [1, 3, 64, 64], [1, 3, 121, 163]])


class Detector(nn.Module):
    """Boxes around positions of an image whose score is high enough, without those that overlap a better one of their
    class: how many there are, if any, depends on the image."""

    def __init__(self, classes):
        super().__init__()
        self.body = nn.Sequential(*UNet.double(3, 8), nn.MaxPool2d(4), *UNet.double(8, 16))
        self.sizes, self.scores = nn.Conv2d(16, 4, 1), nn.Conv2d(16, classes, 1)
        nn.init.normal_(self.scores.weight, std=0.5)

    def forward(self, x):
        features = self.body(x)
        height, width = features.shape[-2:]
        rows = torch.arange(height).float()[:, None].expand(height, width)
        columns = torch.arange(width).float()[None, :].expand(height, width)
        middle = 4 * torch.stack([columns, rows], dim=-1).reshape(-1, 2)
        reach = 2 + 6 * torch.sigmoid(self.sizes(features)[0]).permute(1, 2, 0).reshape(-1, 4)
        boxes = torch.cat([middle - reach[:, :2], middle + reach[:, 2:]], dim=1)
        best, label = torch.sigmoid(self.scores(features)[0]).flatten(1).max(dim=0)
        found = torch.where(best * x.abs().amax() > 0.6)[0]
        boxes, best, label = boxes[found], best[found], label[found]
        kept = torchvision.ops.batched_nms(boxes, best, label, 0.4)[:20]
        return boxes[kept], best[kept], label[kept]


def detector(full):
    module, axes, _, sets = images(Detector(32 if full else 4), [[1, 3, 48, 64], [1, 3, 64, 48], [1, 3, 32, 32]])
    sets[2]["x"] *= 0.01  # nothing to be found
    return module, {"x": {2: "height", 3: "width"}}, ["boxes", "scores", "labels"], sets


class Call(nn.Module):
    """A transformers module called with named inputs, giving some of its outputs."""

    def __init__(self, module, names, outputs, **fixed):
        super().__init__()
        self.module, self.names, self.outputs, self.fixed = module, names, outputs, fixed

    def forward(self, *inputs):
        result = self.module(**dict(zip(self.names, inputs)), **self.fixed)
        values = tuple(getattr(result, name) for name in self.outputs)
        return values[0] if len(values) == 1 else values


def ids(random, batch, length, words):
    return torch.from_numpy(random.integers(0, words, [batch, length]))


def mask(random, batch, length):
    """Ones, then zeros for what is padding: sequences of different lengths."""
    lengths = random.integers(max(1, length // 2), length + 1, [batch, 1])
    return torch.from_numpy((np.arange(length)[None, :] < lengths).astype(np.int64))


SIZES = [(2, 24), (1, 7), (3, 40)]


def bert(full, attention="sdpa"):
    config = transformers.BertConfig(
        **(
            {}
            if full
            else dict(
                vocab_size=100,
                hidden_size=32,
                num_hidden_layers=2,
                num_attention_heads=2,
                intermediate_size=64,
                max_position_embeddings=64,
            )
        )
    )
    config._attn_implementation = attention
    names, random = ["input_ids", "attention_mask", "token_type_ids"], np.random.default_rng(1)
    sets = [dict(zip(names, (ids(random, b, n, 100), mask(random, b, n), ids(random, b, n, 2)))) for b, n in SIZES]
    axes = {name: {0: "batch", 1: "sequence"} for name in names}
    return (
        Call(transformers.BertModel(config), names, ["last_hidden_state", "pooler_output"]),
        axes,
        ["hidden", "pooled"],
        sets,
    )


def bert_eager(full):
    return bert(full, "eager")


def t5_config(full):
    return transformers.T5Config(
        **(
            {}
            if full
            else dict(vocab_size=100, d_model=32, d_kv=16, num_layers=2, num_decoder_layers=2, num_heads=2, d_ff=64)
        )
    )


def t5_encoder(full):
    names, random = ["input_ids", "attention_mask"], np.random.default_rng(2)
    sets = [dict(zip(names, (ids(random, b, n, 100), mask(random, b, n)))) for b, n in SIZES]
    axes = {name: {0: "batch", 1: "sequence"} for name in names}
    return Call(transformers.T5EncoderModel(t5_config(full)), names, ["last_hidden_state"]), axes, ["hidden"], sets


class T5Decoder(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.module = transformers.T5ForConditionalGeneration(config)

    def forward(self, decoder_input_ids, encoder_hidden_states, encoder_attention_mask):
        hidden = self.module.decoder(
            input_ids=decoder_input_ids,
            encoder_hidden_states=encoder_hidden_states,
            encoder_attention_mask=encoder_attention_mask,
            use_cache=False,
        ).last_hidden_state
        return self.module.lm_head(hidden)


def t5_decoder(full):
    config, random = t5_config(full), np.random.default_rng(3)
    sets = [
        {
            "decoder_input_ids": ids(random, b, n, 100),
            "encoder_hidden_states": torch.from_numpy(
                random.standard_normal([b, n + 5, config.d_model]).astype(np.float32)
            ),
            "encoder_attention_mask": mask(random, b, n + 5),
        }
        for b, n in SIZES
    ]
    axes = {
        "decoder_input_ids": {0: "batch", 1: "target"},
        "encoder_hidden_states": {0: "batch", 1: "source"},
        "encoder_attention_mask": {0: "batch", 1: "source"},
    }
    return T5Decoder(config), axes, ["logits"], sets


def gpt2_config(full):
    return transformers.GPT2Config(
        **({} if full else dict(vocab_size=100, n_positions=64, n_embd=32, n_layer=2, n_head=2))
    )


def gpt2(full):
    names, random = ["input_ids", "attention_mask"], np.random.default_rng(4)
    sets = [dict(zip(names, (ids(random, b, n, 100), mask(random, b, n)))) for b, n in SIZES]
    axes = {name: {0: "batch", 1: "sequence"} for name in names}
    return (
        Call(transformers.GPT2LMHeadModel(gpt2_config(full)), names, ["logits"], use_cache=False),
        axes,
        ["logits"],
        sets,
    )


class GPT2Past(nn.Module):
    """One call with keys and values of earlier ones, and theirs with this call's as outputs."""

    def __init__(self, config):
        super().__init__()
        self.module, self.layers = transformers.GPT2LMHeadModel(config), config.n_layer

    def forward(self, input_ids, *past):
        cache = transformers.DynamicCache()
        for i in range(self.layers):
            cache.update(past[2 * i], past[2 * i + 1], i)
        result = self.module(input_ids=input_ids, past_key_values=cache, use_cache=True)
        return (result.logits, *(t for layer in result.past_key_values.layers for t in (layer.keys, layer.values)))


def gpt2_past(full):
    config, random = gpt2_config(full), np.random.default_rng(5)
    past = [f"past_{i}_{part}" for i in range(config.n_layer) for part in ("k", "v")]
    sets = []
    for batch, length, before in [(2, 3, 9), (1, 1, 20), (3, 5, 1)]:
        size = [batch, config.n_head, before, config.n_embd // config.n_head]
        sets.append(
            {"input_ids": ids(random, batch, length, 100)}
            | {name: torch.from_numpy(random.standard_normal(size).astype(np.float32)) for name in past}
        )
    axes = {"input_ids": {0: "batch", 1: "sequence"}} | {name: {0: "batch", 2: "past"} for name in past}
    return GPT2Past(config), axes, ["logits", *(name.replace("past", "present") for name in past)], sets


def whisper_encoder(full):
    config = transformers.WhisperConfig(
        **(
            {}
            if full
            else dict(
                vocab_size=100,
                d_model=32,
                encoder_layers=2,
                decoder_layers=1,
                encoder_attention_heads=2,
                decoder_attention_heads=2,
                encoder_ffn_dim=64,
                decoder_ffn_dim=64,
                max_source_positions=100,
                num_mel_bins=40,
                pad_token_id=0,
                bos_token_id=0,
                eos_token_id=0,
                decoder_start_token_id=0,
            )
        )
    )
    random, length = np.random.default_rng(6), 2 * config.max_source_positions
    sets = [
        {
            "input_features": torch.from_numpy(
                random.standard_normal([b, config.num_mel_bins, length]).astype(np.float32)
            )
        }
        for b in (2, 1, 3)
    ]
    module = transformers.WhisperModel(config).encoder
    return Call(module, ["input_features"], ["last_hidden_state"]), {"input_features": {0: "batch"}}, ["hidden"], sets


def whisper_config(full):
    return transformers.WhisperConfig(
        **(
            {}
            if full
            else dict(
                vocab_size=100,
                d_model=32,
                encoder_layers=1,
                decoder_layers=2,
                encoder_attention_heads=2,
                decoder_attention_heads=2,
                encoder_ffn_dim=64,
                decoder_ffn_dim=64,
                max_source_positions=100,
                max_target_positions=64,
                num_mel_bins=40,
                pad_token_id=0,
                bos_token_id=0,
                eos_token_id=0,
                decoder_start_token_id=0,
            )
        )
    )


class CrossPast(nn.Module):
    """One call of a decoder that sees an encoder, with keys and values of earlier calls and of the encoder's states;
    its own with this call's are outputs."""

    def __init__(self, decoder, head, layers):
        super().__init__()
        self.decoder, self.head, self.layers = decoder, head, layers

    def forward(self, input_ids, encoder_hidden_states, *past):
        own, cross = transformers.DynamicCache(), transformers.DynamicCache()
        for i in range(self.layers):
            own.update(past[4 * i], past[4 * i + 1], i)
            cross.update(past[4 * i + 2], past[4 * i + 3], i)
        result = self.decoder(
            input_ids=input_ids,
            encoder_hidden_states=encoder_hidden_states,
            past_key_values=transformers.EncoderDecoderCache(own, cross),
            use_cache=True,
        )
        cache = result.past_key_values.self_attention_cache
        return (self.head(result.last_hidden_state), *(t for layer in cache.layers for t in (layer.keys, layer.values)))


def cross_past(model, layers, heads, size, hidden, seed):
    random = np.random.default_rng(seed)
    floats = lambda *dims: torch.from_numpy(random.standard_normal(dims).astype(np.float32))
    past = [f"past_{i}_{part}" for i in range(layers) for part in ("k", "v", "cross_k", "cross_v")]
    sets = []
    for batch, length, before, source in [(2, 3, 9, 11), (1, 1, 20, 6), (3, 5, 2, 17)]:
        values = {"input_ids": ids(random, batch, length, 100), "encoder_hidden_states": floats(batch, source, hidden)}
        for name in past:
            values[name] = floats(batch, heads, source if "cross" in name else before, size)
        sets.append(values)
    axes = {"input_ids": {0: "batch", 1: "sequence"}, "encoder_hidden_states": {0: "batch", 1: "source"}}
    axes |= {name: {0: "batch", 2: "source" if "cross" in name else "past"} for name in past}
    decoder = model.get_decoder()
    head = model.proj_out if hasattr(model, "proj_out") else model.lm_head
    outputs = ["logits", *(name.replace("past", "present") for name in past if "cross" not in name)]
    return CrossPast(decoder, head, layers), axes, outputs, sets


def whisper_decoder_past(full):
    config = whisper_config(full)
    model = transformers.WhisperForConditionalGeneration(config)
    heads = config.decoder_attention_heads
    return cross_past(model, config.decoder_layers, heads, config.d_model // heads, config.d_model, 7)


def t5_decoder_past(full):
    config = t5_config(full)
    model = transformers.T5ForConditionalGeneration(config)
    return cross_past(model, config.num_decoder_layers, config.num_heads, config.d_kv, config.d_model, 8)


def distilbert(full):
    config = transformers.DistilBertConfig(
        **({} if full else dict(vocab_size=100, dim=32, n_layers=2, n_heads=2, hidden_dim=64, max_position_embeddings=64))
    )
    names, random = ["input_ids", "attention_mask"], np.random.default_rng(9)
    sets = [dict(zip(names, (ids(random, b, n, 100), mask(random, b, n)))) for b, n in SIZES]
    axes = {name: {0: "batch", 1: "sequence"} for name in names}
    return Call(transformers.DistilBertModel(config), names, ["last_hidden_state"]), axes, ["hidden"], sets


class MaskedPast(nn.Module):
    """A decoder's call with keys and values of earlier ones and a mask of all positions."""

    def __init__(self, module, layers):
        super().__init__()
        self.module, self.layers = module, layers

    def forward(self, input_ids, attention_mask, position_ids, *past):
        cache = transformers.DynamicCache()
        for i in range(self.layers):
            cache.update(past[2 * i], past[2 * i + 1], i)
        result = self.module(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=cache,
            use_cache=True,
        )
        return (result.logits, *(t for layer in result.past_key_values.layers for t in (layer.keys, layer.values)))


def masked_past(module, config, seed):
    layers, random = config.num_hidden_layers, np.random.default_rng(seed)
    past = [f"past_{i}_{part}" for i in range(layers) for part in ("k", "v")]
    sets = []
    for batch, length, before in [(2, 3, 9), (1, 1, 20), (3, 5, 2)]:
        size = [batch, config.num_key_value_heads, before, config.hidden_size // config.num_attention_heads]
        padding = random.integers(0, 2, [batch, 1])  # on the left
        seen = (np.arange(before + length)[None, :] >= padding).astype(np.int64)
        values = {
            "input_ids": ids(random, batch, length, 100),
            "attention_mask": torch.from_numpy(seen),
            "position_ids": torch.from_numpy((np.cumsum(seen, 1) - 1)[:, before:]),
        }
        values |= {name: torch.from_numpy(random.standard_normal(size).astype(np.float32)) for name in past}
        sets.append(values)
    axes = {
        "input_ids": {0: "batch", 1: "sequence"},
        "attention_mask": {0: "batch", 1: "total"},
        "position_ids": {0: "batch", 1: "sequence"},
    } | {name: {0: "batch", 2: "past"} for name in past}
    return MaskedPast(module, layers), axes, ["logits", *(name.replace("past", "present") for name in past)], sets


TINY = dict(
    vocab_size=100,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
)


def llama_past(full):
    config = transformers.LlamaConfig(**TINY)
    return masked_past(transformers.LlamaForCausalLM(config), config, 10)


def qwen2_past(full):
    config = transformers.Qwen2Config(**TINY)
    return masked_past(transformers.Qwen2ForCausalLM(config), config, 11)


def clip(full):
    text = dict(
        vocab_size=100,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=64,
        eos_token_id=99,
        bos_token_id=1,
        pad_token_id=1,
    )
    image = dict(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        image_size=32,
        patch_size=8,
    )
    config = transformers.CLIPConfig() if full else transformers.CLIPConfig(text_config=text, vision_config=image, projection_dim=16)
    size, random = config.vision_config.image_size, np.random.default_rng(12)
    names = ["input_ids", "pixel_values", "attention_mask"]
    sets = []
    for images_, texts, length in [(2, 3, 12), (1, 2, 7), (3, 4, 20)]:
        words, seen = ids(random, texts, length, 98), mask(random, texts, length)
        words[torch.arange(texts), seen.sum(1) - 1] = 99
        pixels = random.standard_normal([images_, 3, size, size]).astype(np.float32)
        sets.append(dict(zip(names, (words, torch.from_numpy(pixels), seen))))
    axes = {
        "input_ids": {0: "texts", 1: "sequence"},
        "pixel_values": {0: "images"},
        "attention_mask": {0: "texts", 1: "sequence"},
    }
    outputs = ["logits_per_image", "text_embeds", "image_embeds"]
    return Call(transformers.CLIPModel(config), names, outputs), axes, outputs, sets


def swin(full):
    module = (
        vision.swin_t()
        if full
        else vision.SwinTransformer([4, 4], 16, [2, 2, 2, 2], [1, 2, 4, 8], [7, 7], num_classes=50)
    )
    return images(module, [[2, 3, 224, 224], [1, 3, 224, 224], [3, 3, 224, 224]])


class Last(nn.Module):
    """One of the outputs of a module that gives a dictionary."""

    def __init__(self, module, name):
        super().__init__()
        self.module, self.name = module, name

    def forward(self, x):
        return self.module(x)[self.name]


def deeplab(full):
    backbone = vision.ResNet(
        vision.resnet.Bottleneck,
        [3, 4, 6, 3] if full else [1, 1, 1, 1],
        width_per_group=64 if full else 8,
        replace_stride_with_dilation=[False, True, True],
    )
    module = vision.segmentation.deeplabv3._deeplabv3_resnet(backbone, 21, None)
    return images(Last(module, "out"), [[2, 3, 97, 65], [1, 3, 64, 64], [1, 3, 128, 100]])


class Recurrent(nn.Module):
    """Classifies sequences by what two recurrent layers, in both directions, end with."""

    def __init__(self, kind, width):
        super().__init__()
        self.words = nn.Embedding(100, width)
        self.body = kind(width, width, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * width, 7)

    def forward(self, ids):
        out, last = self.body(self.words(ids))
        last = last[0] if isinstance(last, tuple) else last
        return self.head(torch.cat([last[-2], last[-1]], dim=-1)), out


def recurrent(kind, full):
    random = np.random.default_rng(13)
    sets = [{"ids": ids(random, b, n, 100)} for b, n in SIZES]
    module = Recurrent(kind, 256 if full else 16)
    return module, {"ids": {0: "batch", 1: "sequence"}}, ["y", "states"], sets


def lstm(full):
    return recurrent(nn.LSTM, full)


def gru(full):
    return recurrent(nn.GRU, full)


class Detections(nn.Module):
    """A detection network of torchvision on one image."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        found = self.module([x[0]])
        found = (found[1] if isinstance(found, tuple) else found)[0]
        return found["boxes"], found["scores"], found["labels"]


def lively(module):
    """Weights that keep the size of numbers from layer to layer: what is the same everywhere gives boxes in no order."""
    for part in module.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight)


def spread(part, std):
    """Scores apart from each other, so that the order of boxes is no matter of the last bit."""
    nn.init.normal_(part.weight, std=std)


def detection(module, sizes):
    _, axes, _, sets = images(module, [[1, 3, *size] for size in sizes])
    axes = {"x": {2: "height", 3: "width"}} if len(set(sizes)) > 1 else {"x": {}}
    return Detections(module), axes, ["boxes", "scores", "labels"], sets


def ssdlite(full):
    module = vision.detection.ssdlite320_mobilenet_v3_large(
        weights=None, weights_backbone=None, num_classes=5, detections_per_img=20, topk_candidates=40
    )
    lively(module)
    for part in module.head.classification_head.module_list:
        spread(part[1], 0.02)
    return detection(module, [(96, 64), (64, 64), (128, 100)])


def faster_rcnn(full):
    module = vision.detection.fasterrcnn_mobilenet_v3_large_320_fpn(
        weights=None,
        weights_backbone=None,
        num_classes=5,
        min_size=64,
        max_size=128,
        rpn_pre_nms_top_n_test=50,
        rpn_post_nms_top_n_test=20,
        box_detections_per_img=10,
    )
    spread(module.rpn.head.cls_logits, 0.5)
    spread(module.roi_heads.box_predictor.cls_score, 0.5)
    spread(module.roi_heads.box_predictor.bbox_pred, 0.05)
    return detection(module, [(96, 64), (64, 64), (128, 100)])


def retinanet(full):
    backbone = vision.detection.backbone_utils.resnet_fpn_backbone(
        backbone_name="resnet18", weights=None, trainable_layers=5, returned_layers=[3, 4]
    )
    module = vision.detection.RetinaNet(
        backbone,
        5,
        min_size=64,
        max_size=128,
        anchor_generator=vision.detection.anchor_utils.AnchorGenerator(((32,), (64,), (96,)), ((0.5, 1.0, 2.0),) * 3),
        detections_per_img=20,
        topk_candidates=40,
    )
    spread(module.head.classification_head.cls_logits, 0.5)
    return detection(module, [(96, 64), (64, 64), (128, 100)])


def detr(full):
    backbone = transformers.ResNetConfig(
        embedding_size=16,
        hidden_sizes=[16, 32, 48, 64],
        depths=[1, 1, 1, 1],
        layer_type="basic",
        out_features=["stage4"],
    )
    config = transformers.DetrConfig(
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        backbone_config=backbone,
        num_queries=10,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
    )
    random = np.random.default_rng(14)
    names = ["pixel_values", "pixel_mask"]
    sets = []
    for batch, height, width in [(2, 96, 64), (1, 64, 64), (2, 128, 100)]:
        seen = np.ones([batch, height, width], np.int64)
        seen[0, height // 2 :] = 0
        pixels = random.standard_normal([batch, 3, height, width]).astype(np.float32)
        sets.append(dict(zip(names, (torch.from_numpy(pixels), torch.from_numpy(seen)))))
    axes = {
        "pixel_values": {0: "batch", 2: "height", 3: "width"},
        "pixel_mask": {0: "batch", 1: "height", 2: "width"},
    }
    module = transformers.DetrForObjectDetection(config)
    return Call(module, names, ["logits", "pred_boxes"]), axes, ["logits", "boxes"], sets


NETWORKS = [
    resnet50,
    mobilenet,
    efficientnet,
    vit,
    convnext,
    unet,
    unet_interpolated,
    detector,
    bert,
    bert_eager,
    t5_encoder,
    t5_decoder,
    gpt2,
    gpt2_past,
    whisper_encoder,
    whisper_decoder_past,
    t5_decoder_past,
    distilbert,
    llama_past,
    qwen2_past,
    clip,
    swin,
    deeplab,
    lstm,
    gru,
    ssdlite,
    faster_rcnn,
    retinanet,
    detr,
]

# ---- export ------------------------------------------------------------------------------------------------


def randomize(module):
    """Norms as after training: the ones and zeros they begin with would hide errors."""
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            nn.init.normal_(part.running_mean, std=0.1)
            nn.init.uniform_(part.running_var, 0.5, 1.5)
        if "Norm" in type(part).__name__ and getattr(part, "weight", None) is not None:
            nn.init.normal_(part.weight, mean=1.0, std=0.1)
            if getattr(part, "bias", None) is not None:
                nn.init.normal_(part.bias, std=0.1)


STARRED = {Call: 0, GPT2Past: 1, CrossPast: 2, MaskedPast: 3}  # arguments before those that are a tuple


def export(module, axes, outputs, example, how, path):
    args = tuple(example.values())
    if how == "trace":
        named = dict(axes)
        torch.onnx.export(
            module,
            args,
            path,
            input_names=list(example),
            output_names=outputs,
            dynamic_axes=named,
            opset_version=OPSET[how],
            dynamo=False,
        )
        return
    shapes = tuple({axis: torch.export.Dim.DYNAMIC for axis in axes[name]} for name in example)
    if isinstance(module, tuple(STARRED)):
        first = STARRED[type(module)]
        shapes = (*shapes[:first], shapes[first:])
    torch.onnx.export(
        module,
        args,
        path,
        input_names=list(example),
        output_names=outputs,
        dynamic_shapes=shapes,
        opset_version=OPSET[how],
        dynamo=True,
        external_data=False,
        verbose=False,
    )


def strip(path):
    """Without the notes of where in the program each node comes from, which are most of a small file."""
    model = onnx.load(path)
    for part in [
        model,
        model.graph,
        *model.graph.node,
        *model.graph.value_info,
        *model.graph.input,
        *model.graph.output,
        *model.graph.initializer,
        *model.functions,
    ]:
        part.doc_string = ""
        del part.metadata_props[:]
    onnx.save(model, path)


class Calibration(onnxruntime.quantization.CalibrationDataReader):
    def __init__(self, sets):
        self.rest = [{name: value.numpy() for name, value in values.items()} for values in sets]

    def get_next(self):
        return self.rest.pop() if self.rest else None


def quantize(path, sets):
    """Products and convolutions between pairs of QuantizeLinear and DequantizeLinear, as onnxruntime's quantizer does."""
    onnxruntime.quantization.quantize_static(
        path,
        path,
        Calibration(sets),
        quant_format=onnxruntime.quantization.QuantFormat.QDQ,
        per_channel=True,
        activation_type=onnxruntime.quantization.QuantType.QInt8,
    )


def write_sets(folder, sets, near, optimize):
    path = os.path.join(folder, "model.onnx")
    options = onnxruntime.SessionOptions()
    if not optimize:  # rounds where the nodes do
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [port.name for port in session.get_inputs()]
    scale = 0.0
    for number, values in enumerate(sets):
        data = os.path.join(folder, f"test_data_set_{number}")
        os.makedirs(data, exist_ok=True)
        results = session.run(None, {name: values[name].numpy() for name in names})
        for i, name in enumerate(names):
            onnx.save_tensor(numpy_helper.from_array(values[name].numpy(), name), os.path.join(data, f"input_{i}.pb"))
        for i, (name, value) in enumerate(zip([port.name for port in session.get_outputs()], results)):
            assert np.isfinite(value).all(), f"{folder}: {name} is not finite"
            onnx.save_tensor(numpy_helper.from_array(value, name), os.path.join(data, f"output_{i}.pb"))
            scale = max(scale, float(np.sqrt(np.mean(np.square(value, dtype=np.float64)))) if value.size > 0 else 0.0)
    # Numbers next to 0 are compared with what is usual among the results.
    with open(os.path.join(folder, "data.json"), "w") as file:
        json.dump({"rtol": 10 * near, "atol": near * scale}, file)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--only", default="*")
    parser.add_argument("--opset", type=int, help="instead of 17 of traces and 20 of torch.export")
    parser.add_argument("--half", action="store_true", help="weights and floats of inputs in f16")
    parser.add_argument("--qdq", action="store_true", help="quantized by onnxruntime, with Q and DQ nodes")
    options = parser.parse_args()
    if options.opset:
        OPSET.update(trace=options.opset, export=options.opset)
    warnings.simplefilter("ignore")
    torch.backends.mha.set_fastpath_enabled(False)  # what tracing cannot export
    refused = []
    for network in NETWORKS:
        for how in ("trace", "export"):
            name = f"{network.__name__}_{how}" + ("_f16" if options.half else "_qdq" if options.qdq else "")
            if not fnmatch.fnmatch(name, options.only):
                continue
            torch.manual_seed(0)
            module, axes, outputs, sets = network(options.full)
            randomize(module)
            module.eval()
            near = 1e-4
            if options.half:
                module.half()
                sets = [{n: v.half() if v.is_floating_point() else v for n, v in values.items()} for values in sets]
                near = 1e-2
            folder = os.path.join(options.folder, name)
            os.makedirs(folder, exist_ok=True)
            path = os.path.join(folder, "model.onnx")
            try:
                with torch.no_grad():
                    export(module, axes, outputs, sets[0], how, path)
                if options.qdq:
                    quantize(path, sets)
                    near = 3e-2  # a number next to the middle of two steps may take either
                strip(path)
                write_sets(folder, sets, near, not options.qdq)
                print(f"{name}: {os.path.getsize(path) >> 10} KiB", flush=True)
            except Exception as cause:  # prints an exporter's refusal; the other exporter's case remains
                refused.append(name)
                text = str(cause).strip().splitlines() or [type(cause).__name__]
                print(f"{name}: refused: {text[0][:300]}", file=sys.stderr, flush=True)
                for part in os.listdir(folder):
                    if os.path.isfile(os.path.join(folder, part)):
                        os.remove(os.path.join(folder, part))
    print(f"{len(refused)} refused: {', '.join(refused)}" if refused else "all exported")


if __name__ == "__main__":
    main()
