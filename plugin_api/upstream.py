#!/usr/bin/env python3
"""Which functions of the trainers changed since the operators were held against them (plugin_api/ops/upstream.json), and
since rlk.integrations replaces them (known.json there).

    upstream.py check [FOLDER...]    compares the installed packages, or those in folders, with what is recorded; exits
                                     with 1 where a function is another or gone. An absent package is said and passed over.
    upstream.py record [FOLDER...]   takes over versions and functions of the packages that are there, once tests hold
                                     the operators against them again

Packages are read and never imported; nothing is fetched. A folder holds a package and its metadata, as site-packages or
an unpacked wheel does (of a wheel with a .data folder, its purelib is a folder of its own). A function counts as it is
written, without its docstring, lines of comment and blank lines.
"""
import importlib.metadata
import importlib.util
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
INTEGRATIONS = HERE.parent / "packaging/python/rlk/integrations"
RECORDS = (HERE / "ops/upstream.json", INTEGRATIONS / "known.json")

_spec = importlib.util.spec_from_file_location("rlk_source", INTEGRATIONS / "_source.py")  # without the package around it
_source = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_source)
definitions, digest = _source.definitions, _source.digest


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
                         "in the record")
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
    differs = False
    for path in RECORDS:
        record = json.loads(path.read_text())
        print(f"{path.name}:")
        if arguments[0] == "record":
            print("\n".join(take_over(record, folders)))
            path.write_text(json.dumps(record, indent=1) + "\n")
        else:
            lines, changed = check(record, folders)
            print("\n".join(lines))
            differs |= changed
    return 1 if differs else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
