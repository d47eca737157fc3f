#!/usr/bin/env python3
"""Makes quantized/: a small network for images with residual blocks as onnxruntime's quantizer leaves it, with Q and DQ nodes: 8 bits,
symmetric, one scale for each tensor and for each output channel of a weight. Laid out like ONNX's own test cases. (See requirements.txt.)
"""

import json
import pathlib
import shutil

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import quantization

random = np.random.default_rng(0)
nodes, initializers = [], []


def keep(name, array):
    initializers.append(numpy_helper.from_array(array.astype(np.float32), name))
    return name


def node(op, inputs, **attributes):
    name = f"{op.lower()}_{len(nodes)}"
    nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
    return name


def convolution(x, inner, outer, kernel, stride=1):
    name = f"weight_{len(nodes)}"
    weight = random.standard_normal((outer, inner, kernel, kernel)) / np.sqrt(inner * kernel * kernel)
    return node("Conv", [x, keep(name, weight), keep(name + ".bias", random.standard_normal(outer) * 0.1)],
                kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[kernel // 2] * 4)


def block(x, inner, outer, stride):
    y = node("Relu", [convolution(x, inner, 16, 1)])
    y = node("Relu", [convolution(y, 16, 16, 3, stride)])
    y = convolution(y, 16, outer, 1)
    return node("Relu", [node("Add", [y, convolution(x, inner, outer, 1, stride) if inner != outer else x])])


x = node("Relu", [convolution("x", 3, 16, 7, 2)])
x = node("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
x = block(block(block(x, 16, 32, 1), 32, 32, 1), 32, 48, 2)
x = node("Flatten", [node("GlobalAveragePool", [x])])
x = node("Gemm", [x, keep("head", random.standard_normal((10, 48)) / 7), keep("head.bias", random.standard_normal(10) * 0.1)], transB=1)
nodes[-1].output[0] = "y"
graph = helper.make_graph(nodes, "quantized", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 33, 37])],
                          [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 10])], initializers)
folder = pathlib.Path(__file__).parent / "quantized"
shutil.rmtree(folder, ignore_errors=True)
folder.mkdir()
path = folder / "model.onnx"
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
sets = [{"x": random.standard_normal((n, 3, 33, 37)).astype(np.float32)} for n in (1, 3)]


class Calibration(quantization.CalibrationDataReader):
    def __init__(self):
        self.rest = list(sets)

    def get_next(self):
        return self.rest.pop() if self.rest else None


quantization.quantize_static(path, path, Calibration(), quant_format=quantization.QuantFormat.QDQ, per_channel=True,
                             activation_type=quantization.QuantType.QInt8, weight_type=quantization.QuantType.QInt8,
                             extra_options={"ActivationSymmetric": True, "WeightSymmetric": True})
options = onnxruntime.SessionOptions()
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # rounds where the nodes do
session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
for number, inputs in enumerate(sets):
    data = folder / f"test_data_set_{number}"
    data.mkdir()
    onnx.save_tensor(numpy_helper.from_array(inputs["x"], "x"), data / "input_0.pb")
    onnx.save_tensor(numpy_helper.from_array(session.run(None, inputs)[0], "y"), data / "output_0.pb")
# A number next to the middle of two steps may take either.
(folder / "data.json").write_text(json.dumps({"rtol": 0.02, "atol": 0.02}) + "\n")
