"""Language models: text from a Hugging Face folder."""

from __future__ import annotations

import ctypes
import json
import os
import queue
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, overload

import numpy as np

from . import _c
from ._library import enum_value, sized
from .errors import InvalidArgumentError, UnsupportedError
from .serving import End, Event, Item, Request, Server, Token
from .tensors import Array
from .text import ChatTemplate, Decoder, Grammar, GrammarMask, Message, Reply, Tokenizer, ToolCall
from .world import MeshLike

TokenIds = Sequence[int]
Prompt = str | TokenIds
_MOST_AT_ONCE = 512  # requests of one call that are on their way; max_waiting is 1024

OTHER_RANK = "other_rank"  # the finish_reason on ranks other than 0


@dataclass(frozen=True)
class SamplingParams:
    """How tokens are sampled and when an output ends. All defaults together are greedy, to the end of the context.

    - max_tokens: most tokens to generate; 0: to the end of the context. min_tokens: no end before that many.
    - temperature: 0 is greedy. top_k, top_p, min_p, typical_p: 0 is off.
    - repetition_penalty: 0 or 1 is off. presence_penalty, frequency_penalty: 0 is off.
    - seed: the same seed gives the same tokens; None: another one for each request.
    - logit_bias: what is added to the logits of tokens; -100 bans a token.
    - stop: texts that end the output, which does not contain them. stop_token_ids: tokens that do.
    - ignore_eos: do not end at the model's end-of-sequence tokens.
    - skip_special_tokens: leave special tokens out of the text.
    - logprobs, prompt_logprobs: number of most probable tokens to report for each token of the output, or of the
      prompt; 0: only the token's own; None: nothing.
    - json_schema (a schema, or True for any JSON object), regex, ebnf, choice: what the text must follow; at most one.
    - priority: larger goes first, and may preempt smaller. client: requests are shared out fairly among clients.
    - adapter: what load_adapter gave; 0: none.
    """

    max_tokens: int = 0
    min_tokens: int = 0
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 0.0
    min_p: float = 0.0
    typical_p: float = 0.0
    repetition_penalty: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    stop: str | Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    json_schema: Mapping[str, Any] | bool | None = None
    regex: str | None = None
    ebnf: str | None = None
    choice: Sequence[str] | None = None
    priority: int = 0
    client: int = 0
    adapter: int = 0

    @property
    def stops(self) -> list[str]:
        return [self.stop] if isinstance(self.stop, str) else list(self.stop)

    @property
    def grammar(self) -> tuple[int, str] | None:
        """(trm_grammar_kind, text), or None. Error: InvalidArgumentError (several)."""
        kinds = _c.trm_grammar_kind
        given: list[tuple[int, str]] = []
        if self.json_schema is True:
            given.append((kinds.JSON, ""))
        elif self.json_schema:
            given.append((kinds.JSON_SCHEMA, json.dumps(self.json_schema)))
        if self.regex is not None:
            given.append((kinds.REGEX, self.regex))
        if self.ebnf is not None:
            given.append((kinds.EBNF, self.ebnf))
        if self.choice is not None:
            given.append((kinds.CHOICE, json.dumps(list(self.choice))))
        if len(given) > 1:
            raise InvalidArgumentError("several of json_schema, regex, ebnf and choice are given, expected one")
        return given[0] if given else None


@dataclass
class Output:
    """What a request gave.

    - text, token_ids: of the output, without the stop token and stop text. Of chats the text is the answer.
    - reasoning, tool_calls: of chats with models that write in the harmony format (gpt-oss).
    - finish_reason: "stop" (the model, a stop token or a stop text), "length", "cancelled"; on ranks other than 0
      "other_rank", with everything else empty. stop_text: the stop text that ended it.
    - prompt_tokens, cached_tokens: tokens of the prompt; those of them that the prefix cache had.
    - logprobs, prompt_logprobs: for each token its id, logprob and the most probable (id, logprob), if asked for; of
      the prompt from the second token on.
    """

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    reasoning: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list)
    finish_reason: str = OTHER_RANK
    stop_text: str | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    logprobs: list[Token] | None = None
    prompt_logprobs: list[Token] | None = None
    queue_seconds: float = 0.0


class Collector:
    """Builds the Output of a request from its events, piece by piece."""

    def __init__(
        self, tokenizer: Tokenizer, params: SamplingParams, *, streams: bool, reply: Reply | None = None
    ) -> None:
        self.output = Output()
        self.stopped = False  # a stop text was found: the request can be cancelled
        self._tokenizer = tokenizer
        self._params = params
        self._stops = params.stops
        self._decoder: Decoder | None = None
        self._reply = reply
        if streams or self._stops or reply:
            skip_special = params.skip_special_tokens and not (reply and reply.has_special)
            self._decoder = Decoder(tokenizer, skip_special=skip_special)
        self._given = 0  # characters of the text that were returned
        if params.logprobs is not None:
            self.output.logprobs = []
        if params.prompt_logprobs is not None:
            self.output.prompt_logprobs = []

    def token(self, token: int | Token) -> str:
        """Takes a token and returns the text that is certain by it."""
        out = self.output
        if not isinstance(token, int):
            if token.of_prompt:
                if out.prompt_logprobs is not None:
                    out.prompt_logprobs.append(token)
                return ""
            if out.logprobs is not None and not self.stopped:
                out.logprobs.append(token)
            token = token.id
        if self.stopped:
            return ""
        out.token_ids.append(token)
        return "" if self._decoder is None else self._add(self._decoder.push(token), at_end=False)

    def end(self, end: End) -> str:
        """Takes the last event and returns the rest of the text. Raises InvalidArgumentError if a grammar failed."""
        out = self.output
        out.prompt_tokens, out.cached_tokens, out.queue_seconds = end.n_prompt, end.n_cached, end.queue_seconds
        if end.error is not None:
            raise InvalidArgumentError(end.error)
        rest = ""
        if self._decoder is None:
            out.text = self._tokenizer.decode(out.token_ids, skip_special=self._params.skip_special_tokens)
        elif not self.stopped:
            rest = self._add(self._decoder.finish(), at_end=True)
        if self._reply is not None:
            out.reasoning, out.tool_calls = self._reply.reasoning, self._reply.calls
        out.finish_reason = "stop" if self.stopped else end.reason
        return rest

    def _add(self, piece: str, *, at_end: bool) -> str:
        out = self.output
        if self._reply is not None:
            piece = self._reply.push(piece, at_end=at_end)
        before = len(out.text)
        out.text += piece
        certain = len(out.text)
        if self._stops:
            longest = max(map(len, self._stops))
            begin = max(0, before - longest)
            places = [(at, stop) for stop in self._stops if (at := out.text.find(stop, begin)) >= 0]
            if places:
                at, out.stop_text = min(places)
                self.stopped = True
                out.text = out.text[:at]
                certain = at
            elif not at_end:
                # The end of the text may begin a stop text.
                certain -= next(
                    (
                        n
                        for n in range(min(longest, certain), 0, -1)
                        if any(s.startswith(out.text[-n:]) for s in self._stops)
                    ),
                    0,
                )
        new = out.text[self._given : certain]
        self._given = max(self._given, certain)
        return new


class Model:
    """What LLM and AsyncLLM share: an open model, and requests for it."""

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        backend: str = "auto",
        mesh: MeshLike = None,
        dtype: Any = None,
        max_context: int = 0,
        max_sequences: int = 0,
        max_step_tokens: int = 0,
        cache_tokens: int = 0,
        cache_dtype: Any = None,
        weight_budget: str | None = None,
        speculation: str | None = None,
        draft: str | os.PathLike[str] | None = None,
        embeddings: bool = False,
        batch_invariant: bool = False,
        max_adapters: int = 0,
        max_adapter_rank: int = 0,
        prefix_cache: bool = True,
        prefill_chunk: int = 0,
        max_waiting: int = 0,
        timing_cache: str | None = None,
        gpu: int = 0,
        threads: int = 0,
        deadline: float = 0.0,
        bind: bool = True,
        timeline: str | os.PathLike[str] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        options = {name: value for name, value in locals().items() if name not in ("self", "model", "__class__")}
        options["draft"] = None if draft is None else os.fspath(draft)
        options["timeline"] = None if timeline is None else os.fspath(timeline)
        self._server = Server(os.fspath(model), options)
        self._embeddings = embeddings
        self._template: ChatTemplate | None = None
        self._finalizer = weakref.finalize(self, self._server.close)

    @property
    def rank(self) -> int:
        """This process's rank: rank 0 gets the outputs."""
        return self._server.rank

    @property
    def ranks(self) -> int:
        return self._server.size

    @property
    def backend(self) -> str:
        return self._server.backend

    @property
    def info(self) -> dict[str, Any]:
        """The fields of trm_model_info: path, architecture, layers, vocab, context_length, ..."""
        return dict(self._server.info)

    @property
    def default_params(self) -> SamplingParams:
        """How the model wants to be sampled, by its generation_config.json; greedy where it does not say. Calls use it
        only if they get it: `generate(prompt, dataclasses.replace(llm.default_params, max_tokens=64))`."""
        return SamplingParams(**{name: value for name, value in self.info["sampling"].items() if value >= 0})

    @property
    def limits(self) -> dict[str, Any]:
        """The fields of trm_generator_limits: max_context, cache_tokens, max_sequences, memory, ..."""
        return dict(self._server.limits)

    @property
    def tokenizer(self) -> Tokenizer:
        return self._server.tokenizer

    def stats(self) -> dict[str, Any]:
        """Counters and the current state of the scheduler: the fields of trm_scheduler_stats. Rank 0 only."""
        return self._server.stats()

    def load_adapter(self, folder: str | os.PathLike[str]) -> int:
        """Loads a LoRA adapter in PEFT's format, between two steps. Its number is for SamplingParams.adapter. The model
        was opened with max_adapters. Rank 0 only."""
        return self._server.load_adapter(os.fspath(folder))

    def unload_adapter(self, adapter: int) -> None:
        """New requests cannot name the adapter any more; its room is free when those with it have ended."""
        self._server.unload_adapter(adapter)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(f"cannot pickle or copy a {type(self).__name__}: open the model in the other process")

    # ---- requests ----

    def _tokens_of(self, prompt: Prompt) -> list[int]:
        if isinstance(prompt, str):
            tokens = self.tokenizer.encode(prompt)
        else:
            tokens = [int(token) for token in prompt]
            if any(abs(token) > 0x7FFFFFFF for token in tokens):  # ctypes would cut it
                raise InvalidArgumentError("a prompt has a token of more than 32 bits, which is outside the vocabulary")
        if not tokens:
            raise InvalidArgumentError("a prompt is empty, and the model has no token to begin with")
        return tokens

    def _chat_tokens(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None,
        extra: Mapping[str, Any] | None,
    ) -> tuple[list[int], Reply | None]:
        """The prompt, and what divides the reply, if the model writes more than its answer."""
        if self._template is None:
            self._template = ChatTemplate(self._server.info["path"])
        text = self._template.render(messages, tools=tools, extra=extra)
        tokens = self.tokenizer.encode(text, add_special=False)  # the template writes the special tokens
        reply = Reply(self._template)
        return tokens, reply if reply.has_special else None

    def _request(self, listener: Any, key: Any, tokens: Sequence[int], params: SamplingParams) -> Request:
        kept: list[Any] = []
        sampling = _c.trm_serving_sampling(
            typical_p=params.typical_p,
            presence_penalty=params.presence_penalty,
            frequency_penalty=params.frequency_penalty,
            base=_c.trm_sampling(
                temperature=params.temperature,
                top_k=params.top_k,
                top_p=params.top_p,
                min_p=params.min_p,
                repetition_penalty=params.repetition_penalty,
                seed=int.from_bytes(os.urandom(8), "little") if params.seed is None else params.seed,
            ),
        )
        if params.logit_bias:
            bias = (_c.trm_logit_bias * len(params.logit_bias))(
                *[_c.trm_logit_bias(*pair) for pair in params.logit_bias.items()]
            )
            sampling.bias, sampling.n_bias = bias, len(bias)
        request = sized(
            _c.trm_serving_request,
            prompt=(ctypes.c_int32 * len(tokens))(*tokens),
            n_prompt=len(tokens),
            max_tokens=params.max_tokens,
            priority=params.priority,
            sampling=sampling,
            ignore_eos=params.ignore_eos,
            min_tokens=params.min_tokens,
            logprobs=_logprobs(params.logprobs),
            prompt_logprobs=_logprobs(params.prompt_logprobs),
            client=params.client,
            adapter=params.adapter,
        )
        if params.stop_token_ids:
            stops = (ctypes.c_int32 * len(params.stop_token_ids))(*params.stop_token_ids)
            request.stop_tokens, request.n_stop_tokens = stops, len(stops)
        if (grammar := params.grammar) is not None:
            mask = GrammarMask(Grammar(self._server.vocabulary(), *grammar))
            kept.append(mask)
            request.mask = mask.callback
        return Request(listener, key, request, kept)

    def _embedding_request(self, listener: Any, key: Any, tokens: Sequence[int], pooling: str) -> Request:
        if not self._embeddings:
            raise UnsupportedError("the model was opened without embeddings: open it with embeddings=True")
        request = self._request(listener, key, tokens, SamplingParams())
        request.struct.max_tokens = _c.TRM_NO_TOKENS
        request.struct.embedding = enum_value(_c.trm_embedding, pooling)
        return request


def _logprobs(wanted: int | None) -> int:
    return 0 if wanted is None else wanted or _c.TRM_LOGPROBS_CHOSEN


def params_of(params: SamplingParams | None, sampling: Mapping[str, Any]) -> SamplingParams:
    """Parameters given as an object or as keywords."""
    if params is not None and sampling:
        raise InvalidArgumentError("both params and keywords of SamplingParams are given, expected one")
    return params or SamplingParams(**sampling)


def normalized(vectors: Array) -> Array:
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, np.finfo(np.float32).tiny))


class _Inbox:
    """The events of the requests of one call."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[list[Event]] = queue.SimpleQueue()
        self.put = self._queue.put
        self.get = self._queue.get


class Stream(Iterator[str]):
    """The text of an output as it is generated: an iterator of pieces, whole characters each. After the last one
    `output` is complete. `close`, or dropping it, cancels the request."""

    def __init__(self, model: LLM, tokens: Sequence[int], params: SamplingParams, reply: Reply | None = None) -> None:
        self._collector = Collector(model.tokenizer, params, streams=True, reply=reply)
        self._server = model._server
        self._inbox = _Inbox()
        self._pieces: list[str] = []
        self._ended = model.rank != 0
        self._request: Request | None = None
        if not self._ended:
            self._request = model._request(self._inbox, 0, tokens, params)
            self._server.submit(self._request)

    @property
    def output(self) -> Output:
        return self._collector.output

    def __next__(self) -> str:
        while True:
            if self._pieces:
                return self._pieces.pop(0)
            if self._ended:
                raise StopIteration
            for request, event in self._inbox.get():
                if isinstance(event, BaseException):
                    self._ended = True
                    raise event
                if isinstance(event, End):
                    self._ended = True
                    piece = self._collector.end(event)
                else:
                    piece = self._collector.token(event)
                    if self._collector.stopped:
                        self._server.cancel(request)
                if piece:
                    self._pieces.append(piece)

    def close(self) -> None:
        """Cancels the request unless it has ended."""
        if not self._ended and self._request is not None:
            self._ended = True
            self._server.cancel(self._request)

    def __del__(self) -> None:
        if hasattr(self, "_ended"):
            self.close()


class LLM(Model):
    """A language model for scripts: calls return when their outputs are complete.

    Opens a Hugging Face folder, or "org/name" in the local Hugging Face cache, and loads its weights. All prompts of a
    call run together, in batches of up to max_sequences. Several threads may call at once.

    - backend: "auto", "host" or "cuda". gpu: its number from 1; 0: by rank. threads: host threads; 0: all.
      deadline, bind: see World.
    - mesh: "tp=2,pp=2" or {"tp": 2}; None puts all ranks on tp.
    - dtype: "bf16", "f16", "f32"; None: the weights' type on CUDA, f32 on the host. cache_dtype: "f8e4m3" halves the
      KV cache.
    - max_context: tokens of prompt and output; 0: the model's. max_sequences: at a time; 0: 16 on the host and with a
      draft model, else 256. cache_tokens: of the KV cache in all; 0: for max_sequences full sequences.
    - weight_budget: weights that stay on the GPU: "8G", "25%", "auto"; None: all.
    - speculation: "lookup", "auto", "mtp", ...; draft: the folder of a draft model or of an EAGLE-3 head.
    - embeddings: whether `embed` can be used. batch_invariant: bits of an output do not depend on other requests.
    - timeline: a file for what all ranks did until `close`, which Perfetto shows.
    - progress: called while weights load, with the bytes loaded and in total.

    Under mpirun or torchrun every rank makes an LLM and closes it. Rank 0 leads: its calls run the model on all ranks
    and get the outputs. On other ranks calls return at once with outputs whose finish_reason is "other_rank", and
    closing waits until rank 0 closes.

    Errors: FileError, InvalidModelError, UnsupportedError, InvalidArgumentError, OutOfMemoryError, NoDeviceError,
    LostRankError.
    """

    @overload
    def generate(self, prompts: Prompt, params: SamplingParams | None = None, **sampling: Any) -> Output: ...

    @overload
    def generate(
        self,
        prompts: Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        **sampling: Any,
    ) -> list[Output]: ...

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        **sampling: Any,
    ) -> Output | list[Output]:
        """Continues a prompt, or each of a list. A prompt is a text or token ids.

        params: for all prompts, or one for each; or its fields as keywords: generate("The ship", max_tokens=64).
        Returns one Output, or a list in the order of the prompts. The first error of a request is raised; the others
        are cancelled.
        """
        if _is_one(prompts):
            return self._run([self._tokens_of(prompts)], params, sampling)[0]  # type: ignore[arg-type]
        return self._run([self._tokens_of(prompt) for prompt in prompts], params, sampling)  # type: ignore[arg-type]

    def chat(
        self,
        messages: Sequence[Message],
        params: SamplingParams | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        extra: Mapping[str, Any] | None = None,
        **sampling: Any,
    ) -> Output:
        """The model's answer to messages such as {"role": "user", "content": "Hello"}.

        tools, extra: see ChatTemplate.render. Models that do not write in the harmony format write calls of tools into
        the text, each in a format of its own.
        """
        tokens, reply = self._chat_tokens(messages, tools, extra)
        return self._run([tokens], params, sampling, reply)[0]

    def stream(self, prompt: Prompt, params: SamplingParams | None = None, **sampling: Any) -> Stream:
        """Continues a prompt and gives the text as it is generated: `for piece in llm.stream("The ship"): ...`"""
        return Stream(self, self._tokens_of(prompt), params_of(params, sampling))

    def stream_chat(
        self,
        messages: Sequence[Message],
        params: SamplingParams | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        extra: Mapping[str, Any] | None = None,
        **sampling: Any,
    ) -> Stream:
        """`chat`, with the answer as it is generated."""
        tokens, reply = self._chat_tokens(messages, tools, extra)
        return Stream(self, tokens, params_of(params, sampling), reply)

    def embed(self, prompts: Sequence[Prompt], *, pooling: str = "last", normalize: bool = False) -> Array:
        """The hidden states after the model's last norm, f32 [prompts, hidden]: of the last token, or with pooling
        "mean" the mean over all. The model was opened with embeddings=True. [prompts, 0] on ranks other than 0."""
        if self.rank != 0:
            return np.empty((len(prompts), 0), np.float32)
        inbox = _Inbox()
        requests = [
            self._embedding_request(inbox, i, self._tokens_of(prompt), pooling) for i, prompt in enumerate(prompts)
        ]
        found: list[Any] = [None] * len(requests)
        for request, event in self._events(inbox, requests):
            if isinstance(event, End):
                found[request.key] = event.embedding
        vectors = np.stack(found) if found else np.empty((0, self._server.info["hidden"]), np.float32)
        return normalized(vectors) if normalize else vectors

    def close(self) -> None:
        """Frees the model and leaves the world. On other ranks than 0 waits until rank 0 closes."""
        if self._finalizer.detach() is not None:
            self._server.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    # ---- requests ----

    def _run(
        self,
        prompts: list[list[int]],
        params: SamplingParams | Sequence[SamplingParams] | None,
        sampling: Mapping[str, Any],
        reply: Reply | None = None,
    ) -> list[Output]:
        if params is None or isinstance(params, SamplingParams):
            params = [params_of(params, sampling)] * len(prompts)
        if len(params) != len(prompts):
            raise InvalidArgumentError(f"there are {len(params)} params for {len(prompts)} prompts")
        if self.rank != 0:
            return [Output() for _ in prompts]
        inbox = _Inbox()
        collectors = [Collector(self.tokenizer, p, streams=False, reply=reply) for p in params]
        requests = [self._request(inbox, i, tokens, params[i]) for i, tokens in enumerate(prompts)]
        for request, event in self._events(inbox, requests):
            collector = collectors[request.key]
            if isinstance(event, End):
                collector.end(event)
            else:
                was = collector.stopped
                collector.token(event)
                if collector.stopped and not was:
                    self._server.cancel(request)
        return [collector.output for collector in collectors]

    def _events(self, inbox: _Inbox, requests: list[Request]) -> Iterator[tuple[Request, Item]]:
        """Submits requests and gives their events until all have ended. Cancels those that are left if the caller stops
        or one fails."""
        running: dict[int, Request] = {}
        waiting = iter(requests)
        try:
            for request in waiting:
                running[id(request)] = request
                self._server.submit(request)
                if len(running) == _MOST_AT_ONCE:
                    break
            while running:
                for request, event in inbox.get():
                    if isinstance(event, BaseException):
                        del running[id(request)]
                        raise event
                    yield request, event
                    if isinstance(event, End):
                        del running[id(request)]
                        if (following := next(waiting, None)) is not None:
                            running[id(following)] = following
                            self._server.submit(following)
        finally:
            for request in running.values():
                self._server.cancel(request)


def _is_one(prompts: Any) -> bool:
    return isinstance(prompts, str) or (len(prompts) > 0 and isinstance(prompts[0], (int, np.integer)))
