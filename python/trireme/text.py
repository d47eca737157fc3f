"""Text and tokens: tokenizers, streaming decoders, chat templates, and grammars that outputs follow."""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import _c
from ._library import encoded, lib, sized, taken_text, text_in, weak_callback
from .errors import TriremeError
from .handles import Handle

Message = Mapping[str, Any]


class Tokenizer(Handle):
    """A tokenizer.json: text to token ids and back. Several threads may use it. Errors: FileError, InvalidModelError,
    UnsupportedError."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        handle = ctypes.c_void_p()
        lib.trm_tokenizer_open(encoded(os.fspath(path)), handle)
        super().__init__(handle.value, lib.trm_tokenizer_close)

    def __len__(self) -> int:
        """The highest id plus 1."""
        return int(lib.trm_tokenizer_vocab_size(self.handle))

    def encode(self, text: str, *, add_special: bool = True) -> list[int]:
        """The ids of a text; add_special: with the tokens that the model wants around it, such as bos."""
        tokens = _c.trm_tokens()
        raw = text.encode("utf-8", "surrogatepass")
        lib.trm_tokenizer_encode(self.handle, raw, len(raw), add_special, tokens)
        try:
            return list(tokens.ids[: tokens.count])
        finally:
            lib.trm_tokens_fini(tokens)

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """The text of ids; those out of range are skipped."""
        given = list(ids)
        array = (ctypes.c_int32 * max(1, len(given)))(*given)
        text, size = ctypes.c_void_p(), ctypes.c_size_t()
        lib.trm_tokenizer_decode(
            self.handle, array, len(given), skip_special, ctypes.cast(ctypes.byref(text), _char_pp), size
        )
        return taken_text(text.value, size.value)

    def id_of(self, token: str) -> int | None:
        """The id of a token by its exact content, or None."""
        found = int(lib.trm_tokenizer_find(self.handle, encoded(token)))
        return None if found < 0 else found


_char_pp = ctypes.POINTER(ctypes.c_char_p)


class Decoder(Handle):
    """Turns ids into text as they come: never half a character, and all pieces together are Tokenizer.decode."""

    def __init__(self, tokenizer: Tokenizer, *, skip_special: bool = True) -> None:
        handle = ctypes.c_void_p()
        lib.trm_decoder_create(tokenizer.handle, skip_special, handle)
        super().__init__(handle.value, lib.trm_decoder_destroy, tokenizer)
        self._text, self._size = ctypes.c_char_p(), ctypes.c_size_t()

    def push(self, token: int) -> str:
        """Adds a token and returns the text that is now certain."""
        lib.trm_decoder_push(self._handle, token, self._text, self._size)
        return ctypes.string_at(self._text, self._size.value).decode()

    def finish(self) -> str:
        """The rest, with incomplete bytes as U+FFFD; the decoder can then be used again."""
        lib.trm_decoder_finish(self._handle, self._text, self._size)
        return ctypes.string_at(self._text, self._size.value).decode()


class ChatTemplate(Handle):
    """A model's chat template: messages to the text of a prompt. Several threads may use it. Errors: FileError,
    InvalidModelError, UnsupportedError."""

    def __init__(self, path: str | os.PathLike[str], name: str | None = None) -> None:
        handle = ctypes.c_void_p()
        lib.trm_chat_template_open(encoded(os.fspath(path)), encoded(name), handle)
        super().__init__(handle.value, lib.trm_chat_template_close)

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        extra: Mapping[str, Any] | None = None,
        add_generation_prompt: bool = True,
    ) -> str:
        """The prompt of messages such as {"role": "user", "content": "Hello"}.

        tools: descriptions of functions, as OpenAI's API has them. extra: more variables of the template, such as
        {"enable_thinking": False}. Error: InvalidArgumentError (what the template refuses).
        """
        given = sized(
            _c.trm_chat_input,
            messages=json.dumps(list(messages)).encode(),
            tools=None if tools is None else json.dumps(list(tools)).encode(),
            extra=None if extra is None else json.dumps(dict(extra)).encode(),
            no_generation_prompt=not add_generation_prompt,
        )
        text, size = ctypes.c_void_p(), ctypes.c_size_t()
        lib.trm_chat_template_render(self.handle, given, ctypes.cast(ctypes.byref(text), _char_pp), size)
        return taken_text(text.value, size.value)


@dataclass
class ToolCall:
    """A call of a function: its name, and the arguments as the model wrote them, usually JSON."""

    name: str
    arguments: str = ""


class Reply(Handle):
    """Splits the reply to a prompt of `template` into reasoning, answer and calls while it is generated."""

    def __init__(self, template: ChatTemplate) -> None:
        handle = ctypes.c_void_p()
        lib.trm_reply_create(template.handle, handle)
        super().__init__(handle.value, lib.trm_reply_destroy)
        self.has_special = bool(lib.trm_reply_has_special(handle))
        """Whether text must come with its special tokens."""
        self.reasoning = ""
        self.calls: list[ToolCall] = []
        self._answered = False

    def push(self, text: str, *, at_end: bool) -> str:
        """Adds text and returns what of the answer is certain by it; messages of it are lines of their own."""
        raw = text.encode()
        piece, answer = _c.trm_reply_piece(), ""
        lib.trm_reply_push(self.handle, raw, len(raw), at_end)
        while lib.trm_reply_next(self.handle, piece):
            said = text_in(piece, "text", piece.size)
            if piece.kind == _c.trm_reply_kind.CALL:
                if piece.begins:
                    self.calls.append(ToolCall(text_in(piece, "name", piece.name_size)))
                self.calls[-1].arguments += said
            elif piece.kind == _c.trm_reply_kind.REASONING:
                self.reasoning += ("\n" if piece.begins and self.reasoning else "") + said
            elif said:
                answer += ("\n" if piece.begins and self._answered else "") + said
                self._answered = True
        return answer


class GrammarVocabulary(Handle):
    """The bytes of a tokenizer's tokens, for grammars over `size` logits."""

    def __init__(self, tokenizer: Tokenizer, end_tokens: Sequence[int], size: int) -> None:
        handle = ctypes.c_void_p()
        ends = (ctypes.c_int32 * max(1, len(end_tokens)))(*end_tokens)
        lib.trm_grammar_vocab_create(tokenizer.handle, ends, len(end_tokens), size, handle)
        super().__init__(handle.value, lib.trm_grammar_vocab_destroy, tokenizer)


class Grammar(Handle):
    """A compiled grammar. Errors: InvalidArgumentError (syntax), UnsupportedError (with the keyword)."""

    def __init__(self, vocabulary: GrammarVocabulary, kind: int, text: str) -> None:
        handle = ctypes.c_void_p()
        raw = text.encode()
        lib.trm_grammar_compile(vocabulary.handle, kind, raw, len(raw), handle)
        super().__init__(handle.value, lib.trm_grammar_destroy, vocabulary)


class GrammarMask:
    """The mask of one request: which tokens may follow its output. `callback` is a trm_mask_fn.

    A call comes with all tokens so far. They continue those of the call before, or, where speculation was wrong, differ
    near the end; then they are read again from the start.
    """

    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar
        self._state: Handle | None = None
        self._read: list[int] = []
        self.callback = weak_callback(_c.trm_mask_fn, self._call)

    def _restart(self) -> Handle:
        state = ctypes.c_void_p()
        lib.trm_grammar_state_create(self._grammar.handle, state)
        self._read = []
        self._state = Handle(state.value, lib.trm_grammar_state_destroy, self._grammar)
        return self._state

    def _call(self, user: Any, request: int, tokens: Any, n: int, mask: Any) -> int:
        try:
            text = tokens[:n]
            state = self._state
            if state is None or text[: len(self._read)] != self._read:
                state = self._restart()
            accepted = ctypes.c_bool()
            for token in text[len(self._read) :]:
                lib.trm_grammar_state_accept(state.handle, token, accepted)
            self._read = text
            lib.trm_grammar_state_mask(state.handle, mask)
        except TriremeError as error:
            return int(error.status)
        return 0
