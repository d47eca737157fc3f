"""Tensors of torch, on the host and, where there is a GPU, on it."""

import numpy as np
import pytest
import torch
import trireme

DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


@pytest.fixture
def engine(device):
    with trireme.World("host" if device == "cpu" else "cuda") as world, trireme.Network() as network:
        x, w = network.add_input("x", (-1, 64)), network.add_constant("w", 2 * np.eye(64, dtype=np.float32))
        network.mark_output(network.activation("relu", x @ w, name="y"))
        with trireme.Engine.from_network(network, {"x": (32, 64)}, world=world) as made:
            yield made


def test_inputs_and_outputs(engine, device):
    x = torch.randn(8, 64, device=device)
    y = torch.empty(8, 64, device=device)
    with engine.create_context() as context:
        for _ in range(3):
            assert context.run({"x": x}, {"y": y})["y"] is y
            assert torch.equal(y, torch.relu(2 * x))
            x.mul_(-1.5)  # work of torch's stream that the next run must wait for
        assert np.array_equal(context.run({"x": x})["y"], torch.relu(2 * x).cpu().numpy())


def test_outputs_that_torch_takes(engine, device):
    with engine.create_context(device_outputs=True) as context:
        x = torch.randn(4, 64, device=device)
        tensor = context.run({"x": x})["y"]
        y = torch.from_dlpack(tensor)
        assert y.device.type == device and y.data_ptr() == tensor.handle
        del tensor
        assert torch.equal(y, torch.relu(2 * x))
        assert torch.equal(torch.from_dlpack(context.run({"x": y})["y"]), 2 * y)


def test_work_of_another_stream(engine, device):
    if device == "cpu":
        stream = None
    else:
        stream = torch.cuda.Stream()
    with engine.create_context() as context, torch.cuda.stream(stream):
        for i in range(20):
            x = torch.full((32, 64), float(i), device=device)
            for _ in range(50):
                x = x + 1
            assert np.all(context.run({"x": x})["y"] == 2 * (i + 50))


def test_types(device):
    with trireme.World("host" if device == "cpu" else "cuda") as world, trireme.Network() as network:
        for kind in ("bf16", "i64", "bool"):
            x = network.add_input(f"x_{kind}", (3,), kind)
            network.mark_output(network.add_layer("cast", x, name=f"y_{kind}", to="f32")[0])
        values = {
            "x_bf16": torch.tensor([1.5, -2, 3], dtype=torch.bfloat16, device=device),
            "x_i64": torch.tensor([1, -2, 3], device=device),
            "x_bool": torch.tensor([True, False, True], device=device),
        }
        with trireme.Engine.from_network(network, world=world) as engine:
            outputs = engine.run(values)
    for name, value in values.items():
        assert list(outputs["y" + name[1:]]) == value.float().tolist()


def test_what_is_refused(engine, device):
    with engine.create_context() as context:
        with pytest.raises(trireme.InvalidArgumentError, match="not row-major"):
            context.run({"x": torch.zeros(64, 8, device=device).T})
        with pytest.raises(trireme.InvalidArgumentError, match="type f64, expected f32"):
            context.run({"x": torch.zeros(8, 64, device=device, dtype=torch.float64)})
