"""Networks that are built layer by layer, plans, engines and contexts."""

import ctypes
import threading
import time
import weakref

import ml_dtypes
import numpy as np
import pytest
import trireme
from conftest import GOLDENS
from trireme import _c
from trireme._library import lib

F32 = np.float32


def affine(network, width=4, name="w"):
    """y = relu(x w) with w twice the identity."""
    x = network.add_input("x", (-1, width))
    w = network.add_constant(name, 2 * np.eye(width, dtype=F32))
    y = network.activation("relu", x @ w, name="y")
    network.mark_output(y)
    return network


@pytest.fixture
def engine():
    with trireme.Network() as network, trireme.Engine.from_network(affine(network), {"x": (8, 4)}) as made:
        yield made


def test_a_network_layer_by_layer():
    rng = np.random.default_rng(3)
    x, w, b = (rng.standard_normal(shape).astype(F32) for shape in ((2, 3, 5), (5, 4), (4,)))
    with trireme.Network() as network:
        tx = network.add_input("x", (2, None, 5), dim_names={1: "n"})
        assert tx.shape == (2, -1, 5) and tx.dtype == trireme.DType.F32 and tx.name == "x"
        h = network.matmul(tx, network.add_constant("w", w), network.add_constant("b", b), name="h")
        norm = network.add_layer("norm", h, name="norm", op="rms", eps=1e-5)[0]
        soft = network.add_layer("softmax", norm - h, axis=-1)[0]
        top, index = network.add_layer("topk", soft, network.add_constant("k", np.array([2])), axis=-1, sorted=True)[:2]
        flat = network.reshape(top * top + top / top, (-1,))
        for tensor in (soft, index, flat):
            network.mark_output(tensor)
        assert len(network) >= 8
        assert "softmax" in str(network)
        assert network.find("norm").shape == (2, -1, 4) and network.find("nobody") is None
        names = [port.name for port in network.outputs]
        with trireme.Engine.from_network(network, {"x": trireme.Bound(max=(2, 6, 5), min=(2, 1, 5))}) as engine:
            outputs = engine.run({"x": x})
    h = x @ w + b
    expected = h / np.sqrt((h**2).mean(-1, keepdims=True) + 1e-5) - h
    expected = np.exp(expected) / np.exp(expected).sum(-1, keepdims=True)
    order = np.argsort(-expected, axis=-1)[..., :2]
    best = np.take_along_axis(expected, order, -1)
    np.testing.assert_allclose(outputs[names[0]], expected, rtol=1e-4, atol=1e-6)
    assert np.array_equal(outputs[names[1]], order)
    np.testing.assert_allclose(outputs[names[2]], (best**2 + 1).reshape(-1), rtol=1e-4)


def test_every_kind_has_its_parameters():
    """Each kind's parameters are found by the kind's name, but for those that are written down."""
    from trireme.network import _PARAMS

    fields = {name for name, _ in _c.trm_layer_desc_union._fields_}
    without = {"tile", "range", "select", "non_zero", "determinant", "loop", "end_if", "end_loop", "enter"}
    without |= {"loop_output", "merge", "lora"}
    for kind in _c.trm_layer_kind:
        name = kind.name.lower()
        assert (_PARAMS.get(name, name) in fields) != (name in without), name


def test_convolution_takes_arrays():
    x = np.arange(16, dtype=F32).reshape(1, 1, 4, 4)
    with trireme.Network() as network:
        w = network.add_constant("w", np.ones((1, 1, 2, 2), F32))
        y = network.add_layer(
            "convolution", network.add_input("x", x.shape), w, groups=1, stride=(2, 2), dilation=(1, 1), activation="relu"
        )[0]
        network.mark_output(y)
        with trireme.Engine.from_network(network) as engine:
            y = engine.run({"x": x})["convolution"]
    assert np.array_equal(y, x.reshape(2, 2, 2, 2).sum((1, 3)).reshape(1, 1, 2, 2))


def test_wrong_layers_are_refused():
    with trireme.Network() as network:
        x = network.add_input("x", (2, 3))
        before = str(network)
        with pytest.raises(trireme.InvalidArgumentError, match="expected one of"):
            network.add_layer("matmal", x, x)
        with pytest.raises(trireme.InvalidArgumentError, match="no parameter transpose"):
            network.add_layer("matmul", x, x, transpose=True)
        with pytest.raises(trireme.InvalidArgumentError, match="have no parameters"):
            network.add_layer("select", x, x, x, axis=1)
        with pytest.raises(trireme.InvalidArgumentError, match="expected at most 3"):
            network.add_layer("convolution", x, x, stride=(1, 1, 1, 1))
        with pytest.raises(trireme.InvalidArgumentError):
            network.matmul(x, x)
        with pytest.raises(trireme.InvalidArgumentError, match="9 dimensions"):
            network.add_input("y", [1] * 9)
        with trireme.Network() as other, pytest.raises(trireme.InvalidArgumentError, match="another network"):
            network.mark_output(other.add_input("x", (1,)))
        assert str(network) == before


def test_inputs_of_many_kinds(engine):
    expected = np.array([[2, 4, 0, 0]], F32)
    with engine.create_context() as context:
        for value in (
            [[1, 2, 0, -1]],
            np.array([[1, 2, 0, -1]], F32),
            np.array([[1], [2], [0], [-1]], F32).T,
            np.array([[1, 2, 0, -1]], F32).view(type("Array", (np.ndarray,), {})),
            np.array([[1, 9, 2, 9, 0, 9, -1, 9]], F32)[:, ::2],
        ):
            assert np.array_equal(context.run({"x": value})["y"], expected)
        assert np.array_equal(context.run()["y"], expected)  # inputs stay set
        with pytest.raises(trireme.InvalidArgumentError, match="input x has type float64, expected f32"):
            context.run({"x": np.zeros((1, 4))})
        with pytest.raises(trireme.InvalidArgumentError, match="no input z; inputs: x"):
            context.run({"z": [1]})
        with pytest.raises(trireme.InvalidArgumentError, match="input x has 9 at dimension 0, expected at most 8"):
            context.run({"x": np.zeros((9, 4), F32)})
        assert np.array_equal(context.run({"x": value})["y"], expected)


def test_outputs_are_arrays_of_their_own(engine):
    first = engine.run({"x": np.ones((3, 4), F32)})["y"]
    second = engine.run({"x": np.zeros((1, 4), F32)})["y"]
    assert first.flags.owndata and np.all(first == 2) and first.shape == (3, 4) and np.all(second == 0)


def test_outputs_into_arrays(engine):
    target = np.full((2, 4), 7, F32)
    with engine.create_context() as context:
        assert context.run({"x": np.ones((2, 4), F32)}, {"y": target})["y"] is target
        assert np.all(target == 2)
        context.run({"x": np.zeros((2, 4), F32)})
        assert np.all(target == 2)  # it was a target of one run only
        with pytest.raises(trireme.InvalidArgumentError, match=r"output y has shape \[1, 4\], its target \[2, 4\]"):
            context.run({"x": np.ones((1, 4), F32)}, {"y": target})
        with pytest.raises(trireme.InvalidArgumentError, match="output y has type float64, expected f32"):
            context.run({"x": np.ones((1, 4), F32)}, {"y": np.zeros((1, 4))})
        wide = np.zeros((2, 8), F32)
        context.run({"x": np.ones((2, 4), F32)}, {"y": wide[:, ::2]})  # copied after the run
        assert np.array_equal(wide, [[2, 0] * 4] * 2)
        target.flags.writeable = False
        with pytest.raises(trireme.InvalidArgumentError, match="read-only"):
            context.run({"x": np.ones((2, 4), F32)}, {"y": target})
        with pytest.raises(trireme.InvalidArgumentError, match="no output z"):
            context.run({"x": np.ones((1, 4), F32)}, {"z": target})


def test_start_and_finish(engine):
    with engine.create_context() as one, engine.create_context() as other:
        one.start({"x": np.full((2, 4), 1, F32)})
        other.start({"x": np.full((1, 4), 3, F32)})
        with pytest.raises(trireme.InvalidArgumentError, match="finish it first"):
            one.start({"x": np.zeros((1, 4), F32)})
        assert np.all(other.finish()["y"] == 6)
        assert np.all(one.finish()["y"] == 2)
        with pytest.raises(trireme.InvalidArgumentError, match="none was started"):
            one.finish()
        assert one.stream is None  # the host has no streams


def test_types_without_numpy():
    with trireme.Network() as network:
        x = network.add_input("x", (3,), "bf16")
        network.mark_output(network.activation("relu", x, name="y"))
        with trireme.Engine.from_network(network) as engine:
            value = np.array([1.5, -2, 3], ml_dtypes.bfloat16)
            y = engine.run({"x": value})["y"]
            assert y.dtype == ml_dtypes.bfloat16 and list(y) == [1.5, 0, 3]
            assert list(engine.run({"x": value.view(np.uint16)})["y"]) == [1.5, 0, 3]
            assert list(engine.run({"x": [1, -1, 2]})["y"]) == [1, 0, 2]


def test_scalars_and_empty_tensors():
    with trireme.Network() as network:
        a, b = network.add_input("a", ()), network.add_input("b", (-1,))
        network.mark_output(network.elementwise("add", a, b, name="y"))
        with trireme.Engine.from_network(network, {"b": (4,)}) as engine:
            assert list(engine.run({"a": 1.5, "b": [1, 2]})["y"]) == [2.5, 3.5]
            assert list(engine.run({"a": F32(2), "b": [1]})["y"]) == [3]
            assert engine.run({"a": 0, "b": np.zeros(0, F32)})["y"].shape == (0,)


def test_profiles(engine):
    with trireme.Network() as network:
        affine(network)
        with pytest.raises(trireme.InvalidArgumentError, match="no bound"):
            trireme.Plan.build(network)
        profiles = [{"x": trireme.Bound((2, 4), min=(1, 4))}, {"x": trireme.Bound((64, 4), min=(32, 4), opt=(48, 4))}]
        with trireme.Engine.from_network(network, profiles) as several, several.create_context() as context:
            assert context.run({"x": np.ones((40, 4), F32)})["y"].shape == (40, 4)
            with pytest.raises(trireme.InvalidArgumentError):
                context.run({"x": np.ones((8, 4), F32)})
            context.set_profile(0)
            with pytest.raises(trireme.InvalidArgumentError):
                context.run({"x": np.ones((40, 4), F32)})
            context.warm_up()
            assert context.run({"x": np.ones((2, 4), F32)})["y"].shape == (2, 4)


def test_states_and_reset():
    with trireme.Network() as network:
        x = network.add_input("x", (1, 1, 8))
        one = [network.add_input(name, shape, "i32") for name, shape in (("s", (2,)), ("l", (1,)), ("b", (1, 1)))]
        caches = [network.add_state(name, (1, 16, 1, 8)) for name in ("keys", "values")]
        y = network.add_layer("attention", x, x, x, *one, *caches, form="packed_nhd", causal="lower_right", n_ranks=1)
        network.mark_output(y[0])
        with trireme.Engine.from_network(network) as engine, engine.create_context() as context:

            def step(value, length):
                inputs = {"x": np.full((1, 1, 8), value, F32), "s": [0, 1], "l": [length], "b": [[0]]}
                return context.run(inputs)["attention"].ravel()[0]

            assert step(0, 1) == 0
            assert 0 < step(1, 2) < 1
            context.reset()
            assert step(1, 1) == 1


def test_contexts_on_threads(engine):
    wrong = []

    def work(seed):
        rng = np.random.default_rng(seed)
        with engine.create_context() as context:
            for _ in range(50):
                x = rng.standard_normal((int(rng.integers(1, 9)), 4)).astype(F32)
                if not np.array_equal(context.run({"x": x})["y"], np.maximum(2 * x, 0)):
                    wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_runs_release_the_lock():
    """Another thread counts while a long run works."""
    with trireme.Network() as network:
        x = network.add_input("x", (512, 512))
        y = x
        for _ in range(24):
            y = network.activation("tanh", y @ x)
        network.mark_output(y)
        with trireme.Engine.from_network(network) as engine:
            counted, stop = [0], threading.Event()

            def count():
                while not stop.is_set():
                    counted[0] += 1
                    time.sleep(0)

            engine.run({"x": np.zeros((512, 512), F32)})
            thread = threading.Thread(target=count)
            thread.start()
            while counted[0] == 0:
                pass
            before = counted[0]
            engine.run()
            during = counted[0] - before
            stop.set()
            thread.join()
    assert during > 0


def test_refit():
    path = GOLDENS / "encoder" / "model.onnx"
    inputs = [trireme.read_onnx_tensor(path.parent / "test_data_set_0" / f"input_{i}.pb") for i in (0, 1)]
    with trireme.Network.from_onnx(path, refittable=True) as network:
        inputs = {port.name: value for port, value in zip(network.inputs, inputs)}
        shapes = {name: value.shape for name, value in inputs.items()}
        with trireme.Plan.build(network, shapes) as plan:
            assert plan.info["refittable"]
            weights = [port for port in plan.weights if len(port.shape) == 2 and port.dtype == trireme.DType.F32]
        engine = trireme.Engine.from_network(network, shapes)
    with engine:
        first = engine.run(inputs)
        with engine.create_context() as context:  # stays valid
            engine.refit({port.name: np.zeros(port.shape, F32) for port in weights})
            second = context.run(inputs)
            assert any(not np.allclose(second[name], first[name]) for name in first)
            engine.refit(path)
            for name, value in context.run(inputs).items():
                assert np.array_equal(value, first[name])
        with pytest.raises(trireme.InvalidArgumentError, match="nobody"):
            engine.refit({"nobody": np.zeros(1, F32)})
        with pytest.raises(trireme.InvalidArgumentError):
            engine.refit({weights[0].name: np.zeros((1, 1), F32)})
    with trireme.Engine.from_onnx(path, shapes) as plain, pytest.raises(trireme.InvalidArgumentError, match="refittable"):
        plain.refit(path)


def test_debug_tensors(engine):
    with engine.create_context() as context:
        seen = []
        context.set_debug(seen.append)
        x = np.array([[1, -2, 3, -4]], F32)
        context.run({"x": x})
        assert seen[-1].name == "y" and np.array_equal(seen[-1].data, np.maximum(2 * x, 0))
        assert all(tensor.kernel and tensor.kind for tensor in seen)

        def stop(tensor):
            raise StopIteration(tensor.name)

        context.set_debug(stop)
        with pytest.raises(StopIteration):
            context.run()
        context.set_debug(None)
        count = len(seen)
        assert context.run()["y"][0, 0] == 2 and len(seen) == count


def test_times(engine):
    with engine.create_context() as context:
        with pytest.raises(trireme.InvalidArgumentError):
            context.times  # noqa: B018
        context.set_timing()
        context.run({"x": np.ones((2, 4), F32)})
        assert context.times["compute_milliseconds"] >= 0
        context.set_timing(False)
        context.set_layer_timing()
        context.run()
        layers = context.layer_times
        assert [layer["runs"] for layer in layers] == [1] * len(layers) and layers[0]["kind"] == "matmul"


def test_plans_of_two_ranks(tmp_path):
    with trireme.Network() as network:
        affine(network, 64)
        plans = [trireme.Plan.build(network, {"x": (8, 64)}, mesh={"tp": 2}, ranks=2, rank=rank) for rank in (0, 1)]
        assert [plan.info["rank"] for plan in plans] == [0, 1]
        trireme.save_plans(plans, tmp_path / "net.plan")
        with trireme.Plan.load(tmp_path / "net.plan", 1) as plan:
            assert plan.info["n_ranks"] == 2 and str(plan) == str(plans[1])
        with pytest.raises(trireme.InvalidArgumentError):
            trireme.Plan.load(tmp_path / "net.plan", 2)
        with pytest.raises(trireme.InvalidArgumentError):
            trireme.Engine(plans[0])  # the world has one rank
        with pytest.raises(trireme.InvalidArgumentError, match="this Plan is closed"):
            plans[0].info  # noqa: B018 - the engine took it
        plans[1].close()


def test_weight_budget():
    path = GOLDENS / "compare" / "perceptron.onnx"
    with trireme.OnnxModel(path) as model:
        port = model.inputs[0]
    shape = tuple(3 if size < 0 else size for size in port.shape)
    x = np.random.default_rng(5).standard_normal(shape).astype(F32)
    with trireme.Network.from_onnx(path) as network:
        plan = trireme.Plan.build(network, {port.name: shape})
        plan.set_weight_budget("0%")
        assert plan.streaming["on"]
        with trireme.Engine(plan) as streamed, trireme.Engine.from_onnx(path, {port.name: shape}) as whole:
            expected = whole.run({port.name: x})
            for name, value in streamed.run({port.name: x}).items():
                assert np.array_equal(value, expected[name])
            streamed.set_weight_budget(1 << 30)
            assert streamed.streaming["streamed"] == 0


def test_what_a_closed_world_takes_along():
    """Closing a world closes what was made in it, the newest first."""
    world = trireme.World("host")
    with trireme.Network() as network:
        engine = trireme.Engine.from_network(affine(network), {"x": (8, 4)}, world=world)
    context = engine.create_context()
    assert (world.rank, world.size, world.local_rank, world.backend, world.gpu) == (0, 1, 0, "host", 0)
    world.close()
    assert context.closed and engine.closed and world.closed
    for call in (lambda: context.run({"x": np.ones((1, 4), F32)}), lambda: engine.create_context(), lambda: world.rank):
        with pytest.raises(trireme.InvalidArgumentError):
            call()
    world.close()


def test_dropped_objects_end_at_once(engine):
    for options in ({}, {"device_outputs": True}):
        context = engine.create_context(**options)
        context.set_debug(lambda tensor: None)
        context.run({"x": np.ones((1, 4), F32)})
        gone = weakref.ref(context)
        del context
        assert gone() is None


def test_objects_outlive_their_names():
    """A context keeps its engine, and that its world."""

    def make():
        world = trireme.World("host")
        with trireme.Network() as network:
            return trireme.Engine.from_network(affine(network), {"x": (8, 4)}, world=world).create_context()

    context = make()
    assert np.all(context.run({"x": np.ones((1, 4), F32)})["y"] == 2)


def test_collectives_of_one_rank():
    with trireme.World("host") as world:
        a = np.arange(4, dtype=F32)
        world.broadcast(a)
        out = np.zeros_like(a)
        world.collective("all_reduce", a, out, reduce="sum")
        assert np.array_equal(out, a)
        with pytest.raises(trireme.InvalidArgumentError, match="row-major"):
            world.broadcast(np.arange(8)[::2])


def test_trouble_in_an_allocator(engine, monkeypatch):
    """What the output allocator raises comes out of the run."""
    with engine.create_context(device_outputs=True) as context:

        def fail(*arguments):
            raise KeyError("no memory")

        monkeypatch.setattr("trireme.engine.DeviceTensor", fail)
        with pytest.raises(KeyError, match="no memory"):
            context.run({"x": np.ones((1, 4), F32)})
        monkeypatch.undo()
        assert np.all(context.run({"x": np.ones((1, 4), F32)})["y"].numpy() == 2)


def test_system():
    assert trireme.gpu_count() >= 0
    found = trireme.system()
    assert found["build"]["version"] == _c.TRM_VERSION
    assert found["machine"]["hardware_threads"] >= 1
    assert len(found["gpus"]) == trireme.gpu_count()
    assert [library["name"] for library in found["libraries"]] == ["NCCL", "cuBLASLt", "cuDNN", "NVRTC", "MPI"]


def test_version():
    assert trireme.__version__.split(".")[:2] == _c.TRM_VERSION.split(".")[:2]
    assert lib.trm_dtype_size(trireme.DType.F32) == ctypes.sizeof(ctypes.c_float)
