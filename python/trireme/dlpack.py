"""Tensors of other packages (torch, cupy, jax, NumPy) without a copy, by the DLPack ABI, version 0 and 1.

`Borrowed` is a tensor that another package lends. `DeviceTensor` is memory of the library that other packages take with
their `from_dlpack`.

Streams: `Borrowed` asks its owner to order the work that made the tensor before the stream that the library runs on. A
DeviceTensor is lent only when no run writes it, so it is ready on every stream.
"""

from __future__ import annotations

import ctypes
from ctypes import (
    CFUNCTYPE,
    POINTER,
    PYFUNCTYPE,
    Structure,
    c_char_p,
    c_int32,
    c_int64,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Any

import numpy as np

from . import tensors
from ._library import lib
from .errors import InvalidArgumentError, UnsupportedError
from .handles import Handle
from .tensors import Array, DType

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13  # DLDeviceType
_HOST = (CPU, CUDA_HOST, CUDA_MANAGED)


class _DLTensor(Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),  # in elements; NULL: row-major
        ("byte_offset", c_uint64),
    ]


_deleter_type = CFUNCTYPE(None, c_void_p)


class _Managed(Structure):
    """DLManagedTensor, of capsules "dltensor"."""

    _fields_ = [("tensor", _DLTensor), ("manager", c_void_p), ("deleter", _deleter_type)]


class _ManagedVersioned(Structure):
    """DLManagedTensorVersioned, of capsules "dltensor_versioned"."""

    _fields_ = [
        ("major", c_uint32),
        ("minor", c_uint32),
        ("manager", c_void_p),
        ("deleter", _deleter_type),
        ("flags", c_uint64),
        ("tensor", _DLTensor),
    ]


_READ_ONLY = 1  # of flags
_KINDS: dict[bytes, Any] = {b"dltensor": _Managed, b"dltensor_versioned": _ManagedVersioned}


def _python_function(name: str, result: Any, *parameters: Any) -> Any:
    return PYFUNCTYPE(result, *parameters)((name, ctypes.pythonapi))


_capsule_new = _python_function("PyCapsule_New", ctypes.py_object, c_void_p, c_char_p, c_void_p)
_capsule_is_valid = _python_function("PyCapsule_IsValid", ctypes.c_int, ctypes.py_object, c_char_p)
_capsule_pointer = _python_function("PyCapsule_GetPointer", c_void_p, ctypes.py_object, c_char_p)
# The same for a capsule that is being destroyed, which must not become a Python object again.
_dying_is_valid = _python_function("PyCapsule_IsValid", ctypes.c_int, c_void_p, c_char_p)
_dying_pointer = _python_function("PyCapsule_GetPointer", c_void_p, c_void_p, c_char_p)


class Borrowed:
    """A tensor of another package: address, shape, dtype, device and gpu (from 0; 0 on the host).

    It lasts as long as this object, which holds the capsule of its owner. Errors: UnsupportedError (device, type),
    InvalidArgumentError (not row-major).
    """

    __slots__ = ("address", "device", "dtype", "gpu", "is_host", "read_only", "shape", "_capsule")

    def __init__(self, owner: Any, stream: int | None) -> None:
        device, _ = (int(part) for part in owner.__dlpack_device__())
        if device not in (CPU, CUDA, CUDA_HOST, CUDA_MANAGED):
            raise UnsupportedError(f"a tensor is on DLPack's device {device}, expected host or CUDA memory")
        # A stream of NULL is one on the host, for which DLPack has no streams.
        if device == CUDA and stream:
            self._capsule = owner.__dlpack__(stream=stream)
        else:
            self._capsule = owner.__dlpack__()
        for name, kind in _KINDS.items():
            if _capsule_is_valid(self._capsule, name):
                managed = kind.from_address(_capsule_pointer(self._capsule, name))
                break
        else:
            raise InvalidArgumentError("a tensor's __dlpack__ gave no capsule of DLPack 0 or 1")
        tensor = managed.tensor
        self.device, self.gpu = int(tensor.device_type), int(tensor.device_id)
        self.is_host = self.device in _HOST
        self.dtype = tensors.from_dlpack_type(tensor.code, tensor.bits, tensor.lanes)
        self.shape = tuple(tensor.shape[: tensor.ndim])
        self.address = (tensor.data or 0) + int(tensor.byte_offset)
        self.read_only = bool(getattr(managed, "flags", 0) & _READ_ONLY)
        if tensor.strides and 0 not in self.shape:
            row_major = _strides_of(self.shape)
            if any(self.shape[i] != 1 and tensor.strides[i] != row_major[i] for i in range(len(self.shape))):
                raise InvalidArgumentError(
                    f"a tensor of shape {list(self.shape)} is not row-major: make it contiguous first"
                )


def _strides_of(shape: tuple[int, ...]) -> list[int]:
    """The strides of row-major elements, in elements."""
    strides = [1] * len(shape)
    for i in range(len(shape) - 1, 0, -1):
        strides[i - 1] = strides[i] * shape[i]
    return strides


# ---- lending ----

_lent: dict[int, tuple[Any, ...]] = {}  # what other packages hold, by the address of its struct


def _delete(managed: int) -> None:
    _lent.pop(managed, None)


def _destroy(capsule: int) -> None:
    # A capsule that was taken has another name, and its taker calls the deleter.
    for name in _KINDS:
        if _dying_is_valid(capsule, name):
            _lent.pop(_dying_pointer(capsule, name), None)


_deleter = _deleter_type(_delete)
_destructor = PYFUNCTYPE(None, c_void_p)(_destroy)


def _lend(tensor: DeviceTensor, versioned: bool) -> Any:
    shape = (c_int64 * max(1, len(tensor.shape)))(*tensor.shape)
    name = b"dltensor_versioned" if versioned else b"dltensor"
    managed = _KINDS[name]()
    if versioned:
        managed.major = 1
    managed.deleter = _deleter
    code, bits = tensors.dlpack_type(tensor.dtype)
    device, gpu = tensor.__dlpack_device__()
    strides = (c_int64 * max(1, len(tensor.shape)))(*_strides_of(tensor.shape))
    managed.tensor = _DLTensor(tensor.handle, device, gpu, len(tensor.shape), code, bits, 1, shape, strides, 0)
    address = ctypes.addressof(managed)
    _lent[address] = (managed, shape, strides, tensor)
    return _capsule_new(address, name, ctypes.cast(_destructor, c_void_p))


class DeviceTensor(Handle):
    """A tensor in memory of the library, on the device of a world: GPU memory, or host memory on the host backend.

    It has `shape`, `dtype` and the `handle` of its memory, and lends itself by DLPack without a copy:
    `torch.from_dlpack(tensor)`, `cupy.from_dlpack(tensor)`. Those who took it keep it alive. On the host `numpy()` is a
    view of it. Make one with `World.empty`. It ends with its world at the latest, whoever took it.
    """

    def __init__(self, world: Any, shape: tuple[int, ...], dtype: DType) -> None:
        memory = c_void_p()
        self.shape = tuple(int(size) for size in shape)
        self.dtype = dtype
        self.nbytes = int(np.prod(self.shape, dtype=np.int64)) * int(lib.trm_dtype_size(dtype))
        self._gpu: int = world.gpu
        self._written_by: Any = None  # the context whose run writes this tensor now
        lib.trm_memory_allocate(world.handle, self.nbytes, memory)
        own = int(world.handle)
        super().__init__(memory.value, lambda address: lib.trm_memory_free(own, address), world)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (CUDA, self._gpu - 1) if self._gpu > 0 else (CPU, 0)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A capsule for `from_dlpack`. Raises BufferError while a run writes the tensor, and where another device or a
        copy is asked for."""
        if self._written_by is not None:
            raise BufferError("a run writes this tensor: finish it first")
        if copy or (dl_device is not None and tuple(dl_device) != self.__dlpack_device__()):
            raise BufferError("a DeviceTensor is lent without a copy, on its own device only")
        return _lend(self, max_version is not None and max_version[0] >= 1)

    def numpy(self) -> Array:
        """A view as an array, which keeps the tensor alive. Error: UnsupportedError on CUDA."""
        if self._gpu > 0:
            raise UnsupportedError("the tensor is in GPU memory: take it with torch.from_dlpack or cupy.from_dlpack")
        return tensors.array_at(self.handle, self.shape, self.dtype, self)
