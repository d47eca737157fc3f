"""AsyncLLM: requests of many tasks run together."""

import asyncio
import contextlib

import numpy as np
import pytest
import trireme
from conftest import MODEL

PROMPTS = ["In the beginning God", "And God said", "The LORD is my shepherd", "Blessed are the"] * 3


def run(body):
    async def main():
        async with trireme.AsyncLLM(MODEL, embeddings=True, max_context=256) as llm:
            return await body(llm)

    return asyncio.run(main())


def test_tasks_run_together(llm):
    expected = [output.text for output in llm.generate(PROMPTS, max_tokens=16)]

    async def body(other):
        outputs = await asyncio.gather(*[other.generate(prompt, max_tokens=16) for prompt in PROMPTS])
        stats = other.stats()
        return [output.text for output in outputs], stats

    texts, stats = run(body)
    assert texts == expected
    # Twelve requests of 16 tokens one after another would take 192 steps.
    assert stats["steps"] < 100


def test_streams_at_once(llm):
    expected = {prompt: llm.generate(prompt, max_tokens=12).text for prompt in PROMPTS}

    async def body(other):
        async def text(prompt):
            return "".join([piece async for piece in other.stream(prompt, max_tokens=12)])

        return await asyncio.gather(*[text(prompt) for prompt in PROMPTS])

    assert run(body) == [expected[prompt] for prompt in PROMPTS]


def test_a_cancelled_task_cancels_its_request():
    async def body(llm):
        task = asyncio.create_task(llm.generate("In the beginning", ignore_eos=True))
        while llm.stats()["running"] == 0:
            await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        while llm.stats()["running"] > 0:
            await asyncio.sleep(0)
        return llm.stats()["finished"][4]  # TRM_FINISH_CANCELLED

    assert run(body) == 1


def test_stop_chat_embed_and_errors(llm):
    user = [{"role": "user", "content": "In the beginning"}]
    expected = llm.generate("In the beginning God", max_tokens=24, stop="earth").text
    answer = llm.chat(user, max_tokens=6).text
    vector = llm.embed(["And God said"])[0]

    async def body(other):
        output = await other.generate("In the beginning God", max_tokens=24, stop="earth")
        assert (output.text, output.finish_reason) == (expected, "stop")
        assert (await other.chat(user, max_tokens=6)).text == answer
        assert "".join([piece async for piece in other.stream_chat(user, max_tokens=6)]) == answer
        np.testing.assert_allclose(await other.embed("And God said"), vector, rtol=1e-4, atol=1e-4)
        with pytest.raises(trireme.InvalidArgumentError, match="outside the vocabulary"):
            await other.generate([5000])

    run(body)


def test_more_requests_than_may_wait():
    async def main():
        async with trireme.AsyncLLM(MODEL, max_context=64, max_sequences=1, max_waiting=2) as llm:
            calls = [llm.generate("In the beginning", max_tokens=20) for _ in range(12)]
            return await asyncio.gather(*calls, return_exceptions=True)

    found = asyncio.run(main())
    assert {type(one) for one in found} == {trireme.Output, trireme.BusyError}
