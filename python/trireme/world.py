"""The ranks of a job: this process as one of them, and meshes."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from . import _c
from ._library import decoded, encoded, enum_value, lib, sized
from .dlpack import DeviceTensor
from .errors import InvalidArgumentError
from .handles import Handle
from .tensors import Array, dtype_of

MeshLike = str | Mapping[str, int] | None


def mesh_of(mesh: MeshLike, ranks: int) -> _c.trm_mesh:
    """A mesh given as "tp=2,pp=2" or {"tp": 2, "pp": 2}; None puts all ranks on tp. Error: InvalidArgumentError."""
    if isinstance(mesh, Mapping):
        mesh = ",".join(f"{axis}={size}" for axis, size in mesh.items())
    made = _c.trm_mesh()
    lib.trm_mesh_parse(encoded(mesh), ranks, made)
    return made


class World(Handle):
    """The ranks of a job, and the device of this one.

    A process that mpirun, srun or torchrun started is one rank of its job; any other process is a world of one rank.
    Opening is collective. One thread at a time uses a world, and a process can join a world of several ranks only once.

    - backend: "auto" (CUDA if there is a GPU that this build can use), "host" or "cuda".
    - gpu: the number of the GPU, from 1; 0: by the rank's place on its machine.
    - threads: host threads of this rank; 0: its share of the CPUs.
    - deadline: seconds after which a collective call gives up; 0: TRIREME_DEADLINE, else 60.
    - bind: bind the process near its GPU, or to its share of the cores.

    Errors: InvalidArgumentError, NoDeviceError, LostRankError.
    """

    def __init__(
        self, backend: str = "auto", *, gpu: int = 0, threads: int = 0, deadline: float = 0.0, bind: bool = True
    ) -> None:
        options = sized(
            _c.trm_world_options,
            backend=enum_value(_c.trm_backend, backend),
            gpu=gpu,
            threads=threads,
            deadline_seconds=deadline,
            no_bind=not bind,
        )
        handle = ctypes.c_void_p()
        lib.trm_world_open(options, handle)
        super().__init__(handle.value, lib.trm_world_close)
        self.gpu = int(lib.trm_world_gpu(self.handle))
        """The number of this rank's GPU, from 1 (torch counts from 0); 0 on the host."""

    @property
    def rank(self) -> int:
        return int(lib.trm_world_rank(self.handle))

    @property
    def size(self) -> int:
        """Number of ranks."""
        return int(lib.trm_world_size(self.handle))

    @property
    def local_rank(self) -> int:
        """Index of this rank among those of its machine."""
        return int(lib.trm_world_local_rank(self.handle))

    @property
    def backend(self) -> str:
        """ "host" or "cuda"."""
        return _c.trm_backend(lib.trm_world_backend(self.handle)).name.lower()

    def empty(self, shape: Sequence[int], dtype: Any = "f32") -> DeviceTensor:
        """Memory on the world's device for a tensor, with any content. Error: OutOfMemoryError."""
        return DeviceTensor(self, tuple(shape), dtype_of(dtype))

    def broadcast(self, array: Array, root: int = 0) -> None:
        """Copies a row-major array of rank `root` into those of all ranks, which have the same size. Collective."""
        lib.trm_world_broadcast(self.handle, _writable(array).ctypes.data, array.nbytes, root)

    def collective(
        self, op: str, array: Array, out: Array, *, reduce: str = "none", root: int = 0, count: int | None = None
    ) -> None:
        """Runs one collective operation on row-major arrays of one type, `array` to `out`, which may be the same array
        if the sizes agree. Collective.

        op: "all_reduce", "all_gather", "broadcast", "reduce", "reduce_scatter", "all_to_all", "gather", "scatter".
        reduce: "sum", "prod", "max", "min", "avg". count: elements per rank, as trm_world_collective in mesh.h counts
        them; None: the smaller one of the two arrays.
        """
        params = _c.trm_collective_params(
            op=enum_value(_c.trm_collective_op, op), reduce=enum_value(_c.trm_reduce_op, reduce), root=root
        )
        if array.dtype != out.dtype or not array.flags.c_contiguous:
            raise InvalidArgumentError("the arrays of a collective are not row-major or not of one type")
        lib.trm_world_collective(
            self.handle,
            params,
            dtype_of(array.dtype),
            array.ctypes.data,
            _writable(out).ctypes.data,
            min(array.size, out.size) if count is None else count,
            False,
        )

    def abort(self, status: int = _c.trm_status.INTERNAL) -> None:
        """Ends the whole job because this rank failed: the other ranks stop with the cause. Returns if the world has
        one rank."""
        lib.trm_world_abort(self.handle, status)


def _writable(array: Array) -> Array:
    if not isinstance(array, np.ndarray) or not array.flags.c_contiguous or not array.flags.writeable:
        raise InvalidArgumentError("an array is read-only or not row-major")
    return array


def gpu_count() -> int:
    """Number of GPUs that the library can use."""
    return int(lib.trm_system_gpu_count())


def system() -> dict[str, Any]:
    """This build, machine and launcher as values by name; NUMA nodes, GPUs and libraries as lists of such."""
    found: dict[str, Any] = {}

    def take(user: Any, pointer: Any) -> None:
        fact = pointer.contents
        group = decoded(fact.group)
        if fact.name is None:
            found[group] = []
            return
        value = fact.number if fact.is_number else None if fact.text is None else decoded(fact.text)
        if fact.item < 0:
            found.setdefault(group, {})[decoded(fact.name)] = value
            return
        items = found.setdefault(group, [])
        if fact.item == len(items):
            items.append({})
        items[fact.item][decoded(fact.name)] = value

    lib.trm_system_describe(_c.trm_system_fn(take), None)
    return found


_default: World | None = None


def default_world() -> World:
    """The world that objects use which got none: opened when it is first needed, closed when the process ends."""
    global _default
    if _default is None or _default.closed:
        _default = World()
    return _default
