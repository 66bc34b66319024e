#!/usr/bin/env python3
"""Which functions of the trainers changed since the operators were held against them (plugin_api/ops/upstream.json).

    upstream.py check [FOLDER...]    compares the installed packages, or those in folders, with what is recorded; exits
                                     with 1 where a function is another or gone. An absent package is said and passed over.
    upstream.py record [FOLDER...]   takes over versions and functions of the packages that are there, once tests hold
                                     the operators against them again

Packages are read and never imported; nothing is fetched. A folder holds a package and its metadata, as site-packages or
an unpacked wheel does (of a wheel with a .data folder, its purelib is a folder of its own). A function counts as it is
written, without its docstring, lines of comment and blank lines.
"""
import ast
import hashlib
import importlib.metadata
import json
import pathlib
import sys
import textwrap

RECORD = pathlib.Path(__file__).parent / "ops/upstream.json"


def definitions(text):
    """The source of every function and class of a module by its qualified name."""
    lines = text.splitlines()
    found = {}

    def visit(node, prefix):
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                continue
            name = prefix + child.name
            skipped = set()
            for part in ast.walk(child):
                if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and ast.get_docstring(part):
                    skipped.update(range(part.body[0].lineno, part.body[0].end_lineno + 1))
            own = [lines[n - 1].rstrip() for n in range(child.lineno, child.end_lineno + 1) if n not in skipped]
            own = [line for line in own if line and not line.lstrip().startswith("#")]
            found[name] = textwrap.dedent("\n".join(own))
            visit(child, name + ".")

    visit(ast.parse(text), "")
    return found


def digest(source):
    return hashlib.sha256(source.encode()).hexdigest()[:16]


def installed(package, folders):
    """(version, a function from a file's name to its text or None) of a package, or None where it is absent."""
    paths = {"path": [str(folder) for folder in folders]} if folders else {}
    found = list(importlib.metadata.distributions(name=package, **paths))
    if not found:
        return None

    def read(file):
        path = pathlib.Path(found[0].locate_file(file))
        roots = [path, *(pathlib.Path(folder) / file for folder in folders)]
        return next((p.read_text() for p in roots if p.is_file()), None)

    return found[0].version, read


def compared(recorded, read):
    """(changed, gone, the hashes that there are) of the recorded functions."""
    changed, gone, now = [], [], {}
    for file, functions in recorded.items():
        text = read(file)
        there = definitions(text) if text is not None else {}
        now[file] = {}
        for name, before in functions.items():
            if name not in there:
                gone.append(f"{file} {name}")
            else:
                now[file][name] = digest(there[name])
                if now[file][name] != before:
                    changed.append(f"{file} {name}")
    return changed, gone, now


def check(record, folders):
    """Lines for people, and whether something is not as it was."""
    lines, differs = [], False
    for package, known in record.items():
        there = installed(package, folders)
        if there is None:
            lines.append(f"{package}: not installed here, not compared (recorded: {known['version']})")
            continue
        version, read = there
        changed, gone, _ = compared(known["functions"], read)
        number = sum(len(functions) for functions in known["functions"].values())
        verdict = f"{number - len(changed) - len(gone)} of {number} functions as in {known['version']}"
        lines.append(f"{package} {version}: {verdict}")
        lines += [f"  changed: {name}" for name in changed] + [f"  gone: {name}" for name in gone]
        differs |= bool(changed or gone)
    return lines, differs


def take_over(record, folders):
    lines = []
    for package, known in record.items():
        there = installed(package, folders)
        if there is None:
            lines.append(f"{package}: not installed here, left as it is ({known['version']})")
            continue
        _, gone, now = compared(known["functions"], there[1])
        if gone:
            lines.append(f"{package}: left as it is, because these are gone: {', '.join(gone)}. Name what replaced them "
                         f"in {RECORD.name}")
            continue
        record[package] = {"version": there[0], "functions": now}
        lines.append(f"{package}: {there[0]} recorded")
    return lines


def main(arguments):
    if not arguments or arguments[0] not in ("check", "record"):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    folders = [pathlib.Path(folder) for folder in arguments[1:]]
    for folder in folders:
        if not folder.is_dir():
            print(f"{folder}: no such folder; expected one that holds a package, as site-packages does", file=sys.stderr)
            return 2
    record = json.loads(RECORD.read_text())
    if arguments[0] == "record":
        print("\n".join(take_over(record, folders)))
        RECORD.write_text(json.dumps(record, indent=1) + "\n")
        return 0
    lines, differs = check(record, folders)
    print("\n".join(lines))
    return 1 if differs else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
