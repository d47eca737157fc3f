"""Finds and loads libtrireme, turns its statuses into exceptions, and sends its log to `logging`.

The library is, in this order: the file that TRIREME_LIBRARY names; the one that a wheel carries, in the folder lib of
this package, with libraries that it needs; the one that the system's loader finds.
"""

from __future__ import annotations

import atexit
import ctypes
import logging
import os
import weakref
from pathlib import Path
from typing import Any, TypeVar

from . import _c
from .errors import InvalidArgumentError, error_of

SONAME = f"libtrireme.so.{_c.TRM_VERSION_MAJOR}"
logger = logging.getLogger("trireme")

# ---- loading ----


def _load() -> ctypes.CDLL:
    named = os.environ.get("TRIREME_LIBRARY")
    carried = Path(__file__).parent / "lib"
    if named is None and (carried / SONAME).exists():
        named = str(carried / SONAME)
        # What libtrireme needs is taken from the libraries that are loaded already. Each may need another one, so those
        # that fail are tried again.
        waiting = [path for path in sorted(carried.glob("*.so*")) if path.name != SONAME]
        while waiting:
            failed = [path for path in waiting if not _try_to_load(path)]
            if len(failed) == len(waiting):
                break  # loading libtrireme says what is missing
            waiting = failed
    try:
        return ctypes.CDLL(named or SONAME)
    except OSError as error:
        raise ImportError(
            f"cannot load {named or SONAME}: {error}. Set TRIREME_LIBRARY to the file libtrireme.so, or install "
            "hwloc if it is missing"
        ) from error


def _try_to_load(path: Path) -> bool:
    try:
        ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return False
    return True


_loaded = _load()
_last_error = _loaded.trm_last_error
_last_error.restype = ctypes.c_char_p
_last_error.argtypes = []


def _check(status: int) -> None:
    if status != 0:
        raise error_of(status, decoded(_last_error()))


def decoded(text: bytes | None) -> str:
    """Text of the library as a str; "" for NULL."""
    return "" if text is None else text.decode("utf-8", "replace")


lib = _c.Library(_loaded, _check)

# Until 1.0 a new minor version may change the API.
VERSION = decoded(lib.trm_version())
if VERSION.split(".")[:2] != _c.TRM_VERSION.split(".")[:2]:
    raise ImportError(f"libtrireme is version {VERSION}, this package needs {_c.TRM_VERSION}")

# ---- log ----

_LEVELS = {
    _c.trm_log_level.ERROR: logging.ERROR,
    _c.trm_log_level.WARNING: logging.WARNING,
    _c.trm_log_level.INFO: logging.INFO,
    _c.trm_log_level.DEBUG: logging.DEBUG,
}


def _write(user: Any, level: int, message: bytes) -> None:
    logger.log(_LEVELS.get(_c.trm_log_level(level), logging.DEBUG), "%s", decoded(message))


_log = _c.trm_log_fn(_write)


def set_log_level(level: int) -> None:
    """Sets the least level (logging.DEBUG, logging.INFO, ...) of messages that the library sends to the logger
    "trireme"; logging.INFO at first. Not to be called while other threads are inside the library."""
    wanted = [theirs for theirs, ours in _LEVELS.items() if ours >= level]
    if wanted:
        lib.trm_log_set(_log, None, max(wanted))
    else:
        lib.trm_log_set(_c.trm_log_fn(), None, _c.trm_log_level.ERROR)


set_log_level(logging.INFO)
# Threads of the library must not call into an interpreter that ends.
atexit.register(lib.trm_log_set, _c.trm_log_fn(), None, _c.trm_log_level.ERROR)

# ---- small conversions ----


def encoded(text: str | None) -> bytes | None:
    """A str for a parameter `const char *`; None stays NULL."""
    return None if text is None else os.fspath(text).encode()


def taken_text(pointer: int | None, size: int | None = None) -> str:
    """Text that the library allocated, which is freed."""
    if not pointer:
        raise error_of(_c.trm_status.OUT_OF_MEMORY, "memory is out")
    try:
        return ctypes.string_at(pointer, -1 if size is None else size).decode("utf-8", "replace")
    finally:
        lib.trm_free(pointer)


def text_in(struct: ctypes.Structure, field: str, size: int) -> str:
    """Text of a field `const char *` that is `size` bytes long, without a NUL at its end."""
    pointer = ctypes.c_void_p.from_buffer(struct, getattr(type(struct), field).offset)
    return ctypes.string_at(pointer, size).decode("utf-8", "replace")


S = TypeVar("S", bound=ctypes.Structure)


def sized(kind: type[S], **fields: Any) -> S:
    """An option struct: `size` is set, and the fields that are given; the others have their defaults, zero."""
    return kind(size=ctypes.sizeof(kind), **fields)


def weak_callback(kind: Any, method: Any) -> Any:
    """A callback of type `kind` that calls a method and does not keep the method's object alive."""
    reference = weakref.WeakMethod(method)
    return kind(lambda *call: reference()(*call))  # type: ignore[misc]


def enum_value(kind: Any, value: Any) -> int:
    """A value of an enum, given as its name in any case, such as "bf16", or as the value itself."""
    if isinstance(value, str):
        try:
            return int(kind[value.upper()])
        except KeyError:
            names = ", ".join(member.name.lower() for member in kind)
            raise InvalidArgumentError(f"{kind.__name__} is {value!r}, expected one of: {names}") from None
    return int(value)


def dims_of(shape: Any) -> _c.trm_dims:
    """The dims of a shape; -1 or None is a dimension that is unknown until a run."""
    sizes = [-1 if size is None else int(size) for size in shape]
    if len(sizes) > _c.TRM_MAX_DIMS:
        raise InvalidArgumentError(f"a shape has {len(sizes)} dimensions, expected at most {_c.TRM_MAX_DIMS}")
    return _c.trm_dims(len(sizes), (ctypes.c_int64 * _c.TRM_MAX_DIMS)(*sizes))


def shape_of(dims: _c.trm_dims) -> tuple[int, ...]:
    """The shape of dims; -1: unknown until a run."""
    return tuple(dims.d[: dims.n])


def as_dict(struct: ctypes.Structure) -> dict[str, Any]:
    """The fields of a struct of results: enums as names in lower case, text as str, dims and arrays as tuples."""
    enums: dict[str, Any] = getattr(struct, "enums", {})
    found: dict[str, Any] = {}
    for name, *_ in struct._fields_:
        value = getattr(struct, name)
        if name in enums:
            value = enums[name](value).name.lower()
        elif isinstance(value, _c.trm_dims):
            value = shape_of(value)
        elif isinstance(value, ctypes.Structure):
            value = as_dict(value)
        elif isinstance(value, ctypes.Array):
            value = tuple(value)
        elif isinstance(value, bytes):
            value = decoded(value)
        if name != "size":
            found[name] = value
    return found
