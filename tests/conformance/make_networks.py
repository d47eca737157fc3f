"""Networks like ResNet-50, MobileNetV3 and U-Net with random weights, as ONNX test cases: model, inputs and what
onnxruntime makes of them. Probabilities at the end keep errors away from numbers next to 0. usage: make_networks.py FOLDER (needs onnx, onnxruntime, numpy)"""
import os
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper


class Net:
    """Nodes and weights of one network; every call gives the name of the tensor it makes."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.nodes, self.weights, self.count = [], [], 0

    def add(self, op, *inputs, **attributes):
        self.count += 1
        name = f"t{self.count}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def weight(self, *dims, spread=None, mean=0.0):
        self.count += 1
        spread = (2.0 / np.prod(dims[1:])) ** 0.5 if spread is None else spread
        values = (mean + spread * self.random.standard_normal(dims)).astype(np.float32)
        self.weights.append(numpy_helper.from_array(values, f"w{self.count}"))
        return f"w{self.count}"

    def conv(self, x, inputs, outputs, kernel, stride=1, groups=1, bias=False):
        pad = kernel // 2
        more = [self.weight(outputs, spread=0.1)] if bias else []
        return self.add("Conv", x, self.weight(outputs, inputs // groups, kernel, kernel), *more, group=groups,
                        kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4)

    def norm(self, x, channels):
        return self.add("BatchNormalization", x, self.weight(channels, spread=0.1, mean=1.0),
                        self.weight(channels, spread=0.1), self.weight(channels, spread=0.1),
                        self.variance(channels), epsilon=1e-5)

    def variance(self, channels):
        self.count += 1
        values = (0.5 + self.random.random(channels)).astype(np.float32)
        self.weights.append(numpy_helper.from_array(values, f"w{self.count}"))
        return f"w{self.count}"

    def model(self, output, dims):
        graph = helper.make_graph(
            self.nodes, "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", *dims[1:]])],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def resnet50():
    net = Net(1)
    x = net.add("Relu", net.norm(net.conv("x", 3, 64, 7, 2), 64))
    x, channels = net.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4), 64
    for stage, (width, blocks) in enumerate([(64, 3), (128, 4), (256, 6), (512, 3)]):
        for block in range(blocks):
            stride = 2 if stage > 0 and block == 0 else 1
            y = net.add("Relu", net.norm(net.conv(x, channels, width, 1), width))
            y = net.add("Relu", net.norm(net.conv(y, width, width, 3, stride), width))
            y = net.norm(net.conv(y, width, 4 * width, 1), 4 * width)
            if block == 0:
                x = net.norm(net.conv(x, channels, 4 * width, 1, stride), 4 * width)
            x, channels = net.add("Relu", net.add("Add", y, x)), 4 * width
    x = net.add("Flatten", net.add("GlobalAveragePool", x))
    x = net.add("Gemm", x, net.weight(1000, channels), net.weight(1000, spread=0.1), transB=1, alpha=0.1)
    return net.model(net.add("Softmax", x), [1, 3, 224, 224]), [1, 3, 224, 224]


def mobilenet():
    net = Net(2)
    x, channels = net.add("HardSwish", net.norm(net.conv("x", 3, 16, 3, 2), 16)), 16
    for kernel, expanded, outputs, squeeze, act, stride in [
            (3, 16, 16, True, "Relu", 2), (3, 72, 24, False, "Relu", 2), (3, 88, 24, False, "Relu", 1),
            (5, 96, 40, True, "HardSwish", 2), (5, 240, 40, True, "HardSwish", 1), (5, 120, 48, True, "HardSwish", 1),
            (5, 288, 96, True, "HardSwish", 2), (5, 576, 96, True, "HardSwish", 1)]:
        y = net.add(act, net.norm(net.conv(x, channels, expanded, 1), expanded))
        y = net.add(act, net.norm(net.conv(y, expanded, expanded, kernel, stride, expanded), expanded))
        if squeeze:
            s = net.add("Relu", net.conv(net.add("GlobalAveragePool", y), expanded, expanded // 4, 1, bias=True))
            y = net.add("Mul", y, net.add("HardSigmoid", net.conv(s, expanded // 4, expanded, 1, bias=True)))
        y = net.norm(net.conv(y, expanded, outputs, 1), outputs)
        x, channels = (net.add("Add", x, y) if stride == 1 and channels == outputs else y), outputs
    x = net.add("Flatten", net.add("GlobalAveragePool", net.add("HardSwish", x)))
    x = net.add("Gemm", x, net.weight(100, channels), transB=1, alpha=0.1)
    return net.model(net.add("Softmax", x), [2, 3, 96, 96]), [2, 3, 96, 96]


def unet():
    net = Net(3)

    def double(x, inputs, outputs):
        for channels in (inputs, outputs):
            x = net.add("InstanceNormalization", net.conv(x, channels, outputs, 3, bias=True),
                        net.weight(outputs, spread=0.1, mean=1.0), net.weight(outputs, spread=0.1))
            x = net.add("LeakyRelu", x, alpha=0.01)
        return x

    x, skips, widths = "x", [], [1, 16, 32, 64]
    for inputs, outputs in zip(widths, widths[1:]):
        x = double(x, inputs, outputs)
        skips.append((x, outputs))
        x = net.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x, channels = double(x, 64, 128), 128
    for skip, width in reversed(skips):
        up = net.add("ConvTranspose", x, net.weight(channels, width, 2, 2), net.weight(width, spread=0.1),
                     kernel_shape=[2, 2], strides=[2, 2])
        x, channels = double(net.add("Concat", skip, up, axis=1), 2 * width, width), width
    x = net.add("Sigmoid", net.conv(x, channels, 2, 1, bias=True))
    return net.model(x, [1, 1, 96, 64]), [1, 1, 96, 64]


def main():
    for name, make in (("resnet50", resnet50), ("mobilenet", mobilenet), ("unet", unet)):
        folder = os.path.join(sys.argv[1], name)
        os.makedirs(folder, exist_ok=True)
        model, dims = make()
        onnx.save(model, os.path.join(folder, "model.onnx"))
        session = onnxruntime.InferenceSession(os.path.join(folder, "model.onnx"), providers=["CPUExecutionProvider"])
        for number, batch in enumerate((dims[0], 3)):
            data = os.path.join(folder, f"test_data_set_{number}")
            os.makedirs(data, exist_ok=True)
            x = np.random.default_rng(number).standard_normal([batch, *dims[1:]]).astype(np.float32)
            y = session.run(None, {"x": x})[0]
            onnx.save_tensor(numpy_helper.from_array(x, "x"), os.path.join(data, "input_0.pb"))
            onnx.save_tensor(numpy_helper.from_array(y, model.graph.output[0].name), os.path.join(data, "output_0.pb"))


main()
