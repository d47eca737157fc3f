"""Language models under asyncio: many requests at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import numpy as np

from .llm import Collector, Model, Output, Prompt, SamplingParams, normalized, params_of
from .serving import End, Event, Item, Request, Token
from .tensors import Array
from .text import Message, Reply


class _Inbox:
    """Takes the events of a loop's requests to the loop, one call for each step, and sorts them there."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop

    def put(self, events: list[Event]) -> None:
        try:
            self.loop.call_soon_threadsafe(self._sort, events)
        except RuntimeError:  # the loop is closed, and nobody waits
            pass

    @staticmethod
    def _sort(events: list[Event]) -> None:
        for request, event in events:
            request.key.put_nowait(event)


class AsyncLLM(Model):
    """A language model for servers and other programs under asyncio. Options, ranks and errors are those of LLM.

    Any number of tasks may use it at once; the scheduler batches their requests. A task that is cancelled cancels its
    request. Opening blocks until the weights are there. On ranks other than 0 calls return at once with empty outputs,
    and closing waits until rank 0 closes.

        async with trireme.AsyncLLM("model") as llm:
            outputs = await asyncio.gather(llm.generate("One"), llm.generate("Two"))
    """

    _inbox: _Inbox | None = None

    async def generate(self, prompt: Prompt, params: SamplingParams | None = None, **sampling: Any) -> Output:
        """Continues a text or token ids; see LLM.generate."""
        return await self._output(self._tokens_of(prompt), params_of(params, sampling))

    async def chat(
        self,
        messages: Sequence[Message],
        params: SamplingParams | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        extra: Mapping[str, Any] | None = None,
        **sampling: Any,
    ) -> Output:
        """The model's answer to messages; see LLM.chat."""
        tokens, reply = self._chat_tokens(messages, tools, extra)
        return await self._output(tokens, params_of(params, sampling), reply)

    def stream(self, prompt: Prompt, params: SamplingParams | None = None, **sampling: Any) -> AsyncIterator[str]:
        """Continues a prompt and gives the text as it is generated: `async for piece in llm.stream("The ship"): ...`"""
        return self._pieces(self._tokens_of(prompt), params_of(params, sampling))

    def stream_chat(
        self,
        messages: Sequence[Message],
        params: SamplingParams | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        extra: Mapping[str, Any] | None = None,
        **sampling: Any,
    ) -> AsyncIterator[str]:
        """`chat`, with the answer as it is generated."""
        tokens, reply = self._chat_tokens(messages, tools, extra)
        return self._pieces(tokens, params_of(params, sampling), reply)

    async def embed(self, prompt: Prompt, *, pooling: str = "last", normalize: bool = False) -> Array:
        """The hidden state f32 [hidden] of one prompt; see LLM.embed. [0] on ranks other than 0."""
        if self.rank != 0:
            return np.empty(0, np.float32)
        request = self._embedding_request(self._listener(), asyncio.Queue(), self._tokens_of(prompt), pooling)
        vector = np.empty(0, np.float32)
        async for event in self._events(request):
            if isinstance(event, End):
                vector = event.embedding
        return normalized(vector) if normalize else vector

    async def close(self) -> None:
        """Frees the model and leaves the world. On other ranks than 0 waits until rank 0 closes."""
        if self._finalizer.detach() is not None:
            await asyncio.to_thread(self._server.close)

    async def __aenter__(self) -> AsyncLLM:
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.close()

    # ---- requests ----

    def _listener(self) -> _Inbox:
        loop = asyncio.get_running_loop()
        if self._inbox is None or self._inbox.loop is not loop:
            self._inbox = _Inbox(loop)
        return self._inbox

    async def _events(self, request: Request) -> AsyncIterator[Item]:
        ended = False
        self._server.submit(request)
        try:
            while not ended:
                event = await request.key.get()
                ended = not isinstance(event, (int, Token))
                if isinstance(event, BaseException):
                    raise event
                yield event
        finally:
            if not ended:
                self._server.cancel(request)

    async def _output(self, tokens: list[int], params: SamplingParams, reply: Reply | None = None) -> Output:
        collector = Collector(self.tokenizer, params, streams=False, reply=reply)
        async for _ in self._texts(tokens, params, collector):
            pass
        return collector.output

    async def _pieces(
        self, tokens: list[int], params: SamplingParams, reply: Reply | None = None
    ) -> AsyncIterator[str]:
        collector = Collector(self.tokenizer, params, streams=True, reply=reply)
        async for piece in self._texts(tokens, params, collector):
            if piece:
                yield piece

    async def _texts(self, tokens: list[int], params: SamplingParams, collector: Collector) -> AsyncIterator[str]:
        if self.rank != 0:
            return
        request = self._request(self._listener(), asyncio.Queue(), tokens, params)
        async for event in self._events(request):
            if isinstance(event, End):
                yield collector.end(event)
            else:
                yield collector.token(event)
                if collector.stopped:
                    self._server.cancel(request)
