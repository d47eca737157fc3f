"""Networks: from an ONNX file, or layer by layer."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import _c
from ._library import as_dict, decoded, dims_of, encoded, enum_value, lib, shape_of, sized, taken_text
from .errors import InvalidArgumentError
from .handles import Handle
from .plugins import layer_number
from .tensors import Array, DType, array_at, contiguous, dtype_of, fits

Shape = Sequence[int | None]

# The parameters of these kinds have another name than the kind (layers.h).
_PARAMS = {
    "deconvolution": "convolution",
    "dequantize": "quantize",
    "dist_collective": "collective",
    "if": "branch",
    "next": "recurrence",
}


@dataclass(frozen=True)
class Port:
    """An input or output: name, type, and shape with -1 for sizes that are unknown until a run."""

    name: str
    dtype: DType
    shape: tuple[int, ...]


class Tensor:
    """A tensor of a network. It lives as long as the network. +, -, *, / and @ add the layers for them."""

    __slots__ = ("network", "pointer")

    def __init__(self, network: Network, pointer: int) -> None:
        self.network = network
        self.pointer = pointer

    def _read(self, call: Any) -> Any:
        self.network.handle  # noqa: B018 - a closed network has no tensors
        return call(self.pointer)

    @property
    def name(self) -> str:
        return decoded(self._read(lib.trm_tensor_name))

    @property
    def dtype(self) -> DType:
        return DType(self._read(lib.trm_tensor_dtype))

    @property
    def shape(self) -> tuple[int, ...]:
        """-1: unknown until a run."""
        return shape_of(self._read(lib.trm_tensor_dims))

    def __repr__(self) -> str:
        return f"<Tensor {self.name}: {self.dtype.name.lower()} {list(self.shape)}>"

    def __add__(self, other: Tensor) -> Tensor:
        return self.network.elementwise("add", self, other)

    def __sub__(self, other: Tensor) -> Tensor:
        return self.network.elementwise("sub", self, other)

    def __mul__(self, other: Tensor) -> Tensor:
        return self.network.elementwise("mul", self, other)

    def __truediv__(self, other: Tensor) -> Tensor:
        return self.network.elementwise("div", self, other)

    def __matmul__(self, other: Tensor) -> Tensor:
        return self.network.matmul(self, other)


class Network(Handle):
    """A network of typed layers. One thread at a time uses it.

    Every call checks shapes and types at once and leaves the network unchanged if it fails. Names that are taken get
    ".1", ".2", ... appended; without a name a tensor has that of its layer kind.
    """

    def __init__(self, handle: int | None = None) -> None:
        if handle is None:
            made = ctypes.c_void_p()
            lib.trm_network_create(made)
            handle = made.value
        super().__init__(handle, lib.trm_network_destroy)

    @classmethod
    def from_onnx(cls, path: str | os.PathLike[str], **options: Any) -> Network:
        """The network of an ONNX file; options as for OnnxModel.build_network."""
        with OnnxModel(path) as model:
            return model.build_network(**options)

    def add_input(
        self, name: str, shape: Shape, dtype: Any = "f32", dim_names: Mapping[int, str] | None = None
    ) -> Tensor:
        """A tensor that each run sets. Sizes of -1 or None may differ from run to run; those of one name, given by
        axis in `dim_names`, are equal in every run."""
        pointer = ctypes.c_void_p()
        lib.trm_network_add_input(self.handle, encoded(name), dtype_of(dtype), dims_of(shape), pointer)
        for axis, dim_name in (dim_names or {}).items():
            lib.trm_network_name_dim(self.handle, pointer, axis, encoded(dim_name))
        return self._tensor(pointer.value)

    def add_constant(self, name: str, value: Any, dtype: Any = None) -> Tensor:
        """A constant with the elements of an array, which are copied; `dtype`: None for that of the array."""
        kind = dtype_of(value.dtype if dtype is None and hasattr(value, "dtype") else dtype or "f32")
        array = contiguous(value, kind)
        if not fits(array, kind):
            raise InvalidArgumentError(f"constant {name} has type {array.dtype}, expected {kind.name.lower()}")
        pointer = ctypes.c_void_p()
        lib.trm_network_add_constant(self.handle, encoded(name), kind, dims_of(array.shape), array.ctypes.data, pointer)
        return self._tensor(pointer.value)

    def add_state(self, name: str, shape: Shape, dtype: Any = "f32") -> Tensor:
        """Memory of a context that layers may update, such as a KV cache; zero at first."""
        pointer = ctypes.c_void_p()
        lib.trm_network_add_state(self.handle, encoded(name), dtype_of(dtype), dims_of(shape), pointer)
        return self._tensor(pointer.value)

    def add_layer(self, kind: str, *inputs: Tensor | None, name: str | None = None, **params: Any) -> list[Tensor]:
        """Adds a layer and returns its outputs in order.

        kind: "matmul", "convolution", ... ; inputs: None for optional ones that are not given; params: the fields of
        the kind's parameters, all as include/trireme/layers/ documents them. Enums are given by name ("relu"), dims
        and arrays as sequences. Fields that are not given are 0. Error: InvalidArgumentError, with what was found and
        what was expected.
        """
        desc = _c.trm_layer_desc(kind=enum_value(_c.trm_layer_kind, kind))
        lower = _c.trm_layer_kind(desc.kind).name.lower()
        if params:
            field = _PARAMS.get(lower, lower)
            if not hasattr(desc.params, field):
                raise InvalidArgumentError(f"layers of kind {lower} have no parameters")
            _fill(getattr(desc.params, field), params, lower)
        pointers = (ctypes.c_void_p * max(1, len(inputs)))(*[None if t is None else t.pointer for t in inputs])
        outputs = (ctypes.c_void_p * _c.TRM_MAX_LAYER_OUTPUTS)()
        lib.trm_network_add_layer(self.handle, encoded(name or lower), desc, pointers, len(inputs), outputs)
        return [self._tensor(pointer) for pointer in outputs if pointer]

    def add_plugin(
        self,
        plugin: str,
        *inputs: Tensor | None,
        name: str | None = None,
        version: int = 2**31 - 1,
        **settings: Any,
    ) -> list[Tensor]:
        """A layer of the newest loaded plugin "domain.Name" that is not newer than `version`; its outputs."""
        domain, _, kind = plugin.rpartition(".")
        layer = layer_number(domain, kind, version, settings)
        return self.add_layer("plugin", *inputs, name=name or kind, layer=layer)

    def matmul(
        self, a: Tensor, b: Tensor, bias: Tensor | None = None, *, transpose_b: bool = False, name: str = "matmul"
    ) -> Tensor:
        """a [..., M, K] times b [..., K, N], or with transpose_b b [..., N, K], plus bias [N]."""
        return self.add_layer("matmul", a, b, *([] if bias is None else [bias]), name=name, transpose_b=transpose_b)[0]

    def elementwise(self, op: str, a: Tensor, b: Tensor, *, name: str | None = None) -> Tensor:
        """a and b, broadcast as in NumPy; op: "add", "sub", "mul", "div", "min", "max", "pow", ..."""
        return self.add_layer("elementwise", a, b, name=name or op, op=op)[0]

    def activation(self, kind: str, x: Tensor, *, name: str | None = None) -> Tensor:
        """ "relu", "silu", "gelu", "sigmoid", "tanh", ... of x."""
        return self.add_layer("unary", x, name=name or kind, op="activation", activation=kind)[0]

    def reshape(self, x: Tensor, shape: Shape, *, name: str = "reshape") -> Tensor:
        """x under another shape: 0 copies the size at that position, one -1 follows from the others."""
        return self.add_layer("reshape", x, name=name, dims=shape)[0]

    def mark_output(self, tensor: Tensor) -> None:
        """Makes a tensor an output of the network; outputs keep this order."""
        lib.trm_network_mark_output(self.handle, tensor.pointer)

    def pin(self, tensor: Tensor, sharding: str | None) -> None:
        """Fixes how a tensor is split over ranks: "replicate" or "split <axis>"; None lets the partitioner choose."""
        lib.trm_network_pin(self.handle, tensor.pointer, encoded(sharding))

    def find(self, name: str) -> Tensor | None:
        """The tensor of a name, or None."""
        pointer = lib.trm_network_find_tensor(self.handle, encoded(name))
        return self._tensor(pointer) if pointer else None

    @property
    def inputs(self) -> list[Port]:
        return ports_of(self.handle)[0]

    @property
    def outputs(self) -> list[Port]:
        return ports_of(self.handle)[1]

    def __len__(self) -> int:
        """Number of layers."""
        return int(lib.trm_network_layer_count(self.handle))

    def __str__(self) -> str:
        """The network as text, one line per tensor or layer."""
        return taken_text(lib.trm_network_to_text(self.handle))

    def _tensor(self, pointer: int | None) -> Tensor:
        assert pointer
        return Tensor(self, pointer)


def ports_of(network: int) -> tuple[list[Port], list[Port]]:
    """Inputs and outputs of the network at an address."""

    def port(tensor: int) -> Port:
        return Port(
            decoded(lib.trm_tensor_name(tensor)),
            DType(lib.trm_tensor_dtype(tensor)),
            shape_of(lib.trm_tensor_dims(tensor)),
        )

    return (
        [port(lib.trm_network_input(network, i)) for i in range(lib.trm_network_input_count(network))],
        [port(lib.trm_network_output(network, i)) for i in range(lib.trm_network_output_count(network))],
    )


def _fill(struct: Any, values: Mapping[str, Any], owner: str) -> None:
    enums: Mapping[str, Any] = getattr(struct, "enums", {})
    known = {name: kind for name, kind in struct._fields_}
    for name, value in values.items():
        if name not in known:
            raise InvalidArgumentError(f"layers of kind {owner} have no parameter {name}, only {', '.join(known)}")
        kind = known[name]
        if kind is _c.trm_dims:
            setattr(struct, name, dims_of(value))
        elif name in enums:
            setattr(struct, name, int(dtype_of(value)) if enums[name] is DType else enum_value(enums[name], value))
        elif issubclass(kind, ctypes.Array):
            given = list(value)
            if len(given) > kind._length_:
                raise InvalidArgumentError(
                    f"{name} of {owner} has {len(given)} entries, expected at most {kind._length_}"
                )
            # Of the arrays only the activations of recurrent layers are enums.
            setattr(struct, name, kind(*[enum_value(_c.trm_recurrent_activation, v) for v in given]))
        else:
            setattr(struct, name, value)


class OnnxModel(Handle):
    """An ONNX file: inputs, outputs, operators, what cannot be imported, and its network.

    The weights stay in the file, which is mapped. One thread at a time uses it; networks may outlive it. Errors:
    FileError, InvalidModelError.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        handle = ctypes.c_void_p()
        lib.trm_onnx_open(encoded(os.fspath(path)), handle)
        super().__init__(handle.value, lib.trm_onnx_close)

    @property
    def info(self) -> dict[str, Any]:
        """The fields of trm_onnx_info: path, producer, opset, nodes, parameters, ..."""
        info = _c.trm_onnx_info()
        lib.trm_onnx_get_info(self.handle, info)
        return as_dict(info)

    @property
    def inputs(self) -> list[Port]:
        """As the file declares them: shape () also where it gives none."""
        return [_onnx_port(port) for port in self._list(_c.trm_onnx_port, lib.trm_onnx_get_input)]

    @property
    def outputs(self) -> list[Port]:
        return [_onnx_port(port) for port in self._list(_c.trm_onnx_port, lib.trm_onnx_get_output)]

    @property
    def defaults(self) -> list[Port]:
        """Inputs with a default: constants of the network unless `shapes` or `values` of build_network has them."""
        return [_onnx_port(port) for port in self._list(_c.trm_onnx_port, lib.trm_onnx_get_default)]

    @property
    def operators(self) -> list[dict[str, Any]]:
        """The operators that the model uses: domain, op, opset, nodes, and whether the importer knows them."""
        return [as_dict(use) for use in self._list(_c.trm_onnx_use, lib.trm_onnx_get_use)]

    @property
    def issues(self) -> list[str]:
        """One line for each problem that the last build_network found."""
        return [decoded(issue.text) for issue in self._list(_c.trm_onnx_issue, lib.trm_onnx_get_issue)]

    def _list(self, kind: Any, get: Any) -> list[Any]:
        found: list[Any] = []
        while True:
            one = kind()
            if not get(self.handle, len(found), one):
                return found
            found.append(one)

    def build_network(
        self,
        *,
        values: Mapping[str, Any] | None = None,
        dims: Mapping[str, int] | None = None,
        shapes: Mapping[str, Shape] | None = None,
        types: Mapping[str, Any] | None = None,
        refittable: bool = False,
        max_trips: int = 0,
        ranks: int = 1,
    ) -> Network:
        """Builds the network of the main graph.

        - values: arrays for inputs that become constants.
        - dims: sizes for dimensions that the file names, such as {"batch": 4}.
        - shapes: shapes for inputs that the file leaves open, and for those of `defaults` that runs set.
        - types: other types for inputs and outputs, such as {"x": "f16"}.
        - refittable: a refit may give new weights (Engine.refit), which costs some fusions.
        - max_trips: unroll loops of unknown length to this many passes; 0: keep them as loops.
        - ranks: of the world that the network is for, if it has DistCollective nodes.

        Errors: UnsupportedError, InvalidModelError (the first of `issues`), InvalidArgumentError.
        """
        kept: list[Any] = []  # what the options point to

        def array_of(kind: Any, entries: list[Any]) -> Any:
            made = (kind * max(1, len(entries)))(*entries)
            kept.append(made)
            return made

        fixed = []
        declared = {port.name: port.dtype for port in [*self.inputs, *self.defaults]}
        for name, value in (values or {}).items():
            array = contiguous(value, declared.get(name) or DType.F32)
            kept.append(array)
            fixed.append((encoded(name), dtype_of(array.dtype), dims_of(array.shape), array.ctypes.data))
        options = sized(
            _c.trm_onnx_options,
            values=array_of(_c.trm_onnx_fixed_value, fixed),
            n_values=len(fixed),
            dims=array_of(_c.trm_onnx_named_dim, [(encoded(n), size) for n, size in (dims or {}).items()]),
            n_dims=len(dims or {}),
            inputs=array_of(
                _c.trm_onnx_input_dims, [(encoded(n), dims_of(shape)) for n, shape in (shapes or {}).items()]
            ),
            n_inputs=len(shapes or {}),
            types=array_of(_c.trm_onnx_port_type, [(encoded(n), dtype_of(kind)) for n, kind in (types or {}).items()]),
            n_types=len(types or {}),
            refittable=refittable,
            max_trips=max_trips,
            n_ranks=ranks,
        )
        handle = ctypes.c_void_p()
        lib.trm_onnx_build_network(self.handle, options, handle)
        return Network(handle.value)


def _onnx_port(port: _c.trm_onnx_port) -> Port:
    return Port(decoded(port.name), DType(port.dtype), shape_of(port.dims) if port.has_dims else ())


def read_onnx_tensor(path: str | os.PathLike[str]) -> Array:
    """The array in a file of ONNX's test data, a TensorProto. Errors: FileError, InvalidModelError,
    UnsupportedError."""
    values = ctypes.POINTER(_c.trm_onnx_fixed_value)()
    count = ctypes.c_int32()
    lib.trm_onnx_read_value(encoded(os.fspath(path)), None, values, count)
    try:
        value = values[0]
        return array_at(value.data or 0, shape_of(value.dims), DType(value.dtype)).copy()
    finally:
        lib.trm_free(ctypes.cast(values, ctypes.c_void_p))
