#!/usr/bin/env python3
"""Copies ONNX's node cases with every dimension of inputs and outputs left open: FOLDER/node to FOLDER/dynamic.

usage: make_dynamic.py FOLDER

The data stays as it is, so that networks that are built without any size must give what those with all sizes give.
"""

import pathlib
import shutil
import sys

import onnx


def open_dims(model):
    for kind, values in (("i", model.graph.input), ("o", model.graph.output)):
        for k, value in enumerate(values):
            if value.type.HasField("tensor_type"):
                for j, dim in enumerate(value.type.tensor_type.shape.dim):
                    dim.dim_param = f"{kind}{k}_{j}"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    top = pathlib.Path(sys.argv[1])
    shutil.rmtree(top / "dynamic", ignore_errors=True)
    for case in sorted((top / "node").iterdir()):
        if case.name.endswith("_expanded") or "_expanded_ver" in case.name:
            continue
        shutil.copytree(case, top / "dynamic" / case.name)
        path = top / "dynamic" / case.name / "model.onnx"
        model = onnx.load(path)
        open_dims(model)
        onnx.save(model, path)


if __name__ == "__main__":
    main()
