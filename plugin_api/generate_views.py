"""The operators as C++ types: include/rlk/sdk/ops/<op>.hpp, what a kernel, golden and a vendor's plugin are written in.

Each operator <op> has a namespace rlk::sdk::ops::<op>: its enumerations, its Params (the C struct with enumerations as
types) and Args, one member per argument, symbol and the parameters, over any kind of tensor.
"""
import re

from declaration_expressions import Expressions
from generate_text import NOTE, camel, documented, flags, folded, shape_text


def sources_of_enums(ops):
    """{(operator, parameter): the operator whose header defines the enumeration}. The same name with the same values is
    one type, defined by the first operator that has it, so that what operators share can share code."""
    first, sources = {}, {}
    for op in ops:
        for p in op["param"]:
            if p["type"] == "enum":
                sources[op["name"], p["name"]] = first.setdefault((p["name"], tuple(p["values"])), op["name"])
    return sources


def enumerations(op, sources):
    out = []
    for p in op["param"]:
        if p["type"] != "enum":
            continue
        name, source = camel(p["name"]), sources[op["name"], p["name"]]
        if source == op["name"]:
            out += folded(f"enum class {name} : int64_t {{ {', '.join(p['values'])} }};")
        else:
            out.append(f"using {name} = {source}::{name};")
    return out + [""] if out else []


def params(op):
    name = op["name"]
    out = [f"// rlk_{name}_params, its enumerations as types.", "struct Params {",
           f"  uint32_t struct_size = sizeof(rlk_{name}_params);", "  uint32_t reserved = 0;"]
    for p in op["param"]:
        if p["type"] == "enum":
            ctype, value = camel(p["name"]), f"{camel(p['name'])}::{p['default']}"
        elif p["type"] == "f64":
            ctype, value = "double", repr(float(p["default"]))
        else:
            ctype, value = "int64_t", str(p["default"])
        out += documented(f"  {ctype} {p['name']} = {value};", p["doc"], c=False)
    out += ["};", f"static_assert(sizeof(Params) == sizeof(rlk_{name}_params), \"the same layout\");", ""]
    return out


def member(op, kind, a):
    """An output named like an input (an in-out argument) is out_<name>."""
    clash = kind == "output" and any(i["name"] == a["name"] for i in op["input"])
    return "out_" + a["name"] if clash else a["name"]


def shared_with_forward(op, ops, sources):
    """The walk over what a backward and its forward have by one name: inputs, symbols and parameters."""
    forward = next(other for other in ops if other["name"] == op["forward"])

    def both(kind, same):
        theirs = {a["name"]: a for a in forward[kind]}
        return [a["name"] for a in op[kind] if a["name"] in theirs and same(a, theirs[a["name"]])]

    def same_type(own, other):
        names = [(of["name"], p["name"]) for of, p in ((op, own), (forward, other))]
        return own["type"] == other["type"] and sources.get(names[0]) == sources.get(names[1])

    members = [*both("input", lambda *_: True), *both("symbol", lambda *_: True),
               *(f"params.{name}" for name in both("param", same_type))]
    body = " ".join(f"visit(self.{m},~forward.{m});" for m in members)  # ~: no line is broken there
    lines = [line.replace("~", " ") for line in folded("    " + body, "")] if members else []
    given = "Self& self, Forward& forward, Visit&& visit" if members else "Self&, Forward&, Visit&&"
    return [f"  // What {forward['name']} has by the same name; see <rlk/sdk/forward.hpp>.",
            "  template <class Self, class Forward, class Visit>",
            f"  static void each_of_forward({given}) {{", *lines, "  }"]


def arguments(op, ops, sources):
    """Members by argument, and the walks over them in declared order."""
    out = ["// One call. In and Out are kinds of tensors: a kernel's arrays, golden's views, a test's tensors.",
           "template <class InType, class OutType = InType>", "struct Args {", f"  using Op = ops::{camel(op['name'])};",
           "  using In = InType;", "  using Out = OutType;"]
    for kind, ctype in (("input", "In"), ("output", "Out")):
        for a in op[kind]:
            doc = f"{flags(op, kind, a)}{a['dtype']} {shape_text(a['shape'])}: {a['doc']}"
            out += documented(f"  {ctype} {member(op, kind, a)}{{}};", doc, c=False)
    for s in op["symbol"]:
        out += documented(f"  int64_t {s['name']} = -1;", s["doc"], c=False)
    out += ["  Params params{};", ""]
    for walk, members in (("inputs", [member(op, "input", a) for a in op["input"]]),
                          ("outputs", [member(op, "output", a) for a in op["output"]]),
                          ("symbols", [s["name"] for s in op["symbol"]])):
        body = " ".join(f"visit(self.{m});" for m in members)
        given = "Self& self, Visit&& visit" if members else "Self&, Visit&&"
        out += ["  template <class Self, class Visit>", f"  static void each_{walk[:-1]}({given}) {{",
                *(folded("    " + body, "") if body else []), "  }"]
    if "forward" in op:
        out += shared_with_forward(op, ops, sources)
    return out + ["};", ""]


def combines_rows(op):
    """Whether a row's result may depend on others, as a function of the parameters."""
    numerics, code = op["numerics"], ""
    if "combines_rows" in numerics:
        expressions = Expressions(op)
        lambda_of_values = expressions.expr(numerics["combines_rows"])
        code = re.search(r"return (.*); \}\}$", lambda_of_values).group(1)
        code = re.sub(r"v\.(?:f64|i64)\(offsetof\(\w+, (\w+)\)\)", r"params.\1", code)
        if "v." in code:
            expressions.fail(f"combines_rows is {numerics['combines_rows']!r}; expected parameters alone")
    elif not numerics.get("batch_invariant", True):
        code = "true"
    function = f"static constexpr bool combines_rows(const Params&{' params' if 'params' in code else ''}) {{"
    return ["  // Whether the result of a row may depend on the others.",
            *folded(f"  {function} return {code or 'false'}; }}", "    ")]


def view_header(op, ops, note=NOTE):
    n, u, numerics = op["name"], op["name"].upper(), op["numerics"]
    sources = sources_of_enums(ops)
    used = sorted({s for (name, _), s in sources.items() if name == n} - {n})
    out = [f"// {note.format(n + '.toml')}", *folded("// " + op["summary"], "// "),
           f"// What it means: <rlk/ops/{n}.h>.", "#pragma once", "", f"#include <rlk/ops/{n}.h>"]
    out += [f"#include <rlk/sdk/ops/{other}.hpp>" for other in used]
    out += ["", "#include <cstdint>", "", "// clang-format off", "namespace rlk::sdk::ops {", "",
            f"struct {camel(n)};", "", f"namespace {n} {{", ""]
    out += enumerations(op, sources) + params(op) + arguments(op, ops, sources)
    out += [f"}}  // namespace {n}", "", f"struct {camel(n)} {{", f"  using Params = rlk_{n}_params;",
            "  template <class In, class Out = In>", f"  using Args = {n}::Args<In, Out>;",
            f'  static constexpr const char* kName = "{n}";',
            f"  static constexpr uint32_t kRevision = RLK_{u}_REVISION;",
            f"  static constexpr uint32_t kInputs = RLK_{u}_N_INPUTS;",
            f"  static constexpr uint32_t kOutputs = RLK_{u}_N_OUTPUTS;",
            f"  static constexpr uint32_t kSymbols = RLK_{u}_N_SYMBOLS;",
            *folded("  static constexpr const char* kParamNames[] = {"
                    + ", ".join([f'"{p["name"]}"' for p in op["param"]] + ["nullptr"]) + "};", "      "),
            *combines_rows(op),
            f"  static constexpr bool kPortable = {str(numerics.get('portable', False)).lower()};",
            f"  static constexpr Params defaults() {{ return RLK_{u}_PARAMS_INIT; }}", "};", "",
            "}  // namespace rlk::sdk::ops", ""]
    return "\n".join(out)


def all_views(ops, folder="rlk/sdk/ops", note=NOTE):
    out = [f"// {note.format('*.toml')}", "// The operators as C++ types, for rlk::sdk::Implementation.",
           "#pragma once", ""]
    out += [f"#include <{folder}/{op['name']}.hpp>" for op in ops]
    return "\n".join(out + [""])
