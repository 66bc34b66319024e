#!/usr/bin/env python3
"""The binary layout of the plugin ABI and of every operator: recorded, and only ever appended to.

    layout.py record             writes the layout of rlk/abi/*.h and rlk/ops/*.h to abi/<version>.json
    layout.py check              exits with 1 unless the current headers are what was recorded
    layout.py compare OLD NEW    exits with 1 unless NEW only appends to OLD; each a recorded file or an include folder

A layout holds every struct with its fields (offset, size, type), every typedef and every constant, the operators' apart by
name: the ABI's version and an operator's revision grow apart. A small parser names everything, the C compiler ($CC, else
cc) says where it lies. Extensions in abi/ext/draft may change and are left out.

While the ABI is a draft no plugin is bound to an older one, so there is one record, today's. The first frozen version
wants more: a record of every release that stays, and `check` comparing with each. Needs Python 3.9.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
HEADERS = HERE.parent / "include"
VERSION = ("RLK_ABI_MAJOR", "RLK_ABI_MINOR", "RLK_ABI_DRAFT")
# Constants that count things which may be appended to.
GROWING = re.compile(r"RLK_\w+_(N_INPUTS|N_OUTPUTS|N_SYMBOLS|REVISION)$")


class LayoutError(Exception):
    pass


# ---- parsing ---------------------------------------------------------------------------------------------------------
def spaced(text):
    """One spelling per type: single spaces, none around stars, parentheses and commas but after a comma."""
    text = re.sub(r"\s*([*(),])\s*", r"\1", " ".join(text.split()))
    return re.sub(r"\*(?=\w)", "* ", text).replace(",", ", ")


def without_name(parameter):
    """The type of a parameter: its name is not part of the ABI."""
    words = re.findall(r"\w+|\*", parameter)
    named = len(words) > 1 and words[-1] != "*" and words[-2] not in ("const", "struct")
    return spaced(" ".join(words[:-1] if named else words))


def signature(result, parameters):
    if "(" in parameters:
        raise LayoutError(f"name the type of a function that is a parameter: {parameters!r}")
    return f"{spaced(result)}(*)({', '.join(without_name(p) for p in parameters.split(','))})"


def declaration(text):
    """'uint32_t a, b' -> [('a', 'uint32_t'), ('b', 'uint32_t')]; arrays and function pointers likewise."""
    text = " ".join(text.split())
    function = re.fullmatch(r"(.+?)\(\s*\*\s*(\w+)\s*\)\s*\((.*)\)", text)
    if function:
        result, name, parameters = function.groups()
        return [(name, signature(result, parameters))]
    if "(" in text or ":" in text:
        raise LayoutError(f"not a declaration this parser knows: {text!r}")
    first, *rest = [part.strip() for part in text.split(",")]
    match = re.fullmatch(r"(.+?[\s*])(\w+)((?:\[[^\]]+\])*)", first)
    if not match:
        raise LayoutError(f"not a declaration this parser knows: {text!r}")
    kind, name, array = match.groups()
    if rest and "*" in kind:
        raise LayoutError(f"one pointer per declaration, please: {text!r}")
    fields = [(name, spaced(kind) + array)]
    for other in rest:
        match = re.fullmatch(r"(\w+)((?:\[[^\]]+\])*)", other)
        if not match:
            raise LayoutError(f"not a declaration this parser knows: {text!r}")
        fields.append((match.group(1), spaced(kind) + match.group(2)))
    return fields


def parse(headers):
    """Names and types of everything in the headers, which are texts."""
    structs, typedefs, constants = {}, {}, []
    for text in headers:
        text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
        constants += re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+(?!\{)\S", text, flags=re.M)
        text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*$", "", text, flags=re.M)
        for name, body in re.findall(r"typedef\s+struct\s+(\w+)\s*\{(.*?)\}\s*\1\s*;", text, flags=re.S):
            structs[name] = [field for line in body.split(";") if line.strip() for field in declaration(line)]
        text = re.sub(r"typedef\s+struct\s+(\w+)\s*\{.*?\}\s*\1\s*;", "", text, flags=re.S)
        for line in re.findall(r"typedef\s+([^;]+);", text):
            for name, kind in declaration(line):
                typedefs[name] = kind
        text = re.sub(r'extern\s+"C"\s*\{([^{}]*)\}', r"\1", text)
        text = re.sub(r'__attribute__\(\(visibility\("default"\)\)\)[^;{}]+;', "", text)  # a prototype has no layout
        left = re.sub(r"typedef\s+[^;]+;", "", text).strip()
        if left:
            raise LayoutError(f"not a declaration this parser knows: {left.splitlines()[0]!r}")
    return structs, typedefs, constants


# ---- measuring -------------------------------------------------------------------------------------------------------
def measure(folder):
    """The layout of an include folder: the ABI's headers, and each operator's in "operators"."""
    files = sorted(folder.glob("rlk/abi/*.h"))
    if not files:
        raise LayoutError(f"{folder} has no rlk/abi/*.h")
    headers = sorted(folder.glob("rlk/ops/*.h"))
    everything = measure_files(folder, files + headers)

    def own(texts):
        return {kind: {name: everything[kind][name] for name in names}
                for kind, names in zip(("structs", "typedefs", "constants"), parse(texts))}

    return own([file.read_text() for file in files]) | {
        "operators": {file.stem: own([file.read_text()]) for file in headers}}


def measure_files(folder, files):
    structs, typedefs, constants = parse([f.read_text() for f in files])
    lines = ["#include <stddef.h>", "#include <stdio.h>"]
    lines += [f'#include "{f.relative_to(folder)}"' for f in files]
    lines += ["#define NUMBER(c) _Generic((c), char*: 0, float: 0, double: 0, default: 1)",
              "#define VALUE(c) _Generic((c), char*: 0, default: (c))", "int main(void) {"]
    for name, fields in structs.items():
        lines.append(f'  printf("struct {name} %zu\\n", sizeof({name}));')
        for field, _ in fields:
            lines.append(f'  printf("field %zu %zu\\n", offsetof({name}, {field}), sizeof((({name}*)0)->{field}));')
    for name in constants:
        lines.append(f'  if (NUMBER({name})) printf("number {name} %lld\\n", (long long)VALUE({name}));')
        lines.append(f'  else printf("text {name} %s\\n", _Generic(({name}), char*: ({name}), default: ""));')
    lines += ["  return 0;", "}", ""]
    with tempfile.TemporaryDirectory() as work:
        source, program = pathlib.Path(work, "layout.c"), pathlib.Path(work, "layout")
        source.write_text("\n".join(lines))
        command = [os.environ.get("CC", "cc"), "-std=c11", f"-I{folder}", str(source), "-o", str(program)]
        built = subprocess.run(command, capture_output=True, text=True)
        if built.returncode != 0:
            raise LayoutError("the headers do not compile as C11:\n" + built.stderr)
        output = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    layout = {"structs": {}, "typedefs": typedefs, "constants": {}}
    remaining = None
    for line in output.splitlines():
        kind, *words = line.split(" ", 2)
        if kind == "struct":
            remaining = iter(structs[words[0]])
            current = layout["structs"][words[0]] = {"size": int(words[1]), "fields": []}
        elif kind == "field":
            name, ctype = next(remaining)
            current["fields"].append({"name": name, "offset": int(words[0]), "size": int(words[1]), "type": ctype})
        else:
            layout["constants"][words[0]] = int(words[1]) if kind == "number" else words[1]
    return layout


def version_of(layout):
    return tuple(layout["constants"].get(name, 0) for name in VERSION)


def recorded_name(version):
    major, minor, draft = version
    return f"{major}.{minor}" + (f"-draft{draft}" if draft else "") + ".json"


def load(path):
    path = pathlib.Path(path)
    return measure(path) if path.is_dir() else json.loads(path.read_text())


def text_of(layout):
    """JSON with a line for each struct, typedef, constant and operator."""
    kinds = [f'"{kind}": {{\n' + ",\n".join(f" {json.dumps(name)}: {json.dumps(what)}" for name, what in names.items()) +
             "\n}" for kind, names in layout.items()]
    return "{\n" + ",\n".join(kinds) + "\n}\n"


# ---- comparing -------------------------------------------------------------------------------------------------------
def padding(name, struct):
    end = 0
    for field in struct["fields"]:
        if field["offset"] > end:
            yield f"{name}.{field['name']}: {field['offset'] - end} bytes of implicit padding before it"
        end = field["offset"] + field["size"]
    if struct["size"] > end:
        yield f"{name}: {struct['size'] - end} bytes of implicit padding at its end"


def compare_struct(name, old, new):
    now = {field["name"]: field for field in new["fields"]}
    before = {field["name"] for field in old["fields"]}
    for field in old["fields"]:
        same = now.get(field["name"])
        where = f"{name}.{field['name']}"
        if same is None:
            yield f"{where}: removed or renamed; a field stays for ever"
        elif same["type"] != field["type"]:
            yield f"{where}: was {field['type']}, is {same['type']}; append a new field instead"
        elif (same["offset"], same["size"]) != (field["offset"], field["size"]):
            yield (f"{where}: was at offset {field['offset']} with {field['size']} bytes, is at {same['offset']} with "
                   f"{same['size']}; fields keep their place")
    for field in new["fields"]:
        if field["name"] not in before and field["offset"] < old["size"]:
            yield (f"{name}.{field['name']}: new at offset {field['offset']}, inside the old {old['size']} bytes; "
                   "append it")
    if new["size"] < old["size"]:
        yield f"{name}: shrank from {old['size']} to {new['size']} bytes"
    if new["size"] > old["size"] and old["fields"][0]["name"] != "struct_size":
        yield f"{name}: grew from {old['size']} to {new['size']} bytes, but has no struct_size to say so"


def compare_names(old, new):
    errors = [f"struct {name}: removed" for name in old["structs"] if name not in new["structs"]]
    for name, struct in new["structs"].items():
        errors += padding(name, struct)
        if name in old["structs"]:
            errors += compare_struct(name, old["structs"][name], struct)
    for name, kind in old["typedefs"].items():
        if new["typedefs"].get(name) != kind:
            errors.append(f"typedef {name}: was {kind}, is {new['typedefs'].get(name, 'gone')}")
    for name, value in old["constants"].items():
        now = new["constants"].get(name)
        if name in VERSION or (GROWING.match(name) and isinstance(now, int) and now >= value):
            continue
        if now != value:
            errors.append(f"constant {name}: was {value!r}, is {'gone' if now is None else repr(now)}")
    return errors


def revision_of(name, operator):
    constant = f"RLK_{name.upper()}_REVISION"
    if constant not in operator["constants"]:
        raise LayoutError(f"rlk/ops/{name}.h has no {constant}")
    return operator["constants"][constant]


def compare(old, new):
    """Everything in `new` that a plugin or host built with `old` could trip over."""
    errors = compare_names(old, new)
    for name, before in old["operators"].items():
        now = new["operators"].get(name)
        if now is None:
            errors.append(f"operator {name}: removed; an operator that was released stays")
            continue
        errors += compare_names(before, now)
        if now != before and revision_of(name, now) == revision_of(name, before):
            errors.append(f"operator {name}: its header changed: raise the revision")
    return errors


def differences(old, new):
    """For people: where two layouts that should be equal are not."""
    found = compare_names(old, new)
    for kind in ("structs", "typedefs", "constants"):
        found += [f"{kind[:-1]} {n}: not in the record" for n in new[kind] if n not in old[kind]]
        for name in old[kind]:
            if name in new[kind] and old[kind][name] != new[kind][name] and not any(name in text for text in found):
                found.append(f"{kind[:-1]} {name}: differs from the record")
    return found


# ---- recording -------------------------------------------------------------------------------------------------------
def record(folder=HEADERS, records=HERE):
    layout = measure(folder)
    path = records / recorded_name(version_of(layout))
    if version_of(layout)[2] == 0 and path.exists():
        raise LayoutError(f"{path.name} is the record of a frozen version: it is not written over")
    path.write_text(text_of(layout))


def check(folder=HEADERS, records=HERE):
    current = measure(folder)
    version = version_of(current)
    path = records / recorded_name(version)
    if not path.exists():
        return [f"{path.name} does not exist: record the layout (layout.py record)"]
    recorded = json.loads(path.read_text())
    errors = [f"{path.name}: {text}" for text in differences(recorded, current)]
    if errors:
        errors.append("the headers changed: raise the draft number, then record (layout.py record)")
    before, now = recorded["operators"], current["operators"]
    changed = [name for name in now if name in before and now[name] != before[name]]
    of_operators = [f"operator {name}: recorded, but gone" for name in before.keys() - now.keys()]
    of_operators += [f"operator {name}: not in the record" for name in now.keys() - before.keys()]
    of_operators += [f"operator {name}: {text}" for name in changed for text in differences(before[name], now[name])]
    errors += [f"{path.name}: {text}" for text in sorted(of_operators)]
    if of_operators:
        errors.append("operators' headers changed: record them (layout.py record)")
    if version[2] == 0:
        errors.append("the ABI is no draft any more: keep a record of every release, and compare with each of them here")
    return errors


def main(arguments):
    try:
        if arguments == ["record"]:
            record()
            return 0
        if arguments == ["check"]:
            errors = check()
        elif len(arguments) == 3 and arguments[0] == "compare":
            errors = compare(load(arguments[1]), load(arguments[2]))
        else:
            print(__doc__, file=sys.stderr)
            return 2
    except (LayoutError, OSError, ValueError) as error:
        errors = [str(error)]
    for error in errors:
        print(error)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
