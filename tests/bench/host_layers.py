#!/usr/bin/env python3
"""Single layers of ONNX networks on the host beside onnxruntime: a table of microseconds.

    host_layers.py --trireme PROGRAM [--threads 2] [--seconds 1] [--repeat 3] [--only TEXT]

Each figure is the fastest run of --repeat turns, in which both run for --seconds, one after the other. Ours is the layer alone,
without the copies of inputs and outputs. Needs onnx,
onnxruntime and numpy.
"""
import argparse
import json
import os
import subprocess
import tempfile
import time

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

RANDOM = np.random.default_rng(1)


def normal(*dims):
    return RANDOM.standard_normal(dims).astype(np.float32)


def boxes(n):
    corners = RANDOM.uniform(0, 600, (1, n, 2))
    return np.concatenate([corners, corners + RANDOM.uniform(8, 80, (1, n, 2))], 2).astype(np.float32)


# Name, operator, inputs, initializers, attributes, outputs.
CASES = [
    ("Resize nearest x2, 64x80x80", "Resize", {"x": normal(1, 64, 80, 80)}, {"": None, "scales": np.float32([1, 1, 2, 2])},
     {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}, 1),
    ("Resize linear x2, 64x80x80", "Resize", {"x": normal(1, 64, 80, 80)}, {"": None, "scales": np.float32([1, 1, 2, 2])}, {"mode": "linear"}, 1),
    ("Resize cubic x2, 16x80x80", "Resize", {"x": normal(1, 16, 80, 80)}, {"": None, "scales": np.float32([1, 1, 2, 2])}, {"mode": "cubic"}, 1),
    ("NonMaxSuppression, 8400 boxes, 80 classes", "NonMaxSuppression",
     {"boxes": boxes(8400), "scores": RANDOM.uniform(0, 1, (1, 80, 8400)).astype(np.float32) ** 4},
     {"most": np.int64([300]), "overlap": np.float32([0.5]), "least": np.float32([0.25])}, {}, 1),
    ("MaxPool 5x5 stride 1, 128x40x40", "MaxPool", {"x": normal(1, 128, 40, 40)}, {}, {"kernel_shape": [5, 5], "pads": [2, 2, 2, 2]}, 1),
    ("MaxPool 2x2 stride 2, 64x160x160", "MaxPool", {"x": normal(1, 64, 160, 160)}, {}, {"kernel_shape": [2, 2], "strides": [2, 2]}, 1),
    ("AveragePool 3x3 stride 1, 128x40x40", "AveragePool", {"x": normal(1, 128, 40, 40)}, {}, {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}, 1),
    ("ConvTranspose 2x2 stride 2, 128x40x40 to 64", "ConvTranspose", {"x": normal(1, 128, 40, 40)}, {"w": normal(128, 64, 2, 2)},
     {"kernel_shape": [2, 2], "strides": [2, 2]}, 1),
    ("ConvTranspose 4x4 stride 2, 64x32x32 to 32", "ConvTranspose", {"x": normal(1, 64, 32, 32)}, {"w": normal(64, 32, 4, 4)},
     {"kernel_shape": [4, 4], "strides": [2, 2], "pads": [1, 1, 1, 1]}, 1),
    ("TopK 300 of 672000", "TopK", {"x": normal(1, 672000)}, {"k": np.int64([300])}, {}, 2),
    ("LSTM, 200 steps, 128 to 256", "LSTM", {"x": normal(200, 1, 128)}, {"w": normal(1, 1024, 128), "r": normal(1, 1024, 256), "b": normal(1, 2048)},
     {"hidden_size": 256}, 2),
    ("GRU, 200 steps, 128 to 256", "GRU", {"x": normal(200, 1, 128)}, {"w": normal(1, 768, 128), "r": normal(1, 768, 256), "b": normal(1, 1536)},
     {"hidden_size": 256}, 2),
    ("MatMulInteger 256x512x512", "MatMulInteger", {"a": RANDOM.integers(0, 256, (256, 512)).astype(np.uint8)},
     {"b": RANDOM.integers(-128, 128, (512, 512)).astype(np.int8)}, {}, 1),
    ("LayerNormalization 4096x256", "LayerNormalization", {"x": normal(4096, 256)}, {"scale": normal(256), "bias": normal(256)}, {}, 1),
    ("Softmax axis 1 of 16x128x512", "Softmax", {"x": normal(16, 128, 512)}, {}, {"axis": 1}, 1),
    ("Softmax axis -1 of 2048x1024", "Softmax", {"x": normal(2048, 1024)}, {}, {"axis": -1}, 1),
]


def network(operator, inputs, constants, attributes, outputs):
    names = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(operator, [*inputs, *constants], names, **attributes)
    ports = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape) for name, value in inputs.items()]
    made = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in names]
    initializers = [onnx.numpy_helper.from_array(value, name) for name, value in constants.items() if name]
    graph = helper.make_graph([node], "layer", ports, made, initializers)
    for port in onnx.shape_inference.infer_shapes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])).graph.output:
        graph.output[names.index(port.name)].CopyFrom(port)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def time_peer(path, inputs, threads, seconds):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    times, end = [], time.perf_counter() + seconds
    session.run(None, inputs)
    while not times or time.perf_counter() < end:
        began = time.perf_counter()
        session.run(None, inputs)
        times.append(time.perf_counter() - began)
    return 1e6 * min(times)


def time_ours(program, path, inputs, folder, threads, seconds):
    command = [program, "bench", path, "--backend", "host", "--threads", str(threads), "--duration", str(seconds), "--iterations", "1", "--warm-up",
               "0.05", "--transfers", "--export-times", f"{folder}/times.json"]
    for name, value in inputs.items():
        np.save(f"{folder}/{name}.npy", value)
        command += ["--input", f"{name}={folder}/{name}.npy"]
    reply = subprocess.run(command, capture_output=True, text=True, check=False)
    if reply.returncode != 0:
        raise SystemExit(reply.stderr)
    with open(f"{folder}/times.json", encoding="utf-8") as times:
        return 1e3 * min(run["compute_ms"] for run in json.load(times)["runs"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--trireme", required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    print("| layer | Trireme, us | onnxruntime, us | ratio |\n|---|---|---|---|")
    for name, operator, inputs, constants, attributes, outputs in CASES:
        if given.only.lower() not in name.lower():
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "layer.onnx")
            onnx.save(network(operator, inputs, constants, attributes, outputs), path)
            ours, peers = [], []
            for _ in range(given.repeat):
                peers.append(time_peer(path, inputs, given.threads, given.seconds))
                ours.append(time_ours(given.trireme, path, inputs, folder, given.threads, given.seconds))
        print(f"| {name} | {min(ours):.0f} | {min(peers):.0f} | {min(ours) / min(peers):.2f} |", flush=True)


main()
