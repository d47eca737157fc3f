"""What a rank of test_ranks.py does: rank.py llm|async|engine|lost. Rank 0 prints what the test compares."""

import asyncio
import os
import sys

import numpy as np
import trireme
from conftest import GOLDENS, MODEL

PROMPTS = ["In the beginning God", "And God said"]


def llm():
    with trireme.LLM(MODEL, embeddings=True) as model:
        assert model.ranks == 2
        outputs = model.generate(PROMPTS, max_tokens=16)
        pieces = list(model.stream(PROMPTS[0], max_tokens=16))
        vectors = model.embed(PROMPTS)
        answer = model.chat([{"role": "user", "content": "In the beginning"}], max_tokens=4)
        if model.rank == 0:
            assert "".join(pieces) == outputs[0].text and vectors.shape == (2, model.info["hidden"])
            assert len(answer.token_ids) == 4
            for output in outputs:
                print(output.text)
        else:
            assert [output.finish_reason for output in outputs] == ["other_rank"] * 2
            assert pieces == [] and vectors.shape == (2, 0) and answer.text == ""


def asynchronous():
    async def main():
        async with trireme.AsyncLLM(MODEL, mesh="tp=2") as model:
            outputs = await asyncio.gather(*[model.generate(prompt, max_tokens=16) for prompt in PROMPTS])
            await asyncio.sleep(2.5)  # the ranks that follow hear from rank 0 meanwhile
            outputs[0] = await model.generate(PROMPTS[0], max_tokens=16)
            if model.rank == 0:
                for output in outputs:
                    print(output.text)

    asyncio.run(main())


def engine():
    path = GOLDENS / "encoder" / "model.onnx"
    folder = path.parent / "test_data_set_0"
    with trireme.World("host") as world:
        with trireme.OnnxModel(path) as model:
            inputs = {
                port.name: trireme.read_onnx_tensor(folder / f"input_{i}.pb") for i, port in enumerate(model.inputs)
            }
        with trireme.Engine.from_onnx(path, {n: v.shape for n, v in inputs.items()}, world=world, mesh="tp=2") as engine:
            outputs = engine.run(inputs)
        for i, value in enumerate(outputs.values()):
            golden = trireme.read_onnx_tensor(folder / f"output_{i}.pb")
            np.testing.assert_allclose(value, golden, rtol=1e-3, atol=1e-5)
        total = np.zeros(3, np.float32)
        world.collective("all_reduce", np.full(3, world.rank + 1, np.float32), total, reduce="sum")
        gathered = np.zeros(2, np.int64)
        world.collective("all_gather", np.array([world.rank]), gathered)
        word = np.array([7 if world.rank == 0 else 0])
        world.broadcast(word)
        if world.rank == 0:
            print(total.tolist(), gathered.tolist(), word.tolist())


def lost():
    """Rank 1 dies. Calls on rank 0 raise LostRankError."""
    model = trireme.LLM(MODEL, deadline=5)
    if model.rank == 1:
        os._exit(0)
    try:
        while True:
            model.generate(PROMPTS, max_tokens=16)
    except trireme.LostRankError as error:
        print("lost:", error.status.name, flush=True)
    os._exit(0)


{"llm": llm, "async": asynchronous, "engine": engine, "lost": lost}[sys.argv[1]]()
