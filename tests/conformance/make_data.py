#!/usr/bin/env python3
"""Writes ONNX's own backend test cases as files: FOLDER/<kind>/<case>/{model.onnx, data.json, test_data_set_N/{input,output}_M.pb}.

usage: make_data.py FOLDER

Node cases are made by the onnx package (requirements.txt); those converted from PyTorch, and small models, are carried by it.
"""

import json
import pathlib
import shutil
import sys

import onnx
from onnx import numpy_helper
from onnx.backend.test import loader

TO_PROTO = {
    "map_type": numpy_helper.from_dict,
    "sequence_type": numpy_helper.from_list,
    "optional_type": numpy_helper.from_optional,
    "tensor_type": numpy_helper.from_array,
}


def write_value(path, value, info):
    if not isinstance(value, onnx.TensorProto):
        value = TO_PROTO[info.type.WhichOneof("value")](value, info.name)
    path.write_bytes(value.SerializeToString())


def write_case(case, folder):
    folder.mkdir(parents=True)
    (folder / "data.json").write_text(json.dumps({"rtol": case.rtol, "atol": case.atol}))
    (folder / "model.onnx").write_bytes(case.model.SerializeToString())
    for i, (inputs, outputs) in enumerate(case.data_sets):
        data = folder / f"test_data_set_{i}"
        data.mkdir()
        for j, value in enumerate(inputs):
            write_value(data / f"input_{j}.pb", value, case.model.graph.input[j])
        for j, value in enumerate(outputs):
            write_value(data / f"output_{j}.pb", value, case.model.graph.output[j])


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    top = pathlib.Path(sys.argv[1])
    scratch = top.with_name(top.name + ".part")
    shutil.rmtree(scratch, ignore_errors=True)
    for case in loader.load_model_tests(kind="node"):
        write_case(case, scratch / "node" / case.name)
    for kind in ("pytorch-converted", "pytorch-operator", "simple"):
        shutil.copytree(pathlib.Path(loader.DATA_DIR) / kind, scratch / kind)
    shutil.rmtree(top, ignore_errors=True)
    scratch.rename(top)


if __name__ == "__main__":
    main()
