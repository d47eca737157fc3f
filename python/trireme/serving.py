"""The engine thread of a language model: it opens everything, runs steps, and hands out what they give.

Worlds, generators and schedulers belong to one thread at a time, so one thread makes and uses them. Others give it
requests by a queue and get events by listeners. Rank 0 submits and steps; on other ranks the thread follows rank 0
until that closes the model.
"""

from __future__ import annotations

import contextlib
import ctypes
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol

import numpy as np

from . import _c
from ._library import as_dict, decoded, encoded, enum_value, lib, logger, sized
from .engine import progress_callback
from .errors import CancelledError, InvalidArgumentError, TriremeError
from .tensors import dtype_of
from .text import GrammarVocabulary, Tokenizer
from .world import mesh_of

FEW_SEQUENCES, MANY_SEQUENCES = 16, 256  # at a time, on the host and on CUDA
_KINDS = _c.trm_serving_event_kind
_FINISHED = int(_KINDS.FINISHED)
_HEARTBEAT = 0.5  # seconds; ranks that follow hear from rank 0 at least once a second


class Token:
    """A token of an output or of a prompt with its logprob, and the most probable tokens with theirs."""

    __slots__ = ("id", "logprob", "of_prompt", "top")

    def __init__(self, event: _c.trm_serving_event) -> None:
        self.id, self.logprob = event.token, event.logprob
        self.top = [(pair.token, pair.logprob) for pair in event.top[: event.n_top]]
        self.of_prompt = event.kind == _KINDS.PROMPT_TOKEN


class End:
    """The last event of a request."""

    __slots__ = ("embedding", "error", "n_cached", "n_output", "n_prompt", "queue_seconds", "reason", "stop_token")

    def __init__(self, event: _c.trm_serving_event) -> None:
        finish = _c.trm_finish(event.finish)
        self.reason = finish.name.lower()
        self.stop_token: int | None = event.token if finish == _c.trm_finish.STOP else None
        self.error: str | None = decoded(event.error) if finish == _c.trm_finish.ERROR else None
        self.n_prompt, self.n_cached, self.n_output = event.n_prompt, event.n_cached, event.n_output
        self.queue_seconds = event.queue_seconds
        self.embedding: Any = None
        if event.embedding:
            self.embedding = np.ctypeslib.as_array(event.embedding, (event.n_embedding,)).copy()


class Request:
    """A request on its way. `struct` is what the library gets; `kept` is what that points to."""

    __slots__ = ("id", "kept", "key", "listener", "plain", "struct")

    def __init__(self, listener: Listener, key: Any, struct: _c.trm_serving_request, kept: list[Any]) -> None:
        self.listener, self.key, self.struct, self.kept = listener, key, struct, kept
        self.id = 0
        self.plain = not (struct.logprobs or struct.prompt_logprobs)  # its tokens have no logprobs


# A token without logprobs is its id alone: there may be hundreds in a step.
Item = int | Token | End
Event = tuple[Request, Item | BaseException]


class Listener(Protocol):
    def put(self, events: list[Event]) -> None:
        """Takes the events of a step; called on the engine thread, must not wait."""


class Server:
    """A model that runs requests. `submit`, `cancel` and `call` may be used on any thread.

    `options` are those of LLM. The constructor raises what opening fails with. An error of a step ends all requests
    with it, and the server.
    """

    rank: int
    size: int
    backend: str
    info: dict[str, Any]
    limits: dict[str, Any]
    tokenizer: Tokenizer

    def __init__(self, model: str, options: dict[str, Any]) -> None:
        self._queue: queue.SimpleQueue[_Command | None] = queue.SimpleQueue()
        self._opened: Future[None] = Future()
        self._over: BaseException | None = None  # why there are no more steps
        self._failed = False  # this rank, when it opened or in a step
        self._active: dict[int, Request] = {}
        self._next_id = 1
        self._scheduler = ctypes.c_void_p()
        self._handles: list[tuple[Any, ctypes.c_void_p]] = []  # with the calls that end them
        self._vocabulary: GrammarVocabulary | None = None
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._main, args=(model, options), name="trireme", daemon=True)
        self._thread.start()
        try:
            self._opened.result()
        except BaseException:
            self._queue.put(None)
            raise

    # ---- any thread ----

    def submit(self, request: Request) -> None:
        """Queues a request, whose events its listener gets. One that cannot run has one event, the exception."""
        self._give(_Submit(request))

    def cancel(self, request: Request) -> None:
        """Ends a request; its last event follows. Does nothing if it has ended."""
        self._queue.put(_Cancel(request))

    def call(self, function: Callable[[], Any]) -> Any:
        """Runs a function between steps on the engine thread of rank 0 and returns what it returns."""
        if self.rank != 0:
            raise InvalidArgumentError(f"only rank 0 knows this, and this is rank {self.rank}")
        command = _Call(function)
        self._give(command)
        return command.answer.result()

    def stats(self) -> dict[str, Any]:
        """The fields of trm_scheduler_stats."""

        def read() -> dict[str, Any]:
            stats = _c.trm_scheduler_stats()
            lib.trm_scheduler_get_stats(self._scheduler, stats)
            return as_dict(stats)

        return self.call(read)  # type: ignore[no-any-return]

    def load_adapter(self, folder: str) -> int:
        def load() -> int:
            adapter = ctypes.c_int32()
            lib.trm_scheduler_load_adapter(self._scheduler, encoded(folder), adapter)
            return adapter.value

        return self.call(load)  # type: ignore[no-any-return]

    def unload_adapter(self, adapter: int) -> None:
        self.call(lambda: lib.trm_scheduler_unload_adapter(self._scheduler, adapter))

    def vocabulary(self) -> GrammarVocabulary:
        """The vocabulary of grammars, made when it is first needed."""
        with self._lock:
            if self._vocabulary is None:
                ends = self.info["eos_tokens"][: self.info["n_eos_tokens"]]
                self._vocabulary = GrammarVocabulary(self.tokenizer, ends, self.info["vocab"])
            return self._vocabulary

    def close(self) -> None:
        """Ends unfinished requests and frees the model. On other ranks than 0 waits until rank 0 closes, and raises
        what ended their steps early."""
        self._queue.put(None)
        if threading.current_thread() is not self._thread:  # a collected object may be closed here
            self._thread.join()
        if self.rank > 0 and self._over is not None and not isinstance(self._over, CancelledError):
            error, self._over = self._over, _closed()
            raise error

    def _give(self, command: _Command) -> None:
        with self._lock:
            if self._over is not None:
                raise type(self._over)(str(self._over))
            self._queue.put(command)

    # ---- the engine thread ----

    def _main(self, model: str, options: dict[str, Any]) -> None:
        try:
            try:
                self._open(model, options)
            except BaseException as error:
                self._failed = True
                self._opened.set_exception(error)
                return
            self._opened.set_result(None)
            over: BaseException = _closed()
            try:
                if self.rank > 0:
                    lib.trm_scheduler_follow(self._scheduler)
                else:
                    self._serve()
            except BaseException as error:
                self._failed = True
                over = error
            with self._lock:
                self._over = over
            self._end_all(over)
        finally:
            for destroy, handle in reversed(self._handles):
                destroy(handle)

    def _end_all(self, over: BaseException) -> None:
        """Ends what waits in the queue and what runs; no commands come any more."""
        while not self._queue.empty():
            command = self._queue.get()
            if command is not None:
                command.refuse(over)
        for request in self._active.values():
            request.listener.put([(request, over)])
        self._active.clear()

    def _make(self, create: Any, destroy: Any, *arguments: Any) -> ctypes.c_void_p:
        handle = ctypes.c_void_p()
        create(*arguments, handle)
        self._handles.append((destroy, handle))
        return handle

    def _end_timeline(self, world: ctypes.c_void_p) -> None:
        """Writes the timeline: of all ranks, or after a failure of this one, when others may not answer."""
        try:
            if self._failed:
                lib.trm_timeline_save()
            else:
                lib.trm_timeline_end(world)
        except TriremeError as error:
            logger.warning("%s", error)

    def _open(self, path: str, o: dict[str, Any]) -> None:
        world = self._make(
            lib.trm_world_open,
            lib.trm_world_close,
            sized(
                _c.trm_world_options,
                backend=enum_value(_c.trm_backend, o["backend"]),
                gpu=o["gpu"],
                threads=o["threads"],
                deadline_seconds=o["deadline"],
                no_bind=not o["bind"],
            ),
        )
        self.rank, self.size = lib.trm_world_rank(world), lib.trm_world_size(world)
        if o["timeline"] is not None:
            lib.trm_timeline_begin(world, encoded(o["timeline"]))
            self._handles.append((self._end_timeline, world))
        self.backend = _c.trm_backend(lib.trm_world_backend(world)).name.lower()
        few = self.backend == "host" or o["draft"] is not None
        sequences = o["max_sequences"] or (FEW_SEQUENCES if few else MANY_SEQUENCES)

        self._progress = progress_callback(o["progress"])

        def prepare() -> tuple[ctypes.c_void_p, ctypes.c_void_p | None, _c.trm_generator_options]:
            model = self._make(lib.trm_model_open, lib.trm_model_close, encoded(path))
            info = _c.trm_model_info()
            lib.trm_model_get_info(model, info)
            self.info = as_dict(info)
            self.tokenizer = Tokenizer(self.info["path"])
            longest, context = self.info["context_length"], o["max_context"]
            if 0 < longest < context:
                logger.warning("max_context is %d, the model has %d tokens of context: using those", context, longest)
                context = longest
            options = sized(
                _c.trm_generator_options,
                dtype=dtype_of(o["dtype"] or "none"),
                cache_dtype=dtype_of(o["cache_dtype"] or "none"),
                mesh=mesh_of(o["mesh"], self.size),
                max_context=context,
                max_sequences=sequences,
                max_step_tokens=o["max_step_tokens"],
                cache_tokens=o["cache_tokens"],
                embeddings=o["embeddings"],
                batch_invariant=o["batch_invariant"],
                max_adapters=o["max_adapters"],
                max_adapter_rank=o["max_adapter_rank"],
                timing_cache=encoded(o["timing_cache"]),
                progress=self._progress,
            )
            if o["weight_budget"] is not None:
                lib.trm_weight_budget_parse(encoded(o["weight_budget"]), options.weight_budget)
            if o["speculation"] is not None:
                lib.trm_speculation_parse(encoded(o["speculation"]), options.speculation)
            elif o["draft"] is not None:
                options.speculation.kind = _c.trm_speculation_kind.NGRAM
            draft = None
            if o["draft"] is not None:
                draft = self._make(lib.trm_model_open, lib.trm_model_close, encoded(o["draft"]))
                if lib.trm_model_is_draft_head(draft):  # the generator's own
                    options.draft_head, draft = draft, None
            return model, draft, options

        # What each rank does by itself; all then go on, or all fail.
        model, draft_model, options = self._agreed(world, prepare)
        draft = None
        if draft_model is not None:  # first, so that the main model's cache takes the memory that is left
            small = sized(
                _c.trm_generator_options,
                dtype=options.dtype,
                cache_dtype=options.cache_dtype,
                mesh=options.mesh,
                max_context=options.max_context,
                max_sequences=sequences,
                timing_cache=options.timing_cache,
            )
            draft = self._make(lib.trm_generator_create, lib.trm_generator_destroy, draft_model, world, small)
        generator = self._make(lib.trm_generator_create, lib.trm_generator_destroy, model, world, options)
        if draft is not None:
            lib.trm_generator_set_draft(generator, draft)
        limits = _c.trm_generator_limits()
        lib.trm_generator_get_limits(generator, limits)
        self.limits = as_dict(limits)
        self._scheduler = self._make(
            lib.trm_scheduler_create,
            lib.trm_scheduler_destroy,
            generator,
            sized(
                _c.trm_scheduler_options,
                no_prefix_cache=not o["prefix_cache"],
                max_waiting=o["max_waiting"],
                prefill_chunk=o["prefill_chunk"],
            ),
        )

    @staticmethod
    def _agreed(world: ctypes.c_void_p, prepare: Callable[[], Any]) -> Any:
        try:
            made = prepare()
        except Exception as error:
            with contextlib.suppress(TriremeError):  # it raises what this rank gives it
                lib.trm_world_all_ok(world, getattr(error, "status", _c.trm_status.INTERNAL))
            raise
        lib.trm_world_all_ok(world, 0)
        return made

    def _serve(self) -> None:
        events = ctypes.POINTER(_c.trm_serving_event)()
        n = ctypes.c_int32()
        timeout = None if self.size == 1 else _HEARTBEAT
        while True:
            idle = not lib.trm_scheduler_has_work(self._scheduler)
            try:
                while True:
                    command = self._queue.get(idle, timeout)
                    if command is None:
                        lib.trm_scheduler_end(self._scheduler)
                        return
                    command.run(self)
                    idle = False
            except queue.Empty:
                pass
            lib.trm_scheduler_step(self._scheduler, events, n)
            if n.value > 0:
                self._hand_out(events, n.value)

    def _hand_out(self, events: Any, n: int) -> None:
        found: dict[Listener, list[Event]] = {}
        for event in events[:n]:
            request = self._active[event.id]
            item: Item
            if event.kind == _FINISHED:
                item = End(event)
                del self._active[event.id]
            else:
                item = event.token if request.plain else Token(event)
            found.setdefault(request.listener, []).append((request, item))
        for listener, its in found.items():
            listener.put(its)

    def _submit_now(self, request: Request) -> None:
        request.struct.id = self._next_id
        lib.trm_scheduler_submit(self._scheduler, request.struct)
        request.id = self._next_id
        self._active[request.id] = request
        self._next_id += 1


class _Command(Protocol):
    def run(self, server: Server) -> None: ...

    def refuse(self, error: BaseException) -> None: ...


class _Submit:
    def __init__(self, request: Request) -> None:
        self.request = request

    def run(self, server: Server) -> None:
        try:
            server._submit_now(self.request)
        except TriremeError as error:
            self.refuse(error)

    def refuse(self, error: BaseException) -> None:
        self.request.listener.put([(self.request, error)])


class _Cancel:
    def __init__(self, request: Request) -> None:
        self.request = request

    def run(self, server: Server) -> None:
        if self.request.id in server._active:
            lib.trm_scheduler_cancel(server._scheduler, self.request.id)

    def refuse(self, error: BaseException) -> None:
        pass


class _Call:
    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function
        self.answer: Future[Any] = Future()

    def run(self, server: Server) -> None:
        try:
            self.answer.set_result(self.function())
        except BaseException as error:
            self.answer.set_exception(error)

    def refuse(self, error: BaseException) -> None:
        self.answer.set_exception(error)


def _closed() -> CancelledError:
    return CancelledError("the language model was closed")
