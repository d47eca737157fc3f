#!/usr/bin/env python3
"""Makes plugin/: networks with a node of the example plugin, com.example.GainSwish, and what they compute.

usage: make_plugin.py

one.onnx, two.onnx   y = gain_swish(x a, gain, sharpness 1.5) c, with two sets of weights
x.npy, one.npy, two.npy   an input of 5 rows, and the outputs, computed in f64
"""

import pathlib

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

IN, MIDDLE, OUT, ROWS, SHARPNESS = 8, 64, 4, 5, 1.5
HERE = pathlib.Path(__file__).parent / "plugin"


def make(name, seed, x):
    random = np.random.default_rng(seed)
    weights = {
        "a": random.uniform(-1, 1, (IN, MIDDLE)).astype(np.float32),
        "gain": random.uniform(-1, 1, MIDDLE).astype(np.float32),
        "c": random.uniform(-1, 1, (MIDDLE, OUT)).astype(np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"]),
        helper.make_node("GainSwish", ["h", "gain"], ["s"], domain="com.example", sharpness=SHARPNESS),
        helper.make_node("MatMul", ["s", "c"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "plugin",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", IN])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", OUT])],
        [numpy_helper.from_array(value, key) for key, value in weights.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    save(helper.make_model(graph, opset_imports=opsets, ir_version=8), HERE / f"{name}.onnx")
    a, gain, c = (weights[key].astype(np.float64) for key in weights)
    h = x.astype(np.float64) @ a
    np.save(HERE / f"{name}.npy", ((gain * h / (1 + np.exp(-SHARPNESS * h))) @ c).astype(np.float32))


HERE.mkdir(exist_ok=True)
inputs = np.random.default_rng(7).uniform(-1, 1, (ROWS, IN)).astype(np.float32)
np.save(HERE / "x.npy", inputs)
make("one", 1, inputs)
make("two", 2, inputs)
