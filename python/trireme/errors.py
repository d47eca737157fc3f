"""Exceptions: one class for each status of the library, all under TriremeError."""

from __future__ import annotations

from . import _c

Status = _c.trm_status


class TriremeError(Exception):
    """A call of the library failed.

    `status` says what kind of failure it is, `cause` is one line about it: what failed, what was found and what was
    expected.
    """

    status: Status = Status.INTERNAL

    def __init__(self, cause: str) -> None:
        super().__init__(cause)
        self.cause = cause


class InternalError(TriremeError):
    """A fault of the library, or of the system it runs on."""


class InvalidArgumentError(TriremeError, ValueError):
    """The arguments do not fit together."""

    status = Status.INVALID_ARGUMENT


class InvalidModelError(TriremeError):
    """A file, network or configuration is malformed."""

    status = Status.INVALID_MODEL


class UnsupportedError(TriremeError):
    """Well formed, but this build or backend cannot run it."""

    status = Status.UNSUPPORTED


class FileError(TriremeError, OSError):
    """The operating system refused a file or socket."""

    status = Status.IO


class NoDeviceError(TriremeError):
    """There is no usable GPU, driver or CUDA library."""

    status = Status.NO_DEVICE


class OutOfMemoryError(TriremeError, MemoryError):
    """Host or device memory does not suffice."""

    status = Status.OUT_OF_MEMORY


class LostRankError(TriremeError):
    """Another rank failed, left, or missed a deadline."""

    status = Status.LOST_RANK


class CancelledError(TriremeError):
    """A callback, or a call of `cancel`, ended the work."""

    status = Status.CANCELLED


class BusyError(TriremeError):
    """A bounded queue is full: try again later."""

    status = Status.BUSY


_CLASSES: dict[int, type[TriremeError]] = {
    kind.status: kind
    for kind in (
        InternalError,
        InvalidArgumentError,
        InvalidModelError,
        UnsupportedError,
        FileError,
        NoDeviceError,
        OutOfMemoryError,
        LostRankError,
        CancelledError,
        BusyError,
    )
}


def error_of(status: int, cause: str) -> TriremeError:
    """The exception for a status. A status of a newer library is an InternalError."""
    return _CLASSES.get(status, InternalError)(cause)
