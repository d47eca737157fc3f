"""ONNX files through the package give the goldens of the repository."""

import json

import numpy as np
import pytest
import trireme
from conftest import GOLDENS

CASES = sorted(path.parent for path in GOLDENS.glob("*/model.onnx"))


def read_all(folder, what):
    return [trireme.read_onnx_tensor(folder / f"{what}_{i}.pb") for i in range(len(list(folder.glob(f"{what}_*.pb"))))]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_goldens(case):
    limits = json.loads((case / "data.json").read_text()) if (case / "data.json").exists() else {}
    with trireme.OnnxModel(case / "model.onnx") as model, model.build_network() as network:
        declared = [port.name for port in model.inputs]
        sets = []
        for folder in sorted(case.glob("test_data_set_*")):
            sets.append((dict(zip(declared, read_all(folder, "input"))), read_all(folder, "output")))
        # One profile that has room for all sets: the largest size of each dimension.
        bounds = {}
        for port in network.inputs:
            if -1 in port.shape:
                shapes = [inputs[port.name].shape for inputs, _ in sets]
                bounds[port.name] = trireme.Bound(max=np.max(shapes, axis=0), min=np.min(shapes, axis=0))
        with trireme.Engine.from_network(network, bounds) as engine, engine.create_context() as context:
            for inputs, expected in sets:
                outputs = context.run({port.name: inputs[port.name] for port in engine.inputs})
                for port, golden in zip(engine.outputs, expected):
                    assert outputs[port.name].dtype == golden.dtype
                    least = (4e-3, 1e-4) if golden.dtype == np.float16 else (0, 0)  # as tests/conformance
                    rtol, atol = np.maximum(least, (limits.get("rtol", 1e-3), limits.get("atol", 1e-5)))
                    np.testing.assert_allclose(outputs[port.name], golden, rtol=rtol, atol=atol)


def test_what_a_file_declares():
    with trireme.OnnxModel(GOLDENS / "encoder" / "model.onnx") as model:
        assert model.info["nodes"] > 10
        assert all(use["known"] for use in model.operators)
        assert [port.name for port in model.inputs]
        assert model.issues == [] and model.defaults == []


def test_a_plan_from_a_file_gives_the_same(tmp_path):
    path = GOLDENS / "classifier" / "model.onnx"
    with trireme.OnnxModel(path) as model:
        declared = [port.name for port in model.inputs]
    inputs = dict(zip(declared, read_all(path.parent / "test_data_set_0", "input")))
    shapes = {name: array.shape for name, array in inputs.items()}
    with trireme.Engine.from_onnx(path, shapes) as engine:
        first = engine.run(inputs)
    with trireme.Network.from_onnx(path) as network, trireme.Plan.build(network, shapes) as plan:
        plan.save(tmp_path / "net.plan", weights="embedded")
        assert plan.memory["total"] > 0
        assert plan.info["n_profiles"] == 1
        assert json.loads(plan.to_json())
    with trireme.Engine.from_plan(tmp_path / "net.plan") as engine:
        second = engine.run(inputs)
    for output in first:
        assert np.array_equal(first[output], second[output])


def test_a_missing_file():
    with pytest.raises(trireme.FileError, match="nowhere.onnx"):
        trireme.OnnxModel("nowhere.onnx")


def test_a_malformed_file(tmp_path):
    (tmp_path / "net.onnx").write_bytes(b"\xff" * 64)
    with pytest.raises(trireme.InvalidModelError):
        trireme.OnnxModel(tmp_path / "net.onnx")
