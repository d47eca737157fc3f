"""Tensors in and out by DLPack, on the host."""

import ctypes
import gc
import weakref

import numpy as np
import pytest
import trireme
from trireme import dlpack

F32 = np.float32


class Lender:
    """An array that can only be had by DLPack, and counts who holds it."""

    def __init__(self, array):
        self.array, self.asked = array, []

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **options):
        self.asked.append(options)
        return self.array.__dlpack__(**options)


@pytest.fixture
def world():
    with trireme.World("host") as opened:
        yield opened


@pytest.fixture
def context(world):
    with trireme.Network() as network:
        x = network.add_input("x", (-1, 4))
        network.mark_output(network.activation("relu", x, name="y"))
        with trireme.Engine.from_network(network, {"x": (8, 4)}, world=world) as engine:
            with engine.create_context() as made:
                yield made


def test_inputs_by_dlpack(context):
    lender = Lender(np.array([[1, -1, 2, -2]], F32))
    assert np.array_equal(context.run({"x": lender})["y"], [[1, 0, 2, 0]])
    assert lender.asked == [{}]  # host memory has no stream
    assert context.run({"x": Lender(np.ones((3, 1, 4), F32)[:, 0])})["y"].shape == (3, 4)
    with pytest.raises(trireme.InvalidArgumentError, match=r"shape \[4, 4\] is not row-major"):
        context.run({"x": Lender(np.ones((4, 4), F32).T)})
    with pytest.raises(trireme.InvalidArgumentError, match="input x has type f64, expected f32"):
        context.run({"x": Lender(np.ones((1, 4)))})


def test_outputs_by_dlpack(context, world):
    target = Lender(np.zeros((2, 4), F32))
    assert context.run({"x": np.ones((2, 4), F32)}, {"y": target})["y"] is target
    assert np.all(target.array == 1)  # the run wrote it
    context.run({"x": np.full((2, 4), 5, F32)})
    assert np.all(target.array == 1)
    tensor = world.empty((2, 4))
    assert context.run({"x": np.full((2, 4), 3, F32)}, {"y": tensor})["y"] is tensor
    assert np.all(tensor.numpy() == 3)
    with pytest.raises(trireme.InvalidArgumentError, match="output y has type i32, expected f32"):
        context.run({"x": np.ones((2, 4), F32)}, {"y": world.empty((2, 4), "i32")})


def test_outputs_that_stay_on_the_device(context):
    with context.engine.create_context(device_outputs=True) as kept:
        first = kept.run({"x": np.ones((2, 4), F32)})["y"]
        second = kept.run({"x": np.zeros((1, 4), F32)})["y"]
        assert isinstance(first, trireme.DeviceTensor) and first.dtype == trireme.DType.F32
        assert first.shape == (2, 4) and np.all(first.numpy() == 1) and np.all(second.numpy() == 0)
        array = np.from_dlpack(first)
        assert array.ctypes.data == first.handle  # not a copy
        # An output of one run is an input of the next.
        assert np.all(kept.run({"x": first})["y"].numpy() == 1)


def test_a_tensor_is_not_lent_while_a_run_writes_it(context):
    with context.engine.create_context(device_outputs=True) as kept:
        kept.start({"x": np.ones((2, 4), F32)})
        for tensor in kept._made.values():
            with pytest.raises(BufferError, match="finish it first"):
                np.from_dlpack(tensor)
        assert np.all(np.from_dlpack(kept.finish()["y"]) == 1)


def test_those_who_took_a_tensor_keep_it(world):
    tensor = world.empty((1 << 10,), "i64")
    tensor.numpy()[:] = np.arange(1 << 10)
    gone = weakref.ref(tensor)
    array = np.from_dlpack(tensor)
    view = tensor.numpy()[5:]
    del tensor
    gc.collect()
    assert gone() is not None and array[-1] == 1023
    del array
    gc.collect()
    assert gone() is not None and view[0] == 5
    del view
    gc.collect()
    assert gone() is None


def test_a_capsule_that_nobody_takes_gives_the_tensor_back(world):
    tensor = world.empty((3,))
    for version in (None, (0, 8), (1, 0)):
        capsule = tensor.__dlpack__(max_version=version)
        assert len(dlpack._lent) == 1
        del capsule
        assert dlpack._lent == {}


@pytest.mark.parametrize("versioned", [False, True])
def test_borrowing_what_was_lent(world, versioned):
    class Version:
        def __init__(self, tensor):
            self.tensor = tensor

        def __dlpack_device__(self):
            return self.tensor.__dlpack_device__()

        def __dlpack__(self, **options):
            return self.tensor.__dlpack__(max_version=(1, 0) if versioned else None)

    tensor = world.empty((2, 3), "f8e4m3")
    borrowed = dlpack.Borrowed(Version(tensor), None)
    assert (borrowed.address, borrowed.shape, borrowed.dtype) == (tensor.handle, (2, 3), trireme.DType.F8E4M3)
    assert borrowed.is_host and not borrowed.read_only
    del borrowed
    assert dlpack._lent == {}


def test_what_is_not_lent(world):
    tensor = world.empty((3,), "i4")
    with pytest.raises(trireme.UnsupportedError, match="no type for i4"):
        tensor.__dlpack__()
    tensor = world.empty((3,))
    with pytest.raises(BufferError, match="without a copy"):
        tensor.__dlpack__(copy=True)
    with pytest.raises(BufferError, match="own device"):
        tensor.__dlpack__(dl_device=(2, 0))
    with pytest.raises(trireme.OutOfMemoryError):
        world.empty((1 << 60,), "u8")


class OnGpu:
    """A tensor that says it is in GPU memory; nobody reads it."""

    def __init__(self, gpu):
        self.gpu, self.asked = gpu, []
        self.memory = ctypes.create_string_buffer(64)
        self.shape = (ctypes.c_int64 * 2)(1, 4)

    def __dlpack_device__(self):
        return (dlpack.CUDA, self.gpu)

    def __dlpack__(self, **options):
        self.asked.append(options)
        self.managed = dlpack._Managed()
        self.managed.tensor = dlpack._DLTensor(
            ctypes.addressof(self.memory), dlpack.CUDA, self.gpu, 2, 2, 32, 1, self.shape, None, 0
        )
        return dlpack._capsule_new(ctypes.addressof(self.managed), b"dltensor", None)


def test_streams_and_gpus_are_checked(context):
    tensor = OnGpu(1)
    with pytest.raises(trireme.InvalidArgumentError, match="input x is on GPU 1, expected the host"):
        context.run({"x": tensor})
    borrowed = dlpack.Borrowed(tensor, 0x7F00)
    assert tensor.asked[-1] == {"stream": 0x7F00} and not borrowed.is_host and borrowed.gpu == 1
