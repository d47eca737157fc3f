"""Language models: the text of the program, and what LLM adds to it."""

import json
import subprocess
import threading

import numpy as np
import pytest
import trireme
from conftest import MODEL, PROGRAM

PROMPT = "In the beginning God"
USER = [{"role": "user", "content": "In the beginning"}]


def program_text(*arguments):
    command = [PROGRAM, "run", str(MODEL), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.removesuffix("\n")


def test_text_of_the_program(llm):
    assert llm.generate(PROMPT, max_tokens=48).text == program_text("-p", PROMPT, "-n", "48")


def test_output_has_everything(llm):
    output = llm.generate(PROMPT, max_tokens=16)
    assert len(output.token_ids) == 16
    assert output.finish_reason == "length"
    assert output.prompt_tokens == len(llm.tokenizer.encode(PROMPT))
    assert output.text == llm.tokenizer.decode(output.token_ids)
    assert output.logprobs is None and output.prompt_logprobs is None


def test_a_list_gives_what_each_prompt_gives(llm):
    prompts = [PROMPT, "And God said", "The LORD is my shepherd"] * 8
    alone = {prompt: llm.generate(prompt, max_tokens=12).text for prompt in set(prompts)}
    assert [o.text for o in llm.generate(prompts, max_tokens=12)] == [alone[prompt] for prompt in prompts]
    assert llm.generate([], max_tokens=3) == []


def test_token_ids_are_a_prompt(llm):
    ids = llm.tokenizer.encode(PROMPT)
    expected = llm.generate(PROMPT, max_tokens=8).text
    assert llm.generate(ids, max_tokens=8).text == expected
    assert llm.generate(np.array(ids), max_tokens=8).text == expected
    assert [o.text for o in llm.generate([ids, PROMPT], max_tokens=8)] == [expected] * 2


def test_params_of_each_prompt(llm):
    params = [trireme.SamplingParams(max_tokens=n) for n in (1, 5)]
    assert [len(o.token_ids) for o in llm.generate([PROMPT, PROMPT], params)] == [1, 5]
    with pytest.raises(trireme.InvalidArgumentError, match="2 params for 1 prompts"):
        llm.generate([PROMPT], params)
    with pytest.raises(trireme.InvalidArgumentError, match="both params and keywords"):
        llm.generate(PROMPT, params[0], max_tokens=2)


def test_seeds(llm):
    def text(seed):
        return llm.generate("And", max_tokens=24, temperature=8, seed=seed).text

    assert text(1) == text(1)
    assert len({text(seed) for seed in (1, 2, None, None)}) == 4


def test_stream_gives_the_text_in_pieces(llm):
    stream = llm.stream(PROMPT, max_tokens=48)
    pieces = list(stream)
    assert len(pieces) > 24
    assert "".join(pieces) == stream.output.text == llm.generate(PROMPT, max_tokens=48).text
    assert stream.output.finish_reason == "length"


def test_a_stream_can_be_left(llm):
    stream = llm.stream(PROMPT)
    assert next(stream)
    stream.close()
    with pytest.raises(StopIteration):
        next(stream)
    assert llm.generate(PROMPT, max_tokens=2).finish_reason == "length"


def test_stop_texts(llm):
    whole = llm.generate(PROMPT, max_tokens=48).text
    for stop in ("darkness", ["nowhere", "void; and d"], ".\n"):
        stops = [stop] if isinstance(stop, str) else stop
        found = next(s for s in stops if s in whole)
        output = llm.generate(PROMPT, max_tokens=48, stop=stop)
        assert output.text == whole[: whole.index(found)]
        assert (output.finish_reason, output.stop_text) == ("stop", found)
        stream = llm.stream(PROMPT, max_tokens=48, stop=stop)
        assert "".join(stream) == output.text
        assert stream.output.stop_text == found
    assert llm.generate(PROMPT, max_tokens=48, stop="nowhere").text == whole


def test_stop_tokens_and_bias(llm):
    first, second = llm.generate(PROMPT, max_tokens=2).token_ids
    output = llm.generate(PROMPT, max_tokens=8, stop_token_ids=[second])
    assert output.token_ids == [first] and output.finish_reason == "stop"
    assert llm.generate(PROMPT, max_tokens=1, logit_bias={first: -100}).token_ids != [first]


def test_logprobs(llm):
    output = llm.generate(PROMPT, max_tokens=3, logprobs=4, prompt_logprobs=0)
    assert [token.id for token in output.logprobs] == output.token_ids
    for token in output.logprobs:
        assert len(token.top) == 4
        assert token.top[0][0] == token.id and token.top[0][1] == pytest.approx(token.logprob)  # greedy
        assert token.logprob < 0
    assert [token.id for token in output.prompt_logprobs] == llm.tokenizer.encode(PROMPT)[1:]


def test_grammars(llm):
    assert llm.generate(PROMPT, choice=["yes", "no"], max_tokens=8).text in ("yes", "no")
    assert llm.generate(PROMPT, regex="[0-9]{3}", max_tokens=8).text.isdigit()
    assert llm.generate(PROMPT, ebnf='root ::= "a" "b"', max_tokens=8).text == "ab"
    schema = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": False}
    assert json.loads(llm.generate(PROMPT, json_schema=schema, max_tokens=24).text)["n"] in (1, 2)
    with pytest.raises(trireme.InvalidArgumentError, match="several of json_schema"):
        llm.generate(PROMPT, regex="a", choice=["b"])
    with pytest.raises(trireme.InvalidArgumentError):
        llm.generate(PROMPT, regex="(")


def test_chat(llm):
    template = trireme.ChatTemplate(MODEL)
    ids = llm.tokenizer.encode(template.render(USER), add_special=False)
    expected = llm.generate(ids, max_tokens=8).text
    assert llm.chat(USER, max_tokens=8).text == expected
    assert "".join(llm.stream_chat(USER, max_tokens=8)) == expected
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    assert llm.chat(USER, tools=tools, max_tokens=1).finish_reason == "length"


def test_replies_in_the_harmony_format(tmp_path):
    """The model is made to write such a reply, in characters, by a grammar."""
    for file in MODEL.iterdir():
        if file.name != "chat_template.jinja":
            (tmp_path / file.name).symlink_to(file)
    template = "{{ messages[0].content }}{# <|channel|>final<|message|> #}"
    (tmp_path / "chat_template.jinja").write_text(template)
    thought = "<|channel|>analysis<|message|>Light?<|end|><|start|>assistant"
    call = " to=functions.look<|channel|>commentary json<|message|>{'at': 1}<|call|><|start|>assistant"
    final = "<|channel|>final<|message|>Let there be light."
    grammar = f'root ::= "{thought}" "{call}" "{final}"'
    with trireme.LLM(tmp_path) as llm:
        output = llm.chat(USER, ebnf=grammar)
        assert (output.text, output.reasoning) == ("Let there be light.", "Light?")
        assert output.tool_calls == [trireme.ToolCall("look", "{'at': 1}")]
        stream = llm.stream_chat(USER, ebnf=grammar, stop=" be")
        assert "".join(stream) == stream.output.text == "Let there"
        assert stream.output.reasoning == "Light?"
        plain = llm.chat(USER, max_tokens=4)
        assert plain.text and plain.reasoning == "" and plain.tool_calls == []


def test_embeddings(llm):
    vectors = llm.embed([PROMPT, "And God said", PROMPT], normalize=True)
    assert vectors.shape == (3, llm.info["hidden"]) and vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(vectors[0], vectors[2], rtol=1e-4, atol=1e-5)
    assert not np.allclose(vectors[0], llm.embed([PROMPT], pooling="mean", normalize=True)[0], atol=1e-3)


def test_prompts_that_are_refused(llm):
    with pytest.raises(trireme.InvalidArgumentError, match="outside the vocabulary"):
        llm.generate([1, 5000])
    with pytest.raises(trireme.InvalidArgumentError, match="outside the vocabulary"):
        llm.generate([1, (1 << 32) + 5])
    with pytest.raises(trireme.InvalidArgumentError, match="context"):
        llm.generate([5] * 2000)
    with pytest.raises(trireme.InvalidArgumentError, match="empty"):
        llm.generate([[]])
    # One that fails cancels the others of its call, and nothing else.
    with pytest.raises(trireme.InvalidArgumentError):
        llm.generate([PROMPT, [5000]])
    assert llm.generate(PROMPT, max_tokens=1).finish_reason == "length"


def test_threads_may_call_at_once(llm):
    expected = llm.generate(PROMPT, max_tokens=16).text
    found = []
    threads = [threading.Thread(target=lambda: found.append(llm.generate(PROMPT, max_tokens=16).text)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 6


def test_what_a_model_tells(llm):
    assert (llm.rank, llm.ranks, llm.backend) == (0, 1, "host")
    assert llm.info["architecture"] == "LlamaForCausalLM" and llm.info["layers"] == 8
    assert llm.limits["max_context"] == 1024
    llm.generate(PROMPT, max_tokens=3)
    assert llm.stats()["generated_tokens"] >= 3
    assert llm.stats()["running"] == 0


def test_default_params(tmp_path, llm):
    assert llm.default_params == trireme.SamplingParams()
    for file in MODEL.iterdir():
        if file.name != "generation_config.json":
            (tmp_path / file.name).symlink_to(file)
    (tmp_path / "generation_config.json").write_text('{"do_sample": true, "temperature": 0.5, "top_k": 20}')
    with trireme.LLM(tmp_path, max_context=32) as other:
        assert other.default_params == trireme.SamplingParams(temperature=0.5, top_k=20)


def test_options_reach_the_engine():
    loaded = []
    with trireme.LLM(
        MODEL,
        dtype="bf16",
        max_context=64,
        max_sequences=2,
        speculation="lookup",
        weight_budget="50%",
        progress=lambda done, total: loaded.append((done, total)),
    ) as llm:
        assert llm.limits["max_context"] == 64 and llm.limits["max_sequences"] == 2
        assert llm.limits["streaming"]["on"]
        assert llm.generate(PROMPT, max_tokens=8).text.startswith(" created the heaven")
        with pytest.raises(trireme.UnsupportedError, match="embeddings=True"):
            llm.embed([PROMPT])
    assert loaded and loaded[-1][0] == loaded[-1][1]


def test_a_timeline(tmp_path):
    with pytest.raises(trireme.FileError, match="cannot write timeline"):
        trireme.LLM(MODEL, max_context=64, timeline=tmp_path / "none" / "t.json")
    with trireme.LLM(MODEL, max_context=64, timeline=tmp_path / "t.json") as llm:
        llm.generate(PROMPT, max_tokens=4)
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert [event["name"] for event in events if event.get("cat") == "step"] == ["prefill"] + 3 * ["decode"]
    assert [event["name"] for event in events if event["ph"] == "b"] == ["request", "queued", "prefill", "decode"]


def test_a_draft_model_changes_nothing(llm):
    expected = llm.generate(PROMPT, max_tokens=24).text
    with trireme.LLM(MODEL, draft=MODEL, max_context=128) as drafted:
        assert drafted.generate(PROMPT, max_tokens=24).text == expected
        assert drafted.stats()["accepted_tokens"] > 0


def test_errors_of_opening():
    with pytest.raises(trireme.FileError, match="nowhere"):
        trireme.LLM("nowhere")
    with pytest.raises(trireme.InvalidArgumentError, match="tp=2"):
        trireme.LLM(MODEL, mesh="tp=2")
    with pytest.raises(trireme.NoDeviceError):
        trireme.LLM(MODEL, backend="cuda", gpu=64)
    with pytest.raises(trireme.InvalidArgumentError, match="expected one of"):
        trireme.LLM(MODEL, backend="tpu")


def test_a_closed_model_says_so():
    llm = trireme.LLM(MODEL, max_context=64)
    stream = llm.stream(PROMPT)
    next(stream)
    llm.close()
    llm.close()
    with pytest.raises(trireme.CancelledError, match="closed"):
        for _ in stream:
            pass
    with pytest.raises(trireme.CancelledError, match="closed"):
        llm.generate(PROMPT)


def write_adapter(folder, seed):
    """A random LoRA adapter of q_proj in all layers."""
    draw, tensors, data = np.random.default_rng(seed), {}, b""
    config = json.loads((MODEL / "config.json").read_text())
    for layer in range(config["num_hidden_layers"]):
        for part, shape in (("A", (4, config["hidden_size"])), ("B", (config["hidden_size"], 4))):
            values = draw.normal(0, 0.15, shape).astype(np.float32).tobytes()
            tensors[f"base_model.model.model.layers.{layer}.self_attn.q_proj.lora_{part}.weight"] = {
                "dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
            data += values
    header = json.dumps(tensors).encode()
    folder.mkdir()
    (folder / "adapter_model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + data)
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 4, "lora_alpha": 16}))
    return folder


def test_adapters(tmp_path):
    folders = [write_adapter(tmp_path / str(i), i) for i in range(2)]
    expected = [program_text("-p", PROMPT, "-n", "24", "--adapter", str(folder)) for folder in folders]
    with trireme.LLM(MODEL, max_adapters=1, max_adapter_rank=4) as llm:
        plain = llm.generate(PROMPT, max_tokens=24).text
        first = llm.load_adapter(folders[0])
        assert llm.generate(PROMPT, max_tokens=24, adapter=first).text == expected[0] != plain
        with pytest.raises(trireme.TriremeError, match="there is room for 1"):
            llm.load_adapter(folders[1])
        llm.unload_adapter(first)
        with pytest.raises(trireme.InvalidArgumentError, match="is not loaded"):
            llm.generate(PROMPT, max_tokens=24, adapter=first)
        second = llm.load_adapter(folders[1])
        assert llm.generate(PROMPT, max_tokens=24, adapter=second).text == expected[1] != expected[0]
        assert llm.generate(PROMPT, max_tokens=24).text == plain
