#!/usr/bin/env python3
"""What rlk's questions answer (rlk.list, explain, counters, doctor) as types: the module rlk.documents, made from the JSON
schemas of the command's outputs.

    python3 packaging/python/generate_documents.py SCHEMAS FILE     the build does; nothing of it is committed
"""
import json
import pathlib
import sys

QUESTIONS = ("list", "explain", "counters", "doctor")
HEAD = '''"""What rlk.list(), explain(), counters() and doctor() answer, for editors and type checkers: an answer is a rlk.Report, a
dict of this form. Generated from the JSON schemas of rlk-plugins' outputs; do not edit."""
from typing import Any, Dict, List as _List, Literal, TypedDict, Union
'''
SIMPLE = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}


def union(types):
    kinds = [*dict.fromkeys(types)]
    return kinds[0] if len(kinds) == 1 else f"Union[{', '.join(kinds)}]"


class Module:
    def __init__(self):
        self.classes = []

    def type_of(self, schema, name):
        """The type of a value; an object's becomes a class of this name."""
        if "anyOf" in schema:
            return union(self.type_of(one, name) for one in schema["anyOf"])
        if "const" in schema:
            return f"Literal[{schema['const']!r}]"
        if "enum" in schema:
            return f"Literal[{', '.join(map(repr, schema['enum']))}]"
        kind = schema.get("type")
        if isinstance(kind, list):
            return union(self.type_of({**schema, "type": one}, name) for one in kind)
        if kind == "array":
            return f"_List[{self.type_of(schema.get('items', {}), name.removesuffix('s'))}]"
        if kind == "object" and "properties" in schema:
            return self.class_of(schema, name)
        if kind == "object":
            return f"Dict[str, {self.type_of(schema.get('additionalProperties') or {}, name + 'Value')}]"
        if kind is None:
            return "Any"
        return SIMPLE[kind]

    def class_of(self, schema, name):
        lines = {True: [], False: []}
        for key, value in schema["properties"].items():
            about = f"  # {value['description']}" if "description" in value else ""
            of = self.type_of(value, name + "".join(word.title() for word in key.split("_")))
            lines[key in schema.get("required", [])].append(f"    {key}: {of}{about}\n")
        assert lines[True], f"{name}: no key is always there"
        base = "TypedDict"
        if lines[False]:  # typing.NotRequired is younger than the oldest Python that rlk serves
            base = f"_{name}Always"
            self.classes.append(f"class {base}(TypedDict):\n" + "".join(lines[True]))
            lines[True] = []
        head = f"class {name}({base}{', total=False' if lines[False] else ''}):\n"
        title = f'    """{schema["title"].split(": ", 1)[1]}"""\n' if "title" in schema else ""
        self.classes.append(head + title + "".join(lines[True] + lines[False]))
        return name


def main():
    schemas, out = map(pathlib.Path, sys.argv[1:])
    module = Module()
    for question in QUESTIONS:
        module.class_of(json.loads((schemas / f"{question}.schema.json").read_text()), question.title())
    out.write_text("\n\n".join([HEAD, *module.classes]))


if __name__ == "__main__":
    main()
