"""What onnxruntime's optimizers and quantizers make of networks, as ONNX test cases: the model, the inputs it had and
what onnxruntime makes of them.

usage: make_variants.py CASES FOLDER [--only PATTERN] (needs onnx, onnxruntime, numpy, sympy)

CASES are folders of cases with inputs, as make_networks.py, make_control.py, make_contrib.py and make_exports.py write
them, and tests/goldens/onnx. Of each, FOLDER gets

    basic, extended    the network as onnxruntime's optimizer saves it at these levels
    f16                its floats in f16 but inputs and outputs
    dynamic            products with weights in 8 bits, activations quantized as they come
    qdq, qoperator     products and convolutions in 8 bits after calibration, with Q and DQ nodes or as operators of theirs

What onnxruntime refuses, cannot run or leaves as it was is printed and counted."""

import argparse
import collections
import fnmatch
import json
import os
import shutil
import sys
import warnings

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper
from onnxruntime import quantization
from onnxruntime.transformers.float16 import convert_float_to_float16

Case = collections.namedtuple("Case", "name path sets")


def read_sets(folder, model):
    """The inputs of each data set, by name."""
    names = [port.name for port in model.graph.input]
    names = [name for name in names if name not in {weight.name for weight in model.graph.initializer}]
    sets = []
    while os.path.isdir(os.path.join(folder, f"test_data_set_{len(sets)}")):
        data = os.path.join(folder, f"test_data_set_{len(sets)}")
        sets.append({name: numpy_helper.to_array(onnx.load_tensor(os.path.join(data, f"input_{i}.pb")))
                     for i, name in enumerate(names)})
    return sets


def find_cases(folder):
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name, "model.onnx")
        if os.path.isfile(path):
            yield Case(name, path, read_sets(os.path.join(folder, name), onnx.load(path)))


class Calibration(quantization.CalibrationDataReader):
    def __init__(self, sets):
        self.rest = list(sets)

    def get_next(self):
        return self.rest.pop() if self.rest else None


# ---- variants: each writes a model --------------------------------------------------------------------------


def optimize(level):
    def make(case, path):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = level
        options.optimized_model_filepath = path
        onnxruntime.InferenceSession(case.path, options, providers=["CPUExecutionProvider"])

    return make


def halve(case, path):
    onnx.save(convert_float_to_float16(onnx.load(case.path), keep_io_types=True), path)


def quantize_dynamic(case, path):
    quantization.quantize_dynamic(case.path, path)


def quantize(form):
    def make(case, path):
        quantization.quantize_static(case.path, path, Calibration(case.sets), quant_format=form, per_channel=True,
                                     activation_type=quantization.QuantType.QUInt8,
                                     weight_type=quantization.QuantType.QInt8)

    return make


# How near results are: f16 rounds, and a number next to the middle of two steps of 8 bits may take either.
VARIANTS = {
    "basic": (optimize(onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC), 1e-4),
    "extended": (optimize(onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED), 1e-4),
    "f16": (halve, 1e-2),
    "dynamic": (quantize_dynamic, 3e-2),
    "qdq": (quantize(quantization.QuantFormat.QDQ), 3e-2),
    "qoperator": (quantize(quantization.QuantFormat.QOperator), 3e-2),
}


# ---- cases --------------------------------------------------------------------------------------------------


def nodes_of(path):
    return [node.op_type for node in onnx.load(path).graph.node]


def step_of(model, name):
    """The step of an output that was in 8 bits last: one next to the middle of two may take either."""
    steps = [node.input[1] for node in model.graph.node if node.op_type == "DequantizeLinear" and name in node.output]
    return max([float(numpy_helper.to_array(weight).max()) for weight in model.graph.initializer if weight.name in steps], default=0.0)


def write_case(case, folder, near):
    """Data sets with what onnxruntime makes of the folder's model, rounded where its nodes round."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(os.path.join(folder, "model.onnx"), options, providers=["CPUExecutionProvider"])
    model = onnx.load(os.path.join(folder, "model.onnx"))
    scale, step = 0.0, max((step_of(model, port.name) for port in model.graph.output), default=0.0)
    for number, values in enumerate(case.sets):
        data = os.path.join(folder, f"test_data_set_{number}")
        os.makedirs(data)
        results = session.run(None, {port.name: values[port.name] for port in session.get_inputs()})
        for i, port in enumerate(session.get_inputs()):
            onnx.save_tensor(numpy_helper.from_array(values[port.name], port.name), os.path.join(data, f"input_{i}.pb"))
        for i, (port, value) in enumerate(zip(session.get_outputs(), results)):
            if value.dtype.kind == "f":
                if not np.isfinite(value).all():
                    raise ValueError(f"{port.name} is not finite")
                scale = max(scale, float(np.sqrt(np.mean(np.square(value, dtype=np.float64)))) if value.size > 0 else 0.0)
            onnx.save_tensor(numpy_helper.from_array(value, port.name), os.path.join(data, f"output_{i}.pb"))
    with open(os.path.join(folder, "data.json"), "w") as file:
        json.dump({"rtol": 10 * near, "atol": max(near * scale, 1.01 * step)}, file)


def make_variant(case, kind, folder):
    """None, or why there is no such variant."""
    make, near = VARIANTS[kind]
    os.makedirs(folder)
    path = os.path.join(folder, "model.onnx")
    try:
        make(case, path)
        if kind != "f16" and nodes_of(path) == nodes_of(case.path):
            raise ValueError("left as it was")
        write_case(case, folder, near)
    except Exception as cause:  # prints what one tool refuses of one network; the others remain
        shutil.rmtree(folder)
        return (str(cause).strip().splitlines() or [type(cause).__name__])[0][:200]
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("cases")
    parser.add_argument("folder")
    parser.add_argument("--only", default="*")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    onnxruntime.set_default_logger_severity(4)
    made, refused = 0, []
    for case in find_cases(options.cases):
        for kind in VARIANTS:
            name = f"{case.name}_{kind}"
            if not fnmatch.fnmatch(name, options.only):
                continue
            why = make_variant(case, kind, os.path.join(options.folder, name))
            made += why is None
            if why is not None:
                refused.append(name)
                print(f"{name}: {why}", file=sys.stderr, flush=True)
    print(f"{made} variants; {len(refused)} refused, not run or left as they were: {', '.join(refused)}")


if __name__ == "__main__":
    main()
