"""The official client against the server: what it sends and expects, unchanged."""
import base64
import concurrent.futures
import contextlib
import gzip
import http.client
import json
import os
import re
import struct
import tempfile
import time
import unittest

import openai

from serving import BACKEND, BEGINNING, MODEL, Server, temporary_file


def setUpModule():
    global server, client
    server = Server()
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="any", max_retries=0, timeout=600)


def tearDownModule():
    code = server.stop()
    assert code == 0, f"the server ended with {code}:\n" + "\n".join(server.lines[-40:])


@contextlib.contextmanager
def other_file(changed, change):
    """A folder of the model with a JSON file that is changed."""
    with tempfile.TemporaryDirectory() as folder:
        for name in os.listdir(MODEL):
            os.symlink(os.path.join(os.path.abspath(MODEL), name), os.path.join(folder, name))
        path = os.path.join(folder, changed)
        with open(path) as file:
            value = json.load(file)
        change(value)
        os.unlink(path)
        with open(path, "w") as file:
            json.dump(value, file)
        yield folder


def other_tokenizer(change):
    return other_file("tokenizer.json", change)


class Models(unittest.TestCase):
    def test_list(self):
        models = client.models.list().data
        self.assertEqual([model.id for model in models], ["kjv-7m"])

    def test_retrieve(self):
        self.assertEqual(client.models.retrieve("kjv-7m").id, "kjv-7m")
        with self.assertRaises(openai.NotFoundError):
            client.models.retrieve("other")


class Completions(unittest.TestCase):
    def complete(self, **options):
        return client.completions.create(**dict(
            {"model": "kjv-7m", "prompt": "In the beginning", "max_tokens": 8, "temperature": 0}, **options))

    def test_text(self):
        reply = self.complete()
        self.assertEqual(reply.choices[0].text, BEGINNING)
        self.assertEqual(reply.choices[0].finish_reason, "length")
        self.assertEqual(reply.usage.completion_tokens, 8)
        self.assertEqual(reply.usage.prompt_tokens, 4)
        self.assertEqual(reply.usage.total_tokens, 12)
        self.assertEqual(reply.object, "text_completion")

    def test_stream(self):
        chunks = list(self.complete(stream=True))
        self.assertEqual("".join(chunk.choices[0].text for chunk in chunks), BEGINNING)
        self.assertEqual([chunk.choices[0].finish_reason for chunk in chunks], [None] * (len(chunks) - 1) + ["length"])
        self.assertEqual(len({chunk.id for chunk in chunks}), 1)

    def test_stream_usage(self):
        chunks = list(self.complete(stream=True, stream_options={"include_usage": True}))
        self.assertEqual(chunks[-1].choices, [])
        self.assertEqual(chunks[-1].usage.completion_tokens, 8)

    def test_prompts(self):
        reply = self.complete(prompt=["In the beginning", "Jesus wept", "And it came to pass"], n=2)
        self.assertEqual([choice.index for choice in reply.choices], list(range(6)))
        self.assertEqual(reply.choices[0].text, BEGINNING)
        self.assertEqual(reply.choices[1].text, BEGINNING)
        self.assertEqual(reply.choices[2].text, self.complete(prompt="Jesus wept").choices[0].text)

    def test_stream_of_several(self):
        texts = ["", "", ""]
        for chunk in self.complete(prompt=["In the beginning"] * 3, stream=True):
            texts[chunk.choices[0].index] += chunk.choices[0].text
        self.assertEqual(texts, [BEGINNING] * 3)

    def test_ids(self):
        status, reply, _ = server.request("POST", "/tokenize", {"prompt": "In the beginning"})
        self.assertEqual(status, 200)
        self.assertEqual(self.complete(prompt=reply["tokens"]).choices[0].text, BEGINNING)
        self.assertEqual(self.complete(prompt=[reply["tokens"]] * 2).choices[1].text, BEGINNING)

    def test_stop(self):
        for stream in (False, True):
            for stop, text in ((" heaven", " God created the"), (["zzz", "eaven and th"], " God created the h"), ([], BEGINNING)):
                reply = self.complete(stop=stop, stream=stream)
                choices = [chunk.choices[0] for chunk in reply] if stream else [reply.choices[0]]
                self.assertEqual("".join(choice.text for choice in choices), text)
                self.assertEqual(choices[-1].finish_reason, "stop" if stop else "length")

    def test_echo(self):
        self.assertEqual(self.complete(echo=True).choices[0].text, "In the beginning" + BEGINNING)
        text = "".join(chunk.choices[0].text for chunk in self.complete(echo=True, stream=True))
        self.assertEqual(text, "In the beginning" + BEGINNING)

    def test_echo_alone(self):
        reply = self.complete(echo=True, max_tokens=0)
        self.assertEqual(reply.choices[0].text, "In the beginning")
        self.assertEqual(reply.usage.completion_tokens, 0)

    def test_seed(self):
        texts = [self.complete(temperature=2, seed=seed, max_tokens=24).choices[0].text for seed in (1, 1, 2)]
        self.assertEqual(texts[0], texts[1])
        self.assertNotEqual(texts[0], texts[2])

    def test_choices_differ(self):
        reply = self.complete(temperature=2, seed=1, n=4, max_tokens=24)
        self.assertEqual(len({choice.text for choice in reply.choices}), 4)

    def test_logprobs(self):
        choice = self.complete(logprobs=3).choices[0]
        self.assertEqual("".join(choice.logprobs.tokens), BEGINNING)
        self.assertEqual(len(choice.logprobs.token_logprobs), 8)
        for token, logprob, top in zip(choice.logprobs.tokens, choice.logprobs.token_logprobs, choice.logprobs.top_logprobs):
            self.assertLessEqual(logprob, 0)
            self.assertGreaterEqual(len(top), 1)
            self.assertLessEqual(len(top), 3)
            self.assertAlmostEqual(max(top.values()), logprob, places=4)
            self.assertEqual(max(top, key=top.get), token)
        self.assertEqual(choice.logprobs.text_offset[:3], [0, 4, 12])

    def test_prompt_logprobs(self):
        for prompt in ("In the beginning", server.request("POST", "/tokenize", {"prompt": "In the beginning"})[1]["tokens"]):
            for stream in (False, True):
                reply = self.complete(prompt=prompt, echo=True, logprobs=2, max_tokens=3, stream=stream)
                choices = [chunk.choices[0] for chunk in reply] if stream else reply.choices
                self.assertEqual("".join(choice.text for choice in choices), "In the beginning God created the")
                parts = [choice.logprobs for choice in choices if choice.logprobs]
                tokens, values, tops, offsets = (sum((getattr(part, name) for part in parts), []) for name in
                                                 ("tokens", "token_logprobs", "top_logprobs", "text_offset"))
                self.assertEqual(tokens[1:], ["In", " the", " beginning", " God", " created", " the"])
                self.assertEqual((values[0], tops[0]), (None, None))
                self.assertEqual(offsets, [0, 0, 2, 6, 16, 20, 28])
                self.assertTrue(all(value <= 0 for value in values[1:]))
        alone = self.complete(echo=True, logprobs=1, max_tokens=0).choices[0]
        self.assertEqual((alone.text, len(alone.logprobs.tokens)), ("In the beginning", 4))

    def test_prompt_logprobs_apart(self):
        """vLLM's form: for each token of the prompt an object by ids, the token's own entry first."""
        echoed = self.complete(echo=True, logprobs=2, max_tokens=2).choices[0].logprobs
        ids = server.request("POST", "/tokenize", {"prompt": "In the beginning"})[1]["tokens"]
        asked = {"prompt_logprobs": 2}
        chat = client.chat.completions.create(model="kjv-7m", messages=[{"role": "user", "content": "In the beginning"}], max_tokens=1, n=2, extra_body=asked)
        reply = self.complete(prompt=["In the beginning", "In the beginning", ""], n=2, max_tokens=2, logprobs=1, extra_body=asked)
        for found in [choice.prompt_logprobs for choice in reply.choices[:4]] + [chat.prompt_logprobs]:
            self.assertEqual(len(found), len(ids))
            self.assertIsNone(found[0])
            for entry, token, text, value, top in zip(found[1:], ids[1:], echoed.tokens[1:], echoed.token_logprobs[1:], echoed.top_logprobs[1:]):
                self.assertEqual(list(entry)[0], str(token))
                self.assertEqual(entry[str(token)]["decoded_token"], text)
                self.assertAlmostEqual(entry[str(token)]["logprob"], value, places=4)
                ranked = {e["rank"]: e for e in entry.values() if e["rank"]}
                self.assertEqual(set(ranked), {1, 2})
                self.assertAlmostEqual(ranked[1]["logprob"], max(top.values()), places=4)
                self.assertEqual({e["decoded_token"] for e in ranked.values()}, set(top))
        self.assertEqual([choice.prompt_logprobs for choice in reply.choices[4:]], [[None], [None]])
        self.assertEqual(reply.choices[0].logprobs.text_offset, [0, 4]) # of the text, which the prompt is no part of
        both = self.complete(echo=True, logprobs=0, max_tokens=0, extra_body=asked).choices[0]
        self.assertEqual(set(map(len, both.logprobs.top_logprobs[1:])), {0})
        self.assertGreaterEqual(len(both.prompt_logprobs[1]), 2)
        rare = self.complete(prompt="beginning In", max_tokens=1, extra_body={"prompt_logprobs": 0}).choices[0].prompt_logprobs
        self.assertEqual([(len(entry), entry[list(entry)[0]]["rank"]) for entry in rare[1:]], [(1, None)] * (len(rare) - 1))
        self.assertFalse(hasattr(self.complete().choices[0], "prompt_logprobs"))
        for options, code in ({"stream": True}, "invalid_value"), ({"extra_body": {"prompt_logprobs": 21}}, "invalid_value"):
            with self.assertRaises(openai.BadRequestError) as caught:
                self.complete(**dict({"extra_body": asked}, **options))
            self.assertEqual((caught.exception.param, caught.exception.code), ("prompt_logprobs", code))

    def test_characters(self):
        """Tokens that are parts of characters: their bytes make up the text, and offsets count characters."""
        text = "na\u00efve \u4e2d\u6587 \U0001f642 end"
        reply = self.complete(prompt="\u00e9\u4e2d", echo=True, logprobs=0, max_tokens=60, extra_body={"guided_choice": [text]})
        self.assertEqual(reply.choices[0].text, "\u00e9\u4e2d" + text)
        logprobs = reply.choices[0].logprobs
        self.assertGreater(len(logprobs.tokens), len(text) + 8)
        self.assertEqual(logprobs.text_offset, sorted(logprobs.text_offset))
        for token, offset in zip(logprobs.tokens[1:], logprobs.text_offset[1:]):
            if "\ufffd" not in token:
                self.assertEqual(reply.choices[0].text[offset:offset + len(token)], token)
        self.assertEqual(logprobs.text_offset[-1], len(text) + 2 - len(logprobs.tokens[-1]))
        chat = client.chat.completions.create(model="kjv-7m", messages=[{"role": "user", "content": "x"}], max_tokens=60,
                                              logprobs=True, extra_body={"guided_choice": [text]}).choices[0]
        self.assertEqual(bytes(sum((entry.bytes for entry in chat.logprobs.content), [])).decode(), text)

    def test_tokens_of_one_text(self):
        """Parts of characters are likely here, whose texts are alike: top_logprobs has one entry for them, of the likeliest."""
        def change(tokenizer):
            vocab = tokenizer["model"]["vocab"]
            for word, part in ("\u0120God", "\u00f0"), ("\u0120was", "\u00f1"):
                vocab[word], vocab[part] = vocab[part], vocab[word]
        def unlike(members):
            keys = [key for key, _ in members]
            self.assertEqual(sorted(keys), sorted(set(keys)))
            return dict(members)
        with other_tokenizer(change) as folder, Server(model=folder) as other:
            asked = json.dumps({"prompt": "In the beginning", "max_tokens": 1, "temperature": 0, "logprobs": 3})
            connection = http.client.HTTPConnection("127.0.0.1", other.port, timeout=600)
            connection.request("POST", "/v1/completions", asked)
            reply = json.loads(connection.getresponse().read(), object_pairs_hook=unlike)
            connection.close()
        expected = self.complete(logprobs=3, max_tokens=1).choices[0].logprobs.top_logprobs[0]
        found = reply["choices"][0]["logprobs"]["top_logprobs"][0]
        self.assertEqual(len(found), 2)
        self.assertAlmostEqual(found["\ufffd"], expected[" God"], places=2)

    def test_suffix(self):
        """What is filled in between two texts. Tokens of bytes that the texts have not stand for the marks."""
        marks = ("<|fim_prefix|>", 255), ("<|fim_suffix|>", 256), ("<|fim_middle|>", 257)
        def add(tokenizer):
            names = {number: name for name, number in tokenizer["model"]["vocab"].items()}
            for mark, number in marks:
                tokenizer["model"]["vocab"][mark] = tokenizer["model"]["vocab"].pop(names[number])
                tokenizer["added_tokens"].append(dict(tokenizer["added_tokens"][0], id=number, content=mark))
        with other_tokenizer(add) as folder, Server(model=folder) as other:
            ask = lambda **more: other.request("POST", "/v1/completions", dict({"prompt": "In the", "suffix": " God", "max_tokens": 2,
                                                                              "return_token_ids": True}, **more))
            text = lambda words: other.request("POST", "/tokenize", {"prompt": words, "add_special_tokens": False})[1]["tokens"]
            ids = ask()[1]["choices"][0]["prompt_token_ids"]
            self.assertEqual(ids[-len(text(" God")) - 2:], [256] + text(" God") + [257])
            self.assertIn(255, ids)
            for more in {"echo": True}, {"prompt": [5, 6]}:
                status, reply, _ = ask(**more)
                self.assertEqual((status, reply["error"]["param"]), (400, "suffix"))

    def test_token_ids(self):
        reply = self.complete(extra_body={"return_token_ids": True}).choices[0]
        prompt = server.request("POST", "/tokenize", {"prompt": "In the beginning"})[1]["tokens"]
        self.assertEqual(reply.prompt_token_ids, prompt)
        text = server.request("POST", "/detokenize", {"tokens": reply.token_ids})[1]["prompt"]
        self.assertEqual((text, len(reply.token_ids)), (BEGINNING, 8))
        choices = [chunk.choices[0] for chunk in self.complete(stream=True, extra_body={"return_token_ids": True})]
        self.assertEqual([getattr(choice, "prompt_token_ids", None) for choice in choices], [prompt] + [None] * (len(choices) - 1))
        self.assertEqual(sum((choice.token_ids for choice in choices), []), reply.token_ids)
        ask = dict(model="kjv-7m", messages=[{"role": "user", "content": "In the beginning"}], max_tokens=8, temperature=0,
                   extra_body={"return_token_ids": True})
        chat = client.chat.completions.create(**ask)
        self.assertEqual((chat.prompt_token_ids, chat.choices[0].token_ids), (prompt, reply.token_ids))
        chunks = list(client.chat.completions.create(stream=True, **ask))
        self.assertEqual(chunks[0].prompt_token_ids, prompt)
        self.assertEqual(sum((getattr(chunk.choices[0], "token_ids", []) for chunk in chunks), []), reply.token_ids)
        self.assertFalse(hasattr(self.complete().choices[0], "token_ids"))

    def test_prompt_of_one_token(self):
        for most in 0, 1:
            choice = self.complete(prompt="", echo=True, logprobs=0, max_tokens=most).choices[0]
            self.assertEqual(choice.logprobs.tokens, ["<|begin_of_text|>", "In"][:most + 1])
            self.assertEqual((choice.logprobs.token_logprobs[0], choice.logprobs.text_offset), (None, [0, 0][:most + 1]))

    def test_stop_is_kept(self):
        for stream in (False, True):
            reply = self.complete(stop=["eaven and th"], stream=stream, extra_body={"include_stop_str_in_output": True})
            text = "".join(chunk.choices[0].text for chunk in reply) if stream else reply.choices[0].text
            self.assertEqual(text, " God created the heaven and th")

    def test_stop_after_min_tokens(self):
        """Strings that end within the first tokens end nothing; one that reaches beyond them does."""
        for stop, least, text in (("the", 2, " God created "), ("the", 3, " God created the heaven and "), ("earth", 8, BEGINNING),
                                  ("created the", 2, " God "), ("created the", 3, BEGINNING)):
            for stream in False, True:
                reply = self.complete(stop=[stop], stream=stream, extra_body={"min_tokens": least})
                found = "".join(chunk.choices[0].text for chunk in reply) if stream else reply.choices[0].text
                self.assertEqual(found, text, (stop, least, stream))

    def test_logit_bias(self):
        word = server.request("POST", "/tokenize", {"prompt": " God", "add_special_tokens": False})[1]["tokens"]
        self.assertEqual(len(word), 1)
        self.assertFalse(self.complete(logit_bias={str(word[0]): -100}).choices[0].text.startswith(" God"))
        self.assertEqual(self.complete(logit_bias={str(word[0]): 100}, max_tokens=3).choices[0].text, " God God God")

    def test_end_of_text(self):
        eos = server.request("POST", "/tokenize", {"prompt": "<|end_of_text|>", "add_special_tokens": False})[1]["tokens"]
        reply = self.complete(logit_bias={str(eos[0]): 100})
        self.assertEqual((reply.choices[0].text, reply.choices[0].finish_reason), ("", "stop"))
        heaven = server.request("POST", "/tokenize", {"prompt": " heaven", "add_special_tokens": False})[1]["tokens"]
        reply = self.complete(extra_body={"stop_token_ids": heaven})
        self.assertEqual((reply.choices[0].text, reply.choices[0].finish_reason), (" God created the", "stop"))
        reply = self.complete(max_tokens=30, extra_body={"stop_token_ids": heaven, "min_tokens": 6})
        self.assertTrue(reply.choices[0].text.startswith(" God created the"), reply)
        self.assertGreaterEqual(reply.usage.completion_tokens, 6)


    def test_best_of(self):
        options = {"temperature": 1.2, "seed": 3, "max_tokens": 12, "logprobs": 0}
        several = self.complete(n=6, **options).choices
        ranked = sorted(several, key=lambda c: -sum(c.logprobs.token_logprobs) / len(c.logprobs.token_logprobs))
        reply = self.complete(n=2, best_of=6, **options)
        self.assertEqual([choice.text for choice in reply.choices], [choice.text for choice in ranked[:2]])
        self.assertEqual([choice.index for choice in reply.choices], [0, 1])
        self.assertEqual(reply.usage.completion_tokens, 72)
        reply = self.complete(prompt=["In the beginning", "And"], n=1, best_of=3, temperature=0.5, seed=3)
        self.assertEqual([choice.index for choice in reply.choices], [0, 1])
        self.assertIsNone(reply.choices[0].logprobs)


class Defaults(unittest.TestCase):
    """How generation_config.json wants the model to be sampled."""
    def test_defaults(self):
        ask = lambda other, **more: other.request("POST", "/v1/completions", dict({"prompt": "In the beginning", "max_tokens": 8}, **more))[1]["choices"][0]["text"]
        with other_file("generation_config.json", lambda config: config.update(do_sample=True, temperature=3, top_k=1)) as folder:
            with Server(model=folder) as other:
                self.assertEqual({ask(other, seed=seed) for seed in range(4)}, {BEGINNING})
                self.assertGreater(len({ask(other, seed=seed, top_k=0) for seed in range(4)}), 1)
                self.assertEqual({ask(other, seed=seed, top_k=0, temperature=0) for seed in range(4)}, {BEGINNING})
            with Server("--no-generation-config", model=folder) as other:
                self.assertGreater(len({ask(other, seed=seed, temperature=3) for seed in range(4)}), 1)


class Chat(unittest.TestCase):
    def chat(self, content="In the beginning", **options):
        return client.chat.completions.create(**dict(
            {"model": "kjv-7m", "messages": [{"role": "user", "content": content}], "max_tokens": 8, "temperature": 0}, **options))

    def test_text(self):
        reply = self.chat()
        self.assertEqual(reply.object, "chat.completion")
        self.assertEqual(reply.choices[0].message.content, BEGINNING)
        self.assertEqual(reply.choices[0].message.role, "assistant")
        self.assertEqual(reply.choices[0].finish_reason, "length")
        self.assertEqual((reply.usage.prompt_tokens, reply.usage.completion_tokens), (4, 8))

    def test_parts(self):
        parts = [{"type": "text", "text": "In the beginning"}]
        self.assertEqual(self.chat(parts).choices[0].message.content, BEGINNING)

    def test_stream(self):
        chunks = list(self.chat(stream=True, stream_options={"include_usage": True}, stop=[".\n"]))
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        self.assertEqual("".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]), BEGINNING[:-2])
        self.assertEqual(chunks[-2].choices[0].finish_reason, "stop")
        self.assertEqual(chunks[-1].usage.completion_tokens, 8)

    def test_logprobs(self):
        for stream in (False, True):
            reply = self.chat(logprobs=True, top_logprobs=2, stream=stream)
            choices = [chunk.choices[0] for chunk in reply] if stream else reply.choices
            entries = [entry for choice in choices if choice.logprobs for entry in choice.logprobs.content]
            self.assertEqual("".join(entry.token for entry in entries), BEGINNING)
            for entry in entries:
                self.assertEqual(len(entry.top_logprobs), 2)
                self.assertEqual(entry.top_logprobs[0].token, entry.token)
                self.assertAlmostEqual(entry.top_logprobs[0].logprob, entry.logprob, places=4)
                self.assertEqual(bytes(entry.bytes).decode(), entry.token)

    def test_default_length(self):
        reply = self.chat(max_tokens=None, max_completion_tokens=5)
        self.assertEqual(reply.usage.completion_tokens, 5)
        reply = self.chat(max_tokens=None, extra_body={"ignore_eos": True})
        self.assertEqual(reply.usage.total_tokens, 1024)

    def test_template(self):
        messages = [{"role": "system", "content": "a"}, {"role": "user", "content": [{"type": "text", "text": "b"}]}]
        reply = server.request("POST", "/apply-template", {"messages": messages})
        self.assertEqual(reply[:2], (200, {"prompt": "<|begin_of_text|>a\nb"}))
        call = {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}
        reply = server.request("POST", "/apply-template", {"messages": [call, {"role": "tool", "tool_call_id": "c", "content": "d"}]})
        self.assertEqual(reply[:2], (200, {"prompt": "<|begin_of_text|>\nd"}))

    def test_forms_of_calls(self):
        """Templates that add arguments to a text, and that want ids of nine characters, as some of DeepSeek's and Mistral's do."""
        template = ("{% for m in messages %}{% for c in m.tool_calls or [] %}{% if c.id|length != 9 %}{{ raise_exception('long') }}{% endif %}"
                    "{{ c.id + c.function.arguments }}{% endfor %}{{ m.tool_call_id or '' }}|{% endfor %}")
        call = lambda name: {"id": name, "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
        messages = [{"role": "assistant", "content": None, "tool_calls": [call("toolu_123456"), call("123456789")]},
                    {"role": "tool", "tool_call_id": "toolu_123456", "content": ""}, {"role": "tool", "tool_call_id": "123456789", "content": ""}]
        with temporary_file(template) as path, Server("--chat-template", path) as other:
            status, reply, _ = other.request("POST", "/apply-template", {"messages": messages})
            self.assertEqual(status, 200, reply)
            calls, first, second, _ = reply["prompt"].split("|")
            self.assertEqual((len(first), second), (9, "123456789"))
            self.assertEqual(calls, first + '{"a": 1}' + second + '{"a": 1}')
        for shown, expected in ("{{ m.content.strip() }}", "<>"), ("{% if m['role'] == 'assistant' and m['content'] is none %}none{% endif %}", "<>"), (
                "{% if message['role'] == 'assistant' and message['content'] is none %}none{% endif %}", "<none>"):
            loop = "{% for message in messages %}{% set m = message %}<" + shown + ">{% endfor %}"
            with temporary_file(loop) as path, Server("--chat-template", path) as other:
                reply = other.request("POST", "/apply-template", {"messages": messages[:1]})
                self.assertEqual(reply[:2], (200, {"prompt": expected}))

    def test_continued(self):
        """The last message is continued, not answered."""
        template = "{% for m in messages %}{{ m.role }}:{{ m.content | trim }}|{% endfor %}{{ 'assistant:' if add_generation_prompt }}{# </think> #}"
        with temporary_file(template) as path, Server("--chat-template", path) as other:
            ask = lambda path, last, **more: other.request("POST", path, dict({"messages": [{"role": "user", "content": "Say."}, {"role": "assistant", "content": last}],
                                                                             "max_tokens": 8, "temperature": 0}, **more))[1]
            for last in "In the", "In the ":
                self.assertEqual(ask("/apply-template", last, continue_final_message=True, add_generation_prompt=False)["prompt"], "user:Say.|assistant:In the")
            self.assertEqual(ask("/apply-template", "In the")["prompt"], "user:Say.|assistant:In the|assistant:")
            text = other.complete("user:Say.|assistant:In the")
            reply = ask("/v1/chat/completions", "In the", continue_final_message=True)
            self.assertEqual(reply["choices"][0]["message"]["content"], text)
            self.assertEqual(ask("/v1/messages", "In the")["content"], [{"type": "text", "text": text}])
        with temporary_file("{{ messages | length }}") as path, Server("--chat-template", path) as other:
            status, reply, _ = other.request("POST", "/v1/messages", {"max_tokens": 1, "messages": [{"role": "assistant", "content": "x"}]})
            self.assertEqual((status, "last message" in reply["error"]["message"]), (400, True))

    def test_wrong(self):
        for messages in ([], "x", [{"role": "user"}, 5], [{"content": "x"}], [{"role": "user", "content": 5}],
                         [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]):
            status, reply, _ = server.request("POST", "/v1/chat/completions", {"messages": messages})
            self.assertEqual(status, 400, (messages, reply))
            self.assertEqual(reply["error"]["param"], "messages")
        for key, value in {"functions": [{"name": "f"}], "function_call": {"name": "f"}, "echo": True, "add_generation_prompt": False,
                           "continue_final_message": True, "chat_template": "{{ messages }}", "documents": [{"text": "x"}]}.items():
            with self.assertRaises(openai.BadRequestError) as caught:
                self.chat(extra_body={key: value})
            self.assertEqual((caught.exception.param, caught.exception.code), (key, "unsupported_parameter"))
        nothing = {"functions": [], "function_call": "none", "echo": False, "add_generation_prompt": True, "continue_final_message": False,
                   "chat_template": "", "documents": []}
        self.assertEqual(self.chat(extra_body=nothing).choices[0].message.content, BEGINNING)


class Formats(unittest.TestCase):
    schema = {"type": "object", "properties": {"kind": {"enum": ["beast", "fowl", "fish"]}, "days": {"type": "integer", "minimum": 1, "maximum": 40},
                                              "clean": {"type": "boolean"}}, "required": ["kind", "days", "clean"], "additionalProperties": False}

    def chat(self, content="In the beginning", **options):
        return client.chat.completions.create(**dict({"model": "kjv-7m", "messages": [{"role": "user", "content": content}],
                                                      "max_tokens": 100, "temperature": 0}, **options)).choices[0]

    def check(self, text):
        value = json.loads(text)
        self.assertEqual(set(value), {"kind", "days", "clean"})
        self.assertIn(value["kind"], Formats.schema["properties"]["kind"]["enum"])
        self.assertIn(value["clean"], (True, False))
        self.assertTrue(1 <= value["days"] <= 40)

    def test_schema(self):
        given = {"type": "json_schema", "json_schema": {"name": "animal", "schema": self.schema, "strict": True}}
        for seed in range(6):
            choice = self.chat(response_format=given, temperature=1.5, seed=seed)
            self.assertEqual(choice.finish_reason, "stop")
            self.check(choice.message.content)

    def test_parse(self):
        """The client's own way: a class in, an object out."""
        import pydantic

        class Animal(pydantic.BaseModel):
            clean: bool
            days: int

        reply = client.chat.completions.parse(model="kjv-7m", messages=[{"role": "user", "content": "Noah"}], response_format=Animal,
                                              temperature=0, max_tokens=200)
        self.assertIsInstance(reply.choices[0].message.parsed, Animal)

    def test_stream(self):
        given = {"type": "json_schema", "json_schema": {"name": "animal", "schema": self.schema}}
        stream = client.chat.completions.create(model="kjv-7m", messages=[{"role": "user", "content": "x"}], max_tokens=100,
                                                response_format=given, stream=True, seed=3)
        self.check("".join(chunk.choices[0].delta.content or "" for chunk in stream))

    def test_guided(self):
        def complete(**guide):
            return client.completions.create(model="kjv-7m", prompt="In the", max_tokens=100, temperature=1, seed=1,
                                             extra_body=guide).choices[0].text
        self.assertIn(complete(guided_choice=["Moses", "Aaron"]), ("Moses", "Aaron"))
        self.assertRegex(complete(guided_regex="[0-9]{3}-[a-f]{2}"), "^[0-9]{3}-[a-f]{2}$")
        self.check(complete(guided_json=self.schema))
        self.assertRegex(complete(guided_grammar='root ::= ("ab" | "cd") [0-9]'), "^(ab|cd)[0-9]$")
        self.assertEqual(complete(guided_choice=["Moses"], ignore_eos=True), "Moses")
        self.assertEqual(complete(structured_outputs={"choice": ["Moses"]}, min_tokens=20), "Moses")
        self.assertRegex(complete(structured_outputs={"regex": "[0-9]{3}"}), "^[0-9]{3}$")
        self.assertRegex(complete(grammar='root ::= ("ab" | "cd") [0-9]'), "^(ab|cd)[0-9]$") # as llama-server's clients ask
        self.check(complete(json_schema=self.schema))
        self.check(complete(response_format={"type": "json_object", "schema": self.schema}))
        self.assertRegex(complete(structured_outputs={"json_object": True}), "^\\{")

    def test_refused(self):
        for guide in ({"guided_regex": "("}, {"structured_outputs": {"regex": "("}}, {"structured_outputs": []}, {"guided_grammar": "root ::= ["}, {"guided_choice": []}, {"guided_json": {"type": "thing"}}):
            status, reply, _ = server.request("POST", "/v1/completions", dict({"prompt": "x"}, **guide))
            self.assertEqual((status, reply["error"]["param"]), (400, list(guide)[0]), (guide, reply))
        self.assertEqual(server.complete(), BEGINNING)

    def test_heavy(self):
        """Grammars that take long to compile, or are refused for that, hold nobody up."""
        def ask(index):
            schema = {"type": "string", "minLength": 900 + index, "allOf": [{"pattern": "^([a-z][0-9])+$"}, {"pattern": "(c1.{4,8}){6}"}, {"pattern": "(t|8){10}$"}]}
            return server.request("POST", "/v1/completions", {"prompt": "x", "max_tokens": 2, "guided_json": schema})[0]
        with concurrent.futures.ThreadPoolExecutor(24) as pool:
            asked = [pool.submit(ask, index) for index in range(24)]
            longest = 0
            while not all(each.done() for each in asked):
                began = time.monotonic()
                self.assertEqual(server.request("GET", "/health")[0], 200)
                longest = max(longest, time.monotonic() - began)
            self.assertTrue({each.result() for each in asked} <= {200, 400})
        self.assertLess(longest, 5) # on a machine as busy as it may be; else some tens of milliseconds
        self.assertEqual(server.complete(), BEGINNING)

    def test_several(self):
        reply = client.completions.create(model="kjv-7m", prompt="In the", max_tokens=30, temperature=1.5, seed=1, n=8,
                                          extra_body={"guided_regex": "[a-z]{5}"})
        for choice in reply.choices:
            self.assertRegex(choice.text, "^[a-z]{5}$")


class Responses(unittest.TestCase):
    def test_text(self):
        reply = client.responses.create(model="kjv-7m", input="In the beginning", max_output_tokens=8, temperature=0)
        self.assertEqual(reply.output_text, BEGINNING)
        self.assertEqual(reply.status, "incomplete")
        self.assertEqual((reply.usage.input_tokens, reply.usage.output_tokens), (4, 8))
        reply = client.responses.create(model="kjv-7m", instructions="In the", input=[{"role": "user", "content": "beginning"}],
                                        max_output_tokens=8, temperature=0)
        self.assertEqual((reply.usage.output_tokens, reply.instructions), (8, "In the"))

    def test_stream(self):
        events = list(client.responses.create(model="kjv-7m", input="In the beginning", max_output_tokens=8, temperature=0, stream=True))
        self.assertEqual(events[0].type, "response.created")
        self.assertEqual("".join(event.delta for event in events if event.type == "response.output_text.delta"), BEGINNING)
        self.assertEqual(events[-1].type, "response.incomplete")
        self.assertEqual(events[-1].response.output_text, BEGINNING)
        self.assertEqual([event.sequence_number for event in events], list(range(len(events))))

    def test_logprobs(self):
        asked = dict(model="kjv-7m", input="In the beginning", max_output_tokens=8, temperature=0, top_logprobs=2,
                     include=["message.output_text.logprobs"])
        whole = client.responses.create(**asked).output[0].content[0].logprobs
        expected = client.chat.completions.create(model="kjv-7m", messages=[{"role": "user", "content": "In the beginning"}],
                                                  max_tokens=8, temperature=0, logprobs=True, top_logprobs=2)
        values = lambda logprobs: [(at.token, [(top.token, round(top.logprob, 2)) for top in at.top_logprobs]) for at in logprobs]
        self.assertEqual(values(whole), values(expected.choices[0].logprobs.content))
        events = list(client.responses.create(stream=True, **asked))
        deltas = [at for event in events if event.type == "response.output_text.delta" for at in event.logprobs]
        self.assertEqual(values(deltas), values(whole))
        done = [event for event in events if event.type == "response.output_text.done"][0]
        self.assertEqual(values(done.logprobs), values(whole))
        self.assertEqual(values(events[-1].response.output[0].content[0].logprobs), values(whole))
        without = client.responses.create(model="kjv-7m", input="x", max_output_tokens=2, top_logprobs=2)
        self.assertFalse(without.output[0].content[0].logprobs)

    def test_guided(self):
        reply = client.responses.create(model="kjv-7m", input="x", extra_body={"guided_choice": ["Moses"]})
        self.assertEqual((reply.output_text, reply.status), ("Moses", "completed"))

    def test_refused(self):
        for options in ({"input": 5}, {"input": []}, {"input": "x", "previous_response_id": "y"}):
            self.assertEqual(server.request("POST", "/v1/responses", options)[0], 400)
        for path in "responses", "embeddings":
            reply = server.request("POST", "/v1/" + path, {"input": "word " * 2000})[1]
            self.assertEqual((reply["error"]["param"], reply["error"]["code"]), ("input", "context_length_exceeded"))


class Messages(unittest.TestCase):
    """Anthropic's way of a chat, from outside: what its client sends and reads."""
    body = {"model": "kjv-7m", "max_tokens": 8, "temperature": 0,
            "messages": [{"role": "user", "content": "In the beginning"}]}

    def message(self, path="", **more):
        status, reply, _ = server.request("POST", "/v1/messages" + path, dict(self.body, **more))
        self.assertEqual(status, 200, reply)
        return reply

    def events(self, **more):
        status, text, headers = server.request("POST", "/v1/messages", dict(self.body, stream=True, **more))
        self.assertEqual((status, headers["Content-Type"].split(";")[0]), (200, "text/event-stream"))
        events = []
        for event in text.strip().split("\n\n"):
            name, data = event.split("\n")
            data = json.loads(data.removeprefix("data: "))
            self.assertEqual(name, "event: " + data["type"])
            events.append(data)
        return events

    def test_text(self):
        reply = self.message()
        self.assertEqual(reply["content"], [{"type": "text", "text": BEGINNING}])
        self.assertEqual((reply["type"], reply["role"], reply["model"]), ("message", "assistant", "kjv-7m"))
        self.assertEqual((reply["stop_reason"], reply["stop_sequence"]), ("max_tokens", None))
        usage = reply["usage"]
        self.assertEqual(usage["input_tokens"] + usage["cache_read_input_tokens"], 4)
        self.assertEqual(usage["output_tokens"], 8)
        self.assertTrue(reply["id"].startswith("msg_"))

    def test_system(self):
        texts = [self.message(system=system, messages=[{"role": "user", "content": user}])["content"]
                 for system in ("In the", [{"type": "text", "text": "In the"}])
                 for user in ("beginning", [{"type": "text", "text": "beginning"}])]
        self.assertEqual(texts[1:], texts[:1] * 3)
        self.assertEqual(self.message("/count_tokens", system="In the")["input_tokens"],
                         self.message(system="In the", max_tokens=1)["usage"]["input_tokens"])

    def test_stop(self):
        reply = self.message(stop_sequences=["nowhere", " heaven"])
        self.assertEqual((reply["stop_reason"], reply["stop_sequence"]), ("stop_sequence", " heaven"))
        self.assertEqual(reply["content"][0]["text"], BEGINNING.split(" heaven")[0])
        self.assertEqual(self.events(stop_sequences=[" heaven"])[-2]["delta"],
                         {"stop_reason": "stop_sequence", "stop_sequence": " heaven"})

    def test_stream(self):
        events = self.events()
        kinds = [event["type"] for event in events]
        self.assertEqual(kinds[:2], ["message_start", "content_block_start"])
        self.assertEqual(set(kinds[2:-3]), {"content_block_delta"})
        self.assertEqual(kinds[-3:], ["content_block_stop", "message_delta", "message_stop"])
        self.assertEqual(events[0]["message"]["content"], [])
        self.assertIsNone(events[0]["message"]["stop_reason"])
        self.assertEqual("".join(event["delta"]["text"] for event in events[2:-3]), BEGINNING)
        self.assertEqual(events[-2]["delta"]["stop_reason"], "max_tokens")
        self.assertEqual(events[-2]["usage"]["output_tokens"], 8)

    def test_refused(self):
        image = [{"role": "user", "content": [{"type": "image", "source": {}}]}]
        for more in ({"max_tokens": None}, {"max_tokens": 0}, {"messages": []}, {"messages": image}, {"system": 5},
                     {"system": [{"type": "image"}]}, {"tools": [{"type": "bash_20250124", "name": "bash"}]}, {"n": 2},
                     {"thinking": {"type": "often"}}, {"stop_sequences": [""]}):
            body = {key: value for key, value in dict(self.body, **more).items() if value is not None}
            status, reply, _ = server.request("POST", "/v1/messages", body)
            self.assertEqual((status, reply["type"], reply["error"]["type"]), (400, "error", "invalid_request_error"), more)
        self.assertEqual(server.request("POST", "/v1/messages", dict(self.body, model="other"))[0], 404)
        self.message(tools=[], thinking={"type": "disabled"})


class Tools(unittest.TestCase):
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
    messages = [{"role": "user", "content": "In the beginning"}]

    def test_not_called(self):
        """A model that knows no tools writes text."""
        for stream in (False, True):
            reply = client.chat.completions.create(model="kjv-7m", messages=self.messages, tools=self.tools, max_tokens=8,
                                                   temperature=0, stream=stream)
            text = "".join(chunk.choices[0].delta.content or "" for chunk in reply) if stream else reply.choices[0].message.content
            self.assertEqual(text, BEGINNING)

    animals = [{"type": "function", "function": {"name": name, "parameters": Formats.schema}} for name in ("feed", "count")]

    def test_named(self):
        choice = {"type": "function", "function": {"name": "count"}}
        reply = client.chat.completions.create(model="kjv-7m", messages=self.messages, tools=self.animals, tool_choice=choice,
                                               max_tokens=100, temperature=0)
        call = reply.choices[0].message.tool_calls[0]
        self.assertEqual((call.function.name, reply.choices[0].finish_reason), ("count", "tool_calls"))
        Formats.check(self, call.function.arguments)
        name, arguments = "", ""
        for chunk in client.chat.completions.create(model="kjv-7m", messages=self.messages, tools=self.animals, tool_choice=choice,
                                                    max_tokens=100, temperature=0, stream=True):
            for call in chunk.choices[0].delta.tool_calls or []:
                name += call.function.name or ""
                arguments += call.function.arguments
        self.assertEqual(name, "count")
        Formats.check(self, arguments)

    def test_schemas(self):
        """References are relative to the tool; what is refused names it."""
        def ask(parameters):
            other = {"type": "function", "function": {"name": "other", "parameters": {"type": "object", "$defs": {"d": {"type": "null"}}}}}
            tool = {"type": "function", "function": {"name": "f", "parameters": parameters}}
            return server.request("POST", "/v1/chat/completions", {"messages": self.messages, "tools": [other, tool], "tool_choice": "required",
                                                                   "max_tokens": 4})
        defined = {"type": "object", "properties": {"a": {"$ref": "#/$defs/d"}}, "$defs": {"d": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5}}}
        self.assertEqual(ask(defined)[0], 200)
        status, reply, _ = ask({"type": "object", "properties": {"d": {"pattern": "(?<=a)b"}}})
        self.assertEqual(status, 400)
        self.assertRegex(reply["error"]["message"], "^tool f: JSON schema at /properties/d/pattern: ")

    def required(self, **more):
        """Pieces of the calls of a reply that must be calls: names, arguments, how many pieces, and why it ended."""
        names, arguments, pieces, content, reason = {}, {}, 0, "", None
        for chunk in client.chat.completions.create(model="kjv-7m", messages=self.messages, tools=self.animals, tool_choice="required",
                                                    temperature=0, stream=True, **more):
            delta = chunk.choices[0].delta
            content += delta.content or ""
            reason = chunk.choices[0].finish_reason or reason
            for piece in delta.tool_calls or []:
                names[piece.index] = names.get(piece.index, "") + (piece.function.name or "")
                arguments[piece.index] = arguments.get(piece.index, "") + piece.function.arguments
                pieces += 1
        return names, arguments, pieces, content, reason

    def test_required(self):
        reply = client.chat.completions.create(model="kjv-7m", messages=self.messages, tools=self.animals, tool_choice="required",
                                               parallel_tool_calls=False, max_tokens=800, temperature=0)
        calls = reply.choices[0].message.tool_calls
        self.assertEqual((len(calls), reply.choices[0].finish_reason), (1, "tool_calls"))
        self.assertIn(calls[0].function.name, ("feed", "count"))
        Formats.check(self, calls[0].function.arguments)
        names, arguments, pieces, content, reason = self.required(parallel_tool_calls=False, max_tokens=800)
        self.assertEqual((names, content, reason), ({0: calls[0].function.name}, "", "tool_calls"))
        self.assertEqual(json.loads(arguments[0]), json.loads(calls[0].function.arguments))
        self.assertGreater(pieces, 10) # while they are written
        # Cut within the arguments: what came of them stays, and nothing of it comes again as text.
        names, cut, _, content, reason = self.required(parallel_tool_calls=False, stop=["\"days"], max_tokens=800)
        self.assertEqual((list(names), content, reason), ([0], "", "stop"))
        self.assertTrue(arguments[0].startswith(cut[0]) and '"kind"' in cut[0], (arguments, cut))

    def test_refused(self):
        for options in ({"tools": [{"type": "function"}]}, {"tools": "x"}, {"tool_choice": "required"},
                        {"tools": self.tools, "tool_choice": "any"},
                        {"tools": self.tools, "tool_choice": {"type": "function", "function": {"name": "g"}}}):
            status, reply, _ = server.request("POST", "/v1/chat/completions", dict({"messages": self.messages}, **options))
            self.assertEqual(status, 400, (options, reply))


    def test_auto(self):
        """Calls that a model writes by itself come while it writes them. A grammar stands for a model that would."""
        call = '<tool_call>\n{"name": "%s", "arguments": {"animals": ["ox", "ass"], "count": 7}}\n</tool_call>'
        text = "I count. " + call % "count" + "\n" + call % "feed"
        options = dict(model="kjv-7m", messages=self.messages, tools=self.animals, max_tokens=300, temperature=0,
                       extra_body={"guided_choice": [text]})
        reply = client.chat.completions.create(**options)
        message = reply.choices[0].message
        self.assertEqual((message.content, reply.choices[0].finish_reason), ("I count. ", "tool_calls"))
        self.assertEqual([call.function.name for call in message.tool_calls], ["count", "feed"])
        content, names, arguments, pieces, ids = "", {}, {}, 0, set()
        for chunk in client.chat.completions.create(stream=True, **options):
            delta = chunk.choices[0].delta
            content += delta.content or ""
            for piece in delta.tool_calls or []:
                names[piece.index] = names.get(piece.index, "") + (piece.function.name or "")
                arguments[piece.index] = arguments.get(piece.index, "") + piece.function.arguments
                ids.update([piece.id] if piece.id else [])
                pieces += 1
            reason = chunk.choices[0].finish_reason
        self.assertEqual((content, names, reason), ("I count. ", {0: "count", 1: "feed"}, "tool_calls"))
        self.assertEqual([json.loads(arguments[i]) for i in (0, 1)], [{"animals": ["ox", "ass"], "count": 7}] * 2)
        self.assertGreater(pieces, 10)
        self.assertEqual(ids, {call.id.replace(reply.id[9:], chunk.id[9:]) for call in message.tool_calls})


    def test_call_and_more(self):
        """A call that is followed by text, or by half a call, is a call: in a whole reply as in a stream."""
        call = '<tool_call>\n{"name": "count", "arguments": {"days": 7}}\n</tool_call>'
        for text in call + " And so on.", call + "\n" + call[:30], call[:-12] + " so":
            options = dict(model="kjv-7m", messages=self.messages, tools=self.animals, max_tokens=200, temperature=0,
                           extra_body={"guided_choice": [text]})
            choice = client.chat.completions.create(**options).choices[0]
            self.assertEqual([(call.function.name, json.loads(call.function.arguments)) for call in choice.message.tool_calls],
                             [("count", {"days": 7})])
            self.assertEqual(choice.finish_reason, "tool_calls")
            arguments = ""
            for chunk in client.chat.completions.create(stream=True, **options):
                arguments += "".join(piece.function.arguments for piece in chunk.choices[0].delta.tool_calls or [])
            self.assertEqual(arguments, '{"days": 7}')

    def test_call_is_cut(self):
        """A call that a stop string cuts is none that could be made."""
        options = dict(model="kjv-7m", messages=self.messages, tools=self.animals, max_tokens=200, temperature=0, stop=["7"],
                       extra_body={"guided_choice": ['<tool_call>\n{"name": "count", "arguments": {"days": 7}}\n</tool_call>']})
        choice = client.chat.completions.create(**options).choices[0]
        self.assertEqual((choice.finish_reason, choice.message.tool_calls), ("stop", None))
        reasons = [chunk.choices[0].finish_reason for chunk in client.chat.completions.create(stream=True, **options)]
        self.assertEqual(reasons, [None] * (len(reasons) - 1) + ["stop"])


class Reasoning(unittest.TestCase):
    """Text that a template marks as reasoning is reported apart from the answer. A grammar stands for a model that reasons."""
    text = "<think>\nLet me see.\n\nYes.\n</think>\n\nIt is so."

    def replies(self, server, text, **extra):
        ask = openai.OpenAI(base_url=server.url + "/v1", api_key="any", max_retries=0, timeout=600).chat.completions.create
        options = dict(model="kjv-7m", messages=[{"role": "user", "content": "Is it so?"}], max_tokens=100, temperature=0,
                       extra_body=dict({"guided_choice": [text]}, **extra))
        message = ask(**options).choices[0].message
        streamed = {"content": "", "reasoning_content": ""}
        for chunk in ask(stream=True, **options):
            for key in streamed:
                streamed[key] += getattr(chunk.choices[0].delta, key, None) or ""
        whole = {"content": message.content, "reasoning_content": getattr(message, "reasoning_content", "")}
        self.assertEqual(whole, streamed)
        return whole["reasoning_content"], whole["content"]

    def test_split(self):
        opened = "{{ messages[0].content }}{{ '<think>\n' if think }}{# </think> #}"
        with temporary_file(opened) as path, Server("--chat-template", path) as other:
            self.assertEqual(self.replies(other, self.text), ("Let me see.\n\nYes.", "It is so."))
            self.assertEqual(self.replies(other, self.text, include_reasoning=False), ("", "It is so."))
            self.assertEqual(self.replies(other, self.text[8:], chat_template_kwargs={"think": True}),
                             ("Let me see.\n\nYes.", "It is so."))
            self.assertEqual(self.replies(other, "It is so."), ("", "It is so."))
            body = {"messages": [{"role": "user", "content": "a"}], "response_format": {"type": "json_object"}, "chat_template_kwargs": {"think": True}}
            self.assertEqual(other.request("POST", "/apply-template", body)[1]["prompt"], "a<think>\n\n</think>\n\n") # JSON is no reasoning
        self.assertEqual(self.replies(server, self.text), ("", self.text)) # a template without


class Harmony(unittest.TestCase):
    """Replies in gpt-oss's format. A grammar stands for a model that writes them."""
    template = ("Effort: {{ reasoning_effort }}.{% for m in messages %}<|start|>{{ m.role }}"
                "{% if m.thinking %}<|channel|>analysis<|message|>{{ m.thinking }}<|end|>{% endif %}"
                "{% if m.tool_calls %} to=functions.{{ m.tool_calls[0].function.name }}<|message|>"
                "{{ m.tool_calls[0].function.arguments | tojson }}<|call|>"
                "{% else %}<|message|>{{ m.content }}<|end|>{% endif %}{% endfor %}<|start|>assistant"
                "{# <|channel|>final<|message|> #}")
    thought = "<|channel|>analysis<|message|>Let me see.<|end|><|start|>assistant"
    final = "<|channel|>final<|message|>It is so."
    calls = ('<|channel|>commentary<|message|>I count.<|end|><|start|>assistant<|channel|>commentary to=functions.count '
             '<|constrain|>json<|message|>{"days": 7}<|call|><|start|>assistant<|channel|>commentary to=functions.rest'
             '<|message|><|call|>')
    tools = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in ("count", "rest")]
    messages = [{"role": "user", "content": "Is it so?"}]

    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        cls.addClassCleanup(cls.stack.close)
        cls.server = cls.stack.enter_context(Server("--chat-template", cls.stack.enter_context(temporary_file(cls.template))))
        cls.client = openai.OpenAI(base_url=cls.server.url + "/v1", api_key="any", max_retries=0, timeout=600)

    def chat(self, text, extra={}, **more):
        """Reasoning, content, calls and finish reason of a reply; a stream must give the same."""
        options = dict(dict(model="kjv-7m", messages=self.messages, max_tokens=300, temperature=0,
                            extra_body=dict({"guided_choice": [text]}, **extra)), **more)
        choice = self.client.chat.completions.create(**options).choices[0]
        whole = (getattr(choice.message, "reasoning_content", ""), choice.message.content or "",
                 [(call.function.name, call.function.arguments) for call in choice.message.tool_calls or []],
                 choice.finish_reason)
        reasoning, content, calls = "", "", []
        for chunk in self.client.chat.completions.create(stream=True, **options):
            delta = chunk.choices[0].delta
            reasoning += getattr(delta, "reasoning_content", "")
            content += delta.content or ""
            for piece in delta.tool_calls or []:
                if piece.function.name:
                    self.assertEqual(piece.index, len(calls))
                    calls.append(["", ""])
                calls[piece.index][0] += piece.function.name or ""
                calls[piece.index][1] += piece.function.arguments
        self.assertEqual((reasoning, content, [tuple(call) for call in calls], chunk.choices[0].finish_reason), whole)
        return whole

    def test_chat(self):
        self.assertEqual(self.chat(self.thought + self.final), ("Let me see.", "It is so.", [], "stop"))
        self.assertEqual(self.chat(self.thought + self.final, {"include_reasoning": False}), ("", "It is so.", [], "stop"))
        self.assertEqual(self.chat(self.thought * 2 + self.final), ("Let me see.\nLet me see.", "It is so.", [], "stop"))
        self.assertEqual(self.chat("It is so."), ("", "It is so.", [], "stop"))
        self.assertEqual(self.chat(self.thought + self.final, max_tokens=12)[1::2], ("", "length"))

    def test_calls(self):
        made = [("count", '{"days": 7}'), ("rest", "{}")]
        self.assertEqual(self.chat(self.thought + self.calls, tools=self.tools), ("Let me see.", "I count.", made, "tool_calls"))
        self.assertEqual(self.chat(self.calls), ("", 'I count.\n{"days": 7}', [], "stop")) # no tools, so no calls
        self.assertEqual(self.chat(self.calls, tools=self.tools, stop=["7"]), ("", "I count.", [("count", '{"days": ')], "stop"))

    def test_forced(self):
        """The header of a call or an answer that must be JSON is part of the prompt."""
        name = {"type": "function", "function": {"name": "count"}}
        reply = self.client.chat.completions.create(model="kjv-7m", messages=self.messages, max_tokens=50, temperature=0,
                                                    tools=self.tools, tool_choice=name)
        self.assertEqual(reply.choices[0].message.tool_calls[0].function.name, "count")
        body = {"messages": self.messages, "response_format": {"type": "json_object"}}
        self.assertTrue(self.server.request("POST", "/apply-template", body)[1]["prompt"].endswith("assistant<|channel|>final<|message|>"))
        body = {"messages": self.messages, "tools": self.tools, "tool_choice": name}
        self.assertTrue(self.server.request("POST", "/apply-template", body)[1]["prompt"].endswith(
            "assistant<|channel|>commentary to=functions.count <|constrain|>json<|message|>"))

    def test_prompt(self):
        """Effort, and calls with their answers in the order that the template knows."""
        def prompt(messages, status=200, **more):
            code, reply, _ = self.server.request("POST", "/apply-template", dict({"messages": messages}, **more))
            self.assertEqual(code, status, reply)
            return reply.get("prompt")
        self.assertIn("Effort: low.", prompt(self.messages, reasoning_effort="low"))
        self.assertIn("Effort: high.", prompt(self.messages, reasoning_effort="low", chat_template_kwargs={"reasoning_effort": "high"}))
        self.assertIn("Effort: .", prompt(self.messages))
        for effort in "none", 5:
            prompt(self.messages, 400, reasoning_effort=effort)
        call = lambda name: {"id": name, "type": "function", "function": {"name": name, "arguments": '{"a": 1}'}}
        answer = lambda name: {"role": "tool", "tool_call_id": name, "content": "of " + name}
        found = prompt(self.messages + [{"role": "assistant", "content": None, "reasoning_content": "Hm.", "tool_calls": [call("f"), call("g")]},
                                        answer("g"), answer("f"), answer("h"), {"role": "user", "content": "So?"}])
        self.assertIn('<|start|>assistant<|channel|>analysis<|message|>Hm.<|end|> to=functions.f<|message|>{"a": 1}<|call|>'
                      '<|start|>tool<|message|>of f<|end|><|start|>assistant to=functions.g<|message|>{"a": 1}<|call|>'
                      '<|start|>tool<|message|>of g<|end|><|start|>tool<|message|>of h<|end|><|start|>user<|message|>So?', found)

    def test_response(self):
        ask = dict(model="kjv-7m", input="Is it so?", temperature=0, max_output_tokens=300, reasoning={"effort": "low"},
                   extra_body={"guided_choice": [self.thought + self.final]})
        reply = self.client.responses.create(**ask)
        self.assertEqual([item.type for item in reply.output], ["reasoning", "message"])
        self.assertEqual((reply.output[0].content[0].text, reply.output_text), ("Let me see.", "It is so."))
        events = list(self.client.responses.create(stream=True, **ask))
        text = lambda kind: "".join(event.delta for event in events if event.type == f"response.{kind}_text.delta")
        self.assertEqual((text("reasoning"), text("output")), ("Let me see.", "It is so."))
        ids = lambda output: [item.id[:3] for item in output]
        added = [event.item for event in events if event.type == "response.output_item.added"]
        done = [event.item for event in events if event.type == "response.output_item.done"]
        self.assertEqual([item.id for item in added], [item.id for item in events[-1].response.output])
        self.assertEqual(done, events[-1].response.output)
        self.assertEqual(ids(done), ids(reply.output))
        history = [{"role": "user", "content": "Is it so?"}] + [item.model_dump() for item in reply.output]
        self.client.responses.create(**dict(ask, input=history + [{"role": "user", "content": "So?"}]))

    def test_message(self):
        body = {"model": "kjv-7m", "max_tokens": 300, "messages": self.messages, "temperature": 0,
                "guided_choice": [self.thought + self.final], "output_config": {"effort": "high"}}
        thinking = {"type": "thinking", "thinking": "Let me see.", "signature": ""}
        answer = {"type": "text", "text": "It is so."}
        for more, expected in (({}, [thinking, answer]), ({"thinking": {"type": "enabled", "budget_tokens": 99}}, [thinking, answer]),
                               ({"thinking": {"type": "disabled"}}, [answer]),
                               ({"guided_choice": [self.thought], "thinking": {"type": "disabled"}}, [{"type": "text", "text": ""}])):
            status, reply, _ = self.server.request("POST", "/v1/messages", dict(body, **more))
            self.assertEqual((status, reply["content"]), (200, expected))
            status, stream, _ = self.server.request("POST", "/v1/messages", dict(body, stream=True, **more))
            blocks = []
            for event in (json.loads(line[6:]) for line in stream.splitlines() if line.startswith("data: ")):
                if event["type"] == "content_block_start":
                    self.assertEqual(event["index"], len(blocks))
                    blocks.append(event["content_block"])
                elif event["type"] == "content_block_delta":
                    kind = event["delta"]["type"].removesuffix("_delta")
                    blocks[event["index"]][kind] += event["delta"][kind]
            self.assertEqual(blocks, expected)
        history = self.messages + [{"role": "assistant", "content": [thinking, answer]}, {"role": "user", "content": "So?"}]
        self.assertEqual(self.server.request("POST", "/v1/messages", dict(body, messages=history))[0], 200)


class Embeddings(unittest.TestCase):
    texts = ["In the beginning God created the heaven and the earth.", "In the beginning was the Word.",
             "And Samson said unto the lad", " ".join(["begat"] * 200)]

    def check_same(self, found, expected, places):
        """On a GPU the rounding of 16-bit types depends on what runs beside a text."""
        if BACKEND == "cuda":
            self.assertGreater(sum(x * y for x, y in zip(found, expected)), 0.9995)
            return
        for x, y in zip(found, expected):
            self.assertAlmostEqual(x, y, places=places)

    def test_embeddings(self):
        reply = client.embeddings.create(model="kjv-7m", input=self.texts, encoding_format="float")
        self.assertEqual([entry.index for entry in reply.data], [0, 1, 2, 3])
        self.assertEqual(reply.usage.prompt_tokens, reply.usage.total_tokens)
        self.assertGreater(reply.usage.prompt_tokens, 200)
        for entry in reply.data:
            self.assertEqual(len(entry.embedding), len(reply.data[0].embedding))
            self.assertAlmostEqual(sum(x * x for x in entry.embedding), 1, places=4)
        likeness = lambda i, j: sum(x * y for x, y in zip(reply.data[i].embedding, reply.data[j].embedding))
        self.assertGreater(likeness(0, 1), likeness(0, 3)) # both end with a sentence
        for kind, text in (("float", self.texts[2]), ("base64", self.texts[2])): # the client decodes it
            alone = client.embeddings.create(model="kjv-7m", input=text, encoding_format=kind)
            values = alone.data[0].embedding
            if kind == "base64":
                values = struct.unpack(f"<{len(base64.b64decode(values)) // 4}f", base64.b64decode(values))
            self.check_same(values, reply.data[2].embedding, 5)
        self.assertEqual(len(client.embeddings.create(model="kjv-7m", input="a").data[0].embedding), len(values))
        ids = client.embeddings.create(model="kjv-7m", input=[[5, 6, 7], [5, 6, 8]]).data
        self.assertNotEqual(ids[0].embedding, ids[1].embedding)
        short = client.embeddings.create(model="kjv-7m", input=self.texts[2], dimensions=8).data[0].embedding
        self.assertEqual(len(short), 8)
        self.assertAlmostEqual(sum(x * x for x in short), 1, places=4)

    def test_scores(self):
        """Scores are the cosines of embeddings; ranks sort them."""
        data = client.embeddings.create(model="kjv-7m", input=self.texts, encoding_format="float").data
        cosine = lambda i, j: sum(x * y for x, y in zip(data[i].embedding, data[j].embedding))
        ask = lambda path, **body: server.request("POST", path, body)
        places = 2 if BACKEND == "cuda" else 5
        for names in ("text_1", "text_2"), ("queries", "documents"):
            status, reply, _ = ask("/v1/score", **{names[0]: self.texts[0], names[1]: self.texts[1:]})
            self.assertEqual((status, [entry["index"] for entry in reply["data"]]), (200, [0, 1, 2]), reply)
            for i, entry in enumerate(reply["data"]):
                self.assertAlmostEqual(entry["score"], cosine(0, i + 1), places=places)
        pairs = ask("/score", text_1=self.texts[:2], text_2=self.texts[2:])[1]["data"]
        self.assertAlmostEqual(pairs[1]["score"], cosine(1, 3), places=places)
        for path in "/rerank", "/v1/rerank", "/v2/rerank":
            status, reply, _ = ask(path, query=self.texts[0], documents=[self.texts[3], {"text": self.texts[1]}, self.texts[0]], top_n=2)
            self.assertEqual((status, [entry["index"] for entry in reply["results"]]), (200, [2, 1]), reply)
            self.assertEqual(reply["results"][1]["document"], {"text": self.texts[1]})
            self.assertAlmostEqual(reply["results"][0]["relevance_score"], 1, places=places)
        self.assertNotIn("document", ask("/rerank", query="a", documents=["b"], return_documents=False)[1]["results"][0])
        for path, body, param in (("/score", {"text_1": "a"}, "text_2"), ("/score", {"text_1": ["a", "b"], "text_2": ["c"]}, "text_2"),
                                  ("/score", {"text_1": 5, "text_2": "b"}, "text_1"), ("/rerank", {"documents": ["a"]}, "query"),
                                  ("/rerank", {"query": "a", "documents": []}, "documents"), ("/rerank", {"query": "a", "documents": [5]}, "documents"),
                                  ("/rerank", {"query": "a", "documents": ["b"], "top_n": 0}, "top_n"),
                                  ("/rerank", {"query": "a", "documents": ["word " * 2000]}, "documents")):
            status, reply, _ = ask(path, **body)
            self.assertEqual((status, reply["error"]["param"]), (400, param), (path, body))

    def test_beside_texts(self):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            embeddings = pool.map(lambda i: client.embeddings.create(model="kjv-7m", input=self.texts[i % 3]), range(24))
            texts = pool.map(lambda i: server.complete(max_tokens=30), range(8))
            found = [reply.data[0].embedding for reply in embeddings]
            self.assertEqual(len(set(texts)), 1)
        for i, embedding in enumerate(found):
            self.check_same(embedding, found[i % 3], 4)
        server.wait_metric("trireme_cache_blocks_used", 0)

    def test_mean(self):
        """As a folder of sentence-transformers says. The mean over one token is that token's."""
        with tempfile.TemporaryDirectory() as folder:
            for name in os.listdir(MODEL):
                os.symlink(os.path.join(os.path.abspath(MODEL), name), os.path.join(folder, name))
            os.mkdir(os.path.join(folder, "1_Pooling"))
            path = os.path.join(folder, "1_Pooling", "config.json")
            with open(path, "w") as file:
                json.dump({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}, file)
            with Server(model=folder) as other:
                ask = lambda where, ids: where.request("POST", "/v1/embeddings", {"input": ids})[1]["data"][0]["embedding"]
                for ids, places in (([9], 5), ([9, 10], None), (list(range(20, 120)), None)):
                    mean, last = ask(other, ids), ask(server, ids)
                    self.assertAlmostEqual(sum(x * x for x in mean), 1, places=4)
                    if places:
                        self.assertLess(max(abs(x - y) for x, y in zip(mean, last)), 1e-5)
                    else:
                        self.assertGreater(max(abs(x - y) for x, y in zip(mean, last)), 1e-3)
            with open(path, "w") as file:
                json.dump({"pooling_mode_cls_token": True}, file)
            with Server(model=folder) as other:
                status, reply, _ = other.request("POST", "/v1/embeddings", {"input": "a"})
                self.assertEqual((status, reply["error"]["code"]), (400, "unsupported_model"))

    def test_refused(self):
        for options in ({"input": []}, {"input": 5}, {}, {"input": "a", "encoding_format": "int8"},
                        {"input": "a", "dimensions": 0}, {"input": "a", "dimensions": 100000}, {"input": [[-1]]},
                        {"input": "a " * 3000}):
            status, reply, _ = server.request("POST", "/v1/embeddings", options)
            self.assertEqual(status, 400, (options, reply))


class Errors(unittest.TestCase):
    def refused(self, kind, part, **options):
        with self.assertRaises(kind) as raised:
            client.completions.create(**dict({"model": "kjv-7m", "prompt": "In", "max_tokens": 2}, **options))
        self.assertIn(part, raised.exception.body["message"])
        return raised.exception.body

    def test_model(self):
        body = self.refused(openai.NotFoundError, "gpt-9", model="gpt-9")
        self.assertEqual(body["code"], "model_not_found")

    def test_values(self):
        bad = openai.BadRequestError
        self.assertEqual(self.refused(bad, "temperature", temperature=-1)["param"], "temperature")
        self.refused(bad, "top_p", top_p=1.5)
        self.refused(bad, "max_tokens", max_tokens=-1)
        self.refused(bad, "n is 0", n=0)
        self.refused(bad, "n is 1000", n=1000)
        self.refused(bad, "stop", stop=[""])
        self.refused(bad, "stop", stop=["a"] * 17)
        self.refused(bad, "logprobs", logprobs=1000)
        self.refused(bad, "logit_bias", logit_bias={"99999999": 1})
        self.refused(bad, "logit_bias", logit_bias={"x": 1})
        self.refused(bad, "logit_bias", logit_bias={"5": 101})
        self.refused(bad, "prompt", prompt=[])
        self.refused(bad, "prompt", prompt=[-1])
        self.refused(bad, "prompt", prompt=[1 << 30])
        self.refused(bad, "stream_options", stream_options={"include_usage": True})
        self.refused(bad, "suffix", suffix="x")
        for key, value in {"allowed_token_ids": [5], "bad_words": ["the"], "truncate_prompt_tokens": 4, "use_beam_search": True}.items():
            self.assertEqual(self.refused(bad, f"{key} is not supported", extra_body={key: value})["code"], "unsupported_parameter")
        nothing = {"allowed_token_ids": None, "bad_words": [], "truncate_prompt_tokens": 0, "use_beam_search": False, "user": "x", "unknown": 1}
        self.assertEqual(client.completions.create(model="kjv-7m", prompt="In the beginning", max_tokens=8, temperature=0,
                                                   extra_body=nothing).choices[0].text, BEGINNING)
        self.refused(bad, "seed", extra_body={"seed": 1.5})

    def test_context(self):
        body = self.refused(openai.BadRequestError, "the context is 1024 tokens", prompt="word " * 2000)
        self.assertEqual(body["code"], "context_length_exceeded")
        self.refused(openai.BadRequestError, "the context is 1024 tokens", max_tokens=2000)

    def test_vocabulary(self):
        """A token that the tokenizer has and the model has not: what only the engine knows is told as what it is."""
        def add(tokenizer):
            tokenizer["added_tokens"].append(dict(tokenizer["added_tokens"][0], id=4096, content="<|new|>"))
        with other_tokenizer(add) as folder, Server(model=folder) as other:
            for prompt in "In <|new|>", [5, 4096]:
                status, reply, _ = other.request("POST", "/v1/completions", {"prompt": prompt})
                self.assertEqual((status, reply["error"]["code"]), (400, "invalid_value"), reply)
                self.assertIn("token 4096", reply["error"]["message"])
            self.assertEqual(other.complete(), BEGINNING)

    def test_paths(self):
        with self.assertRaises(openai.NotFoundError):
            client.images.generate(prompt="x")
        status, reply, _ = server.request("GET", "/v1/completions")
        self.assertEqual((status, reply["error"]["message"]), (405, "method GET is not allowed for /v1/completions"))
        self.assertEqual(server.request("DELETE", "/v1/models")[0], 405)
        self.assertEqual(server.request("GET", "/v1/completions")[2]["Allow"], "POST")
        self.assertEqual(server.request("POST", "/health")[2]["Allow"], "GET, HEAD")
        for path in "/health", "/v1/models", "/": # load balancers ask so
            status, text, headers = server.request("HEAD", path)
            self.assertEqual((status, text, int(headers["Content-Length"]) > 0), (200, "", True), path)
        self.assertEqual(server.request("HEAD", "/v1/completions")[0], 405)

    def test_bodies(self):
        for body in ("", "{", "[]", "nul", "{}", '{"prompt": 5}', '{"prompt": "a", "prompt": "b"}', '"\ud800"', "[" * 1000,
                     '{"prompt": ["a", 1]}', '{"prompt": {"a": 1}}', "\0", '{"prompt": "x", "n": 1e400}',
                     '{"prompt": "x", "max_tokens": "5"}', '{"prompt": "x", "stream": 1}'):
            status, reply, _ = server.request("POST", "/v1/completions", body.encode("utf-8", "surrogatepass"))
            self.assertEqual(status, 400, (body, reply))
            self.assertIn("message", reply["error"])
        text = json.dumps({"prompt": "In the beginning", "max_tokens": 8, "temperature": 0}).encode()
        status, reply, _ = server.request("POST", "/v1/completions", gzip.compress(text), {"Content-Encoding": "gzip"})
        self.assertEqual((status, reply["error"]["code"]), (415, "unsupported_encoding"))
        self.assertEqual(server.request("POST", "/v1/completions", text, {"Content-Encoding": "identity"})[0], 200)
        self.assertEqual(server.complete(), BEGINNING)


class Cancellation(unittest.TestCase):
    def test_client_leaves_stream(self):
        gone = server.metric("trireme_clients_gone_total")
        stream = client.completions.create(model="kjv-7m", prompt="And", max_tokens=1000, stream=True, n=16, logprobs=20,
                                           extra_body={"ignore_eos": True}) # more than all buffers on the way hold
        next(iter(stream))
        stream.close()
        server.wait_metric("trireme_clients_gone_total", gone + 1)
        server.wait_metric("trireme_requests_live", 0)

    def test_client_leaves_before_reply(self):
        gone = server.metric("trireme_clients_gone_total")
        with self.assertRaises(openai.APITimeoutError):
            # 1000 steps of 128 sequences, which take longer than that on any device
            client.with_options(timeout=openai.Timeout(600, read=0.2)).completions.create(
                model="kjv-7m", prompt="And", max_tokens=1000, n=128, extra_body={"ignore_eos": True})
        server.wait_metric("trireme_clients_gone_total", gone + 1)
        server.wait_metric("trireme_requests_live", 0)


class Others(unittest.TestCase):
    def test_openapi(self):
        """Every path that it lists is there, with its method."""
        description = server.request("GET", "/openapi.json")[1]
        self.assertTrue(description["openapi"].startswith("3.1"))
        self.assertIn("post", description["paths"]["/v1/messages"])
        for path, operations in description["paths"].items():
            for method in operations:
                if path not in ("/sleep", "/wake_up", "/is_sleeping") and "lora" not in path:  # not without an option
                    status = server.request(method.upper(), path.replace("{model}", "kjv-7m"), "" if method == "post" else None)[0]
                    self.assertIn(status, (200, 400), path)

    def test_tokens(self):
        for text in ("In the beginning", "naïve 中文 🙂\n", ""):
            tokens = server.request("POST", "/tokenize", {"prompt": text, "add_special_tokens": False})[1]
            self.assertEqual(tokens["count"], len(tokens["tokens"]))
            reply = server.request("POST", "/detokenize", {"tokens": tokens["tokens"]})
            self.assertEqual(reply[1], {"prompt": text})
        chat = {"messages": [{"role": "user", "content": "In the"}, {"role": "assistant", "content": " beginning"}]}
        prompt = server.request("POST", "/apply-template", chat)[1]["prompt"]
        expected = server.request("POST", "/tokenize", {"prompt": prompt, "add_special_tokens": False})
        self.assertEqual(server.request("POST", "/tokenize", chat)[:2], (200, expected[1]))
        self.assertEqual(server.request("POST", "/tokenize", {"messages": []})[0], 400)
        self.assertEqual(server.request("POST", "/tokenize", {})[0], 400)
        self.assertEqual(server.request("POST", "/detokenize", {"tokens": ["x"]})[0], 400)
        self.assertEqual(server.request("POST", "/detokenize", {"tokens": [-1]})[0], 400)

    def test_health(self):
        for path in ("/health", "/ready", "/live", "/version"):
            self.assertEqual(server.request("GET", path)[0], 200)

    def test_request_id(self):
        self.assertEqual(server.request("GET", "/version", headers={"X-Request-Id": "abc-1"})[2]["X-Request-Id"], "abc-1")
        for bad in ("a b", "x" * 100, "<script>"):
            self.assertNotEqual(server.request("GET", "/version", headers={"X-Request-Id": bad})[2]["X-Request-Id"], bad)

    def test_metrics(self):
        server.wait_metric("trireme_requests_live", 0) # and with it what the last ones generated
        before = server.metric("vllm:generation_tokens_total")
        server.complete(max_tokens=5)
        server.wait_metric("vllm:generation_tokens_total", before + 5)
        self.assertGreater(server.metric("vllm:time_to_first_token_seconds_count"), 0)
        before = {name: server.metric("vllm:request_" + name) for name in ("max_num_generation_tokens_sum", "generation_tokens_sum")}
        server.complete(max_tokens=5, n=3)
        server.wait_metric("vllm:request_generation_tokens_sum", before["generation_tokens_sum"] + 15)
        server.wait_metric("vllm:request_max_num_generation_tokens_sum", before["max_num_generation_tokens_sum"] + 5)
        text = server.request("GET", "/metrics")[1]
        for line in text.splitlines(): # what a scraper accepts: a name, labels, a number; and each family once
            self.assertRegex(line, r'^(# (HELP|TYPE) [a-z_0-9:]+ .+|[a-z_0-9:]+\{([a-z_]+="[^"]*",?)+\} \S+)$')
        families = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
        self.assertEqual(sorted(families), sorted(set(families)))
        blocks = int(server.metric("trireme_cache_blocks"))
        self.assertRegex(text, r'vllm:cache_config_info\{model_name="kjv-7m",block_size="[1-9][0-9]*",num_gpu_blocks="%d"\} 1\n' % blocks)
        for name, older in ("inter_token_latency_seconds", "time_per_output_token_seconds"), ("kv_cache_usage_perc", "gpu_cache_usage_perc"):
            values = lambda name: re.findall(rf"^vllm:{name}(\S*) (\S+)$", text, re.M)
            self.assertEqual((values(name), len(values(name)) > 0), (values(older), True))


if __name__ == "__main__":
    unittest.main()
