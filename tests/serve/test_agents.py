"""What agents do: tools, histories with calls, reasoning, with the official clients and with requests of the shape that Claude Code and
Codex send. A grammar stands for a model that writes the text."""
import contextlib
import json
import unittest

import anthropic
import openai

from serving import Server, temporary_file

TEMPLATE = ("{% for t in tools or [] %}T:{{ t.function.name }}\n{% endfor %}{% for m in messages %}{{ m.role }}"
            "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}:{{ m.content or '' }}"
            "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function.name }}{{ c.function.arguments | tojson }}</tool_call>{% endfor %}"
            "\n{% endfor %}assistant:{{ '<think>' if enable_thinking }}")
THOUGHT = "<think>\nI count.\n</think>\n\n"
CALL = '<tool_call>\n{"name": "read", "arguments": {"path": "a/b", "lines": [1, 2]}}\n</tool_call>'
SECOND = '<tool_call>\n{"name": "list", "arguments": {}}\n</tool_call>'
PATH = {"path": "a/b", "lines": [1, 2]}
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}, "lines": {"type": "array", "items": {"type": "integer"}}}}


def setUpModule():
    global server, claude, codex
    stack = contextlib.ExitStack()
    server = stack.enter_context(Server("--chat-template", stack.enter_context(temporary_file(TEMPLATE))))
    claude = anthropic.Anthropic(base_url=server.url, api_key="any", max_retries=0, timeout=600)
    codex = openai.OpenAI(base_url=server.url + "/v1", api_key="any", max_retries=0, timeout=600)
    unittest.addModuleCleanup(stack.close)


class Messages(unittest.TestCase):
    tools = [{"name": name, "description": "A tool.", "input_schema": SCHEMA} for name in ("read", "list")]
    asked = [{"role": "user", "content": "What is in a/b?"}]

    def ask(self, text=None, **more):
        body = dict(model="kjv-7m", max_tokens=300, messages=self.asked, extra_body=dict({"guided_choice": [text]} if text else {}, temperature=0))
        return dict(body, **more)

    def both(self, text, **more):
        """The message of a whole reply; that of a stream must be the same, block by block."""
        whole = claude.messages.create(**self.ask(text, **more))
        with claude.messages.stream(**self.ask(text, **more)) as stream:
            events = list(stream)
            message = stream.get_final_message()
        shown = lambda m: [{key: value for key, value in block.to_dict().items() if key != "id"} for block in m.content]
        self.assertEqual((shown(message), message.stop_reason), (shown(whole), whole.stop_reason))
        starts = [event.index for event in events if event.type == "content_block_start"]
        stops = [event.index for event in events if event.type == "content_block_stop"]
        self.assertEqual((starts, stops), (list(range(len(whole.content))),) * 2)
        return whole, events

    def test_call(self):
        reply, events = self.both("I look. " + CALL, tools=self.tools)
        self.assertEqual([block.type for block in reply.content], ["text", "tool_use"])
        self.assertEqual((reply.content[0].text, reply.content[1].name, reply.content[1].input), ("I look. ", "read", PATH))
        self.assertEqual(reply.stop_reason, "tool_use")
        self.assertTrue(reply.content[1].id.startswith("toolu_"))
        deltas = [event.delta.partial_json for event in events if event.type == "content_block_delta" and event.delta.type == "input_json_delta"]
        self.assertGreater(len(deltas), 3)
        self.assertEqual(json.loads("".join(deltas)), PATH)

    def test_several(self):
        reply, _ = self.both(CALL + "\n" + SECOND, tools=self.tools)
        self.assertEqual([(block.name, block.input) for block in reply.content], [("read", PATH), ("list", {})])
        self.assertEqual(len({block.id for block in reply.content}), 2)
        reply, _ = self.both(CALL + "\n" + SECOND, tools=self.tools, tool_choice={"type": "auto", "disable_parallel_tool_use": True})
        self.assertEqual([block.name for block in reply.content], ["read"])
        reply, _ = self.both("None. ", tools=self.tools)
        self.assertEqual((reply.content[0].text, reply.stop_reason), ("None. ", "end_turn"))

    def test_forced(self):
        for choice, names in (({"type": "any"}, {"read", "list"}), ({"type": "tool", "name": "list"}, {"list"})):
            reply, _ = self.both(None, tools=self.tools, tool_choice=dict(choice, disable_parallel_tool_use=True), max_tokens=200)
            if reply.stop_reason == "tool_use": # a model of seven million parameters may fill an array until it is cut
                self.assertEqual({block.name for block in reply.content} - names, set())
        reply, _ = self.both(CALL, tools=self.tools, tool_choice={"type": "none"})
        self.assertEqual((reply.content[0].text, reply.stop_reason), (CALL, "end_turn"))

    def test_thinking(self):
        reply, _ = self.both(THOUGHT + "It is so.\n" + CALL, tools=self.tools)
        self.assertEqual([block.type for block in reply.content], ["thinking", "text", "tool_use"])
        self.assertEqual(reply.content[0].thinking, "I count.")
        reply, _ = self.both(THOUGHT[7:] + CALL, tools=self.tools, thinking={"type": "enabled", "budget_tokens": 1024})
        self.assertEqual([block.type for block in reply.content], ["thinking", "tool_use"])
        reply, _ = self.both(THOUGHT + "Yes.", thinking={"type": "adaptive", "display": "omitted"})
        self.assertEqual((reply.content[0].thinking, reply.content[0].signature), ("", "trireme:I count."))
        reply, _ = self.both(THOUGHT + "Yes.", thinking={"type": "disabled"})
        self.assertEqual([block.type for block in reply.content], ["text"])

    def test_history(self):
        """A call and its answer, as the client sends them back."""
        reply, _ = self.both(THOUGHT + CALL, tools=self.tools)
        result = {"type": "tool_result", "tool_use_id": reply.content[1].id, "content": [{"type": "text", "text": "Two lines."}], "is_error": False}
        history = self.asked + [{"role": "assistant", "content": reply.content}, {"role": "user", "content": [result]}]
        count = claude.messages.count_tokens(model="kjv-7m", messages=history, tools=self.tools).input_tokens
        self.assertGreater(count, claude.messages.count_tokens(model="kjv-7m", messages=self.asked, tools=self.tools).input_tokens)
        self.assertEqual(self.both("Done.", messages=history, tools=self.tools)[0].content[0].text, "Done.")

    def test_cut(self):
        reply = claude.messages.create(**self.ask(CALL, tools=self.tools, max_tokens=12))
        self.assertEqual(reply.stop_reason, "max_tokens")
        reply = claude.messages.create(**self.ask("So.", max_tokens=100000))
        self.assertEqual((reply.content[0].text, reply.stop_reason), ("So.", "end_turn"))
        reply = claude.messages.create(**self.ask(max_tokens=100000, extra_body={"ignore_eos": True}))
        self.assertEqual(reply.stop_reason, "model_context_window_exceeded")

    def test_parse(self):
        import pydantic

        class Animal(pydantic.BaseModel):
            clean: bool
            days: int

        reply = claude.messages.parse(model="kjv-7m", max_tokens=300, messages=self.asked, output_format=Animal, extra_body={"temperature": 0})
        self.assertIsInstance(reply.parsed_output, Animal)

    def test_claude_code(self):
        cached = {"cache_control": {"type": "ephemeral"}}
        body = {"model": "kjv-7m", "max_tokens": 32000, "stream": True, "temperature": 1, "guided_choice": [THOUGHT[7:] + CALL],
                "system": [dict({"type": "text", "text": "You are an agent."}, **cached), dict({"type": "text", "text": "Be brief."}, **cached)],
                "tools": [dict(tool, **cached) for tool in self.tools], "metadata": {"user_id": "user_1_account__session_2"},
                "thinking": {"type": "enabled", "budget_tokens": 31999},
                "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}, "output_config": {"effort": "medium"},
                "messages": [{"role": "user", "content": [{"type": "text", "text": "<system-reminder>x</system-reminder>"},
                                                          dict({"type": "text", "text": "What is in a/b?"}, **cached)]},
                             {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", "signature": ""},
                                                               {"type": "tool_use", "id": "toolu_1", "name": "list", "input": {}}]},
                             {"role": "user", "content": [dict({"type": "tool_result", "tool_use_id": "toolu_1", "is_error": True,
                                                                "content": "<tool_use_error>none</tool_use_error>"}, **cached)]}]}
        status, text, _ = server.request("POST", "/v1/messages?beta=true", body, {"anthropic-beta": "interleaved-thinking-2025-05-14"})
        self.assertEqual(status, 200, text)
        events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
        self.assertEqual([event["content_block"]["type"] for event in events if event["type"] == "content_block_start"], ["thinking", "tool_use"])
        self.assertEqual(events[-2]["delta"]["stop_reason"], "tool_use")


class Responses(unittest.TestCase):
    tools = [{"type": "function", "name": name, "description": "A tool.", "strict": False, "parameters": SCHEMA} for name in ("read", "list")]

    def ask(self, text=None, **more):
        return dict(dict(model="kjv-7m", input="What is in a/b?", max_output_tokens=300, temperature=0, tools=self.tools, store=False,
                         extra_body={"guided_choice": [text]} if text else {}), **more)

    def both(self, text, **more):
        """The output of a whole reply, and the events of a stream that must give the same."""
        whole = codex.responses.create(**self.ask(text, **more))
        events = list(codex.responses.create(stream=True, **self.ask(text, **more)))
        last = events[-1].response
        shown = lambda output: [item.model_dump(exclude={"id", "call_id"}) for item in output]
        self.assertEqual((shown(last.output), last.status), (shown(whole.output), whole.status))
        self.assertEqual([event.item for event in events if event.type == "response.output_item.done"], last.output)
        self.assertEqual([event.sequence_number for event in events], list(range(len(events))))
        return whole, events

    def test_call(self):
        reply, events = self.both("I look. " + CALL + "\n" + SECOND)
        self.assertEqual([item.type for item in reply.output], ["message", "function_call", "function_call"])
        self.assertEqual((reply.output_text, reply.output[1].name, json.loads(reply.output[1].arguments)), ("I look. ", "read", PATH))
        kinds = [event.type.removeprefix("response.") for event in events]
        for kind in ("created", "in_progress", "completed"):
            self.assertEqual(kinds.count(kind), 1)
        first = kinds.index("function_call_arguments.delta")
        self.assertEqual(kinds[first - 1], "output_item.added")
        done = [event for event in events if event.type == "response.function_call_arguments.done"]
        self.assertEqual([event.arguments for event in done], [item.arguments for item in reply.output[1:]])
        deltas = "".join(event.delta for event in events if event.type == "response.function_call_arguments.delta" and event.output_index == 1)
        self.assertEqual(deltas, reply.output[1].arguments)
        reply, _ = self.both(CALL + SECOND, parallel_tool_calls=False)
        self.assertEqual([item.name for item in reply.output], ["read"])

    def test_namespace(self):
        """Functions of a namespace are one name to the model, and two to the client."""
        tools = [{"type": "namespace", "name": "files", "description": "Files.", "tools": self.tools}]
        reply, events = self.both(CALL.replace('"read"', '"files__read"'), tools=tools)
        self.assertEqual([(item.name, item.namespace) for item in reply.output], [("read", "files")])
        self.assertEqual([event.name for event in events if event.type == "response.function_call_arguments.done"], ["read"])
        history = [{"role": "user", "content": "x"}] + [item.model_dump(exclude_none=True) for item in reply.output]
        history += [{"type": "function_call_output", "call_id": reply.output[0].call_id, "output": "y"}]
        self.assertEqual(self.both("Done.", input=history, tools=tools)[0].output_text, "Done.")

    def test_forced(self):
        reply, _ = self.both(None, tool_choice={"type": "function", "name": "list"}, max_output_tokens=200)
        self.assertEqual([item.name for item in reply.output], ["list"])
        reply, _ = self.both(CALL, tool_choice="none")
        self.assertEqual(reply.output_text, CALL)

    def test_history(self):
        """Reasoning, calls and answers, as the client sends them back without a store."""
        reply, _ = self.both(THOUGHT + CALL, include=["reasoning.encrypted_content"])
        self.assertEqual([item.type for item in reply.output], ["reasoning", "function_call"])
        self.assertEqual(reply.output[0].content[0].text, "I count.")
        self.assertTrue(reply.output[0].encrypted_content.endswith("I count."))
        history = [{"role": "user", "content": "What is in a/b?"}] + [item.model_dump(exclude_none=True) for item in reply.output]
        history += [{"type": "function_call_output", "call_id": reply.output[1].call_id, "output": "Two lines."}]
        self.assertEqual(self.both("Done.", input=history)[0].output_text, "Done.")

    def test_failed(self):
        """A stream that fails ends with the event that clients wait for."""
        body = {"input": "And", "stream": True, "timeout": 0.3, "ignore_eos": True, "max_output_tokens": 1000, "temperature": 0}
        status, stream, _ = server.request("POST", "/v1/responses", body)
        if status == 200: # a fast machine may be done before
            last = [json.loads(line[6:]) for line in stream.splitlines() if line.startswith("data: ")][-1]
            self.assertIn(last["type"], ("response.failed", "response.incomplete"))
            self.assertEqual(last["response"]["status"], last["type"].removeprefix("response."))
            self.assertEqual(last["response"]["error"] is None, last["type"] == "response.incomplete")

    def test_codex(self):
        text = lambda words: [{"type": "input_text", "text": words}]
        body = {"model": "kjv-7m", "instructions": "You are an agent.", "tools": self.tools + [{"type": "web_search", "external_web_access": False}],
                "tool_choice": "auto", "parallel_tool_calls": False, "reasoning": {"effort": "medium", "summary": "auto"}, "store": False,
                "stream": True, "include": ["reasoning.encrypted_content"], "prompt_cache_key": "1", "text": {"verbosity": "low"},
                "guided_choice": [THOUGHT + CALL],
                "input": [{"type": "message", "role": "developer", "content": text("Permissions.")},
                          {"type": "message", "role": "user", "content": text("<environment_context/>")},
                          {"type": "message", "role": "user", "content": text("What is in a/b?")},
                          {"type": "reasoning", "summary": [], "content": None, "encrypted_content": "trireme:Hm."},
                          {"type": "function_call", "name": "list", "arguments": "{}", "call_id": "call_1"},
                          {"type": "function_call_output", "call_id": "call_1", "output": "a/b"}]}
        status, stream, _ = server.request("POST", "/v1/responses", body)
        self.assertEqual(status, 200, stream)
        events = [json.loads(line[6:]) for line in stream.splitlines() if line.startswith("data: ")]
        done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
        self.assertEqual([item["type"] for item in done], ["reasoning", "function_call"])
        response = events[-1]["response"]
        self.assertEqual((events[-1]["type"], response["output"]), ("response.completed", done))
        self.assertEqual([tool["name"] for tool in response["tools"]], ["read", "list"])
        self.assertFalse(response["parallel_tool_calls"])


if __name__ == "__main__":
    unittest.main()
