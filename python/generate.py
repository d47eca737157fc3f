#!/usr/bin/env python3
"""Writes trireme/_c.py, the ctypes form of include/trireme/*.h.

    generate.py           writes the file
    generate.py --check   fails if the file is not what the headers give

The C preprocessor expands the headers; what is left of ours are enums, structs, function types and functions, each in
one form, which this script reads with regular expressions. It stops at a declaration that it does not know.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import subprocess
import sys
import types
from pathlib import Path

HERE = Path(__file__).resolve().parent
INCLUDE = HERE.parent / "include"
OUTPUT = HERE / "trireme" / "_c.py"

SCALARS = {
    "_Bool": "c_bool",
    "char": "c_char",
    "int": "c_int",
    "float": "c_float",
    "double": "c_double",
    "size_t": "c_size_t",
    "int8_t": "c_int8",
    "int32_t": "c_int32",
    "int64_t": "c_int64",
    "uint32_t": "c_uint32",
    "uint64_t": "c_uint64",
}
PYTHON_TYPES = {
    "c_bool": "bool",
    "c_float": "float",
    "c_double": "float",
    "c_char_p": "bytes | None",
    "c_void_p": "Any",
}
# Enumerators that are no values, and what the names of an enum begin with, where it is not one beginning for all.
NOT_VALUES = re.compile(r"_COUNT$")
PREFIXES = {"trm_status": ("TRM_ERROR_", "TRM_"), "trm_dtype": ("TRM_DTYPE_", "TRM_")}

HEAD = '''"""The C API of libtrireme for ctypes. Written by python/generate.py from include/trireme/*.h: do not edit."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import (
    CDLL,
    CFUNCTYPE,
    POINTER,
    Structure,
    Union,
    c_bool,
    c_char,
    c_char_p,
    c_double,
    c_float,
    c_int,
    c_int8,
    c_int32,
    c_int64,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from enum import IntEnum
from typing import Any

# fmt: off
'''


def preprocessed() -> str:
    """What our own headers expand to, without blank lines and the lines of other headers."""
    text = subprocess.run(
        ["cc", "-std=c17", "-E", f"-I{INCLUDE}", str(INCLUDE / "trireme" / "trireme.h")],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    lines, ours = [], False
    for line in text.splitlines():
        marker = re.match(r'# \d+ "([^"]*)"', line)
        if marker:
            ours = marker.group(1).startswith(str(INCLUDE))
        elif ours:
            lines.append(line)
    text = re.sub(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)", " ", " ".join(lines))
    return re.sub(r"\s+", " ", text).strip()


def statements(text: str) -> list[str]:
    """Cuts at the semicolons outside of braces."""
    found, depth, begin = [], 0, 0
    for i, c in enumerate(text):
        depth += (c == "{") - (c == "}")
        if c == ";" and depth == 0:
            found.append(text[begin:i].strip())
            begin = i + 1
    return [s for s in found if s]


def constants(raw: str) -> dict[str, str]:
    """The #defines whose value is a number or a string."""
    found = {}
    for name, value in re.findall(r'^#define (TRM_[A-Z0-9_]+) +(\(?-?\d+\)?|"[^"\n]*")(?:\s|$)', raw, re.M):
        found[name] = value.strip("()")
    return found


def spoken_names(raw: str) -> dict[str, str]:
    """Names that the headers give to enumerators: X(TRM_TOPK, "topk")."""
    return dict(re.findall(r'X\((TRM_[A-Z0-9_]+),\s*"([a-z0-9_]+)"\)', raw))


class Bindings:
    def __init__(self, text: str, raw: str) -> None:
        self.constants = constants(raw)
        self.spoken = spoken_names(raw)
        self.enums: set[str] = set()
        self.enumerated: dict[str, int] = {}
        self.opaque: set[str] = set()
        self.callbacks: dict[str, str] = {}
        self.structs: set[str] = set()
        self.body: list[str] = []
        self.functions: list[tuple[str, str, list[str]]] = []
        for statement in statements(text):
            self.read(statement)

    # ---- types ----

    def ctype(self, declared: str) -> str:
        """The ctypes type of a C type such as "const trm_dims *"."""
        words = declared.replace("*", " * ").replace("const", " ").split()
        stars = words.count("*")
        base = " ".join(w for w in words if w != "*")
        if stars == 0:
            if base == "void":
                return "None"
            if base in self.enums:
                return "c_int"
            if base in SCALARS:
                return SCALARS[base]
            if base in self.structs or base in self.callbacks:
                return base
            raise SystemExit(f"generate.py: unknown type {declared!r}")
        if base in self.opaque or base == "void":
            inner = "c_void_p"
            stars -= 1
        elif base == "char":
            inner = "c_char_p"
            stars -= 1
        else:
            inner = self.ctype(base)
        for _ in range(stars):
            inner = f"POINTER({inner})"
        return inner

    def python_type(self, ctype: str) -> str:
        if ctype in PYTHON_TYPES:
            return PYTHON_TYPES[ctype]
        if ctype in SCALARS.values():
            return "int"
        return ctype if ctype in self.structs else "Any"

    def number(self, text: str) -> str:
        return str(self.enumerated.get(text, self.constants.get(text, text)))

    # ---- declarations ----

    def read(self, statement: str) -> None:
        if match := re.fullmatch(r"typedef enum (\w+) \{(.*)\} (\w+)", statement):
            self.read_enum(match.group(1), match.group(2))
        elif match := re.fullmatch(r"enum \{(.*)\}", statement):
            for name, value in self.enumerators(match.group(1)):
                self.constants[name] = str(value)
        elif match := re.fullmatch(r"typedef struct (\w+) (\w+)", statement):
            self.opaque.add(match.group(2))
        elif match := re.fullmatch(r"typedef struct (\w+) \{(.*)\} (\w+)", statement):
            self.read_struct(match.group(1), match.group(2))
        elif match := re.fullmatch(r"typedef (.+?)\(\*(\w+)\)\((.*)\)", statement):
            types = [self.ctype(match.group(1)), *self.parameters(match.group(3))]
            self.callbacks[match.group(2)] = "CFUNCTYPE(" + ", ".join(types) + ")"
            self.body.append(f"{match.group(2)} = {self.callbacks[match.group(2)]}")
        elif match := re.fullmatch(r"((?:const )?\w+ \**) ?(trm_\w+)\((.*)\)", statement):
            self.functions.append((match.group(2), match.group(1).strip(), self.parameters(match.group(3))))
        else:
            raise SystemExit(f"generate.py: cannot read {statement!r}")

    def parameters(self, text: str) -> list[str]:
        types = []
        for parameter in text.split(","):
            if parameter.strip() == "void":
                continue
            match = re.fullmatch(r"\s*(.*?)(\w+)\s*", parameter)
            if match is None:
                raise SystemExit(f"generate.py: cannot read the parameter {parameter!r}")
            types.append(self.ctype(match.group(1)))
        return types

    @staticmethod
    def enumerators(text: str) -> list[tuple[str, int]]:
        found, value = [], 0
        for item in text.split(","):
            if not item.strip():
                continue
            name, _, given = (part.strip() for part in item.partition("="))
            value = int(given) if given else value
            found.append((name, value))
            value += 1
        return found

    def read_enum(self, name: str, text: str) -> None:
        values = self.enumerators(text)
        self.enums.add(name)
        self.enumerated.update(values)
        kept = [(n, v) for n, v in values if not NOT_VALUES.search(n)]
        common = os.path.commonprefix([n for n, _ in kept])
        prefixes = PREFIXES.get(name, (common[: common.rindex("_") + 1],))
        self.body.append(f"class {name}(IntEnum):")
        for n, v in kept:
            prefix = next(p for p in prefixes if n.startswith(p))
            label = self.spoken.get(n, n[len(prefix) :]).upper()
            self.body.append(f"    {label} = {v}")
        self.body.append("")

    def fields(self, text: str, owner: str) -> list[tuple[str, str, str | None]]:
        """(name, type, enum or None) of each field. An anonymous union is a field of its own, "params"."""
        found: list[tuple[str, str, str | None]] = []
        union = re.search(r"union \{(.*)\}\s*;", text)
        if union:
            self.write_class(f"{owner}_union", "Union", self.fields(union.group(1), owner))
            text = text.replace(union.group(0), f"{owner}_union params;")
            self.structs.add(f"{owner}_union")
        for declaration in text.split(";"):
            if not declaration.strip():
                continue
            first, *others = (part.strip() for part in declaration.split(","))
            match = re.fullmatch(r"(.*?)(\**)\s*(\w+(?:\[\w+\])*)", first)
            if match is None:
                raise SystemExit(f"generate.py: cannot read the field {declaration!r} of {owner}")
            base = match.group(1)
            for declarator in [match.group(2) + match.group(3), *others]:
                stars = declarator.count("*")
                name, *sizes = re.findall(r"\w+", declarator)
                ctype = self.ctype(base + "*" * stars)
                for size in sizes:
                    ctype = f"{ctype} * {self.number(size)}"
                found.append((name, ctype, base.strip() if base.strip() in self.enums else None))
        return found

    def write_class(self, name: str, base: str, fields: list[tuple[str, str, str | None]]) -> None:
        self.body.append(f"class {name}({base}):")
        self.body += [f"    {field}: {self.python_type(ctype)}" for field, ctype, _ in fields]
        enums = [f'"{field}": {enum}' for field, _, enum in fields if enum]
        if enums:
            self.body.append("    enums = {" + ", ".join(enums) + "}")
        self.body.append("    _fields_ = [")
        self.body += [f'        ("{field}", {ctype}),' for field, ctype, _ in fields]
        self.body += ["    ]", ""]

    def read_struct(self, name: str, text: str) -> None:
        fields = self.fields(text, name)
        self.structs.add(name)
        self.write_class(name, "Structure", fields)

    # ---- output ----

    def text(self) -> str:
        lines = [HEAD]
        lines += [f"{name} = {value}" for name, value in self.constants.items()]
        lines += ["", *self.body]
        lines += [
            "class Library:",
            '    """The functions of libtrireme. What returns a trm_status gives it to `check`."""',
            "",
        ]
        lines += [f"    {name}: Callable[..., Any]" for name, _, _ in self.functions]
        lines += ["", "    def __init__(self, library: CDLL, check: Callable[[int], None]) -> None:"]
        for name, result, parameters in self.functions:
            restype = "check" if result == "trm_status" else self.ctype(result)
            if result == "char *":
                restype = "c_void_p"  # the caller frees it
            lines.append(f"        self.{name} = _function(library, {name!r}, {restype}, [{', '.join(parameters)}])")
        lines += [
            "",
            "",
            "def _function(library: CDLL, name: str, result: Any, types: list[Any]) -> Callable[..., Any]:",
            "    function = getattr(library, name)",
            "    function.restype = result",
            "    function.argtypes = types",
            "    return function  # type: ignore[no-any-return]",
            "",
        ]
        return "\n".join(lines)


def compare_layouts(text: str, structs: set[str]) -> None:
    """Lets a C compiler compare size and offsets of every struct with those of ctypes."""
    module = types.ModuleType("_c")
    sys.modules["_c"] = module
    exec(compile(text, str(OUTPUT), "exec"), module.__dict__)
    lines = ["#include <trireme/trireme.h>"]
    for name in sorted(s for s in structs if not s.endswith("_union")):
        struct = getattr(module, name)
        lines.append(f'_Static_assert(sizeof({name}) == {ctypes.sizeof(struct)}, "size of {name}");')
        for field, _ in struct._fields_:
            if field != "params":
                offset = getattr(struct, field).offset
                lines.append(f'_Static_assert(offsetof({name}, {field}) == {offset}, "{name}.{field}");')
    command = ["cc", "-std=c17", "-fsyntax-only", f"-I{INCLUDE}", "-xc", "-"]
    if subprocess.run(command, input="\n".join(lines) + "\n", text=True).returncode != 0:
        sys.exit("generate.py: structs of ctypes are laid out differently than in C")


def main() -> None:
    parser = argparse.ArgumentParser(description="write trireme/_c.py from the public headers")
    parser.add_argument("--check", action="store_true", help="only compare the file with the headers")
    check = parser.parse_args().check
    raw = "\n".join(path.read_text() for path in sorted((INCLUDE / "trireme").rglob("*.h")))
    bindings = Bindings(preprocessed(), raw)
    text = bindings.text()
    compare_layouts(text, bindings.structs)
    if not check:
        OUTPUT.write_text(text)
    elif OUTPUT.read_text() != text:
        sys.exit("python/trireme/_c.py differs from include/trireme: run python/generate.py")


if __name__ == "__main__":
    main()
