#!/usr/bin/env python3
"""Generates everything that is derived from the operator declarations in ops/*.toml.

    python3 plugin_api/generate.py           writes the files
    python3 plugin_api/generate.py --check   exits with 1 and names the files that are not current

Written: include/rlk/ops/<op>.h (C parameters, indices), include/rlk/sdk/ops/<op>.hpp (the operators as C++ types),
loader/api/include/rlk/ops/<op>.hpp (the call of a C++ application, arguments by name),
core/declaration/generated.cpp (the tables of declaration.hpp), core/golden/generated.cpp (which function answers which
operator) and core/cpu/plugin/implementations.hpp. Needs Python 3.11 and nothing else.
"""
import pathlib
import re
import sys
import tomllib

from declaration_expressions import Expressions, text
from declaration_forward import extended
from declaration_schema import DTYPES, DeclarationError, check, check_together, names_in
from generate_text import NOTE, WIDTH, camel, documented, flags, folded, shape_text
from generate_views import all_views, view_header

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
ORDER = ["logp", "logp_backward", "attention", "add"]


def load(folder=HERE / "ops"):
    paths = sorted(folder.glob("*.toml"), key=lambda p: (ORDER.index(p.stem) if p.stem in ORDER else 99, p.stem))
    written = {path.stem: tomllib.loads(path.read_text()) for path in paths}
    wholes = {}
    # Those with a forward last: what they take is then known to be sound.
    for name in sorted(written, key=lambda name: "forward" in written[name]):
        file, op = f"{name}.toml", written[name]
        wholes[name] = extended(file, op, written) if "forward" in op else op
        check(file, wholes[name])
        if op["name"] != name:
            raise DeclarationError(f"{file}: name is {op['name']!r}, the file says {name!r}")
    ops = [completed(wholes[name]) for name in written]
    check_together(ops)
    return ops


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


# ---- C headers -------------------------------------------------------------------------------------------------------
def c_default(p):
    if p["type"] == "f64":
        return repr(float(p["default"]))
    if p["type"] == "enum":
        return str(p["values"].index(p["default"]))
    return str(p["default"])


def bounds_text(p):
    if "min" in p:
        return f" (>= {p['min']:g})"
    if "min_exclusive" in p:
        return f" (> {p['min_exclusive']:g})"
    return ""


def c_header(op, note=NOTE):
    name, upper = op["name"], op["name"].upper()
    out = [f"/* {note.format(name + '.toml')} */", f"#ifndef RLK_OPS_{upper}_H", f"#define RLK_OPS_{upper}_H", "",
           "#include <stdint.h>", "", "/*", op["summary"]]
    for block in (op["formula"], op.get("notes", "")):
        lines = block.strip().splitlines()
        out += [""] if lines else []
        for line in lines:
            out += folded(line) if len(line) > WIDTH else [line]
    out += nan_lines(op)
    for r in op["numerics"].get("rounded", []):
        line = f"Class tolerance may round to a 16-bit T, to nearest: {r['name']}, {r['source']}."
        out += ["", *folded(line)]
    out += ["*/", "", f"#define RLK_{upper}_REVISION {op['revision']}", ""]
    for p in op["param"]:
        if p["type"] == "enum":
            out += [f"#define RLK_{upper}_{p['name'].upper()}_{v.upper()} {i}" for i, v in enumerate(p["values"])]
            out.append("")
    out += [f"typedef struct rlk_{name}_params {{", "  uint32_t struct_size;", "  uint32_t reserved;"]
    for p in op["param"]:
        ctype = "double" if p["type"] == "f64" else "int64_t"
        out += documented(f"  {ctype} {p['name']};", f"{p['doc']}{bounds_text(p)}; default {p['default']}")
    out += [f"}} rlk_{name}_params;", ""]
    init = ", ".join(["sizeof(rlk_%s_params)" % name, "0"] + [c_default(p) for p in op["param"]])
    out += folded(f"#define RLK_{upper}_PARAMS_INIT {{{init}}}", end=" \\") + [""]
    for kind, tag in (("input", "IN"), ("output", "OUT")):
        out.append(f"/* {kind}s: index, dtype, shape */")
        for i, a in enumerate(op[kind]):
            out += documented(f"#define RLK_{upper}_{tag}_{a['name'].upper()} {i}",
                              f"{flags(op, kind, a)}{a['dtype']} {shape_text(a['shape'])}: {a['doc']}")
        out.append(f"#define RLK_{upper}_N_{kind.upper()}S {len(op[kind])}")
        out.append("")
    for a in op["output"]:
        if names := elements(op, a):
            prefix = f"RLK_{upper}_{a['name'].upper()}"
            out.append(f"/* elements of the output {a['name']} */")
            out += [f"#define {prefix}_{name.upper()} {i}" for i, name in enumerate(names)]
            out += [f"#define RLK_{upper}_N_{a['name'].upper()} {len(names)}", ""]
    if op["symbol"]:
        out.append("/* symbols: index in rlk_call_desc.symbols and rlk_run.symbols */")
        for i, s in enumerate(op["symbol"]):
            out += documented(f"#define RLK_{upper}_SYM_{s['name'].upper()} {i}",
                              s["doc"] + (", dynamic" if s.get("dynamic") else ""))
    out += [f"#define RLK_{upper}_N_SYMBOLS {len(op['symbol'])}", "", "#endif", ""]
    return "\n".join(out)


def nan_rules(op, a):
    """[(condition or None, output or None, word)] of an input; the first that holds counts."""
    cases = [(r["when"], r["is"]) for r in a.get("nan_when", [])] + ([(None, a["nan"])] if "nan" in a else [])
    return [(when, output, word) for when, words in cases
            for output, word in (words.items() if isinstance(words, dict) else [(None, words)])]


def nan_lines(op):
    """The NaN rules of an operator as lines of its header's comment."""
    lines = []
    for a in op["input"]:
        if not (rules := nan_rules(op, a)):
            continue

        def words(condition):
            named = [(output, word) for when, output, word in rules if when == condition]
            return ", ".join(word if output is None else f"{output} {word}" for output, word in named)

        line = f"  {a['name']}: {words(None)}"
        for rule in a.get("nan_when", []):
            line += f"; where {rule['when']}: {words(rule['when'])}"
        line += f" ({a['nan_text']})" if "nan_text" in a else ""
        line += f"; not read where hidden by {', '.join(hidden_by(a))}" if hidden_by(a) else ""
        lines += folded(line, "    ") if len(line) > WIDTH else [line]
    for name, condition in op.get("nan_conditions", {}).items():
        lines += folded(f"  {name}: {condition}", "    ")
    return ["", "A NaN in one element makes NaN, of what depends on that element (plugin_api/ops/README.md):"] + lines


def hidden_by(a):
    return a.get("domain", {}).get("hidden_by", [])


def elements(op, a):
    """The names of the elements of an output of one fixed dimension."""
    names = a.get("elements", [])
    if names and a["shape"] != [len(names)]:
        raise DeclarationError(f"{op['name']}: {a['name']} has {len(names)} named elements and shape {a['shape']}")
    return names


def call_header(op):
    name, camel_name = op["name"], camel(op["name"])
    out = [f"// {NOTE.format(name + '.toml')}", *folded("// " + op["summary"], "// "),
           f"// What it means: <rlk/ops/{name}.h>.", "#pragma once", "", f"#include <rlk/ops/{name}.h>",
           "#include <rlk/rlk.hpp>", "", "// clang-format off", "namespace rlk::ops {", "", f"struct {camel_name} {{"]
    for kind, tag in (("input", "In"), ("output", "Out")):
        out.append(f"  struct {tag} {{")
        for a in op[kind]:
            if kind == "output" and a.get("must_alias") == a["name"]:
                continue  # in-out: one tensor, among the inputs
            flags = ("optional, " if a.get("optional") else "") + (a["form"] + " only, " if "form" in a else "")
            flags += "in-out, " if a.get("inout") else ""
            out += documented(f"    Tensor {a['name']} = {{}};",
                              f"{flags}{a['dtype']} {shape_text(a['shape'])}: {a['doc']}", c=False)
        out.append(f"  }} {tag.lower()} = {{}};")
    out += [f"  rlk_{name}_params params = RLK_{name.upper()}_PARAMS_INIT;", "",
            "  // Enqueues it; nothing is kept of this object. Throws Exception.",
            "  void operator()(const Stream& stream, const rlk_call_options* options = nullptr) const {",
            f'    static const rlk_op* const op = find_op("{name}");']
    for kind, tag in (("input", "in"), ("output", "out")):
        members = ", ".join(f"&{'in' if a.get('must_alias') == a['name'] else tag}.{a['name']}" for a in op[kind])
        out += folded(f"    const std::array<const Tensor*, {len(op[kind])}> {kind}s = {{{members}}};", "    ")
    out += ["    call(stream, op, &params, inputs, outputs, options);", "  }", "};", "", "}  // namespace rlk::ops", ""]
    return "\n".join(out)


# ---- core tables -----------------------------------------------------------------------------------------------------
class Tables(Expressions):
    """Emits the static arrays of one operator; each method returns the C++ text of a span or a value."""

    def __init__(self, op):
        super().__init__(op)
        self.lines, self.count = [], 0
        self.variables = {v: i for i, v in enumerate(op["dtypes"])}

    def array(self, ctype, items):
        if not items:
            return "{}"
        self.count += 1
        name = f"{self.name}_{self.count}"
        self.lines.append(f"constexpr {ctype} {name}[] = {{{', '.join(items)}}};")
        return name

    def dtype(self, source):
        if source in DTYPES:
            name = {"bool": "boolean"}.get(source, source)
            return f"{{DtypeExpr::Kind::fixed, Dtype::{name}, -1}}"
        match = re.fullmatch(r"acc\((\w+)\)", source)
        kind, variable = ("accumulate", match.group(1)) if match else ("variable", source)
        if variable not in self.variables:
            raise DeclarationError(f"{self.name}: no dtype variable {variable!r}")
        return f"{{DtypeExpr::Kind::{kind}, Dtype::f32, {self.variables[variable]}}}"

    def shape(self, shape):
        if shape is None:
            return "{ShapeDecl::Kind::none, {}, \"\"}"
        if isinstance(shape, str):
            kind = "broadcast" if shape.startswith("broadcast") else "any"
            return f"{{ShapeDecl::Kind::{kind}, {{}}, {text(shape)}}}"
        dims = []
        for d in shape:
            match = re.fullmatch(r"(?:(\w*[A-Za-z]\w*)\s*(?:\+\s*(\d+))?|(\d+))", str(d))
            if not match or (match.group(1) and match.group(1) not in self.symbols):
                uses = sum(1 << self.symbols[name] for name in names_in(str(d)) & set(self.symbols))
                dims.append(f"{{-1, 0, {self.expr(d, size=True)}, {uses:#x}}}")
                continue
            symbol = self.symbols[match.group(1)] if match.group(1) else -1
            dims.append(f"{{{symbol}, {match.group(2) or match.group(3) or 0}}}")
        return f"{{ShapeDecl::Kind::dims, {self.array('Dim', dims)}, {text(shape_text(shape))}}}"

    def form(self, item):
        return self.op["form_names"].index(item["form"]) if "form" in item else -1

    def domain(self, a):
        d = a.get("domain")
        if d is None:
            return "{}"
        fields = [f".kind = Domain::{d['kind']}"]
        if "scale" in d:
            fields.append(f".scale = {float(d['scale'])!r}")
        if "wide" in d:
            fields.append(f".wide = {float(d['wide'])!r}")
        if "step" in d:
            fields.append(f".step = {float(d['step'])!r}")
        for flag in ("minus_inf", "nan_rows"):
            if d.get(flag):
                fields.append(f".{flag} = true")
        for limit in ("min", "max"):
            if limit in d:
                fields.append(f".{limit} = {float(d[limit])!r}")
        if "low" in d:
            fields.append(f".low = {self.expr(d['low'])}")
        high = d.get("high", d.get("total"))
        if high is not None:
            fields.append(f".high = {self.expr(high)}")
        if "ignore" in d:
            fields.append(f".ignore_param = {self.params[d['ignore']]}")
        if d.get("order") == "increasing":
            fields.append(".increasing = true")
        if d["kind"] == "forward":
            fields.append(f".forward_op = {text(d['op'])}, .forward_output = {text(d['output'])}")
        if names := hidden_by(a):
            fields.append(f".hidden_by = {sum(1 << self.inputs[name] for name in names):#x}")
        return "{" + ", ".join(fields) + "}"

    def nan(self, a):
        def rule(when, output, word):
            condition = "{}"
            if when is not None:  # told by its name where it has one
                condition = self.expr(self.op.get("nan_conditions", {}).get(when, when))
                condition = re.sub(r'^\{"(?:[^"\\]|\\.)*"', lambda _: "{" + text(when), condition)
            return f"{{{condition}, {self.outputs[output] if output is not None else -1}, NanReach::{word}}}"

        rules = nan_rules(self.op, a) if a["name"] in self.inputs else []
        return f"{self.array('NanRule', [rule(*r) for r in rules])}, {text(a.get('nan_text', ''))}"

    def argument(self, a):
        forms = self.op["form_names"]
        shapes = [a["shape"].get(f) for f in forms] if isinstance(a["shape"], dict) else [a["shape"]] * len(forms)
        spans = self.array("ShapeDecl", [self.shape(s) for s in shapes])
        alias = self.array("int", [str(self.inputs[i]) for i in a.get("may_alias", [])])
        names = self.array("const char*", [text(n) for n in elements(self.op, a)])
        flag = lambda key: "true" if a.get(key) else "false"
        more = f", {self.inputs[a['must_alias']]}" if "must_alias" in a else ""
        more = f"{float(a.get('absolute_error', 0))!r}, {names}, {self.nan(a)}{more}"
        return (f"{{{text(a['name'])}, {text(a['doc'])}, {self.dtype(a['dtype'])}, {flag('optional')}, {flag('host')}, "
                f"{self.form(a)}, {spans}, {self.domain(a)}, {alias}, {more}}}")

    def param(self, p):
        kind = {"f64": "f64", "i64": "i64", "enum": "enumeration"}[p["type"]]
        f64 = float(p["default"]) if p["type"] == "f64" else 0.0
        i64 = 0 if p["type"] == "f64" else c_default(p)
        low = p.get("min", p.get("min_exclusive"))
        boolean = lambda x: "true" if x else "false"
        values = self.array("const char*", [text(v) for v in p.get("values", [])]) if p["type"] == "enum" else "{}"
        tries = self.array("double", [repr(float(t)) for t in p.get("try", [])])
        offset = f"offsetof(rlk_{self.name}_params, {p['name']})"
        return (f"{{{text(p['name'])}, {text(p['doc'])}, ParamType::{kind}, {offset}, "
                f"{f64!r}, {i64}, {boolean(low is not None)}, {boolean('min_exclusive' in p)}, "
                f"{boolean(p.get('finite', p['type'] == 'f64'))}, {float(low or 0)!r}, {values}, {tries}}}")

    def settings(self, values):
        def setting(name, value):
            number = isinstance(value, float) or re.fullmatch(r"\d+\.\d+", str(value))
            return f"{{{self.params[name]}, {f'{{}}, {float(value)!r}' if number else self.expr(value)}}}"

        return self.array("FeatureSetting", [setting(k, v) for k, v in values.items()])

    def present(self, names):
        return f"{sum(1 << self.bit(n) for n in names):#x}"

    def rounded(self):
        """Intermediates that may be rounded to the tensors' dtype."""
        rows = []
        for r in self.op["numerics"].get("rounded", []):
            over = self.array("int", [str(self.symbols[symbol]) for symbol in r["over"]])
            rows.append(f"{{{text(r['name'])}, {text(r['source'])}, {over}}}")
        return self.array("RoundedDecl", rows)

    def production(self, item):
        """The sizes at which a symbol, or a shape case, is run by those who use the operator."""
        return self.array("int64_t", [str(n) for n in item.get("production", [])])

    def emit(self):
        op = self.op
        variables = [f"{{{text(v)}, {self.array('DtypeExpr', [self.dtype(c) for c in choices])}}}"
                     for v, choices in op["dtypes"].items()]
        symbols = [f"{{{text(s['name'])}, {text(s['doc'])}, {'true' if s.get('dynamic') else 'false'}, "
                   f"{s.get('min', 0)}, {self.form(s)}, {self.array('Expr', [self.expr(e) for e in s['sizes']])}, "
                   f"{self.production(s)}}}"
                   for s in op["symbol"]]
        inputs = [self.argument(a) for a in op["input"]]
        outputs = [self.argument(a) for a in op["output"]]
        params = [self.param(p) for p in op["param"]]
        features = [f"{{{text(f['name'])}, {self.settings(f.get('set', {}))}, {self.present(f.get('present', []))}, "
                    f"{'true' if f.get('unit', True) else 'false'}}}" for f in op["feature"]]
        rules = []
        for r in op["rule"]:
            broken = r.get("violate", {})
            sym = self.array("SymbolSetting", [f"{{{self.symbols[k]}, {self.expr(v)}}}"
                                               for k, v in broken.get("symbols", {}).items()])
            rules.append(f"{{{text(r['name'])}, {self.expr(r['holds'])}, {text(r['hint'])}, {sym}, "
                         f"{self.settings(broken.get('params', {}))}, {self.present(broken.get('present', []))}}}")
        cases = []
        for case in op["shape_case"]:
            shapes = [self.array("int64_t", [str(n) for n in s]) for key, s in case.items() if key != "production"]
            span = "std::span<const int64_t>"
            spans = self.array(span, [s if s != "{}" else span + s for s in shapes])
            cases.append(f"{{{spans}, {self.production(case)}}}")
        form_param = self.params[op["forms"]["param"]] if "forms" in op else -1
        upper = self.name.upper()
        self.lines.append(f"constexpr rlk_{self.name}_params {self.name}_defaults = RLK_{upper}_PARAMS_INIT;")
        fields = [text(op["name"]), str(op["revision"]), text(op["family"]), text(op["summary"]), text(op["formula"]),
                  text(op.get("notes", "")), self.array("const char*", [text(s) for s in op["sources"]]),
                  text(op.get("backward", "")), repr(float(op["numerics"].get("factor", 0))),
                  text(op["numerics"].get("reason", "")), self.rounded(),
                  "true" if op["numerics"].get("batch_invariant", True) else "false",
                  "true" if op["numerics"].get("portable", False) else "false",
                  f"sizeof(rlk_{self.name}_params)", f"&{self.name}_defaults", str(form_param),
                  self.array("const char*", [text(f) for f in op["form_names"]]),
                  self.array("DtypeVariable", variables), self.array("SymbolDecl", symbols),
                  self.array("ArgDecl", inputs), self.array("ArgDecl", outputs),
                  self.array("ParamDecl", params), self.array("FeatureDecl", features), self.array("RuleDecl", rules),
                  self.array("ShapeCase", cases)]
        return "{" + ",\n     ".join(fields) + "}"


def core_tables(ops, note=NOTE):
    bodies, rows = [], []
    for op in ops:
        tables = Tables(op)
        rows.append(tables.emit())
        bodies += [f"// ---- {op['name']}"] + tables.lines + [""]
    out = [f"// {note.format('*.toml')}", '#include "core/declaration/declaration.hpp"', ""]
    out += [f"#include <rlk/ops/{op['name']}.h>" for op in ops]
    out += ["", "#include <cstddef>", "", "// clang-format off", "namespace rlk::core {", "namespace {", ""]
    out += bodies
    out += ["constexpr OpDecl kDeclarations[] = {", "    " + ",\n    ".join(rows) + ",", "};", ""]
    out += ["}  // namespace", "", "std::span<const OpDecl> declarations() { return kDeclarations; }", ""]
    out += ["}  // namespace rlk::core", ""]
    return "\n".join(out)


def golden_table(ops, note=NOTE):
    out = [f"// {note.format('*.toml')}", '#include "core/golden/golden.hpp"', "", "namespace rlk::golden {", ""]
    out += [f"Answer answer_{op['name']}(const Call& call);" for op in ops]
    out += ["", "Function find(std::string_view op) {"]
    out += [f'  if (op == "{op["name"]}") return answer_{op["name"]};' for op in ops]
    out += ["  return nullptr;", "}", "", "}  // namespace rlk::golden", ""]
    return "\n".join(out)


def cpu_implementations(ops):
    out = [f"// {NOTE.format('*.toml')}", "// The built-in plugin implements every operator that is declared.",
           "#pragma once", "", '#include "core/cpu/plugin/implementation.hpp"', "", "namespace rlk::cpu {", ""]
    for op in ops:
        out += [f"struct Cpu{camel(op['name'])} : CpuImplementation<sdk::ops::{camel(op['name'])}> {{",
                "  static sdk::Support query(CpuDevice& device, const sdk::Call<Op>& call);",
                "  static std::unique_ptr<sdk::Plan> plan(CpuDevice& device, const sdk::Call<Op>& call);", "};", ""]
    names = ", ".join(f"Cpu{camel(op['name'])}" for op in ops)
    out += ["// clang-format off", *folded(f"using CpuImplementations = std::tuple<{names}>;"), "// clang-format on"]
    out += ["", "}  // namespace rlk::cpu", ""]
    return "\n".join(out)


def generated():
    """Every file that follows from the declarations, with its content."""
    ops = load()
    files = {HERE / "include/rlk/ops" / f"{op['name']}.h": c_header(op) for op in ops}
    files |= {ROOT / "loader/api/include/rlk/ops" / f"{op['name']}.hpp": call_header(op) for op in ops}
    files |= {HERE / "include/rlk/sdk/ops" / f"{op['name']}.hpp": view_header(op, ops) for op in ops}
    files[HERE / "include/rlk/sdk/ops.hpp"] = all_views(ops)
    files[ROOT / "core/declaration/generated.cpp"] = core_tables(ops)
    files[ROOT / "core/golden/generated.cpp"] = golden_table(ops)
    files[ROOT / "core/cpu/plugin/implementations.hpp"] = cpu_implementations(ops)
    return files | generated_for_tests()


def generated_for_tests():
    """Operators that no release has: they say what the shipped ones do not. A test program that links their tables has
    them instead of the shipped ones."""
    tests = ROOT / "tests/declarations"
    note = "Generated by plugin_api/generate.py from tests/declarations/{}; do not edit."
    ops = load(tests)
    files = {tests / "generated/rlk/ops" / f"{op['name']}.h": c_header(op, note) for op in ops}
    files |= {tests / "generated/rlk/sdk/ops" / f"{op['name']}.hpp": view_header(op, ops, note) for op in ops}
    files[tests / "generated/ops.hpp"] = all_views(ops, note=note)
    files[tests / "generated/tables.cpp"] = core_tables(ops, note)
    files[tests / "generated/golden.cpp"] = golden_table(ops, note)
    return files


def main():
    try:
        files = generated()
    except DeclarationError as error:
        print(error, file=sys.stderr)
        return 1
    stale = [p for p, content in files.items() if not p.exists() or p.read_text() != content]
    if "--check" in sys.argv[1:]:
        for p in stale:
            print(f"{p.relative_to(ROOT)} is not what the declarations say: run python3 plugin_api/generate.py")
        return 1 if stale else 0
    for p in stale:
        p.parent.mkdir(parents=True, exist_ok=True)
        p.write_text(files[p])
    return 0


if __name__ == "__main__":
    sys.exit(main())
