#!/usr/bin/env python3
"""The Python package on a machine with a GPU: tensors that stay there, streams, and texts. Prints PASS, FAIL or SKIP per
case; exits 1 if a case failed, 77 if there is no GPU.

    tests/gpu/python_gpu.py libtrireme.so MODEL      MODEL: the folder configs/models/kjv-7m

Needs NumPy; the cases of torch and cupy need those.
"""

import importlib
import os
import sys
import traceback
from pathlib import Path

if len(sys.argv) != 3:
    sys.exit("usage: python_gpu.py libtrireme.so MODEL")
os.environ["TRIREME_LIBRARY"] = os.path.realpath(sys.argv[1])
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))

import numpy as np  # noqa: E402
import trireme  # noqa: E402

WIDTH = 64
F32 = np.float32


def make_engine(world):
    """y = relu(2 x)"""
    with trireme.Network() as network:
        x = network.add_input("x", (-1, WIDTH))
        w = network.add_constant("w", 2 * np.eye(WIDTH, dtype=F32))
        network.mark_output(network.activation("relu", x @ w, name="y"))
        return trireme.Engine.from_network(network, {"x": (32, WIDTH)}, world=world)


def device_tensors(world):
    """Outputs that stay on the GPU are inputs of later runs."""
    x = np.random.default_rng(1).standard_normal((8, WIDTH)).astype(F32)
    with make_engine(world) as engine, engine.create_context(device_outputs=True) as context:
        tensor = context.run({"x": x})["y"]
        assert tensor.__dlpack_device__() == (2, world.gpu - 1)
        for _ in range(3):
            tensor = context.run({"x": tensor})["y"]
        assert np.array_equal(engine.run({"x": tensor})["y"], 32 * np.maximum(x, 0))
        target = world.empty((8, WIDTH))
        assert context.run({"x": x}, {"y": target})["y"] is target
        assert np.array_equal(engine.run({"x": target})["y"], 4 * np.maximum(x, 0))
        context.set_capture()
        for i in range(6):
            y = context.run({"x": x + F32(i)}, {"y": target})["y"]
            assert np.array_equal(engine.run({"x": y})["y"], 4 * np.maximum(x + F32(i), 0))
        try:
            target.numpy()
            raise AssertionError("a view of GPU memory was made")
        except trireme.UnsupportedError:
            pass


def start_and_finish(world):
    """Several contexts at once."""
    with make_engine(world) as engine:
        contexts = [engine.create_context() for _ in range(4)]
        assert len({context.stream for context in contexts}) == 4
        for i, context in enumerate(contexts):
            context.start({"x": np.full((32, WIDTH), i, F32)})
        for i, context in enumerate(contexts):
            assert np.all(context.finish()["y"] == 2 * i)


def torch_tensors(world):
    torch = importlib.import_module("torch")
    gpu = torch.device("cuda", world.gpu - 1)
    x, y = torch.randn(8, WIDTH, device=gpu), torch.empty(8, WIDTH, device=gpu)
    with make_engine(world) as engine, engine.create_context(device_outputs=True) as context:
        for _ in range(20):
            for _ in range(50):
                x = x * -1.01  # work of torch's stream that the run must wait for
            assert context.run({"x": x}, {"y": y})["y"] is y
            assert torch.equal(y, torch.relu(2 * x))
        stream = torch.cuda.Stream(gpu)
        with torch.cuda.stream(stream):
            for i in range(20):
                z = torch.full((32, WIDTH), float(i), device=gpu)
                for _ in range(50):
                    z = z + 1
                taken = torch.from_dlpack(context.run({"x": z})["y"])
                assert torch.equal(taken, 2 * z)
        taken = torch.from_dlpack(context.run({"x": x})["y"])
        assert taken.device == gpu and torch.equal(taken, torch.relu(2 * x))


def cupy_arrays(world):
    cupy = importlib.import_module("cupy")
    with cupy.cuda.Device(world.gpu - 1), make_engine(world) as engine:
        with engine.create_context(device_outputs=True) as context:
            x, y = cupy.random.standard_normal((8, WIDTH), dtype=F32), cupy.empty((8, WIDTH), F32)
            context.run({"x": x}, {"y": y})
            assert bool((y == cupy.maximum(2 * x, 0)).all())
            assert bool((cupy.from_dlpack(context.run({"x": x})["y"]) == y).all())


def texts(world):
    with trireme.LLM(sys.argv[2], backend="cuda", embeddings=True) as llm:
        outputs = llm.generate(["In the beginning God"] * 5, max_tokens=16)
        assert {output.text.startswith(" created the heaven and the earth.") for output in outputs} == {True}
        assert "".join(llm.stream("In the beginning God", max_tokens=16)) == outputs[0].text
        assert llm.embed(["And God said"]).shape == (1, llm.info["hidden"])


def main():
    if trireme.gpu_count() == 0:
        print("SKIP: no GPU was found")
        sys.exit(77)
    failed = 0
    for case in (device_tensors, start_and_finish, torch_tensors, cupy_arrays, texts):
        try:
            with trireme.World("cuda") as world:
                case(world)
            print(f"PASS {case.__name__}")
        except ModuleNotFoundError as error:
            print(f"SKIP {case.__name__}: {error}")
        except Exception:
            failed += 1
            print(f"FAIL {case.__name__}")
            traceback.print_exc()
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
