"""From a network to results: plans, engines and execution contexts.

network -> Plan.build (this rank's network and its memory) -> Engine (weights on the device) -> Context -> run
"""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _c, dlpack
from ._library import as_dict, decoded, dims_of, encoded, enum_value, lib, shape_of, sized, taken_text, weak_callback
from .dlpack import Borrowed, DeviceTensor
from .errors import InvalidArgumentError
from .handles import Handle
from .network import Network, Port, Shape, ports_of
from .tensors import Array, DType, address_of, array_at, contiguous, dtype_of, fits, numpy_dtype
from .world import MeshLike, World, default_world, mesh_of

# Called for every run.
_set_input, _run, _output = lib.trm_context_set_input, lib.trm_context_run, lib.trm_context_output

Path = str | os.PathLike[str]
Inputs = Mapping[str, Any]


@dataclass(frozen=True)
class Bound:
    """The shapes of an input or state in one optimization profile.

    max is the largest shape that runs may have; min and opt are the smallest and the usual ones. If the elements of an
    input decide shapes, *_values are its elements, as arrays of the shapes.
    """

    max: Shape
    min: Shape | None = None
    opt: Shape | None = None
    max_values: Any = None
    min_values: Any = None
    opt_values: Any = None


@dataclass(frozen=True)
class DebugTensor:
    """What a layer gave: the tensor's name, the layer, its kind and kernel, and the elements, of this rank's part."""

    name: str
    layer: str
    kind: str
    kernel: str
    dtype: DType
    data: Array


BoundLike = Bound | Shape
Profile = Mapping[str, BoundLike]


def _bounds(profiles: Sequence[Profile], network: Network) -> tuple[Any, int, list[Any]]:
    """An array of trm_shape_bound, its length, and what it points to."""
    kept: list[Any] = []
    made = []
    types = {port.name: port.dtype for port in network.inputs}
    for number, profile in enumerate(profiles):
        for name, bound in profile.items():
            if not isinstance(bound, Bound):
                bound = Bound(bound)
            one = _c.trm_shape_bound(tensor=encoded(name), max=dims_of(bound.max), profile=number)
            for field in ("min", "opt"):
                if (shape := getattr(bound, field)) is not None:
                    setattr(one, field, dims_of(shape))
            for field in ("max_values", "min_values", "opt_values"):
                if (values := getattr(bound, field)) is not None:
                    array = contiguous(np.asarray(values, numpy_dtype(types.get(name, DType.I64))), DType.I64)
                    kept.append(array)
                    setattr(one, field, array.ctypes.data)
            made.append(one)
    return (_c.trm_shape_bound * max(1, len(made)))(*made), len(made), kept


class Plan(Handle):
    """One rank's network and everything that was decided about it. An Engine takes it over."""

    @classmethod
    def build(
        cls,
        network: Network,
        profiles: Profile | Sequence[Profile] = (),
        *,
        backend: str = "auto",
        mesh: MeshLike = None,
        ranks: int = 1,
        rank: int = 0,
        allow_tf32: bool = False,
        max_aux_streams: int = 0,
        batch_invariant: bool = False,
        max_workspace: int = 0,
    ) -> Plan:
        """Partitions the network over a mesh of `ranks` ranks for `rank`, runs the passes and plans memory. Does not
        change the network. Needs no device and no other ranks, and decides the same on each.

        profiles: for each input with unknown sizes its largest shape or a Bound, by name; a sequence of such mappings
        for several optimization profiles. Other options are those of trm_build_options in engine.h.

        Errors: InvalidArgumentError (bounds, mesh), UnsupportedError (a layer without a kernel on this backend).
        """
        array, n, kept = _bounds([profiles] if isinstance(profiles, Mapping) else profiles, network)
        options = sized(
            _c.trm_build_options,
            backend=enum_value(_c.trm_backend, backend),
            mesh=mesh_of(mesh, ranks),
            rank=rank,
            bounds=array,
            n_bounds=n,
            allow_tf32=allow_tf32,
            max_aux_streams=max_aux_streams,
            batch_invariant=batch_invariant,
            max_workspace=max_workspace,
        )
        handle = ctypes.c_void_p()
        lib.trm_build(network.handle, options, handle)
        del kept
        return cls(handle.value, lib.trm_plan_destroy)

    @classmethod
    def load(cls, path: Path, rank: int = 0, *, weights: Path | None = None) -> Plan:
        """Reads the plan of a rank from a plan file; `weights`: an ONNX file or a folder of safetensors that gives it
        weights (a refit), as plans saved without weights need. Errors: FileError, InvalidModelError, UnsupportedError,
        InvalidArgumentError."""
        handle = ctypes.c_void_p()
        if weights is None:
            lib.trm_plan_load(encoded(os.fspath(path)), rank, handle)
        else:
            lib.trm_plan_refit(encoded(os.fspath(path)), rank, encoded(os.fspath(weights)), handle)
        return cls(handle.value, lib.trm_plan_destroy)

    def save(self, path: Path, *, weights: str = "referenced") -> None:
        """Writes the plan of a mesh of one rank; save_plans writes those of several."""
        save_plans([self], path, weights=weights)

    def set_weight_budget(self, budget: str) -> None:
        """How many weights stay on the device: "off" (all), "auto", "25%", "8G"; the others stream. Before the engine
        is made."""
        made = _c.trm_weight_budget()
        lib.trm_weight_budget_parse(encoded(budget), made)
        lib.trm_plan_set_weight_budget(self.handle, made)

    def tune(self, world: World | None = None, *, level: int = 0, cache: Path | None = None) -> None:
        """Times kernels for the plan's usual shapes on the device of a world, and keeps the choices in the plan. On the
        host there is nothing to choose. level: 0 to 5; cache: a timing cache file."""
        options = sized(_c.trm_tune_options, level=level, cache=None if cache is None else encoded(os.fspath(cache)))
        lib.trm_plan_tune(self.handle, (world or default_world()).handle, options)

    @property
    def info(self) -> dict[str, Any]:
        """The fields of trm_plan_info: backend, mesh, rank, n_profiles, refittable, ..."""
        info = _c.trm_plan_info()
        lib.trm_plan_get_info(self.handle, info)
        return as_dict(info)

    @property
    def memory(self) -> dict[str, int]:
        """Device bytes by use: weights, staging, state, activations, workspace, total."""
        memory = _c.trm_memory_plan()
        lib.trm_plan_memory(self.handle, memory)
        return as_dict(memory)

    @property
    def streaming(self) -> dict[str, Any]:
        """What the weight budget means: the fields of trm_streaming_info."""
        info = _c.trm_streaming_info()
        lib.trm_plan_streaming(self.handle, info)
        return as_dict(info)

    @property
    def weights(self) -> list[Port]:
        """The weights that this rank uses, by the names that a refit takes."""
        found: list[Port] = []

        def take(user: Any, name: bytes, dtype: int, dims: Any) -> None:
            found.append(Port(decoded(name), DType(dtype), shape_of(dims[0])))

        lib.trm_plan_for_weights(self.handle, _c.trm_weight_fn(take), None)
        return found

    @property
    def inputs(self) -> list[Port]:
        return ports_of(lib.trm_plan_network(self.handle))[0]

    @property
    def outputs(self) -> list[Port]:
        return ports_of(lib.trm_plan_network(self.handle))[1]

    def to_json(self) -> str:
        """Layers, tensors, memory and collectives as JSON."""
        return taken_text(lib.trm_plan_to_json(self.handle))

    def __str__(self) -> str:
        """The rank's network as text."""
        return taken_text(lib.trm_plan_to_text(self.handle))


def save_plans(plans: Sequence[Plan], path: Path, *, weights: str = "referenced") -> None:
    """Writes the plans of all ranks of a mesh, built with the same options, to one file.

    weights: "referenced" (they stay in their files), "embedded", "stripped" (Plan.load gets them). Errors:
    InvalidArgumentError, FileError, OutOfMemoryError.
    """
    handles = (ctypes.c_void_p * max(1, len(plans)))(*[plan.handle for plan in plans])
    kind = enum_value(_c.trm_plan_weights, weights)
    lib.trm_plan_save(handles, len(plans), kind, encoded(os.fspath(path)))


class Engine(Handle):
    """A plan with its weights on the device of a world.

    Takes the plan over, also if it fails. `world`: None for the default one, which closes when the process ends.
    `progress` is called while weights load, with the bytes loaded and in total. Collective: if one rank fails, all do.
    Errors: InvalidArgumentError (the plan is for another rank, mesh or backend), OutOfMemoryError, FileError,
    InvalidModelError.

    Several threads may read an engine, each through a context of its own.
    """

    def __init__(
        self, plan: Plan, world: World | None = None, *, progress: Callable[[int, int], None] | None = None
    ) -> None:
        self.world = world or default_world()
        self.inputs, self.outputs = ports_of(lib.trm_plan_network(plan.handle))
        self._own_context: Context | None = None
        handle = ctypes.c_void_p()
        report = progress_callback(progress)
        lib.trm_engine_create(plan._give_away(), self.world.handle, report, None, handle)
        super().__init__(handle.value, lib.trm_engine_destroy, self.world)

    @classmethod
    def from_onnx(
        cls,
        path: Path,
        profiles: Profile | Sequence[Profile] = (),
        *,
        world: World | None = None,
        mesh: MeshLike = None,
        onnx: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Engine:
        """Builds and loads the network of an ONNX file. `onnx`: options of OnnxModel.build_network; other options are
        those of Plan.build."""
        world = world or default_world()
        with Network.from_onnx(path, **{"ranks": world.size, **(onnx or {})}) as network:
            plan = Plan.build(
                network, profiles, backend=world.backend, mesh=mesh, ranks=world.size, rank=world.rank, **options
            )
        return cls(plan, world)

    @classmethod
    def from_network(
        cls,
        network: Network,
        profiles: Profile | Sequence[Profile] = (),
        *,
        world: World | None = None,
        mesh: MeshLike = None,
        **options: Any,
    ) -> Engine:
        """Builds and loads a network; options are those of Plan.build."""
        world = world or default_world()
        plan = Plan.build(
            network, profiles, backend=world.backend, mesh=mesh, ranks=world.size, rank=world.rank, **options
        )
        return cls(plan, world)

    @classmethod
    def from_plan(cls, path: Path, *, world: World | None = None, weights: Path | None = None) -> Engine:
        """Loads this rank's plan from a plan file; see Plan.load."""
        world = world or default_world()
        return cls(Plan.load(path, world.rank, weights=weights), world)

    def create_context(self, *, device_outputs: bool = False) -> Context:
        """A context with activations and state of its own. device_outputs: runs give DeviceTensors instead of arrays,
        without copies to the host."""
        return Context(self, device_outputs=device_outputs)

    def run(self, inputs: Inputs | None = None, outputs: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Context.run of a context that the engine keeps. One thread at a time."""
        if self._own_context is None or self._own_context.closed:
            self._own_context = self.create_context()
        return self._own_context.run(inputs, outputs)

    def refit(self, weights: Mapping[str, Any] | Path) -> None:
        """Gives a refittable engine new weights between runs: whole arrays by name, or all weights of an ONNX file or a
        folder of safetensors. Contexts stay valid. Not collective: call it on every rank. Errors: InvalidArgumentError
        (not refittable, no such weight, another type or shape), FileError."""
        if not isinstance(weights, Mapping):
            lib.trm_engine_refit_from(self.handle, encoded(os.fspath(weights)))
            return
        for name, value in weights.items():
            array = contiguous(value, DType.F32)
            lib.trm_engine_refit(
                self.handle, encoded(name), dtype_of(array.dtype), dims_of(array.shape), array.ctypes.data
            )

    def set_weight_budget(self, size: int) -> None:
        """Changes how many bytes of the streamable weights stay on the device, between runs. The plan had a budget."""
        lib.trm_engine_set_weight_budget(self.handle, size)

    @property
    def streaming(self) -> dict[str, Any]:
        """The fields of trm_streaming_info."""
        info = _c.trm_streaming_info()
        lib.trm_engine_streaming(self.handle, info)
        return as_dict(info)


class _Input:
    """An input of a context: what a call needs, and the dims of the last call."""

    __slots__ = ("dims", "dtype", "name", "numpy", "shape", "text")

    def __init__(self, port: Port) -> None:
        self.text, self.name, self.dtype = port.name, encoded(port.name), port.dtype
        self.numpy = numpy_dtype(port.dtype)
        self.shape: tuple[int, ...] | None = None
        self.dims = _c.trm_dims()

    def dims_for(self, shape: tuple[int, ...]) -> _c.trm_dims:
        if shape != self.shape:
            self.dims, self.shape = dims_of(shape), shape
        return self.dims


class _Output:
    """An output of a context, with a view of the memory that the last run left it in."""

    __slots__ = ("data", "dims", "dtype", "name", "seen", "text", "view")

    def __init__(self, port: Port) -> None:
        self.text, self.name, self.dtype = port.name, encoded(port.name), port.dtype
        self.dims, self.data = _c.trm_dims(), ctypes.c_void_p()
        self.seen: tuple[int | None, bytes] | None = None
        self.view: Array = np.empty(0)


class Context(Handle):
    """Activations and state of an engine's runs. One thread at a time uses a context.

    With one rank, several contexts of an engine may run on threads of their own: the interpreter's lock is released
    while the library works. With several ranks they run on one thread, in the same order on every rank.

    Inputs are arrays of the input's type, or anything that NumPy makes one of; tensors of torch, cupy and others by
    DLPack: those in GPU memory are read where they lie, and work of their stream that makes them is waited for.
    """

    def __init__(self, engine: Engine, *, device_outputs: bool = False) -> None:
        handle = ctypes.c_void_p()
        lib.trm_context_create(engine.handle, handle)
        super().__init__(handle.value, lib.trm_context_destroy, engine)
        self.engine = engine
        self._inputs = {port.name: _Input(port) for port in engine.inputs}
        self._outputs = {port.name: _Output(port) for port in engine.outputs}
        self._held: dict[str, Borrowed] = {}  # tensors that inputs are bound to
        self._bound: dict[str, Array | Borrowed] = {}  # what outputs are bound to
        self._copied: dict[str, Array] = {}  # host arrays that outputs are copied to
        self._made: dict[str, DeviceTensor] = {}  # by the output allocator in this run
        self._running = False
        self._device_outputs = device_outputs
        self._failure: BaseException | None = None  # of a callback
        self._shown_to: Callable[[DebugTensor], Any] | None = None
        if device_outputs:
            self._allocator = weak_callback(_c.trm_output_allocate_fn, self._allocate)
            lib.trm_context_set_output_allocator(self.handle, self._allocator, None)

    # ---- inputs ----

    def set_input(self, name: str, value: Any) -> None:
        """Sets an input until it is set again. Host memory is copied; GPU memory is read by runs, and kept until then.
        Errors: InvalidArgumentError (no such input, another type, a shape outside of the plan's bounds)."""
        try:
            slot = self._inputs[name]
        except KeyError:
            raise InvalidArgumentError(f"no input {name}; inputs: {', '.join(self._inputs)}") from None
        if type(value) is not np.ndarray:
            if hasattr(value, "__dlpack__") and not isinstance(value, (np.ndarray, np.generic)):
                self._set_borrowed(slot, Borrowed(value, self._stream_for(value)))
                return
            value = contiguous(value, slot.dtype)
        elif not value.flags.c_contiguous:
            value = contiguous(value, slot.dtype)
        if value.dtype != slot.numpy and not fits(value, slot.dtype):
            raise InvalidArgumentError(f"input {name} has type {value.dtype}, expected {slot.dtype.name.lower()}")
        _set_input(self._handle, slot.name, slot.dims_for(value.shape), address_of(value))
        if self._held:
            self._held.pop(name, None)

    def _set_borrowed(self, slot: _Input, tensor: Borrowed) -> None:
        if tensor.dtype != slot.dtype:
            raise InvalidArgumentError(
                f"input {slot.text} has type {tensor.dtype.name.lower()}, expected {slot.dtype.name.lower()}"
            )
        dims = slot.dims_for(tensor.shape)
        if tensor.device == dlpack.CUDA:
            self._check_gpu(f"input {slot.text}", tensor)
            lib.trm_context_bind_input(self._handle, slot.name, dims, tensor.address)
            self._held[slot.text] = tensor
        else:
            lib.trm_context_set_input(self._handle, slot.name, dims, tensor.address)
            self._held.pop(slot.text, None)

    def _check_gpu(self, what: str, tensor: Borrowed) -> None:
        own = self.engine.world.gpu
        if tensor.gpu != own - 1:
            where = f"GPU {own - 1}" if own > 0 else "the host"
            raise InvalidArgumentError(f"{what} is on GPU {tensor.gpu}, expected {where}")

    def _stream_for(self, value: Any) -> int | None:
        return self.stream if int(value.__dlpack_device__()[0]) == dlpack.CUDA else None

    # ---- outputs ----

    def _bind_outputs(self, outputs: Mapping[str, Any]) -> None:
        for name in [name for name in self._bound if name not in outputs]:
            lib.trm_context_bind_output(self._handle, self._outputs[name].name, None, 0)
            del self._bound[name]
        self._copied = {}
        for name, target in outputs.items():
            if name not in self._outputs:
                raise InvalidArgumentError(f"no output {name}; outputs: {', '.join(self._outputs)}")
            self._bind_output(self._outputs[name], target)

    def _bind_output(self, slot: _Output, target: Any) -> None:
        """Lets runs write to a target, or, if it is host memory and the device another, has it copied there."""
        on_host = self.engine.world.gpu == 0
        kept: Array | Borrowed
        if isinstance(target, np.ndarray):
            kept, read_only = target, not target.flags.writeable
            direct, array = on_host and target.flags.c_contiguous, target
            matches, kind = fits(target, slot.dtype), str(target.dtype)
        else:
            kept = tensor = Borrowed(target, self._stream_for(target))
            read_only, direct = tensor.read_only, on_host or tensor.device == dlpack.CUDA
            matches, kind = tensor.dtype == slot.dtype, tensor.dtype.name.lower()
            if tensor.device == dlpack.CUDA:
                self._check_gpu(f"output {slot.text}", tensor)
            else:
                array = array_at(tensor.address, tensor.shape, tensor.dtype, tensor)
        if not matches or read_only:
            raise InvalidArgumentError(
                f"the target of output {slot.text} has type {kind}{' and is read-only' if read_only else ''}, expected "
                f"{slot.dtype.name.lower()}"
            )
        if direct:
            address = address_of(kept) if isinstance(kept, np.ndarray) else kept.address
            size = math.prod(kept.shape) * int(lib.trm_dtype_size(slot.dtype))
            lib.trm_context_bind_output(self._handle, slot.name, address, size)
            self._bound[slot.text] = kept
        elif self._device_outputs:
            raise InvalidArgumentError(
                f"the target of output {slot.text} is not on the device, where the outputs of this context stay"
            )
        else:
            self._copied[slot.text] = array

    def _allocate(self, user: Any, name: bytes, dims: Any, size: int) -> int | None:
        text = decoded(name)
        try:
            tensor = DeviceTensor(self.engine.world, shape_of(dims[0]), self._outputs[text].dtype)
        except BaseException as error:
            self._failure = error
            return None
        tensor._written_by = self
        self._made[text] = tensor
        return tensor.handle

    def _results(self, outputs: Mapping[str, Any] | None) -> dict[str, Any]:
        found: dict[str, Any] = {}
        plain = not (outputs or self._made)
        for name, slot in self._outputs.items():
            _output(self._handle, slot.name, slot.dims, slot.data)
            if plain:
                found[name] = self._view(slot).copy()
            elif outputs and name in outputs:
                found[name] = outputs[name]
                self._check_shape(name, slot)
            elif name in self._made:
                tensor = self._made.pop(name)
                tensor._written_by = None
                found[name] = tensor
            else:
                found[name] = self._view(slot).copy()
        return found

    def _check_shape(self, name: str, slot: _Output) -> None:
        shape = shape_of(slot.dims)
        target = self._copied.get(name)
        expected = (self._bound[name] if target is None else target).shape
        if shape != expected:
            raise InvalidArgumentError(f"output {name} has shape {list(shape)}, its target {list(expected)}")
        if target is not None:
            np.copyto(target, self._view(slot).view(target.dtype))

    @staticmethod
    def _view(slot: _Output) -> Array:
        seen = (slot.data.value, bytes(slot.dims))
        if seen != slot.seen:
            slot.view = array_at(slot.data.value or 0, shape_of(slot.dims), slot.dtype)
            slot.seen = seen
        return slot.view

    # ---- runs ----

    def run(self, inputs: Inputs | None = None, outputs: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Sets inputs, runs the network and returns all outputs by name.

        Outputs are arrays of their own, or DeviceTensors (create_context). `outputs` gives targets for some: arrays, or
        tensors of torch, cupy and others, whose device memory runs write directly; the shapes must be those of the
        results. Inputs that were set before may be left out. Collective over the ranks of the plan.
        """
        self._begin(inputs, outputs)
        try:
            _run(self._handle)
        except Exception:
            self._fail()
            raise
        return self._results(outputs)

    def start(self, inputs: Inputs | None = None, outputs: Mapping[str, Any] | None = None) -> None:
        """Begins a run on the context's stream. `finish` waits for it; set no inputs in between."""
        self._begin(inputs, outputs)
        try:
            lib.trm_context_start(self._handle)
        except Exception:
            self._fail()
            raise
        self._running, self._targets = True, outputs

    def finish(self) -> dict[str, Any]:
        """Waits for the run that `start` began and returns its outputs as `run` does."""
        self._running = False
        try:
            lib.trm_context_finish(self._handle)
        except Exception:
            self._fail()
            raise
        return self._results(self._targets)

    _targets: Mapping[str, Any] | None = None

    def _begin(self, inputs: Inputs | None, outputs: Mapping[str, Any] | None) -> None:
        if self._running:
            raise InvalidArgumentError("a run was started: finish it first")
        if inputs:
            for name, value in inputs.items():
                self.set_input(name, value)
        if outputs or self._bound or self._copied:
            self._bind_outputs(outputs or {})

    def _fail(self) -> None:
        self._made.clear()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def reset(self) -> None:
        """Sets all states to zero. Inputs stay set."""
        lib.trm_context_reset(self._handle)

    def set_capture(self, on: bool = True) -> None:
        """CUDA: runs after the first of the same shapes are launched as one CUDA graph."""
        lib.trm_context_set_capture(self._handle, on)

    def set_profile(self, profile: int) -> None:
        """Restricts runs to one optimization profile; -1: any."""
        lib.trm_context_set_optimization_profile(self._handle, profile)

    def warm_up(self) -> None:
        """Runs the shapes of the profiles with zeros, so that later runs find their kernels prepared. Set all inputs
        again afterwards."""
        lib.trm_context_warm_up(self._handle)

    def tune(self, *, level: int = 0, cache: Path | None = None) -> None:
        """Times kernels for the inputs that are set; see Plan.tune."""
        options = sized(_c.trm_tune_options, level=level, cache=None if cache is None else encoded(os.fspath(cache)))
        lib.trm_context_tune(self._handle, options)

    @property
    def stream(self) -> int | None:
        """The address of the CUDA stream that runs use; None on the host."""
        return lib.trm_context_stream(self.handle)  # type: ignore[no-any-return]

    def set_debug(self, callback: Callable[[DebugTensor], Any] | None) -> None:
        """Calls `callback` for every output of every layer that is left after the passes, in the order in which layers
        run; None: no longer. Such runs wait for every layer. What the callback raises ends the run. Mark a tensor as an
        output to keep it through all passes."""
        self._shown_to = callback
        shows = weak_callback(_c.trm_debug_fn, self._show) if callback is not None else _c.trm_debug_fn()
        lib.trm_context_set_debug(self.handle, shows, None)
        self._shows = shows  # the library no longer has the one before

    def _show(self, user: Any, tensor: Any) -> bool:
        one = tensor[0]
        dtype = DType(one.dtype)
        data = array_at(one.data or 0, shape_of(one.dims), dtype).copy()
        kind = decoded(lib.trm_layer_kind_name(one.kind))
        assert self._shown_to is not None
        try:
            self._shown_to(DebugTensor(decoded(one.name), decoded(one.layer), kind, decoded(one.kernel), dtype, data))
        except BaseException as error:
            self._failure = error
            return False
        return True

    def set_timing(self, on: bool = True) -> None:
        """Whether runs are timed; see `times`."""
        lib.trm_context_set_timing(self._handle, on)

    @property
    def times(self) -> dict[str, float]:
        """Milliseconds of the last run: upload, compute, download, enqueue."""
        times = _c.trm_run_times()
        lib.trm_context_times(self._handle, times)
        return as_dict(times)

    def set_layer_timing(self, on: bool = True) -> None:
        """Whether each layer of runs is timed; see `layer_times`."""
        lib.trm_context_set_layer_timing(self._handle, on)

    @property
    def layer_times(self) -> list[dict[str, Any]]:
        """For each layer, in order: layer, kind, kernel, mean milliseconds and number of runs."""
        found: list[dict[str, Any]] = []

        def take(user: Any, layer: bytes, kind: int, kernel: bytes, milliseconds: float, runs: int) -> None:
            found.append(
                {
                    "layer": decoded(layer),
                    "kind": decoded(lib.trm_layer_kind_name(kind)),
                    "kernel": decoded(kernel),
                    "milliseconds": milliseconds,
                    "runs": runs,
                }
            )

        lib.trm_context_layer_times(self.handle, _c.trm_layer_time_fn(take), None)
        return found


def progress_callback(progress: Callable[[int, int], None] | None) -> Any:
    """A trm_progress_fn that calls `progress`, or NULL. The caller keeps it while the library may call it."""
    if progress is None:
        return _c.trm_progress_fn()
    return _c.trm_progress_fn(lambda user, done, total: progress(done, total))
