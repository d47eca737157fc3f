"""Puts QuantizeLinear and DequantizeLinear into a float network: 8 bits, symmetric, one scale for each tensor and for each
output channel of a weight, as tools for TensorRT do. Products and convolutions by constant weights get them on their
input and weight, and sums with a convolution's output on what is added. Scales are the largest magnitudes over random
inputs in onnxruntime.

usage: make_qdq.py FLOAT.onnx QDQ.onnx [--samples N] (needs numpy, onnx, onnxruntime; opset 19 or newer for f16)"""
import argparse

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

PRODUCTS = ("Conv", "MatMul", "Gemm")


def random_inputs(model, random, samples):
    """Images of 0 .. 1, token numbers, and masks of ones; a dynamic first dimension is `samples`."""
    inputs = {}
    for port in model.graph.input:
        tensor = port.type.tensor_type
        dims = [dim.dim_value or samples for dim in tensor.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if np.issubdtype(dtype, np.integer):
            inputs[port.name] = np.ones(dims, dtype) if "mask" in port.name else random.integers(0, 30000, dims, dtype)
        else:
            inputs[port.name] = random.random(dims, np.float32).astype(dtype)
    return inputs


def run(model, inputs, outputs):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip(outputs, session.run(outputs, inputs)))


def find_inputs(graph, weights):
    """What is quantized: {tensor: [(node, position), ...]}."""
    producers = {name: node for node in graph.node for name in node.output}
    made_by_convolution = lambda name: name in producers and producers[name].op_type == "Conv"
    readers = {}
    for node in graph.node:
        if node.op_type in PRODUCTS and node.input[1] in weights and node.input[0] not in weights:
            readers.setdefault(node.input[0], []).append((node, 0))
        elif node.op_type == "Add" and not any(name in weights for name in node.input):
            for i in (0, 1):
                if made_by_convolution(node.input[i]):
                    readers.setdefault(node.input[1 - i], []).append((node, 1 - i))
                    break
    return readers


class Quantizer:
    def __init__(self, model):
        self.graph = model.graph
        self.weights = {tensor.name: tensor for tensor in model.graph.initializer}
        self.nodes = []  # (position in the graph, node)

    def keep(self, name, array):
        self.graph.initializer.append(numpy_helper.from_array(array, name))
        return name

    def quantize_weight(self, node):
        name, done = node.input[1], node.input[1] + ".dequantized"
        array = numpy_helper.to_array(self.weights[name])
        transposed = any(a.name == "transB" and a.i for a in node.attribute)
        axis = 1 if node.op_type == "MatMul" or (node.op_type == "Gemm" and not transposed) else 0
        others = tuple(i for i in range(array.ndim) if i != axis)
        scale = (np.maximum(np.abs(array.astype(np.float32)).max(others), 1e-4) / 127).astype(array.dtype)
        dims = [-1 if i == axis else 1 for i in range(array.ndim)]
        numbers = np.clip(np.rint(array.astype(np.float32) / scale.astype(np.float32).reshape(dims)), -127, 127)
        inputs = [self.keep(name + ".numbers", numbers.astype(np.int8)), self.keep(name + ".scale", scale),
                  self.keep(name + ".zero", np.zeros(len(scale), np.int8))]
        self.nodes.append((0, helper.make_node("DequantizeLinear", inputs, [done], name=done, axis=axis)))
        node.input[1] = done

    def quantize_tensor(self, name, largest, dtype, readers):
        at = next((i + 1 for i, node in enumerate(self.graph.node) if name in node.output), 0)
        scale = self.keep(name + ".scale", np.array(max(largest, 1e-3) / 127, dtype))
        zero = self.keep(name + ".zero", np.array(0, np.int8))
        self.nodes.append((at, helper.make_node("QuantizeLinear", [name, scale, zero], [name + ".numbers"],
                                                name=name + ".quantize")))
        self.nodes.append((at, helper.make_node("DequantizeLinear", [name + ".numbers", scale, zero],
                                                [name + ".dequantized"], name=name + ".dequantize")))
        for node, i in readers:
            node.input[i] = name + ".dequantized"

    def finish(self):
        placed = {}
        for at, node in self.nodes:
            placed.setdefault(at, []).append(node)
        nodes = []
        for i in range(len(self.graph.node) + 1):
            nodes += placed.get(i, [])
            nodes += self.graph.node[i:i + 1]
        del self.graph.node[:]
        self.graph.node.extend(nodes)
        used = {name for node in nodes for name in node.input}
        for tensor in [t for t in self.graph.initializer if t.name not in used]:
            self.graph.initializer.remove(tensor)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("network")
    parser.add_argument("out")
    parser.add_argument("--samples", type=int, default=2)
    options = parser.parse_args()
    model = onnx.load(options.network)
    inputs = random_inputs(model, np.random.default_rng(0), options.samples)
    quantizer = Quantizer(model)
    readers = find_inputs(model.graph, quantizer.weights)
    outputs = [port.name for port in model.graph.output]
    watched = onnx.ModelProto()
    watched.CopyFrom(model)
    made = [name for name in readers if name not in inputs]
    watched.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in made if name not in outputs)
    values = {**inputs, **run(watched, inputs, outputs + [name for name in made if name not in outputs])}
    for node in list(model.graph.node):
        if node.op_type in PRODUCTS and node.input[1] in quantizer.weights and node.input[0] in readers:
            quantizer.quantize_weight(node)
    for name, places in readers.items():
        quantizer.quantize_tensor(name, float(np.abs(values[name].astype(np.float32)).max()), values[name].dtype, places)
    quantizer.finish()
    onnx.save(model, options.out)
    for name, value in run(model, inputs, outputs).items():
        expected = values[name].astype(np.float32)
        error = np.sqrt(np.mean(np.square(value.astype(np.float32) - expected)) / np.mean(np.square(expected)))
        print(f"{options.out}: {len(readers)} tensors quantized, {name} is off by {100 * error:.1f} % of its root mean square")


if __name__ == "__main__":
    main()
