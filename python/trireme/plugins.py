"""Plugins: layers in shared libraries, and layers written in Python.

A layer in Python is a function for its dims, and kernels: a function over NumPy arrays for the host, and a CUDA kernel
as source or as an image, such as Triton makes it. The functions are called when a network is built and when a context
prepares to run new dims. In a run only the host's kernel is called; CUDA kernels are launched without Python.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import _c
from ._library import decoded, dims_of, encoded, lib, shape_of, sized
from .errors import InvalidArgumentError
from .tensors import Array, DType, array_at, dtype_of

_kept: list[Any] = []  # tables, and all that they point to, live as long as the process
_TYPES: dict[Any, _c.trm_plugin_type] = {
    int: _c.trm_plugin_type.INT,
    float: _c.trm_plugin_type.FLOAT,
    str: _c.trm_plugin_type.STRING,
    list[int]: _c.trm_plugin_type.INTS,
    list[float]: _c.trm_plugin_type.FLOATS,
    list[str]: _c.trm_plugin_type.STRINGS,
    np.ndarray: _c.trm_plugin_type.TENSOR,
}


@dataclass(frozen=True)
class PluginTensor:
    """An input or output of a call: type, shape with -1 for what is unknown, and where its elements are (0 before a
    kernel runs)."""

    dtype: DType
    shape: tuple[int, ...]
    address: int = 0
    values: Array | None = None  # of an input that decides dims

    @property
    def array(self) -> Array:
        """The elements, for kernels of the host."""
        return array_at(self.address, self.shape, self.dtype)


@dataclass(frozen=True)
class PluginCall:
    """What the functions of a plugin get."""

    settings: dict[str, Any]
    inputs: list[PluginTensor | None]  # None: not given
    outputs: list[PluginTensor]


@dataclass(frozen=True)
class Launch:
    """How a CUDA kernel is launched. Arguments are tensors, which stand for their addresses, integers, floats (of 32
    bits), and scalars of NumPy."""

    grid: Sequence[int]
    block: Sequence[int]
    arguments: Sequence[Any]
    shared_memory: int = 0


@dataclass(frozen=True)
class CudaKernel:
    """A CUDA kernel: its name, declared extern "C"; CUDA C++ that is compiled at run time, or an image (cubin, fat
    binary or PTX); and a function that says how it is launched for a call."""

    name: str
    launch: Callable[[PluginCall], Launch]
    source: str | None = None
    image: bytes | None = None

    @staticmethod
    def from_triton(compiled: Any, launch: Callable[[PluginCall], tuple[Sequence[int], Sequence[Any]]]) -> CudaKernel:
        """A kernel that Triton compiled, for GPUs of the kind that it was compiled for. `launch` gives the grid and the
        arguments that are no constants."""
        meta = compiled.metadata
        if getattr(meta, "global_scratch_size", 0):
            raise InvalidArgumentError("the kernel needs scratch memory that Triton allocates, which is not supported")

        def launches(call: PluginCall) -> Launch:
            grid, arguments = launch(call)
            return Launch(grid, (32 * meta.num_warps,), [*arguments, 0, 0], meta.shared)  # scratch of Triton's, if any

        return CudaKernel(meta.name, launches, image=compiled.asm["cubin"])


@dataclass(frozen=True)
class PluginInfo:
    domain: str
    name: str
    version: int
    library: str  # "" for plugins of this process
    host: bool
    cuda: bool


def load_plugin(path: Any) -> None:
    """Loads a library of plugins. Its code runs in this process. Error: FileError, UnsupportedError,
    InvalidArgumentError."""
    lib.trm_plugin_load(encoded(path))


def loaded_plugins() -> list[PluginInfo]:
    """All plugins, in the order in which they were loaded."""
    found: list[PluginInfo] = []
    info = _c.trm_plugin_info()
    while lib.trm_plugin_get_info(len(found), info):
        found.append(
            PluginInfo(
                decoded(info.domain), decoded(info.name), info.version, decoded(info.library), info.host, info.cuda
            )
        )
    return found


def plugin(
    domain: str,
    name: str,
    *,
    version: int = 1,
    inputs: int | tuple[int, int] = 1,
    outputs: int = 1,
    settings: Mapping[str, Any] | None = None,
    value_inputs: Sequence[int] = (),
    splits: Sequence[tuple[Sequence[Any], Sequence[Any]]] = (),
    infer: Callable[[PluginCall], Any],
    run: Callable[[PluginCall], None] | None = None,
    cuda: CudaKernel | None = None,
) -> None:
    """Adds a layer to this process, for ONNX nodes of the domain and name, and for `Network.add_plugin`.

    inputs       their number, or the least and the most
    settings     name: default value, or name: type for one that must be given; types are int, float, str, lists of them
                 such as list[int], and np.ndarray
    value_inputs inputs whose elements decide dims
    splits       ways to run over ranks: for each input and output an axis that is cut, None for a tensor that is whole,
                 or "sum" for a summand on each rank
    infer        (dtype, shape) of the output, or a list of those; a size that follows from unknown ones is -1
    run          writes the arrays of the outputs, on the host
    cuda         the CUDA kernel

    Error: InvalidArgumentError, with what is wrong.
    """
    made = _Plugin(dict(settings or {}), infer, run, cuda)
    least, most = inputs if isinstance(inputs, tuple) else (inputs, inputs)
    table = sized(
        _c.trm_plugin,
        domain=encoded(domain),
        name=encoded(name),
        version=version,
        least_inputs=least,
        most_inputs=most,
        n_outputs=outputs,
        value_inputs=sum(1 << i for i in value_inputs),
        fields=made.fields,
        n_fields=len(made.settings),
        splits=_splits(splits),
        n_splits=len(splits),
        infer=made.callbacks["infer"],
    )
    if run is not None:
        table.run = made.callbacks["run"]
    if cuda is not None:
        table.cuda_kernel = encoded(cuda.name)
        table.cuda_source = encoded(cuda.source)
        image = None if cuda.image is None else ctypes.create_string_buffer(cuda.image)
        table.cuda_image = None if image is None else ctypes.addressof(image)
        table.launch = made.callbacks["launch"]
        _kept.append(image)
    pointers = (ctypes.POINTER(_c.trm_plugin) * 1)(ctypes.pointer(table))
    plugins = sized(_c.trm_plugin_list, abi=_c.TRM_PLUGIN_ABI, n_plugins=1, plugins=pointers)
    _kept.append((made, table, pointers, plugins))
    lib.trm_plugin_register(plugins)


def layer_number(domain: str, name: str, version: int, settings: Mapping[str, Any]) -> int:
    """The parameter of a PLUGIN layer of a plugin with these settings."""
    given = [_setting(key, value) for key, value in settings.items()]
    number = ctypes.c_int32()
    lib.trm_plugin_make_layer(
        encoded(domain),
        encoded(name),
        version,
        (_c.trm_plugin_setting * max(1, len(given)))(*[setting for setting, _ in given]),
        len(given),
        number,
    )
    return number.value


# ---- tables ----


def _is_type(value: Any) -> bool:
    return isinstance(value, type) or hasattr(value, "__origin__")


def _type_of(value: Any) -> _c.trm_plugin_type:
    """The type of a setting by its declaration: a type, or a default value."""
    if _is_type(value) and value in _TYPES:
        return _TYPES[value]
    if isinstance(value, list) and value and type(value[0]) in (int, float, str):
        return _TYPES[{int: list[int], float: list[float], str: list[str]}[type(value[0])]]
    if type(value) in _TYPES:
        return _TYPES[type(value)]
    raise InvalidArgumentError(f"{value!r} is not a type of settings, nor a default value of one")


def _splits(splits: Sequence[tuple[Sequence[Any], Sequence[Any]]]) -> Any:
    def form(axis: Any) -> int:
        if axis is None:
            return _c.TRM_PLUGIN_WHOLE
        if axis == "sum":
            return _c.TRM_PLUGIN_SUM
        return int(axis) if axis < 0 else int(axis) + 1

    made = (_c.trm_plugin_split * max(1, len(splits)))()
    for split, (inputs, outputs) in zip(made, splits, strict=False):
        for i, axis in enumerate(inputs):
            split.inputs[i] = form(axis)
        for i, axis in enumerate(outputs):
            split.outputs[i] = form(axis)
    return made


def _setting(name: str, value: Any) -> tuple[_c.trm_plugin_setting, Any]:
    """A setting and what it points to."""
    kind = _type_of(value)
    setting = _c.trm_plugin_setting(name=encoded(name), type=kind)
    values = value if isinstance(value, list) else [value]
    setting.count = len(values)
    keep: Any = None
    if kind in (_c.trm_plugin_type.INT, _c.trm_plugin_type.INTS):
        setting.ints = keep = (ctypes.c_int64 * len(values))(*values)
    elif kind in (_c.trm_plugin_type.FLOAT, _c.trm_plugin_type.FLOATS):
        setting.floats = keep = (ctypes.c_float * len(values))(*values)
    elif kind in (_c.trm_plugin_type.STRING, _c.trm_plugin_type.STRINGS):
        setting.strings = keep = (ctypes.c_char_p * len(values))(*[encoded(text) for text in values])
    else:
        keep = np.ascontiguousarray(value)
        setting.dtype = dtype_of(keep.dtype)
        setting.dims = dims_of(keep.shape)
        setting.data = keep.ctypes.data
    return setting, keep


def _value_of(setting: _c.trm_plugin_setting) -> Any:
    n = setting.count
    kinds = _c.trm_plugin_type
    if setting.type in (kinds.INT, kinds.INTS):
        values: list[Any] = setting.ints[:n]
    elif setting.type in (kinds.FLOAT, kinds.FLOATS):
        values = setting.floats[:n]
    elif setting.type in (kinds.STRING, kinds.STRINGS):
        values = [decoded(text) for text in setting.strings[:n]]
    else:
        return array_at(setting.data, shape_of(setting.dims), DType(setting.dtype))
    return values[0] if setting.type in (kinds.INT, kinds.FLOAT, kinds.STRING) else values


def _tensor_of(tensor: _c.trm_plugin_tensor, asks: bool) -> PluginTensor:
    """`asks`: the outputs of a call that asks for them are not there yet."""
    if asks:
        return PluginTensor(DType.NONE, ())
    dtype, shape = DType(tensor.dtype), shape_of(tensor.dims)
    values = None if not tensor.values else array_at(tensor.values, shape, dtype)
    return PluginTensor(dtype, shape, tensor.data or 0, values)


@dataclass
class _Plugin:
    """The functions of a plugin as the library calls them."""

    settings: dict[str, Any]
    infer: Callable[[PluginCall], Any]
    run: Callable[[PluginCall], None] | None
    cuda: CudaKernel | None
    callbacks: dict[str, Any] = field(default_factory=dict)
    fields: Any = None

    def __post_init__(self) -> None:
        self.fields = (_c.trm_plugin_field * max(1, len(self.settings)))(
            *[
                _c.trm_plugin_field(name=encoded(key), type=_type_of(value), required=_is_type(value))
                for key, value in self.settings.items()
            ]
        )
        self.defaults = {key: value for key, value in self.settings.items() if not _is_type(value)}
        self.callbacks = {
            "infer": _c.trm_plugin_function(lambda call: self.guarded(call, self.do_infer)),
            "run": _c.trm_plugin_function(lambda call: self.guarded(call, self.do_run)),
            "launch": _c.trm_plugin_launch_function(
                lambda call, launch: self.guarded(call, lambda c: self.do_launch(c, launch.contents))
            ),
        }

    def guarded(self, pointer: Any, function: Callable[[Any], None]) -> bool:
        """Turns an exception into the text of a failure."""
        call = pointer.contents
        try:
            function(call)
        except Exception as error:  # all of them: none may pass through the library
            text = f"{type(error).__name__}: {error}".encode("utf-8", "replace")[: call.error_size - 1]
            to = ctypes.c_void_p.from_buffer(call, type(call).error.offset)
            ctypes.memmove(to, text + b"\0", len(text) + 1)
            return False
        return True

    def call_of(self, call: Any, asks: bool = False) -> PluginCall:
        given = {decoded(s.name): _value_of(s) for s in call.settings[: call.n_settings]}
        tensors = call.inputs[: call.n_inputs]
        return PluginCall(
            self.defaults | given,
            [None if t.dtype == DType.NONE else _tensor_of(t, False) for t in tensors],
            [_tensor_of(t, asks) for t in call.outputs[: call.n_outputs]],
        )

    def do_infer(self, call: Any) -> None:
        found = self.infer(self.call_of(call, asks=True))
        outputs = found if isinstance(found, list) else [found]
        if len(outputs) != call.n_outputs:
            raise InvalidArgumentError(f"infer gave {len(outputs)} outputs, expected {call.n_outputs}")
        for i, (dtype, shape) in enumerate(outputs):
            call.outputs[i].dtype = dtype_of(dtype)
            call.outputs[i].dims = dims_of(shape)

    def do_run(self, call: Any) -> None:
        assert self.run is not None
        self.run(self.call_of(call))

    def do_launch(self, call: Any, to: Any) -> None:
        assert self.cuda is not None
        launch = self.cuda.launch(self.call_of(call))
        if len(launch.arguments) > _c.TRM_PLUGIN_MAX_ARGUMENTS:
            raise InvalidArgumentError(f"a kernel has {len(launch.arguments)} arguments")
        for axis in range(3):
            to.grid[axis] = launch.grid[axis] if axis < len(launch.grid) else 1
            to.block[axis] = launch.block[axis] if axis < len(launch.block) else 1
        to.shared_memory = launch.shared_memory
        to.n_arguments = len(launch.arguments)
        for i, argument in enumerate(launch.arguments):
            to.arguments[i] = int.from_bytes(_argument_bytes(argument), "little")


def _argument_bytes(argument: Any) -> bytes:
    """An argument at the beginning of 8 bytes; the rest is zeros, or the sign of an integer."""
    if argument is None:
        return bytes(8)
    if isinstance(argument, PluginTensor):
        return argument.address.to_bytes(8, "little")
    if isinstance(argument, bool | int | np.integer):
        return (int(argument) & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "little")
    if isinstance(argument, float) and not isinstance(argument, np.floating):
        argument = np.float32(argument)
    if isinstance(argument, np.generic) and argument.itemsize <= 8:
        return argument.tobytes().ljust(8, b"\0")
    raise InvalidArgumentError(f"{argument!r} cannot be an argument of a kernel")
