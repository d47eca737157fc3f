"""Objects of the library that Python owns: each is ended once, and what was made from it before it."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any, NoReturn, TypeVar

from .errors import InvalidArgumentError

H = TypeVar("H", bound="Handle")
_serial = itertools.count()


class Handle:
    """An object of the library.

    It keeps the objects that it was made from alive, and ends them no sooner than itself. `close` ends it at once,
    after everything that was made from it, the newest first; without `close` it ends when Python drops it, or the
    process ends. It is a context manager that closes itself. It cannot be pickled or copied.

    With several ranks, closing a world, an engine or a language model is collective: use `with` or `close`, so that all
    ranks do it in the same order.
    """

    _handle: int | None

    def __init__(self, handle: int | None, destroy: Callable[[int | None], Any], *parents: Handle) -> None:
        self._handle = handle
        self._serial = next(_serial)
        self._children: weakref.WeakSet[Handle] = weakref.WeakSet()
        for parent in parents:
            parent._children.add(self)
        # The finalizer holds the parents; finalizers that are left when the process ends run in reverse order.
        self._finalizer = weakref.finalize(self, _end, handle, destroy, parents)

    @property
    def handle(self) -> int:
        """The pointer that the C API takes. Raises InvalidArgumentError if the object is closed."""
        if self._handle is None:
            raise InvalidArgumentError(f"this {type(self).__name__} is closed")
        return self._handle

    @property
    def closed(self) -> bool:
        return self._handle is None

    def close(self) -> None:
        """Ends the object, and before it all that was made from it. Does nothing the second time."""
        for child in sorted(self._children, key=lambda made: -made._serial):
            child.close()
        self._handle = None
        self._finalizer()

    def _give_away(self) -> int:
        """The pointer, whose end is now up to the one who gets it."""
        handle = self.handle
        self._handle = None
        self._finalizer.detach()
        return handle

    def __enter__(self: H) -> H:
        self.handle  # noqa: B018 - refuses a closed object
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(
            f"cannot pickle or copy a {type(self).__name__}: it is memory of this process. Make another one from the "
            "same file and options"
        )


def _end(handle: int | None, destroy: Callable[[int | None], Any], parents: tuple[Handle, ...]) -> None:
    destroy(handle)
