#!/usr/bin/env python3
"""Writes cases of com.microsoft operators, with what onnxruntime computes: FOLDER/contrib/<case>/, laid out as ONNX's own.

usage: make_contrib.py FOLDER [--joined]

--joined: FOLDER/contrib_<family>/ instead, each one network of all nodes of a family. Its inputs and outputs are vectors,
one of each type, that nodes take their parts of; so a family is few files.

Needs the packages of tests/goldens/onnx/requirements.txt; onnxruntime 1.32.0 makes the same as 1.31.1 (CPU). What its CPU
kernels cannot do is left out, or computed here.
"""

import math
import pathlib
import shutil
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

B, N, M, H, D = 2, 5, 7, 4, 8  # batch, queries, keys, heads, width of a head
W = H * D
rng = np.random.default_rng(0)
OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]


def data(*dims):
    return rng.standard_normal(dims).astype(np.float32) * 0.5


def model_of(node, inputs, constants, outputs):
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for n, v in inputs.items()
        if n not in constants
    ]
    initializers = [numpy_helper.from_array(inputs[n], n) for n in constants]
    graph = helper.make_graph([node], "case", infos, outputs, initializers)
    return helper.make_model(graph, opset_imports=OPSETS, ir_version=8)


def save(folder, model, fed, results):
    """fed, results: lists of names and arrays."""
    folder = folder / "test_data_set_0"
    folder.mkdir(parents=True)
    onnx.save(model, folder.parent / "model.onnx")
    for kind, tensors in (("input", fed), ("output", results)):
        for k, (name, value) in enumerate(tensors):
            (folder / f"{kind}_{k}.pb").write_bytes(numpy_helper.from_array(value, name).SerializeToString())


def computed(node, **values):
    """What onnxruntime makes of one of ONNX's nodes."""
    model = model_of(node, values, (), [helper.make_empty_tensor_value_info("y")])
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(["y"], values)[0]


class Joined:
    """Nodes of one network."""

    def __init__(self):
        self.nodes, self.initializers = [], []
        self.fed, self.known, self.parts = {}, {}, {}  # by type: arrays of the inputs, of the results, their names

    def constant(self, name, values):
        self.initializers.append(numpy_helper.from_array(np.array(values, np.int64), name))
        return name

    def add(self, case, node, inputs, constants, results):
        """results: names and arrays."""
        renamed = onnx.NodeProto()
        renamed.CopyFrom(node)
        renamed.name = case
        del renamed.input[:], renamed.output[:]
        renamed.input.extend(f"{case}/{n}" if n else "" for n in node.input)
        renamed.output.extend(f"{case}/{n}" if n else "" for n in node.output)
        for n, v in inputs.items():
            if n in constants:
                self.initializers.append(numpy_helper.from_array(v, f"{case}/{n}"))
                continue
            before = self.fed.setdefault(v.dtype.name, [])
            begin = sum(a.size for a in before)
            name = f"{case}/{n}"
            part = [self.constant(f"{name}/{k}", [b]) for k, b in (("begin", begin), ("end", begin + v.size), ("axis", 0))]
            self.nodes.append(helper.make_node("Slice", [v.dtype.name, *part], [f"{name}/part"]))
            dims = self.constant(f"{name}/dims", v.shape)
            self.nodes.append(helper.make_node("Reshape", [f"{name}/part", dims], [name], allowzero=1))
            before.append(v.reshape(-1))
        self.nodes.append(renamed)
        for n, v in results:
            flat = self.constant(f"{case}/{n}/flat", [-1 if v.size else 0])
            self.nodes.append(helper.make_node("Reshape", [f"{case}/{n}", flat], [f"{case}/{n}/part"], allowzero=1))
            self.known.setdefault(v.dtype.name, []).append(v.reshape(-1))
            self.parts.setdefault(v.dtype.name, []).append(f"{case}/{n}/part")

    def save(self, folder):
        fed = [(n, np.concatenate(v)) for n, v in self.fed.items()]
        results = [(f"all_{n}", np.concatenate(v)) for n, v in self.known.items()]
        joins = [helper.make_node("Concat", v, [f"all_{n}"], axis=0) for n, v in self.parts.items()]
        infos = [
            [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in ports]
            for ports in (fed, results)
        ]
        graph = helper.make_graph(self.nodes + joins, "joined", *infos, self.initializers)
        save(folder, helper.make_model(graph, opset_imports=OPSETS, ir_version=8), fed, results)


class Cases:
    def __init__(self, folder, joined=None):
        self.folder, self.joined = folder, joined

    def add(self, name, op, values, n_outputs=1, skipped=(), constants=(), domain="com.microsoft", known=None,
            settle=None, **attributes):
        """values: None where an input is absent; skipped: outputs without a name; known: what is to come out;
        settle: sets what onnxruntime leaves undefined."""
        names = [f"i{k}" if v is not None else "" for k, v in enumerate(values)]
        inputs = {n: v for n, v in zip(names, values) if n}
        outputs = [f"o{k}" if k not in skipped else "" for k in range(n_outputs)]
        wanted = [n for n in outputs if n]
        node = helper.make_node(op, names, outputs, domain=domain, **attributes)
        untyped = model_of(node, inputs, constants, [helper.make_empty_tensor_value_info(n) for n in wanted])
        fed = {n: v for n, v in inputs.items() if n not in constants}
        if known is None:
            session = onnxruntime.InferenceSession(untyped.SerializeToString(), providers=["CPUExecutionProvider"])
            known = session.run(wanted, fed)
            if settle is not None:
                settle(known)
        results = [np.asarray(r) for r in known]
        infos = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(r.dtype), r.shape)
            for n, r in zip(wanted, results)
        ]
        named = list(zip(wanted, results))
        if self.joined is not None:
            self.joined.add(name, node, inputs, constants, named)
        else:
            save(self.folder / name, model_of(node, inputs, constants, infos), list(fed.items()), named)


def add_activations_and_products(cases):
    cases.add("fast_gelu", "FastGelu", [data(3, 4, 8)])
    cases.add("fast_gelu_bias", "FastGelu", [data(3, 4, 8), data(8)])
    cases.add("bias_gelu", "BiasGelu", [data(3, 4, 8), data(8)])
    cases.add("gelu", "Gelu", [data(3, 4)])
    cases.add("quick_gelu", "QuickGelu", [data(3, 4)])
    cases.add("quick_gelu_alpha", "QuickGelu", [data(3, 4)], alpha=1.3)
    x = data(3, 4)  # two of ONNX's first operators, which onnxruntime has no more
    cases.add("scaled_tanh", "ScaledTanh", [x], domain="", known=[1.7 * np.tanh(0.6 * x)], alpha=1.7, beta=0.6)
    known = [0.7 * np.log1p(np.exp(1.3 * x))]
    cases.add("parametric_softplus", "ParametricSoftplus", [x], domain="", known=known, alpha=0.7, beta=1.3)
    cases.add("fused_matmul_b", "FusedMatMul", [data(2, 3, 4), data(2, 5, 4)], transB=1, alpha=0.7)
    cases.add("fused_matmul_a", "FusedMatMul", [data(2, 4, 3), data(2, 4, 5)], transA=1)
    cases.add("fused_matmul_batch_a", "FusedMatMul", [data(3, 2, 4), data(2, 4, 5)], transBatchA=1)
    cases.add("fused_matmul_batch_b", "FusedMatMul", [data(2, 3, 4), data(4, 2, 5)], transBatchB=1)
    cases.add("fused_matmul_batch_a_a", "FusedMatMul", [data(4, 2, 3), data(2, 4, 5)], transBatchA=1, transA=1)
    for name, params in (
        ("Relu", []),
        ("Tanh", []),
        ("LeakyRelu", [0.2]),
        ("Clip", [-0.3, 0.4]),
        ("HardSigmoid", [0.3, 0.6]),
    ):
        values = [data(2, 3, 6, 6), data(4, 3, 3, 3), data(4)]
        more = {"activation_params": params} if params else {}
        cases.add(f"fused_conv_{name.lower()}", "FusedConv", values, activation=name, pads=[1, 1, 1, 1], **more)
    values = [data(2, 3, 6, 6), data(4, 3, 3, 3), data(4), data(2, 4, 2, 2)]
    cases.add("fused_conv_sum", "FusedConv", values, activation="Relu", strides=[2, 2])
    values = [data(3, 4), data(5, 4), data(5)]
    cases.add("fused_gemm_relu", "FusedGemm", values, activation="Relu", transB=1)
    cases.add("fused_gemm_leaky", "FusedGemm", values, activation="LeakyRelu", activation_alpha=0.3, transB=1, beta=0.5)


def add_fused(cases):
    """What optimizers write for diffusion models, T5 and WavLM; onnxruntime has most of it for GPUs only."""
    f32, erf = np.float32, np.vectorize(math.erf)
    x, w, b = data(2, 6, 5, 4), data(6, 4, 3, 3), data(6)
    first = x.transpose(0, 3, 1, 2)
    plain = helper.make_node("Conv", ["x", "w", "b"], ["y"], pads=[1, 0, 1, 0], strides=[1, 2])
    known = [computed(plain, x=first, w=w, b=b).transpose(0, 2, 3, 1)]
    values = [x, np.ascontiguousarray(w.transpose(0, 2, 3, 1)), b]
    cases.add("nhwc_conv", "NhwcConv", values, constants=["i1"], known=known, pads=[1, 0, 1, 0], strides=[1, 2])
    image = rng.integers(0, 256, (2, 6, 5, 4)).astype(np.uint8)
    cases.add("nhwc_max_pool", "NhwcMaxPool", [image], kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1])

    def group_norm(x, gamma, beta, groups, activation):
        x = x.astype(np.float64)
        parts = x.reshape(x.shape[0], -1, groups, x.shape[-1] // groups)
        parts = parts - parts.mean((1, 3), keepdims=True)
        y = (parts / np.sqrt((parts * parts).mean((1, 3), keepdims=True) + 1e-5)).reshape(x.shape) * gamma + beta
        return (y / (1 + np.exp(-y)) if activation else y).astype(f32)

    x, gamma, beta = data(2, 3, 4, 8), data(8), data(8)
    for activation in (0, 1):
        known, more = [group_norm(x, gamma, beta, 4, activation)], dict(groups=4, activation=activation)
        cases.add(f"group_norm_{activation}", "GroupNorm", [x, gamma, beta], known=known, **more)
        values = [np.ascontiguousarray(x.transpose(0, 3, 1, 2)), gamma, beta]
        known = [known[0].transpose(0, 3, 1, 2)]
        cases.add(f"group_norm_first_{activation}", "GroupNorm", values, known=known, channels_last=0, **more)
    for name, dims in (("whole", (2, 3, 4, 8)), ("ones", (2, 1, 1, 8)), ("channels", (2, 8))):
        skip, bias = data(*dims), data(8)
        s = x + (skip if len(dims) == 4 else skip[:, None, None]) + bias
        values, known = [x, gamma, beta, skip, bias], [group_norm(s, gamma, beta, 2, 1), s]
        cases.add(f"skip_group_norm_{name}", "SkipGroupNorm", values, 2, known=known, groups=2, activation=1)
    known = [group_norm(x + skip[:, None, None], gamma, beta, 2, 0)]
    cases.add("skip_group_norm_no_bias", "SkipGroupNorm", [x, gamma, beta, skip], known=known, groups=2, activation=0)

    x, bias, skip = data(2, 6, 8), data(8), data(2, 6, 8)
    cases.add("bias_add", "BiasAdd", [x, bias, skip], known=[x + bias + skip])
    left, right = np.split(x + bias, 2, -1)
    known = [(left * right * 0.5 * (1 + erf(right / math.sqrt(2)))).astype(f32)]
    cases.add("bias_split_gelu", "BiasSplitGelu", [x, bias], known=known)
    w = data(8, 5)
    for name, more in (("", []), ("_bias", [data(5)])):
        y = x @ w + (more[0] if more else 0)
        known = [(0.5 * y * (1 + np.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y**3)))).astype(f32)]
        cases.add(f"gemm_fast_gelu{name}", "GemmFastGelu", [x, w, *more], known=known)
    cases.add("transpose_matmul", "TransposeMatMul", [data(2, 4, 3), data(2, 5, 4)], transA=1, transB=1, alpha=0.3)
    scores = data(2, 3, 4, 5)
    biases = (("inner", (2, 1, 1, 5), 3, 1), ("outer", (4, 5), 3, 0), ("joined", (3, 4, 5), 2, 0))
    for name, dims, axis, inner in biases:
        bias = data(*dims)
        e = np.exp((scores + bias).astype(np.float64))
        known = [(e / e.sum(tuple(range(axis, 4)), keepdims=True)).astype(f32)]
        more = dict(axis=axis, is_inner_broadcast=inner)
        cases.add(f"bias_softmax_{name}", "BiasSoftmax", [scores, bias], known=known, **more)

    for n in (1, 2, 3, 4, 7):
        cases.add(f"inverse_{n}", "Inverse", [data(2, 3, n, n) + 2 * np.eye(n, dtype=f32)])
    cases.add("trilu_of_microsoft", "Trilu", [data(2, 4, 5), np.array(1, np.int64)], constants=["i1"], upper=0)
    for name, depth, block, quant in (("fp4", 64, 16, 0), ("nf4", 48, 32, 1), ("nf4_odd", 5, 16, 1)):
        count = 7 * depth
        packed = rng.integers(0, 256, (count + 1) // 2).astype(np.uint8)
        values = [data(2, 3, depth), packed, 0.1 + rng.random(-(-count // block)).astype(f32)]
        more = dict(N=7, K=depth, block_size=block, quant_type=quant)
        cases.add(f"matmul_bnb4_{name}", "MatMulBnb4", values, constants=["i1", "i2"], **more)

    def relative(table, queries, keys, both_ways, most):  # Raffel et al., section 2.1
        buckets = table.shape[1] // (2 if both_ways else 1)
        ahead = np.arange(keys)[None] - np.arange(queries)[:, None]
        own = np.where(ahead > 0, buckets, 0) if both_ways else 0
        distance = np.abs(ahead) if both_ways else np.maximum(-ahead, 0)
        exact = buckets // 2
        far = exact + np.log(np.maximum(distance, exact) / exact) / math.log(most / exact) * (buckets - exact)
        return table[:, own + np.where(distance < exact, distance, np.minimum(far.astype(int), buckets - 1))][None]

    for name, both_ways, queries, keys, known_lengths in (("", 0, 9, 9, True), ("_both_ways", 1, 12, 12, False)):
        table = data(3, 8)  # by heads, whatever its dims say
        lengths = [np.array([queries], np.int64), np.array([keys], np.int64)]
        known, more = [relative(table, queries, keys, both_ways, 10)], dict(max_distance=10, is_bidirectional=both_ways)
        constants = ["i1", "i2"] if known_lengths else []
        values = [table.reshape(8, 3), *lengths]
        cases.add(f"relative_bias{name}", "RelativePositionBias", values, constants=constants, known=known, **more)
    q, bias, positions = data(B, N, W), data(W), data(1, H, N, N)
    w, b, eco = data(D, 8), data(8), data(1, H, 1, 1)
    gates = ((q + bias).reshape(B, N, H, D).transpose(0, 2, 1, 3) @ w + b).reshape(B, H, N, 2, 4).sum(-1)
    gates = 1 / (1 + np.exp(-gates))
    known = [((gates[..., :1] * (gates[..., 1:] * eco - 1) + 2) * positions).astype(f32)]
    values = [q, bias, positions, w, b, eco]
    cases.add("gated_relative_bias", "GatedRelativePositionBias", values, known=known, num_heads=H)


def add_quantized(cases):
    def u8(*dims):
        return rng.integers(0, 256, dims).astype(np.uint8)

    def pair(scale, zero):
        return [np.array(scale, np.float32), np.array(zero, np.uint8)]

    for op in ["QLinearAdd", "QLinearMul"]:
        values = [u8(3, 4, 5), *pair(0.02, 3), u8(4, 1), *pair(0.03, 100), *pair(0.05, 90)]
        cases.add(op.lower(), op, values)
    cases.add("qlinear_sigmoid", "QLinearSigmoid", [u8(3, 40), *pair(0.02, 130), *pair(1 / 256, 0)])
    cases.add("qlinear_leaky_relu", "QLinearLeakyRelu", [u8(3, 40), *pair(0.02, 130), *pair(0.03, 50)], alpha=0.2)
    cases.add("qlinear_average", "QLinearGlobalAveragePool", [u8(2, 3, 5, 5), *pair(0.02, 130), *pair(0.01, 120)])
    values = [*pair(0.03, 120), u8(2, 3), *pair(0.02, 130), u8(2, 4), *pair(0.05, 110)]
    cases.add("qlinear_concat", "QLinearConcat", values, axis=1)
    scale, zero = pair(0.02, 130)
    scales, bias = np.array([0.01, 0.02, 0.03, 0.04], np.float32), data(4)
    cases.add(
        "qlinear_softmax", "QLinearSoftmax", [u8(2, 3, 8), *pair(0.02, 130), *pair(1 / 256, 0)], axis=-1, opset=13
    )
    cases.add(
        "qlinear_softmax_axis", "QLinearSoftmax", [u8(2, 3, 8), *pair(0.02, 130), *pair(1 / 256, 0)], axis=1, opset=13
    )
    cases.add(
        "qlinear_softmax_joined", "QLinearSoftmax", [u8(2, 3, 8), *pair(0.02, 130), *pair(1 / 256, 0)], axis=1, opset=11
    )
    values = [u8(2, 3, 6, 6), *pair(0.02, 130), *pair(0.013, 120)]
    cases.add(
        "qlinear_average_pool", "QLinearAveragePool", values, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]
    )
    more = dict(kernel_shape=[3, 2], strides=[2, 1], channels_last=1)
    values = [u8(2, 6, 5, 3), *pair(0.02, 130), *pair(0.013, 120)]
    cases.add("qlinear_average_pool_last", "QLinearAveragePool", values, **more)
    x, x_scale, x_zero = u8(2, 3, 4, 5), *pair(0.02, 130)
    for name, axes, keep in (("", None, 1), ("_axes", [-1, 1], 0)):
        mean = ((x.astype(np.float64) - 130) * np.float64(x_scale)).mean(axes and tuple(axes), keepdims=bool(keep))
        known = [np.clip(np.rint(mean / np.float64(np.float32(0.013))) + 120, 0, 255).astype(np.uint8)]
        more = dict(axes=axes, keepdims=keep) if axes else dict(keepdims=keep)
        values = [x, x_scale, x_zero, *pair(0.013, 120)]
        cases.add(f"qlinear_reduce_mean{name}", "QLinearReduceMean", values, known=known, **more)
    weights = rng.integers(-127, 128, (6, 3, 3, 3)).astype(np.int8)
    values = [u8(2, 5, 6, 3), *pair(0.02, 130), weights, np.array(0.01, np.float32), np.array(0, np.int8)]
    values += [*pair(0.1, 128), rng.integers(-2000, 2000, 6).astype(np.int32)]
    more = dict(pads=[1, 1, 1, 1], channels_last=1)
    cases.add("qlinear_conv_last", "QLinearConv", values, constants=["i3"], **more)
    values = [rng.random((3, 1)) < 0.5, u8(3, 5), *pair(0.02, 130), u8(5), *pair(0.05, 90), *pair(0.04, 100)]
    cases.add("qlinear_where", "QLinearWhere", values)
    cases.add("matmul_integer_to_float", "MatMulIntegerToFloat", [u8(2, 6), u8(6, 4), scale, scales, zero, u8(4), bias])
    cases.add("dynamic_quantize_matmul", "DynamicQuantizeMatMul", [data(3, 6), u8(6, 4), scale, zero, bias])
    for channels in (200, 220):  # sums of as many products as f32 can distinguish, and of more
        sizes = [(1, channels, 6, 7), (3, channels, 4, 5)]
        values = [rng.integers(200, 256, size).astype(np.uint8) for size in sizes]
        values += [np.array(0, np.uint8), np.array(0, np.uint8)]
        cases.add(f"conv_integer_{channels}", "ConvInteger", values, constants=["i1"], domain="", pads=[1, 0, 1, 0])
    values = [u8(2, 64, 9, 9), *pair(0.02, 130), rng.integers(-127, 128, (5, 64, 3, 3)).astype(np.int8)]
    values += [0.001 * (1 + rng.random(5)).astype(np.float32), np.zeros(5, np.int8), *pair(0.1, 128)]
    values.append(rng.integers(-20000, 20000, 5).astype(np.int32))
    cases.add("qlinear_conv", "QLinearConv", values, constants=["i3"], domain="", pads=[1, 1, 1, 1])
    sums = rng.integers(-1000, 1000, 4).astype(np.int32)
    for bits, block, depth, zeros in (
        (4, 16, 32, None),
        (4, 16, 40, "packed"),
        (4, 32, 64, "float"),
        (4, 32, 80, None),
        (4, 32, 64, "packed"),
        (8, 16, 48, "packed"),
        (8, 32, 80, None),
        (2, 16, 64, None),
    ):
        blocks = -(-depth // block)
        values = [data(2, 3, depth), u8(6, blocks, block * bits // 8), 0.1 + rng.random(6 * blocks).astype(np.float32)]
        values += {
            None: [],
            "packed": [u8(6 * (-(-blocks * bits // 8)))],
            "float": [(8 * rng.random(6 * blocks)).astype(np.float32)],
        }[zeros]
        name = f"matmul_bits_{bits}_{zeros or 'plain'}_{depth}"
        constants = [f"i{k}" for k in range(1, len(values))]
        cases.add(name, "MatMulNBits", values, constants=constants, bits=bits, block_size=block, N=6, K=depth)
    ids, scales = rng.integers(0, 9, (2, 3)), 0.1 + rng.random((9, 4)).astype(np.float32)
    values = [u8(9, 32), ids, scales]
    cases.add(
        "gather_bits",
        "GatherBlockQuantized",
        values,
        constants=["i0", "i2"],
        bits=4,
        block_size=16,
        gather_axis=0,
        quantize_axis=1,
    )
    values.append(u8(9, 2))
    cases.add(
        "gather_bits_zeros",
        "GatherBlockQuantized",
        values,
        constants=["i0", "i2", "i3"],
        bits=4,
        block_size=16,
        gather_axis=0,
        quantize_axis=1,
    )
    weights = [u8(W, 3 * W), data(3 * W), np.array(0.02, np.float32), np.array(0.01, np.float32)]
    lengths = np.array([5, 3], np.int32)
    cases.add(
        "quantized_attention",
        "QAttention",
        [u8(B, N, W), *weights, lengths, np.array(120, np.uint8), np.array(128, np.uint8)],
        constants=["i1"],
        num_heads=H,
    )
    cases.add("qgemm", "QGemm", [u8(2, 6), scale, zero, u8(4, 6), *pair(0.01, 77), sums, *pair(0.03, 128)], transB=1)


def add_norms(cases):
    x = [data(2, 3, 8), data(2, 3, 8), data(8)]
    skip, skip_rms = "SkipLayerNormalization", "SkipSimplifiedLayerNormalization"
    cases.add("skip_norm_bias", skip, [*x, data(8), data(8)], 4, (1, 2), epsilon=1e-5)
    cases.add("skip_norm", skip, [*x, data(8)], epsilon=1e-5)
    cases.add("skip_norm_repeated", skip, [data(2, 3, 8), data(1, 3, 8), data(8)], epsilon=1e-5)
    cases.add("skip_norm_rank", skip, [data(2, 3, 8), data(3, 8), data(8), data(8)], epsilon=1e-5)
    cases.add("skip_rms", skip_rms, x, 4, (1, 2), epsilon=1e-5)
    cases.add("skip_rms_bias", skip_rms, [*x, data(8)], 4, (1, 2), epsilon=1e-5)
    cases.add("rms", "SimplifiedLayerNormalization", [data(2, 3, 8), data(8)], domain="", axis=-1, stash_type=1)
    ids = rng.integers(0, 10, (2, 3)).astype(np.int32)
    segments = rng.integers(0, 2, (2, 3)).astype(np.int32)
    mask = np.array([[1, 1, 1], [1, 1, 0]], np.int32)
    tables = [data(10, 8), data(6, 8), data(2, 8), data(8), data(8)]
    cases.add("embed_norm", "EmbedLayerNormalization", [ids, segments, *tables, mask], 2, epsilon=1e-5)
    tables[2] = None
    cases.add("embed_norm_no_segments", "EmbedLayerNormalization", [ids, None, *tables], 3, epsilon=1e-5)


def add_multi_head(cases):
    op, qkv, same = "MultiHeadAttention", [data(B, N, W), data(B, M, W), data(B, M, W)], [data(B, N, W)] * 3
    past = [data(B, H, 3, D), data(B, H, 3, D)]
    padding = np.array([[1] * 7, [1, 1, 1, 0, 0, 0, 0]], np.int32)
    cases.add("mha", op, qkv, num_heads=H)
    cases.add("mha_bias", op, [*qkv, data(3 * W)], num_heads=H)
    cases.add("mha_lengths", op, [*qkv, data(3 * W), np.array([7, 4], np.int32)], num_heads=H)
    cases.add("mha_padding", op, [*qkv, None, padding], num_heads=H)
    cases.add("mha_mask", op, [*qkv, None, rng.integers(0, 2, (B, N, M)).astype(np.int32)], num_heads=H)
    cases.add("mha_added", op, [*qkv, None, None, data(1, H, N, M)], num_heads=H)
    cases.add("mha_added_scale", op, [*qkv, None, None, data(B, 1, N, M)], num_heads=H, scale=0.3)
    cases.add("mha_past", op, [*same, None, None, None, *past], 3, num_heads=H)
    cases.add("mha_causal", op, same, num_heads=H, unidirectional=1)
    cases.add("mha_causal_past", op, [*same, None, None, None, *past], 3, num_heads=H, unidirectional=1)
    cases.add("mha_cross", op, [data(B, N, W), data(B, H, M, D), data(B, H, M, D)], num_heads=H)
    op, one = "DecoderMaskedMultiHeadAttention", [data(B, 1, W) for _ in range(3)]
    seen = np.array([[1] * 4, [1, 0, 1, 1]], np.int32)

    def heads(x):
        return x.reshape(B, -1, H, D).transpose(0, 2, 1, 3)

    def attend(q, k, v, scale=1 / math.sqrt(D), added=0):
        e = np.exp(q @ k.transpose(0, 1, 3, 2) * scale + added)
        y = (e / e.sum(-1, keepdims=True) @ v).transpose(0, 2, 1, 3).reshape(B, -1, W)
        return [t.astype(np.float32) for t in (y, k, v)]

    # onnxruntime's CPU kernel wants a cache of fixed length
    q, k, v = map(heads, one)
    k, v = np.concatenate([past[0], k], 2), np.concatenate([past[1], v], 2)
    cases.add("one_token", op, [*one, None, None, *past], 3, known=attend(q, k, v), num_heads=H)
    added = data(1, 1, 1, 4)
    known = attend(q, k, v, 0.3, added + np.where(seen, 0, -10000.0)[:, None, None])
    cases.add("one_token_masks", op, [*one, seen, added, *past], 3, known=known, num_heads=H, scale=0.3)
    bias = data(3 * W)
    q, k, v = (heads(x + bias[i * W : (i + 1) * W]) for i, x in enumerate(one))
    known = attend(q, np.concatenate([past[0], k], 2), np.concatenate([past[1], v], 2))
    values = [*one, None, None, *past, None, None, None, bias]
    cases.add("one_token_bias", op, values, 3, known=known, num_heads=H)
    cross = [data(B, 1, W), data(B, H, M, D), data(B, H, M, D)]
    cases.add("one_token_cross", op, cross, known=attend(heads(cross[0]), *cross[1:])[:1], num_heads=H)
    room = [data(B, H, M, D), data(B, H, M, D)]
    values = [*one, None, None, *room, np.array([3], np.int32)]
    cases.add("one_token_cache", op, values, 3, num_heads=H, past_present_share_buffer=1)
    x = [data(B, N, 12), data(12, 3 * W), data(3 * W)]
    padding = np.array([[1] * 5, [1, 1, 1, 0, 0]], np.int32)
    cases.add("attention", "Attention", x, num_heads=H)
    cases.add("attention_padding", "Attention", [*x, padding], num_heads=H)
    cases.add("attention_lengths", "Attention", [*x, np.array([5, 3], np.int32)], num_heads=H)
    cases.add("attention_causal", "Attention", x, num_heads=H, unidirectional=1)
    cases.add("attention_past", "Attention", [*x, None, data(2, B, H, 3, D)], 2, num_heads=H, unidirectional=1)
    sizes = [data(B, N, 12), data(12, 4 * W), data(4 * W)]
    cases.add("attention_sizes", "Attention", sizes, num_heads=H, qkv_hidden_sizes=[W, W, 2 * W])


def add_grouped_query(cases, name, past, queries, lengths, rotary=0, packed=False, known=True, more=(),
                      dtype=np.float32, **attributes):
    """past: keys in the cache; lengths: keys of each sequence after this step; more: inputs behind the caches of sines."""
    width, kv_heads, batch = 16, 2, len(lengths)
    if packed:
        values = [data(batch, queries, (H + 2 * kv_heads) * width), None, None]
    else:
        values = [data(batch, queries, heads * width) for heads in (H, kv_heads, kv_heads)]
    caches = [None if past is None else data(batch, kv_heads, past, width) for _ in range(2)]
    for i, length in enumerate(lengths):  # beyond what is there, what the cache holds is not defined
        for cache in caches:
            if cache is not None:
                cache[i, :, length - queries if length > queries else 0 :] = 0
    values += [*caches, np.array(lengths, np.int32) - 1, np.array(max(lengths), np.int32)]
    if rotary:
        values += [data(32, width // 2), data(32, width // 2)]
    if more:
        values += [None] * (9 - len(values)) + list(more)

    def hide_what_is_not_there(results):
        for scores in results[3:]:
            for i, length in enumerate(lengths):
                scores[i, :, :, length:] = 0

    values = [v.astype(dtype) if v is not None and v.dtype == np.float32 else v for v in values]
    constants = ("i6",) if known else ()
    cases.add(
        name,
        "GroupQueryAttention",
        values,
        4 if "qk_output" in attributes else 3,
        (),
        constants,
        settle=hide_what_is_not_there,
        num_heads=H,
        kv_num_heads=kv_heads,
        do_rotary=rotary,
        **attributes,
    )


def add_grouped_queries(cases):
    add_grouped_query(cases, "gqa_prompt", 0, 5, [5, 5])
    add_grouped_query(cases, "gqa_no_past", None, 5, [5, 5])
    add_grouped_query(cases, "gqa_prompt_rotary", 0, 5, [5, 5], 1)
    add_grouped_query(cases, "gqa_prompt_interleaved", 0, 5, [5, 5], 1, rotary_interleaved=1)
    add_grouped_query(cases, "gqa_packed", 0, 5, [5, 5], 1, True)
    add_grouped_query(cases, "gqa_ragged_prompt", 0, 5, [5, 3], 1)
    add_grouped_query(cases, "gqa_decode", 6, 1, [7, 7])
    add_grouped_query(cases, "gqa_decode_rotary", 6, 1, [7, 7], 1)
    add_grouped_query(cases, "gqa_total_is_input", 6, 1, [7, 7], 1, known=False)
    add_grouped_query(cases, "gqa_ragged_decode", 6, 1, [7, 5], 1)
    add_grouped_query(cases, "gqa_window", 6, 1, [7, 7], 1, local_window_size=3)
    add_grouped_query(cases, "gqa_softcap", 0, 5, [5, 5], softcap=5.0)
    add_grouped_query(cases, "gqa_continued", 6, 3, [9], 1)


def add_sinks(cases):
    """Softmaxes in whose sum a logit without a key takes part, and what else is new in grouped queries."""

    def sinks(*values):
        return [None, None, np.array(values, np.float32) if values else 3 * data(H)]

    add_grouped_query(cases, "sinks_prompt", 0, 5, [5, 5], more=sinks())
    add_grouped_query(cases, "sinks_rotary", None, 5, [5], 1, more=sinks())
    add_grouped_query(cases, "sinks_packed", 0, 5, [5], 1, True, more=sinks())
    add_grouped_query(cases, "sinks_ragged_prompt", 0, 5, [5, 3], 1, more=sinks())
    add_grouped_query(cases, "sinks_decode", 6, 1, [7, 7], 1, more=sinks())
    add_grouped_query(cases, "sinks_ragged_decode", 6, 1, [7, 5], 1, more=sinks())
    add_grouped_query(cases, "sinks_total_is_input", 6, 1, [7, 7], 1, known=False, more=sinks())
    add_grouped_query(cases, "sinks_buffer", 12, 1, [7, 5], 1, more=sinks())
    add_grouped_query(cases, "sinks_buffer_prompt", 12, 5, [5], 1, more=sinks())
    add_grouped_query(cases, "sinks_continued", 6, 3, [9], 1, more=sinks())
    add_grouped_query(cases, "sinks_window", 6, 1, [7, 7], 1, more=sinks(), local_window_size=3)
    add_grouped_query(cases, "sinks_window_prompt", 0, 5, [5], more=sinks(), local_window_size=2)
    add_grouped_query(cases, "sinks_softcap", 0, 5, [5], more=sinks(), softcap=1.0)
    add_grouped_query(cases, "sinks_scale", 0, 5, [5], more=sinks(), scale=0.7)
    add_grouped_query(cases, "sinks_far", 0, 5, [5], more=sinks(200, -200, 4, 0))
    add_grouped_query(cases, "sinks_added", 0, 5, [5], more=[None, data(1, H, 5, 5), data(H)])
    add_grouped_query(cases, "smooth", 0, 5, [5, 5], smooth_softmax=1)
    add_grouped_query(cases, "smooth_decode", 6, 1, [7, 5], 1, smooth_softmax=1)
    add_grouped_query(cases, "smooth_softcap", 0, 5, [5], softcap=1.0, smooth_softmax=1)
    add_grouped_query(cases, "smooth_window", 6, 1, [7, 7], 1, local_window_size=3, smooth_softmax=1)
    add_grouped_query(cases, "sinks_and_smooth", 0, 5, [5], more=sinks(), smooth_softmax=1)
    add_grouped_query(cases, "sinks_f16", 0, 5, [5], more=sinks(), dtype=np.float16)
    add_grouped_query(cases, "sinks_decode_f16", 6, 1, [7, 7], more=sinks(), dtype=np.float16, local_window_size=3)
    add_grouped_query(cases, "smooth_f16", 0, 5, [5], dtype=np.float16, smooth_softmax=1)
    # norms of each head's queries and keys, which onnxruntime's CPU kernel has not
    q, k, v = data(1, N, W), data(1, N, W // 2), data(1, N, W // 2)
    norms = [1 + data(D), 1 + data(D)]
    rest = [None, None, np.array([N - 1], np.int32), np.array(N, np.int32)]

    def normed(x, weight):
        x = x.reshape(1, N, -1, D)
        return (x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-3) * weight).reshape(1, N, -1)

    def attend(q, k):
        q, k = (x.reshape(N, -1, D).transpose(1, 0, 2) for x in (q, k))
        k, values = (np.repeat(x, 2, 0) for x in (k, v.reshape(N, -1, D).transpose(1, 0, 2)))
        e = np.exp(q @ k.transpose(0, 2, 1) / math.sqrt(D)) * np.tri(N)
        return (e / e.sum(-1, keepdims=True) @ values).transpose(1, 0, 2).reshape(1, N, W).astype(np.float32)

    values = [q, k, v, *rest, *[None] * 7, *norms]
    known = [attend(normed(q, norms[0]), normed(k, norms[1]))]
    more = dict(num_heads=H, kv_num_heads=H // 2, qk_norm_epsilon=1e-3)
    cases.add("norms", "GroupQueryAttention", values, constants=["i6"], known=known, **more)
    add_grouped_query(cases, "both_ways", 0, 5, [5], 1, causal=0)
    add_grouped_query(cases, "both_ways_sinks", 0, 5, [5], more=sinks(), causal=0)


def add_scores(cases):
    """Grouped queries whose scores (1) or weights (2) are an output."""
    sinks = [None, None, 3 * data(H)]
    for mode, name in ((1, "scores"), (2, "weights")):
        add_grouped_query(cases, f"{name}_ragged_prompt", 0, 5, [5, 3], 1, qk_output=mode)
        add_grouped_query(cases, f"{name}_ragged_decode", 6, 1, [7, 5], 1, qk_output=mode)
        add_grouped_query(cases, f"{name}_buffer", 12, 1, [7, 5], qk_output=mode)
        add_grouped_query(cases, f"{name}_buffer_total_is_input", 12, 1, [7], known=False, qk_output=mode)
        add_grouped_query(cases, f"{name}_window", 0, 5, [5], local_window_size=2, qk_output=mode)
        add_grouped_query(cases, f"{name}_added", 0, 5, [5], more=[None, data(1, H, 5, 5)], softcap=1.0, qk_output=mode)
        add_grouped_query(cases, f"{name}_sinks", 0, 5, [5], more=sinks, qk_output=mode)
        add_grouped_query(cases, f"{name}_both_ways", 0, 5, [5], causal=0, qk_output=mode)
    add_grouped_query(cases, "scores_packed", None, 5, [5], 1, True, qk_output=1)
    add_grouped_query(cases, "scores_total_is_input", 6, 1, [7], 1, known=False, qk_output=1)
    add_grouped_query(cases, "scores_scale", 0, 5, [5], scale=0.7, qk_output=1)
    add_grouped_query(cases, "weights_smooth", 0, 5, [5], smooth_softmax=1, qk_output=2)
    add_grouped_query(cases, "weights_f16", 6, 1, [7, 7], dtype=np.float16, qk_output=2)


def add_rotary(cases):
    op, ids = "RotaryEmbedding", rng.integers(0, 8, (B, N)).astype(np.int64)
    caches = [data(16, D // 2), data(16, D // 2)]
    cases.add("rotary_heads", op, [data(B, H, N, D), ids, *caches])
    cases.add("rotary_joined", op, [data(B, N, W), ids, *caches])
    cases.add("rotary_first", op, [data(B, N, W), np.array([3], np.int64), *caches], interleaved=1)
    part = [data(16, 2), data(16, 2)]
    cases.add("rotary_part", op, [data(B, N, W), ids, *part], num_heads=H, rotary_embedding_dim=4)


def add_first(cases):
    """Of ONNX's first operators, and what others have of com.microsoft that onnxruntime's CPU kernels have not."""
    x = data(2, 3, 5, 6)
    cases.add("global_lp_pool", "GlobalLpPool", [x], domain="", p=3)
    rois = np.array([[0, 1, 0, 4, 3], [1, 0, 1, 5, 4], [1, 2, 2, 2, 2]], np.float32)
    cases.add("max_roi_pool", "MaxRoiPool", [x, rois], domain="", pooled_shape=[2, 3], spatial_scale=0.9)
    bias = [0.5, -1.0, 2.0]
    known = [np.float32(1.5) * x + np.array(bias, np.float32)[:, None, None]]
    cases.add("image_scaler", "ImageScaler", [x], domain="", known=known, scale=1.5, bias=bias)
    a, b = data(2, 4, 3), data(2, 4, 5)
    known = [np.maximum(0.7 * a.transpose(0, 2, 1) @ b, 0).astype(np.float32)]
    more = dict(transA=1, alpha=0.7, activation="Relu")
    cases.add("fused_matmul_activation", "FusedMatMulActivation", [a, b], known=known, **more)
    scale, zero = np.array([0.02, 0.1, 0.05], np.float32), np.array([3, 100, 250], np.uint8)
    cases.add("quantize", "QuantizeLinear", [x, scale, zero], axis=1)
    q = rng.integers(0, 256, (2, 3, 5)).astype(np.uint8)
    cases.add("dequantize", "DequantizeLinear", [q, scale, zero], axis=1)
    v, w = data(2, 3, 8), data(8)
    known = [(v / np.sqrt((v * v).mean(-1, keepdims=True) + 1e-5) * w).astype(np.float32)]
    cases.add("rms_of_microsoft", "SimplifiedLayerNormalization", [v, w], known=known, axis=-1, epsilon=1e-5)


FAMILIES = {
    "products": add_activations_and_products,
    "quantized": add_quantized,
    "norms": add_norms,
    "heads": add_multi_head,
    "grouped": add_grouped_queries,
    "rotary": add_rotary,
    "first": add_first,
    "fused": add_fused,
    "sinks": add_sinks,
    "scores": add_scores,
}


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["--joined"]):
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    shutil.rmtree(folder / "contrib", ignore_errors=True)
    for name, add in FAMILIES.items():
        if sys.argv[2:]:
            shutil.rmtree(folder / f"contrib_{name}", ignore_errors=True)
            joined = Joined()
            add(Cases(folder, joined))
            joined.save(folder / f"contrib_{name}")
        else:
            add(Cases(folder / "contrib"))


if __name__ == "__main__":
    main()
