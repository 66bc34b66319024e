"""What a declaration in ops/*.toml may say: the keys of every table, the names it may use, and how much of each.

A key that no table below has is an error, and so is everything that would not fit the tables of core/declaration: a
declaration is never half understood (declaration_check.py). To give declarations a new key, add it to its table here
and read it in the generate_*.py that it is for.
"""
import difflib
import re

# The same numbers as in core/declaration/declaration.hpp (kMax...), rlk/abi/tensor.h (RLK_MAX_NDIM) and, for a mask
# that a plugin fills, rlk/abi/op.h (host_inputs and dynamic_symbols have 64 bits).
LIMITS = {"input": 32, "output": 32, "symbol": 16, "param": 127, "dtypes": 8}
MAX_NDIM = 8

# As the enumerations of core/declaration and core/golden have them, in their order.
DTYPES = ["f32", "bf16", "f16", "f64", "i32", "i64", "u8", "i8", "i16", "u16", "u32", "u64", "bool", "f8_e4m3fn",
          "f8_e5m2", "f4_e2m1fn"]
FLOATING = ["f32", "bf16", "f16", "f64", "f8_e4m3fn", "f8_e5m2", "f4_e2m1fn"]
DEFAULT_T = FLOATING[:4]  # the choices of T where [dtypes] does not say them
SUB_BYTE = ["f4_e2m1fn"]  # two in a byte
# Known by name, so that texts can say what was passed, but not to be declared: elements that cross bytes.
CROSSING = ["f6_e2m3fn", "f6_e3m2fn"]
# Where a NaN goes: what each word means is in ops/README.md.
NAN_WORDS = ["none", "element", "row", "column", "earlier", "sequence", "head", "group", "all", "text",
             "undefined"]

NUMBER = (int, float)
VALUE = (int, float, str)  # a number, or an expression

# Per table: key -> type of its value. A set of strings: one of them.
#
# A size in `shape` is a symbol, a symbol + a number, a number, or computed from symbols and integer parameters:
# "ceil(K / 128)", "(W + 2 * pad - width) / stride + 1". Symbols become known from sizes that are not computed, and
# from multiples, as "2 * H": prefer one to a rule that the size is even, since cases then have every size of H.
#
# Instead of sizes, "*A" is any shape: that of the first input of shape "*A", which all others have too; an output may have
# "broadcast(*A, *B)". Cases are made of the shapes in [[shape_case]].
#
# An in-out argument (a cache that is appended to) is declared once, by [[input]] with inout = true. Its place among the
# outputs is where [[output]] inout = "its name" stands, which says nothing else. It is one tensor, and golden gives all
# of it and says which elements keep their bits. must_alias = "input" is the same for a result of another name;
# may_alias leaves it to the caller.
TABLES = {
    "": {"name": str, "revision": int, "family": str, "summary": str, "formula": str, "notes": str, "sources": list,
         "backward": str, "numerics": dict, "dtypes": dict, "forms": dict, "symbol": list, "input": list,
         "output": list, "param": list, "feature": list, "rule": list, "shape_case": list, "nan_conditions": dict,
         "uses": list, "uses_form": str, "like": str, "forward": str, "slope_when": str, "autocast": {"lower"}, "symbols": list,
         "inputs": list, "outputs": list, "params": list,
         "features": list, "rules": list},
    "numerics": {"factor": NUMBER, "reason": str, "batch_invariant": bool, "combines_rows": str,
                 "portable": bool, "rounded": list},
    "numerics.rounded": {"name": str, "source": str, "over": list},
    "forms": {"param": str, "names": list},
    "symbol": {"name": str, "doc": str, "sizes": list, "production": list, "dynamic": bool, "min": int,
               "form": str},
    "input": {"name": str, "doc": str, "dtype": str, "shape": (str, list, dict), "domain": dict, "optional": bool,
              "host": bool, "form": str, "inout": bool, "list": bool, "nan": (str, dict),
              "nan_when": list, "nan_text": str},
    "output": {"name": str, "doc": str, "dtype": str, "shape": (str, list, dict), "optional": bool, "form": str,
               "may_alias": list, "must_alias": str, "absolute_error": NUMBER, "at_least": NUMBER, "at_most": NUMBER,
               "at_least_when": str,
               "elements": list, "inout": str,
               "list": bool},
    "param": {"name": str, "doc": str, "type": {"f64", "i64", "enum"}, "default": VALUE, "values": list, "min": NUMBER,
              "min_exclusive": NUMBER, "finite": bool, "try": list},
    "feature": {"name": str, "set": dict, "present": list, "unit": bool},
    "rule": {"name": str, "holds": str, "hint": str, "violate": dict},
    "nan_when": {"when": str, "is": (str, dict)},
    "rule.violate": {"symbols": dict, "params": dict, "present": list},
}
REQUIRED = {
    "": ["name", "family", "summary", "formula", "sources", "numerics"],
    "numerics": [],  # factor and reason where there is a floating output
    "numerics.rounded": ["name", "source", "over"],
    "forms": ["param", "names"],
    "symbol": ["name", "doc", "sizes"],
    "input": ["name", "doc", "shape", "domain"],
    "output": ["name", "doc", "shape"],
    "param": ["name", "doc", "default"],
    "feature": ["name"],
    "rule": ["name", "holds", "hint"],
}
# Beside `uses`, `like` or `forward`: which of a kind the operator has, and in which order (declaration_like.py).
LISTS = {"symbols": "symbol", "inputs": "input", "outputs": "output", "params": "param", "features": "feature",
         "rules": "rule"}
# What describes the values of an input, by its kind.
DOMAINS = {
    "real": {"scale": NUMBER, "wide": NUMBER, "step": NUMBER, "minus_inf": bool, "nan_rows": bool,
             "extreme": {"scores", "single", "certain"}, "close_to": str},
    "uniform": {"min": NUMBER, "max": NUMBER, "extreme": {"scores"}, "close_to": str},
    "integer": {"low": VALUE, "high": VALUE},
    "id": {"low": VALUE, "high": VALUE, "ignore": str},
    "mask": {},
    "row_index": {"high": VALUE, "order": {"increasing"}},
    "cu_seqlens": {"total": str},
    "length": {"high": VALUE},
    "block_table": {"high": VALUE, "block": str, "lengths": str},
    "forward": {"op": str, "output": str},
    "owner": {"scale": NUMBER},
}


class DeclarationError(Exception):
    pass


def names_in(expression):
    return set(re.findall(r"[A-Za-z_]\w*", expression)) - {"ceil"}


def near(name, known):
    """' (near: a, b)' or, where nothing is near, what there is."""
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    return f"; near: {', '.join(close)}" if close else f"; expected one of: {', '.join(sorted(known)) or 'none'}"


def type_text(kind):
    names = {str: "a string", int: "an integer", float: "a number", bool: "true or false", list: "a list",
             dict: "a table"}
    if isinstance(kind, set):
        return " or ".join(map(repr, sorted(kind)))
    if isinstance(kind, tuple):
        return "a number" if kind == NUMBER else " or ".join(names[k] for k in kind)
    return names[kind]
