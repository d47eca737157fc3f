"""Plugins: the example's library, and layers written in Python."""

import importlib.util
import json
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import trireme
from conftest import GOLDENS, SOURCE

F32 = np.float32
PLUGIN = GOLDENS / "plugin"
EXAMPLE = SOURCE / "docs" / "examples" / "plugin" / "gain_swish.py"
LIBRARY = os.environ.get("TRIREME_PLUGIN", "")


def swish_infer(call):
    x, gain = call.inputs
    if x.shape[-1] not in (-1, *gain.shape):
        raise ValueError(f"x has {x.shape[-1]} columns and gain {gain.shape[0]}")
    return x.dtype, (*x.shape[:-1], gain.shape[0])


def swish_run(call):
    x, gain = (tensor.array for tensor in call.inputs)
    call.outputs[0].array[:] = gain * x / (1 + np.exp(-F32(call.settings["sharpness"]) * x))


CUDA = """
extern "C" __global__ void swish(const float *x, const float *gain, float *y, long long count, int n, float sharpness)
{
    const long long stride = (long long)gridDim.x * blockDim.x;
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < count; i += stride) {
        y[i] = gain[i % n] * x[i] / (1.0f + expf(-sharpness * x[i]));
    }
}
"""


def swish_launch(call):
    x, gain = call.inputs
    count = int(np.prod(x.shape))
    blocks = min((count + 255) // 256, 4096)
    return trireme.Launch(
        (blocks,), (256,), [x, gain, call.outputs[0], count, gain.shape[0], call.settings["sharpness"]]
    )


def add_swish(domain, name, **how):
    trireme.plugin(
        domain,
        name,
        inputs=2,
        settings={"sharpness": 1.0},
        splits=[((-1, 0), (-1,)), ((0, None), (0,))],
        infer=swish_infer,
        run=swish_run,
        cuda=trireme.CudaKernel("swish", swish_launch, source=CUDA),
        **how,
    )


@pytest.fixture(scope="module")
def swish():
    add_swish("test", "Swish")
    return "test.Swish"


def test_a_layer_of_python_in_a_network(swish):
    rng = np.random.default_rng(1)
    x, gain = rng.standard_normal((3, 6)).astype(F32), rng.standard_normal(6).astype(F32)
    with trireme.Network() as network:
        tensor = network.add_input("x", (None, 6))
        (y,) = network.add_plugin(swish, tensor, network.add_constant("gain", gain), name="y", sharpness=2.0)
        assert y.shape == (-1, 6) and y.dtype == trireme.DType.F32
        assert 'of="test.Swish 1" sharpness=2' in str(network)
        network.mark_output(y)
        with trireme.Engine.from_network(network, {"x": (4, 6)}) as engine:
            for rows in (3, 1):
                found = engine.run({"x": x[:rows]})["y"]
                np.testing.assert_allclose(found, gain * x[:rows] / (1 + np.exp(-2 * x[:rows])), rtol=1e-5)
    assert trireme.loaded_plugins()[-1] == trireme.PluginInfo("test", "Swish", 1, "", True, True)


def test_from_onnx_with_python_or_the_library():
    """Each in a process of its own, since both are called com.example.GainSwish."""
    script = textwrap.dedent(f"""
        import sys
        sys.path.insert(0, {str(os.path.dirname(__file__))!r})
        import numpy as np, trireme
        import test_plugins
        if sys.argv[1] == "python":
            test_plugins.add_swish("com.example", "GainSwish")
        else:
            trireme.load_plugin(sys.argv[1])
            trireme.load_plugin(sys.argv[1])
        assert [p.name for p in trireme.loaded_plugins()] == ["GainSwish"]
        folder = {str(PLUGIN)!r}
        x = np.load(folder + "/x.npy")
        with trireme.Network.from_onnx(folder + "/one.onnx", refittable=True) as network:
            plan = trireme.Plan.build(network, {{"x": (8, 8)}})
        with trireme.Engine(plan) as engine:
            for name in ("one", "two"):
                y = engine.run({{"x": x}})["y"]
                np.testing.assert_allclose(y, np.load(f"{{folder}}/{{name}}.npy"), rtol=1e-4, atol=1e-5)
                engine.refit(folder + "/two.onnx")
    """)
    for way in ["python", LIBRARY] if LIBRARY else ["python"]:
        subprocess.run([sys.executable, "-c", script, way], check=True)


def test_the_example():
    ways = [[]]
    if trireme.gpu_count() > 0 and importlib.util.find_spec("triton") is not None:
        ways.append(["triton"])
    for way in ways:
        command = [sys.executable, EXAMPLE, PLUGIN / "one.onnx", PLUGIN / "x.npy", *way]
        name, _, values = subprocess.run(command, check=True, capture_output=True, text=True).stdout.partition(" ")
        assert name == "y"
        np.testing.assert_allclose(json.loads(values), np.load(PLUGIN / "one.npy"), rtol=1e-4, atol=1e-5)


def test_settings_of_all_types_and_values():
    seen = []

    def infer(call):
        seen.append(call.settings)
        times = call.inputs[1].values
        return "f32", [-1 if times is None else int(times[0])]

    def run(call):
        call.outputs[0].array[:] = call.settings["floats"][0]

    trireme.plugin(
        "test",
        "All",
        inputs=(2, 3),
        value_inputs=[1],
        settings={
            "int": int,
            "float": 0.5,
            "string": "text",
            "ints": list[int],
            "floats": [1.5, 2.5],
            "strings": list[str],
            "tensor": np.ndarray,
        },
        infer=infer,
        run=run,
    )
    given = {"int": 2**40, "ints": [1, -1], "strings": ["a", "ü"], "tensor": np.arange(4).reshape(2, 2)}
    with trireme.Network() as network:
        x, n = network.add_input("x", (2,)), network.add_input("n", (1,), "i64")
        with pytest.raises(trireme.InvalidArgumentError, match="plugin test.All 1 needs setting int"):
            network.add_plugin("test.All", x, n)
        with pytest.raises(trireme.InvalidArgumentError, match="has no setting other"):
            network.add_plugin("test.All", x, n, other=1, **given)
        with pytest.raises(trireme.UnsupportedError, match="no plugin test.Nothing is loaded"):
            network.add_plugin("test.Nothing", x)
        (y,) = network.add_plugin("test.All", x, n, name="y", **given)
        network.mark_output(y)
        bound = trireme.Bound(max=(1,), max_values=np.array([5]))
        with trireme.Engine.from_network(network, {"n": bound}) as engine:
            y = engine.run({"x": np.zeros(2, F32), "n": np.array([3])})["y"]
    assert np.array_equal(y, np.full(3, 1.5, F32))
    last = seen[-1]
    assert (last["int"], last["float"], last["string"], last["ints"]) == (2**40, 0.5, "text", [1, -1])
    assert last["floats"] == [1.5, 2.5] and last["strings"] == ["a", "ü"]
    assert np.array_equal(last["tensor"], given["tensor"])


def test_failures_of_python_are_errors(swish):
    with trireme.Network() as network:
        x, gain = network.add_input("x", (2, 5)), network.add_constant("gain", np.ones(6, F32))
        with pytest.raises(trireme.InvalidArgumentError, match="ValueError: x has 5 columns and gain 6"):
            network.add_plugin(swish, x, gain)
    with pytest.raises(trireme.InvalidArgumentError, match="plugin test.Swish 1 is loaded already"):
        add_swish("test", "Swish")
    add_swish("test", "Swish", version=2)
    with pytest.raises(trireme.InvalidArgumentError, match="it has none of the functions run"):
        trireme.plugin("test", "Empty", infer=swish_infer)
    with pytest.raises(trireme.InvalidArgumentError, match="is not a type of settings"):
        trireme.plugin("test", "Odd", settings={"a": dict}, infer=swish_infer, run=swish_run)
    with pytest.raises(trireme.FileError):
        trireme.load_plugin("/no/such/file.so")

    def fails(call):
        raise RuntimeError("no more")

    trireme.plugin("test", "Fails", infer=lambda call: ("f32", call.inputs[0].shape), run=fails)
    with trireme.Network() as network:
        (y,) = network.add_plugin("test.Fails", network.add_input("x", (2,)), name="y")
        network.mark_output(y)
        with trireme.Engine.from_network(network) as engine:
            with pytest.raises(trireme.InternalError, match="plugin test.Fails 1 cannot run: RuntimeError: no more"):
                engine.run({"x": np.zeros(2, F32)})
