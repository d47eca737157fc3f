#!/usr/bin/env python3
"""Makes compare/: small files of networks large enough to be split over ranks, for tests of `trireme compare`.

usage: make_compare.py

perceptron.onnx   two blocks of relu(x w1) w2 and a norm; weights are cosines of ranges, folded when it is built
changed.onnx      the same, with one scale in its second block other than in the first file
"""

import pathlib

from onnx import TensorProto, helper, save

WIDTH, INNER = 64, 512
HERE = pathlib.Path(__file__).parent / "compare"


def constant(name, value, dtype=TensorProto.FLOAT):
    dims = [len(value)] if isinstance(value, list) else []
    values = value if isinstance(value, list) else [value]
    return helper.make_node("Constant", [], [name], value=helper.make_tensor(name, dtype, dims, values))


def weight(name, rows, columns, step):
    """cos(step * i) * 0.1 as [rows, columns]."""
    size = [constant(f"{name}.start", 0.0), constant(f"{name}.end", step * (rows * columns - 0.5)), constant(f"{name}.step", step)]
    return size + [
        helper.make_node("Range", [f"{name}.start", f"{name}.end", f"{name}.step"], [f"{name}.range"]),
        helper.make_node("Cos", [f"{name}.range"], [f"{name}.cos"]),
        constant(f"{name}.scale", 0.1),
        helper.make_node("Mul", [f"{name}.cos", f"{name}.scale"], [f"{name}.flat"]),
        constant(f"{name}.dims", [rows, columns], TensorProto.INT64),
        helper.make_node("Reshape", [f"{name}.flat", f"{name}.dims"], [name]),
    ]


def block(index, scale):
    b = f"b{index}"
    nodes = weight(f"{b}.w1", WIDTH, INNER, 0.37 + 0.1 * index) + weight(f"{b}.w2", INNER, WIDTH, 0.71 + 0.1 * index)
    nodes += [
        constant(f"{b}.ones", [1.0] * WIDTH),
        constant(f"{b}.zeros", [0.0] * WIDTH),
        constant(f"{b}.factor", scale),
        helper.make_node("MatMul", [f"x{index}", f"{b}.w1"], [f"{b}.up"]),
        helper.make_node("Relu", [f"{b}.up"], [f"{b}.relu"]),
        helper.make_node("MatMul", [f"{b}.relu", f"{b}.w2"], [f"{b}.down"]),
        helper.make_node("Mul", [f"{b}.down", f"{b}.factor"], [f"{b}.scaled"]),
        helper.make_node("Add", [f"{b}.scaled", f"x{index}"], [f"{b}.sum"]),
        helper.make_node("LayerNormalization", [f"{b}.sum", f"{b}.ones", f"{b}.zeros"], [f"x{index + 1}"]),
    ]
    return nodes


def make(path, scale):
    x = helper.make_tensor_value_info("x0", TensorProto.FLOAT, ["batch", WIDTH])
    y = helper.make_tensor_value_info("x2", TensorProto.FLOAT, ["batch", WIDTH])
    graph = helper.make_graph(block(0, 0.5) + block(1, scale), "perceptron", [x], [y])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


HERE.mkdir(exist_ok=True)
make(HERE / "perceptron.onnx", 0.5)
make(HERE / "changed.onnx", 0.51)
