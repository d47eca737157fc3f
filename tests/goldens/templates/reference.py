"""Jinja2 set up as Hugging Face transformers sets it up for chat templates."""
import datetime
import json

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

NOW = 1700000000


class Generation(jinja2.ext.Extension):
    """{% generation %}: marks what the assistant says; prints its body."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("say"), [], [], body).set_lineno(line)

    @staticmethod
    def say(caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def strftime_now(text):
    return datetime.datetime.fromtimestamp(NOW).strftime(text)


environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
environment.filters["tojson"] = tojson
environment.globals["raise_exception"] = raise_exception
environment.globals["strftime_now"] = strftime_now


def render(template, messages, tools=None, extra=None, add_generation_prompt=False):
    """The text, or None where Jinja2 fails."""
    variables = {"messages": messages, "tools": tools, "documents": None,
                 "add_generation_prompt": add_generation_prompt}
    variables.update(extra or {})
    try:
        return environment.from_string(template).render(**variables)
    except Exception as error:  # pylint: disable=broad-except
        render.error = f"{type(error).__name__}: {error}"
        return None
