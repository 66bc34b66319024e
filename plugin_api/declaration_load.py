"""The declarations of a folder, checked and complete, and what is asked of one more than once."""
import tomllib

from declaration_check import check, check_together
from declaration_like import extended, rank
from declaration_schema import DEFAULT_T, DeclarationError

ORDER = ["logp", "logp_backward", "attention", "add"]


def load(folder):
    paths = sorted(folder.glob("*.toml"), key=lambda p: (ORDER.index(p.stem) if p.stem in ORDER else 99, p.stem))
    written = {path.stem: tomllib.loads(path.read_text()) for path in paths}
    shared = {path.stem: tomllib.loads(path.read_text()) for path in sorted(folder.glob("shared/*.toml"))}
    wholes = {}
    # Each behind what it takes from, which is then known to be sound.
    for name in sorted(written, key=lambda name: rank(written[name])):
        file, op = f"{name}.toml", written[name]
        wholes[name] = with_defaults(extended(file, op, written, wholes, shared))
        check(file, wholes[name])
        if op["name"] != name:
            raise DeclarationError(f"{file}: name is {op['name']!r}, the file says {name!r}")
    ops = [completed(wholes[name]) for name in written]
    check_together(ops)
    return ops


def with_defaults(op):
    """The declaration with what need not be said (ops/README.md, "What need not be said")."""
    op.setdefault("revision", 1)
    arguments = [a for kind in ("input", "output") for a in op.get(kind, []) if isinstance(a, dict)]
    shape = next((a["shape"] for a in arguments if "shape" in a), None)
    for a in arguments:
        if "inout" in a and "shape" not in a:
            continue
        a.setdefault("dtype", "u8" if a.get("domain") == {"kind": "mask"} else "T")
        if shape is not None and "form" not in a and not ("forward" in op and a.get("name", "").startswith("grad_")):
            a.setdefault("shape", shape)
    if any(a.get("dtype") in ("T", "acc(T)") for a in arguments) and "T" not in op.get("dtypes", {}):
        op["dtypes"] = {"T": DEFAULT_T} | op.get("dtypes", {})
    for a in op.get("input", []):
        if isinstance(a, dict) and a.get("dtype") in ("T", "acc(T)"):
            a.setdefault("domain", {"kind": "real", "scale": 1.0})
    for p in op.get("param", []):
        if isinstance(p, dict) and p.get("values") and isinstance(p["values"], list):
            p.setdefault("default", p["values"][0])
        if isinstance(p, dict) and "default" in p:
            p.setdefault("type", "enum" if "values" in p else "f64" if isinstance(p["default"], float) else "i64")
    return op


def completed(op):
    """The declaration with every table that it leaves out."""
    for key in ("symbol", "input", "output", "param", "feature", "rule", "shape_case"):
        op.setdefault(key, [])
    op.setdefault("dtypes", {})
    op["form_names"] = op.get("forms", {}).get("names", [""])
    inputs = {a["name"]: a for a in op["input"]}
    for i, a in enumerate(op["output"]):
        if "inout" in a:  # declared once, as an input; the output says only at which place it stands
            shared = ("name", "doc", "dtype", "shape", "optional", "form")
            op["output"][i] = {k: v for k, v in inputs[a["inout"]].items() if k in shared} | {"must_alias": a["inout"]}
    return op


def nan_rules(op, a):
    """[(condition or None, output or None, word)] of an input; the first that holds counts."""
    cases = [(r["when"], r["is"]) for r in a.get("nan_when", [])] + ([(None, a["nan"])] if "nan" in a else [])
    return [(when, output, word) for when, words in cases
            for output, word in (words.items() if isinstance(words, dict) else [(None, words)])]


def hidden_by(a):
    return a.get("domain", {}).get("hidden_by", [])


def elements(op, a):
    """The names of the elements of an output of one fixed dimension."""
    names = a.get("elements", [])
    if names and a["shape"] != [len(names)]:
        raise DeclarationError(f"{op['name']}: {a['name']} has {len(names)} named elements and shape {a['shape']}")
    return names
