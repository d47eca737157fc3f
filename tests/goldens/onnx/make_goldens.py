#!/usr/bin/env python3
"""Makes encoder/: a small transformer encoder as PyTorch's exporter writes one (norms, attention and GELU decomposed, dims computed by
Shape, Gather, Concat), with results of onnxruntime for several batches and lengths; classifier/: another one of which only the
pooled first token is an output; and distilled/: one of sequences of 11, of which the first two tokens are, each pooled by itself.
Laid out like ONNX's own test cases.
"""

import pathlib
import shutil

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

WIDTH, HEADS, VOCABULARY, INNER, LAYERS, LONGEST = 16, 2, 24, 32, 2, 16
random = np.random.default_rng(0)
nodes, initializers = [], []


def node(op, inputs, **attributes):
    name = f"/{op}_{len(nodes)}"
    nodes.append(helper.make_node(op, inputs, [name + "_output_0"], name=name, **attributes))
    return name + "_output_0"


def keep(prefix, array):
    name = f"{prefix}.{len(initializers)}"
    initializers.append(numpy_helper.from_array(array, name))
    return name


def weight(*dims, scale=0.3):
    return keep("weight", (random.standard_normal(dims) * scale).astype(np.float32))


def ints(*values):
    return keep("onnx", np.array(values, np.int64))


def constant(value, dtype=np.int64):
    return node("Constant", [], value=numpy_helper.from_array(np.array(value, dtype)))


def number(value):
    return constant(value, np.float32)


def linear(x, inner, outer):
    return node("Add", [weight(outer), node("MatMul", [x, weight(inner, outer)])])


def norm(x):
    distance = node("Sub", [x, node("ReduceMean", [x], axes=[-1])])
    variance = node("ReduceMean", [node("Pow", [distance, number(2)])], axes=[-1])
    normal = node("Div", [distance, node("Sqrt", [node("Add", [variance, number(1e-5)])])])
    return node("Add", [node("Mul", [normal, weight(WIDTH, scale=1)]), weight(WIDTH)])


def dim(x, axis):
    return node("Gather", [node("Shape", [x]), constant(axis)], axis=0)


def shape(x, *rest):
    sizes = [node("Unsqueeze", [dim(x, i), ints(0)]) for i in (0, 1)]
    return node("Concat", sizes + [ints(n) for n in rest], axis=0)


def heads(x):
    return node("Transpose", [node("Reshape", [x, shape(x, HEADS, WIDTH // HEADS)])], perm=[0, 2, 1, 3])


def attention(x, mask):
    q, k, v = (heads(linear(x, WIDTH, WIDTH)) for _ in range(3))
    root = node("Sqrt", [node("Cast", [constant(WIDTH // HEADS)], to=TensorProto.FLOAT)])
    scores = node("Div", [node("MatMul", [q, node("Transpose", [k], perm=[0, 1, 3, 2])]), root])
    found = node("MatMul", [node("Softmax", [node("Add", [scores, mask])], axis=-1), v])
    joined = node("Transpose", [found], perm=[0, 2, 1, 3])
    return linear(node("Reshape", [joined, shape(joined, WIDTH)]), WIDTH, WIDTH)


def gelu(x):
    erf = node("Erf", [node("Div", [x, number(2**0.5)])])
    return node("Mul", [node("Mul", [x, node("Add", [erf, number(1)])]), number(0.5)])


def pooled(x, token):
    chosen = node("Gather", [x, constant(token)], axis=1)
    return node("Tanh", [node("Gemm", [chosen, weight(WIDTH, WIDTH), weight(WIDTH)], transB=1)])


def make_model(outputs, length):
    nodes.clear()
    initializers.clear()
    positions = node("Range", [constant(0), dim("input_ids", 1), constant(1)])
    x = node("Gather", [weight(VOCABULARY, WIDTH, scale=1), "input_ids"])
    x = norm(node("Add", [x, node("Gather", [weight(LONGEST, WIDTH, scale=1), positions])]))
    wide = node("Unsqueeze", [node("Unsqueeze", ["attention_mask", ints(1)]), ints(2)])
    hidden = node("Sub", [number(1), node("Cast", [wide], to=TensorProto.FLOAT)])
    mask = node("Mul", [hidden, number(np.finfo(np.float32).min)])
    for _ in range(LAYERS):
        x = norm(node("Add", [attention(x, mask), x]))
        x = norm(node("Add", [linear(gelu(linear(x, WIDTH, INNER)), INNER, WIDTH), x]))
    first = pooled(x, 0)
    nodes.append(helper.make_node("Identity", [x], ["last_hidden_state"]))
    nodes.append(helper.make_node("Identity", [first], ["pooler_output"]))
    if "second_output" in outputs:
        nodes.append(helper.make_node("Identity", [pooled(x, 1)], ["second_output"]))
    value = helper.make_tensor_value_info
    inputs = [value(name, TensorProto.INT64, ["batch", length]) for name in ("input_ids", "attention_mask")]
    dims = {name: ["batch", WIDTH] for name in ("pooler_output", "second_output")}
    dims["last_hidden_state"] = ["batch", length, WIDTH]
    outputs = [value(name, TensorProto.FLOAT, dims[name]) for name in outputs]
    graph = helper.make_graph(nodes, "encoder", inputs, outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)


def make_case(name, outputs, only_length=None):
    folder = pathlib.Path(__file__).parent / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    onnx.save(make_model(outputs, only_length or "sequence"), folder / "model.onnx")
    (folder / "data.json").write_text('{"rtol": 1e-3, "atol": 1e-5}')
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    for i, (batch, length) in enumerate([(1, 7), (3, 12), (2, 1), (1, LONGEST)]):
        length = only_length or length
        ids = random.integers(0, VOCABULARY, (batch, length))
        mask = np.ones((batch, length), np.int64)
        mask[0, length // 2 + 1 :] = 0
        data = folder / f"test_data_set_{i}"
        data.mkdir()
        values = {"input": [ids, mask], "output": session.run(None, {"input_ids": ids, "attention_mask": mask})}
        for kind, arrays in values.items():
            for k, array in enumerate(arrays):
                (data / f"{kind}_{k}.pb").write_bytes(numpy_helper.from_array(array).SerializeToString())


def main():
    make_case("encoder", ["last_hidden_state", "pooler_output"])
    make_case("classifier", ["pooler_output"])
    make_case("distilled", ["pooler_output", "second_output"], only_length=11)


if __name__ == "__main__":
    main()
