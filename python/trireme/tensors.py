"""Element types: those of the library, of NumPy and of DLPack.

NumPy has no bf16 and no types of 8 bits and fewer but integers. The package ml_dtypes has them; without it such tensors
have unsigned integers with the same bits.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from . import _c
from ._library import enum_value
from .errors import UnsupportedError

DType = _c.trm_dtype
_char_in: Any = ctypes.c_char.from_buffer
Array = np.ndarray[Any, np.dtype[Any]]

_ml: Any = None
try:
    import ml_dtypes

    _ml = ml_dtypes
except ImportError:
    pass

_NUMPY: dict[DType, str] = {
    DType.F32: "float32",
    DType.F16: "float16",
    DType.F64: "float64",
    DType.I8: "int8",
    DType.U8: "uint8",
    DType.I16: "int16",
    DType.U16: "uint16",
    DType.I32: "int32",
    DType.U32: "uint32",
    DType.I64: "int64",
    DType.U64: "uint64",
    DType.BOOL: "bool",
}
_ML = {
    DType.BF16: "bfloat16",
    DType.F8E4M3: "float8_e4m3fn",
    DType.F8E4M3FNUZ: "float8_e4m3fnuz",
    DType.F8E5M2: "float8_e5m2",
    DType.F8E5M2FNUZ: "float8_e5m2fnuz",
    DType.F8E8M0: "float8_e8m0fnu",
    DType.F4E2M1: "float4_e2m1fn",
    DType.I4: "int4",
    DType.U4: "uint4",
    DType.I2: "int2",
    DType.U2: "uint2",
    DType.F6E2M3: "float6_e2m3fn",
    DType.F6E3M2: "float6_e3m2fn",
}
# (code, bits) of DLPack's DLDataType.
_DLPACK = {
    DType.F32: (2, 32),
    DType.F16: (2, 16),
    DType.F64: (2, 64),
    DType.BF16: (4, 16),
    DType.I8: (0, 8),
    DType.I16: (0, 16),
    DType.I32: (0, 32),
    DType.I64: (0, 64),
    DType.U8: (1, 8),
    DType.U16: (1, 16),
    DType.U32: (1, 32),
    DType.U64: (1, 64),
    DType.BOOL: (6, 8),
    DType.F8E4M3: (10, 8),
    DType.F8E4M3FNUZ: (11, 8),
    DType.F8E5M2: (12, 8),
    DType.F8E5M2FNUZ: (13, 8),
    DType.F8E8M0: (14, 8),
}


def _bits(dtype: DType) -> str:
    return "uint16" if dtype == DType.BF16 else "uint8"


_TO_NUMPY: dict[DType, np.dtype[Any]] = {dtype: np.dtype(name) for dtype, name in _NUMPY.items()}
for _dtype, _name in _ML.items():
    _TO_NUMPY[_dtype] = np.dtype(getattr(_ml, _name, _bits(_dtype)))
_FROM_NUMPY: dict[np.dtype[Any], DType] = {}
for _dtype, _numpy in _TO_NUMPY.items():
    _FROM_NUMPY.setdefault(_numpy, _dtype)
_FROM_DLPACK = {value: key for key, value in _DLPACK.items()}


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """NumPy's type for a type of the library; unsigned integers of the same size where neither NumPy nor ml_dtypes has
    one."""
    return _TO_NUMPY[dtype]


def dtype_of(dtype: Any) -> DType:
    """The library's type for a name such as "bf16", one of its types, or a type of NumPy. Error: UnsupportedError,
    InvalidArgumentError."""
    if isinstance(dtype, str) and dtype.upper() in DType.__members__:
        return DType.__members__[dtype.upper()]
    if isinstance(dtype, DType):
        return dtype
    try:
        return _FROM_NUMPY[np.dtype(dtype)]
    except KeyError:
        raise UnsupportedError(f"the library has no type for NumPy's {np.dtype(dtype)}") from None
    except TypeError:
        return DType(enum_value(DType, dtype))


def dlpack_type(dtype: DType) -> tuple[int, int]:
    """(code, bits) of DLPack. Error: UnsupportedError."""
    if dtype not in _DLPACK:
        raise UnsupportedError(f"DLPack has no type for {dtype.name.lower()}")
    return _DLPACK[dtype]


def from_dlpack_type(code: int, bits: int, lanes: int) -> DType:
    """The library's type for one of DLPack. Error: UnsupportedError."""
    if lanes != 1 or (code, bits) not in _FROM_DLPACK:
        raise UnsupportedError(
            f"a tensor has DLPack's type {code} of {bits} bits and {lanes} lanes, which is unknown here"
        )
    return _FROM_DLPACK[code, bits]


def array_at(address: int, shape: tuple[int, ...], dtype: DType, owner: Any = None) -> Array:
    """A view of host memory, which keeps `owner` alive: the memory must last as long as that."""
    kind = numpy_dtype(dtype)
    count = int(np.prod(shape, dtype=np.int64))
    if count == 0:
        return np.empty(shape, kind)
    memory: Any = (ctypes.c_char * (count * kind.itemsize)).from_address(address)
    memory.owner = owner
    view: Array = np.frombuffer(memory, kind, count)
    return view.reshape(shape)


def address_of(array: Array) -> int:
    """Where the elements of an array are. `array.ctypes` takes several microseconds; this way works for arrays that are
    not empty, can be written, and have elements that the buffer protocol knows."""
    try:
        return ctypes.addressof(_char_in(array))
    except (TypeError, ValueError):
        return array.ctypes.data


def contiguous(value: Any, dtype: DType) -> Array:
    """A row-major array of a value. Arrays keep their type (`fits` says whether it is right); lists and numbers get
    `dtype`."""
    if isinstance(value, (np.ndarray, np.generic)):
        return np.asarray(value, order="C")
    return np.asarray(value, numpy_dtype(dtype), order="C")


def fits(array: Array, dtype: DType) -> bool:
    """Whether elements of an array are those of `dtype`, or unsigned integers of its size for types that NumPy has
    not."""
    return array.dtype == _TO_NUMPY[dtype] or (dtype in _ML and array.dtype == np.dtype(_bits(dtype)))
