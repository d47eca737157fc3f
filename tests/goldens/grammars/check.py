#!/usr/bin/env python3
"""Random texts written within the masks of grammars, judged by Python: json and jsonschema for schemas, re for
expressions, and small recognisers for the rest.

    check.py --program build/tests/launcher_text/grammar_main [--count 50] [--seed 1] TOKENIZER...
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys

import jsonschema

HERE = pathlib.Path(__file__).parent
JSON, SCHEMA, REGEX, EBNF, CHOICE = 1, 2, 3, 4, 5

EXPRESSIONS = [r"abc", r"a*", r"(ab|cd)+e?", r"[a-f0-9]{4}(-[a-f0-9]{2}){2,3}", r"\d{3}-\d{4}", r"[^\s\d\x1c-\x1f]{1,5}", r".{0,8}",
               r"(?:yes|no|maybe)", r"^\w+@\w+\.(com|org)$", r"[\u4e00-\u9fff]{1,3}|\U?", r"a{,3}b{2,}c{1}", r"(a|b|)(c?)*d",
               r"é+|ü?x", r"\x41\t\n?", r"(?P<year>[0-9]{4})-(?<month>0[1-9]|1[0-2])", r"[-+]?[0-9]+(\.[0-9]+)?([eE][-+]?\d+)?",
               r"[\]\[\\^-]{2,4}", r"\{\}|a{|b}", r"((a{2}){2}b){1,2}"]
EXPRESSIONS[9] = r"[\u4e00-\u9fff]{1,3}|\uff21?"


def balanced(text):
    depth = 0
    for c in text:
        depth += {"(": 1, ")": -1}[c]
        if depth < 0:
            return False
    return depth == 0 and text != ""


def arithmetic(text):
    return re.fullmatch(r"[0-9+*() -]+", text) and isinstance(eval(text), int)  # pylint: disable=eval-used


GRAMMARS = [
    ('root ::= pair+\npair ::= "(" pair* ")"', balanced),
    ('# sums\nroot ::= term (ws [+*] ws term)*\nterm ::= num | "(" ws root ws ")"\nnum ::= "0" | [1-9] [0-9]{0,3}\nws ::= " "?',
     arithmetic),
    ('root ::= "a" tail\n\ntail ::= "b" tail\n  | "c"', re.compile("ab*c").fullmatch),
    ('root ::= (\n  "x" |\n  "y"\n) [^a-z\\n"]{2} "\\u00e9\\x41\\t"', re.compile('[xy][^a-z\n"]{2}éA\t').fullmatch),
    ('start: greeting " " NAME [", " NAME] ("!" | "?")~1..3 // end\ngreeting: "hello"i | "bye" -> b\nNAME: /[A-Z][a-z]*/ DIGIT?\nDIGIT: "0".."9"',
     re.compile(r"([hH][eE][lL][lL][oO]|bye) [A-Z][a-z]*\d?(, [A-Z][a-z]*\d?)?[!?]{1,3}").fullmatch),
    ('root ::= s\ns ::= "a" s "b" | "a" s "c" | "d"', lambda t: len(t) % 2 == 1 and re.fullmatch("a*d[bc]*", t) and t.index("d") == len(t) // 2),
]


def cases():
    for schema in json.loads((HERE / "schemas.json").read_text()):
        validator = jsonschema.Draft202012Validator(schema)
        yield SCHEMA, json.dumps(schema), lambda t, v=validator: v.is_valid(json.loads(t, object_pairs_hook=distinct))
    yield JSON, "", lambda t: isinstance(json.loads(t, object_pairs_hook=dict), dict)
    for text in EXPRESSIONS:
        yield REGEX, text, re.compile(text.replace("(?<", "(?P<"), re.ASCII).fullmatch
    for text, accepts in GRAMMARS:
        yield EBNF, text, accepts
    choices = ["yes", "no", "not sure", "é😀", "a\nb"]
    yield CHOICE, json.dumps(choices), lambda t: t in choices


def distinct(pairs):
    if len({key for key, _ in pairs}) < len(pairs) and distinct.strict:
        raise ValueError("a key twice")
    return dict(pairs)


distinct.strict = False


def judge(accepts, text):
    try:
        return bool(accepts(text))
    except (ValueError, KeyError, SyntaxError, RecursionError):
        return False


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seed", default="1")
    parser.add_argument("tokenizers", nargs="+")
    options = parser.parse_args()
    every = list(cases())
    given = json.dumps([{"kind": kind, "text": text} for kind, text, _ in every])
    wrong = total = 0
    for tokenizer in options.tokenizers:
        out = subprocess.run([options.program, tokenizer, str(options.count), options.seed], input=given.encode(),
                             stdout=subprocess.PIPE, check=True).stdout.decode()
        for (kind, text, accepts), lines in zip(every, out.split("---\n")):
            found = [json.loads(line) for line in lines.strip().split("\n") if line]
            errors = [each["error"] for each in found if isinstance(each, dict)]
            texts = [each for each in found if isinstance(each, str)]
            bad = [each for each in texts if not judge(accepts, each)]
            total += len(texts)
            wrong += len(bad) + len(errors)
            if errors or bad or len(texts) < options.count // 10:
                print(f"{pathlib.Path(tokenizer).name}: kind {kind} {text[:200]}\n  {len(texts)} texts, {len(set(texts))} "
                      f"distinct; errors {errors}; wrong {[each[:300] for each in bad[:3]]}")
    print(f"{total} texts, {wrong} wrong")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
