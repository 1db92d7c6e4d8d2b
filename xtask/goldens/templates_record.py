#!/usr/bin/env python3
"""Renders chat templates as transformers' `apply_chat_template` does: `templates_record.py DIR [TEMPLATES]`
renders every `*.jinja` of the folder TEMPLATES for each conversation below and writes DIR/renderings.json,
with what the templates gave or the error they raised. Run through `cargo xtask goldens` for the samples in
the repository, and through `cargo xtask tokenizers DIR` for a whole folder; both pin the version of Jinja2."""
import datetime
import json
import pathlib
import sys

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

WANTED = "3.1.6"
# What templates take for the current time, in UTC.
NOW = 1_767_225_599
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}


class Generation(jinja2.ext.Extension):
    """Blocks that mark what the model said."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def strftime_now(form):
        return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).replace(tzinfo=None).strftime(form)

    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = strftime_now
    return made


def message(role, content, **fields):
    return {"role": role, "content": content, **fields}


def call(name, arguments, **fields):
    return {**fields, "type": "function", "function": {"name": name, "arguments": arguments}}


WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a place, now or soon.",
    "parameters": {"type": "object", "required": ["place"], "properties": {
        "place": {"type": "string", "description": "A city & its country, such as \"Paris, France\""},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
        "days": {"type": "integer", "minimum": 0, "description": "Days <from> today"}}},
    "return": {"type": "object", "description": "Temperature & sky"}}}
SEARCH = {"type": "function", "function": {
    "name": "search", "description": "Finds pages.",
    "parameters": {"type": "object", "properties": {
        "queries": {"type": "array", "items": {"type": "string"}},
        "options": {"type": "object", "properties": {"limit": {"type": "number"}, "exact": {"type": "boolean"}}}},
        "required": ["queries"]}}}
NOTHING = {"type": "function", "function": {
    "name": "ping", "description": "Does nothing.", "parameters": {"type": "object", "properties": {}}}}

HELLO = message("user", "Hello, who are you?")
SYSTEM = message("system", "You are terse.\nAnswer in \"quotes\" & <tags>.")
TURNS = [message("user", "Hi"), message("assistant", "Hello! 你好 🙂"), message("user", "  How's it going?\n")]
ASK = message("user", "What's the weather in Köln and in Zürich?")
CALLED = [
    ASK,
    message("assistant", "", tool_calls=[call("get_weather", {"place": "Köln", "days": 0}, id="call00001")]),
    message("tool", "{\"sky\": \"rain\", \"t\": 9.5}", name="get_weather", tool_call_id="call00001"),
]
TWICE = [
    SYSTEM, ASK,
    message("assistant", "Let me see.", tool_calls=[
        call("get_weather", {"place": "Köln", "unit": "celsius"}, id="aaaaaaaa1"),
        call("search", {"queries": ["Zürich", "Wetter"], "options": {"limit": 2.0, "exact": True}}, id="aaaaaaaa2")]),
    message("tool", "9 °C", name="get_weather", tool_call_id="aaaaaaaa1"),
    message("tool", "[]", name="search", tool_call_id="aaaaaaaa2"),
    message("assistant", "9 °C in Köln."),
    message("user", "Thanks!"),
]
WRITTEN = [
    ASK,
    message("assistant", None, tool_calls=[call("get_weather", "{\"place\": \"Köln\"}", id="bbbbbbbb1")]),
    message("tool", "9 °C", tool_call_id="bbbbbbbb1"),
]
THOUGHT = [
    message("user", "2+2?"),
    message("assistant", "4", reasoning_content="Two and two.\nFour."),
    message("user", "And 3+3?"),
]
TAGGED = [
    message("user", "2+2?"),
    message("assistant", "<think>\nTwo and two.\n</think>\n\n4"),
    message("user", "And 3+3?"),
    message("assistant", "<think>hm</think>6"),
]
PARTS = [message("user", [{"type": "text", "text": "One part"}, {"type": "text", "text": " and another"}])]
DOCUMENTS = [{"title": "Doc & one", "text": "First\ntext", "doc_id": "1"}, {"title": "Two", "text": "Second"}]

CASES = {
    "plain": dict(messages=[HELLO]),
    "plain_without_prompt": dict(messages=[HELLO], add_generation_prompt=False),
    "system": dict(messages=[SYSTEM, HELLO]),
    "system_alone": dict(messages=[SYSTEM]),
    "empty": dict(messages=[]),
    "turns": dict(messages=TURNS),
    "turns_with_system": dict(messages=[SYSTEM, *TURNS]),
    "answered": dict(messages=TURNS[:2], add_generation_prompt=False),
    "two_users": dict(messages=[HELLO, HELLO]),
    "assistant_first": dict(messages=[message("assistant", "I begin."), HELLO]),
    "unknown_role": dict(messages=[message("narrator", "Once."), HELLO]),
    "developer": dict(messages=[message("developer", "Be kind."), HELLO]),
    "tools": dict(messages=[ASK], tools=[WEATHER, SEARCH, NOTHING]),
    "tools_with_system": dict(messages=[SYSTEM, ASK], tools=[WEATHER]),
    "called": dict(messages=CALLED, tools=[WEATHER]),
    "called_without_tools": dict(messages=CALLED),
    "called_twice": dict(messages=TWICE, tools=[WEATHER, SEARCH]),
    "called_with_text": dict(messages=WRITTEN, tools=[WEATHER]),
    "thinking": dict(messages=[SYSTEM, HELLO], variables={"enable_thinking": True}),
    "not_thinking": dict(messages=[SYSTEM, HELLO], variables={"enable_thinking": False}),
    "thinking_tools": dict(messages=CALLED, tools=[WEATHER], variables={"enable_thinking": True, "thinking": True}),
    "thought": dict(messages=THOUGHT),
    "thought_not_thinking": dict(messages=THOUGHT, variables={"enable_thinking": False, "thinking": False}),
    "thought_in_tags": dict(messages=TAGGED, add_generation_prompt=False),
    "effort": dict(messages=[HELLO], variables={"reasoning_effort": "high", "builtin_tools": ["browser", "python"]}),
    "parts": dict(messages=PARTS),
    "documents": dict(messages=[HELLO], documents=DOCUMENTS),
    "no_beginning": dict(messages=[HELLO], variables={"bos_token": ""}),
}


def with_reasoning(message):
    """Reasoning under every name that templates have for it, as transformers gives it to them."""
    names = ("reasoning_content", "thinking", "reasoning")
    reasoning = next((message[name] for name in names if message.get(name) is not None), None)
    return message if reasoning is None else {"thinking": reasoning, **message, "reasoning_content": reasoning}


def render(template, case):
    variables = {**SPECIAL, **case.get("variables", {})}
    messages = [with_reasoning(json.loads(json.dumps(message))) for message in case["messages"]]
    try:
        return {"text": template.render(
            messages=messages, tools=case.get("tools"), documents=case.get("documents"),
            add_generation_prompt=case.get("add_generation_prompt", True), **variables)}
    except jinja2.exceptions.TemplateError as error:
        return {"error": error.message or "", "raised": type(error) is jinja2.exceptions.TemplateError}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}", "raised": False}


def main():
    if jinja2.__version__ != WANTED:
        raise SystemExit(f"Jinja2 {WANTED} is needed, this is {jinja2.__version__}")
    samples = pathlib.Path(__file__).parents[2] / "goldens/templates"
    made, folder = map(pathlib.Path, [*sys.argv[1:], samples][:2])
    renderings = {}
    for path in sorted(folder.glob("*.jinja")):
        source = path.read_text(encoding="utf-8")
        template = environment().from_string(source)
        renderings[path.name] = {name: render(template, case) for name, case in CASES.items()}
    recorded = {"now": NOW, "special": SPECIAL, "cases": CASES, "renderings": renderings}
    made.mkdir(parents=True, exist_ok=True)
    (made / "renderings.json").write_text(json.dumps(recorded, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
