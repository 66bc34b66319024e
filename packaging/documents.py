#!/usr/bin/env python3
"""What an installed rlk-plugins is documented with, made from what the command itself says: the man page, completion for
bash, zsh and fish, and a page for each operator.

    documents.py COMMAND FOLDER     writes FOLDER/rlk-plugins.1, .bash, .zsh and .fish, and FOLDER/operators/*.md
"""
import json
import pathlib
import subprocess
import sys

import completions


def ask(command, *words):
    return json.loads(subprocess.run([command, *words], check=True, capture_output=True, text=True).stdout)


def roff(text):
    """Text that roff takes as it stands."""
    lines = text.replace("\\", "\\e").replace("-", "\\-").split("\n")
    return "\n".join("\\&" + line if line[:1] in (".", "'") else line for line in lines)


def man_page(verbs, version):
    out = [f'.TH RLK\\-PLUGINS 1 "" "rlk {version}" "rlk"', ".SH NAME",
           "rlk\\-plugins \\- which plugins are here, what of them can be trusted, and why a call went where it went",
           ".SH SYNOPSIS", ".B rlk\\-plugins", "VERB [options]", ".br", ".B rlk\\-plugins \\-\\-version", ".SH DESCRIPTION",
           roff("rlk runs operators of LLM reinforcement learning on plugins of hardware vendors, which it verifies before it\n"
                "trusts them, and on its own CPU backend. rlk-plugins shows, tests and runs them."), ".SH VERBS"]
    for verb in verbs:
        out += [".SS " + roff(verb["usage"]), roff(verb["summary"])]
        if verb["details"]:
            out += [".PP", roff(verb["details"])]
        for option in verb["options"]:
            value = f" \\fI{roff(option['value'])}\\fR" if option["value"] else ""
            out += [".TP", f"\\fB\\-\\-{roff(option['name'])}\\fR{value}", roff(option["help"])]
        out += [".PP", "Example:", ".PP", ".nf", "  " + roff(verb["example"]), ".fi"]
    out += [".SH EXIT STATUS", roff("0: fine, also when hardware is absent. 1: a plugin is broken or a call failed. "
                                    "2: the command line is wrong."),
            ".SH ENVIRONMENT", roff("RLK_ADD_PLUGIN_PATH names further folders with plugins, RLK_CONFIG the policy file, "
                                    "RLK_CACHE_DIR the folder\nfor what is remembered. All are in share/doc/rlk/docs/cluster.md; "
                                    "rlk-plugins doctor lists those that are set."),
            ".SH SEE ALSO", roff("The reference of the operators and the JSON schemas of the outputs are installed with rlk, "
                                 "in share/doc/rlk\nand share/rlk/schemas."), ""]
    return "\n".join(out)


def cell(value):
    return str(value).replace("|", "\\|").replace("\n", " ")


def table(header, rows):
    if not rows:
        return []
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return lines + ["| " + " | ".join(cell(value) for value in row) + " |" for row in rows] + [""]


def shape(value):
    """Of an argument whose shape depends on a form: one for each."""
    return "; ".join(f"{form}: {text}" for form, text in value.items()) if isinstance(value, dict) else value


def operator_page(op):
    out = [f"# {op['name']}", "", f"Revision {op['revision']}, family {op['family']}. {op['summary']}", "",
           "```", op["formula"], "```", "", op["notes"], ""]
    out += table(("input", "dtype", "shape", "", "meaning"),
                 [(a["name"], a["dtype"], shape(a["shape"]), "optional" if a["optional"] else "required", a["meaning"])
                  for a in op["inputs"]])
    out += table(("output", "dtype", "shape", "", "meaning"),
                 [(a["name"], a["dtype"], shape(a["shape"]), "optional" if a["optional"] else "required", a["meaning"])
                  for a in op["outputs"]])
    out += table(("parameter", "type", "default", "meaning"),
                 [(p["name"], p["type"], p["default"], p["meaning"]) for p in op["params"]])
    for dtype in op["dtypes"]:
        out += [f"dtype {dtype['name']}: {', '.join(dtype['choices'])}", ""]
    if op["differentiable"]:
        out += [f"Its gradient: [{op['backward']}]({op['backward']}.md).", ""]
    return "\n".join(out)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    command, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    verbs, ops = ask(command, "help", "--json")["verbs"], ask(command, "ops", "--json")["ops"]
    version = subprocess.run([command, "--version"], check=True, capture_output=True, text=True).stdout.split()[1].strip(",")
    pages = {f"operators/{op['name']}.md": operator_page(op) for op in ops}
    pages["operators/README.md"] = "\n".join(["# The operators of rlk", ""] + table(
        ("operator", "family", ""), [(f"[{op['name']}]({op['name']}.md)", op["family"], op["summary"]) for op in ops]))
    pages["rlk-plugins.1"] = man_page(verbs, version)
    for shell in (completions.bash, completions.zsh, completions.fish):
        pages[f"rlk-plugins.{shell.__name__}"] = shell(verbs, [op["name"] for op in ops])
    (folder / "operators").mkdir(parents=True, exist_ok=True)
    for name, text in pages.items():
        (folder / name).write_text(text)


if __name__ == "__main__":
    main()
