#!/usr/bin/env python3
"""Writes cases.json: what Jinja2 makes of expressions.txt and of each *.jinja over each conversation of
conversations.json. An expected text of null is a template that Jinja2 refuses."""
import json
import pathlib

import reference

HERE = pathlib.Path(__file__).parent


def case(name, template, conversation):
    extra = conversation.get("extra", {})
    text = reference.render(template, conversation["messages"], conversation.get("tools"), extra,
                            conversation.get("add_generation_prompt", False))
    made = {"name": name, "messages": json.dumps(conversation["messages"]), "extra": json.dumps(extra),
            "add_generation_prompt": conversation.get("add_generation_prompt", False), "expected": text}
    if conversation.get("tools") is not None:
        made["tools"] = json.dumps(conversation["tools"])
    return made


def main():
    conversations = json.loads((HERE / "conversations.json").read_text())
    cases = []
    for number, template in enumerate((HERE / "expressions.txt").read_text().split("\n===\n")):
        cases.append({"template": template, **case(f"expression {number}", template, conversations["expressions"])})
    for path in sorted(HERE.glob("*.jinja")):
        for name, conversation in conversations.items():
            if name != "expressions":
                cases.append({"file": path.name, **case(f"{path.name} {name}", path.read_text(), conversation)})
    (HERE / "cases.json").write_text(json.dumps(cases, indent=1) + "\n")
    failing = sum(1 for each in cases if each["expected"] is None)
    print(f"{len(cases)} cases, {failing} of them errors")


if __name__ == "__main__":
    main()
