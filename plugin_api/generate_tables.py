"""The tables of core/declaration/declaration.hpp: a file per operator, and one that lists them."""
import re

from declaration_expressions import Expressions, multiple, text
from declaration_load import elements, hidden_by, nan_rules
from declaration_schema import DTYPES, DeclarationError, names_in
from generate_headers import c_default
from generate_text import NOTE, camel, shape_text


def c_double(number):
    return "std::numeric_limits<double>::infinity()" if number == float("inf") else repr(float(number))


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

    def shape(self, shape, argument):
        if shape is None:
            return "{ShapeDecl::Kind::none, {}, \"\"}"
        if isinstance(shape, str):
            first = next((i for i, a in enumerate(self.op["input"]) if a["shape"] == shape), None)
            if shape.startswith("broadcast"):
                return f"{{ShapeDecl::Kind::broadcast, {{}}, {text(shape)}}}"
            if first is not None and argument is self.op["input"][first]:
                return f"{{ShapeDecl::Kind::any, {{}}, {text(shape)}}}"
            return f"{{ShapeDecl::Kind::same, {{}}, {text(shape)}, {first}}}"
        dims = []
        for d in shape:
            match = re.fullmatch(r"(?:(\w*[A-Za-z]\w*)\s*(?:\+\s*(\d+))?|(\d+))", str(d))
            if not match or (match.group(1) and match.group(1) not in self.symbols):
                uses = sum(1 << self.symbols[name] for name in names_in(str(d)) & set(self.symbols))
                factor, symbol = multiple(d, self.symbols)
                of = f", {self.symbols[symbol]}, {factor}" if symbol else ""
                dims.append(f"{{-1, 0, {self.expr(d, size=True)}, {uses:#x}{of}}}")
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
        if d["kind"] == "block_table":
            fields.append(f".block = {self.symbols[d['block']]}, .lengths = {self.inputs[d['lengths']]}")
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
        spans = self.array("ShapeDecl", [self.shape(s, a) for s in shapes])
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
        tries = self.array("double", [c_double(t) for t in p.get("try", [])])
        offset = f"offsetof(rlk_{self.name}_params, {p['name']})"
        return (f"{{{text(p['name'])}, {text(p['doc'])}, ParamType::{kind}, {offset}, "
                f"{f64!r}, {i64}, {boolean(low is not None)}, {boolean('min_exclusive' in p)}, "
                f"{boolean(p.get('finite', p['type'] == 'f64'))}, {float(low or 0)!r}, {values}, {tries}}}")

    def settings(self, values):
        def setting(name, value):
            number = isinstance(value, float) or re.fullmatch(r"\d+\.\d+", str(value))
            return f"{{{self.params[name]}, {f'{{}}, {c_double(value)}' if number else self.expr(value)}}}"

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
        """The sizes at which users of the operator run a symbol, or a shape case."""
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
                  self.expr(op["numerics"]["combines_rows"]) if "combines_rows" in op["numerics"] else "{}",
                  "true" if op["numerics"].get("portable", False) else "false",
                  f"sizeof(rlk_{self.name}_params)", f"&{self.name}_defaults", str(form_param),
                  self.array("const char*", [text(f) for f in op["form_names"]]),
                  self.array("DtypeVariable", variables), self.array("SymbolDecl", symbols),
                  self.array("ArgDecl", inputs), self.array("ArgDecl", outputs),
                  self.array("ParamDecl", params), self.array("FeatureDecl", features), self.array("RuleDecl", rules),
                  self.array("ShapeCase", cases)]
        return "{" + ",\n     ".join(fields) + "}"


def op_table(op, note=NOTE):
    tables = Tables(op)
    row = tables.emit()
    out = [f"// {note.format(op['name'] + '.toml')}", '#include "core/declaration/declaration.hpp"', "",
           f"#include <rlk/ops/{op['name']}.h>", "", "#include <cstddef>",
           *(["#include <limits>"] if any("numeric_limits" in line for line in tables.lines) else []), "",
           "// clang-format off",
           "namespace rlk::core {", "namespace {", "", *tables.lines, "", "}  // namespace", "",
           f"extern const OpDecl {declared(op)};", f"constexpr OpDecl {declared(op)}", f"    {row};", "",
           "}  // namespace rlk::core", ""]
    return "\n".join(out)


def slope_list(ops):
    """Where backwards are the slope of their forward: what the declarations say in slope_when."""
    out = [f"// {NOTE.format('*.toml')}", '#include "core/declaration/slope.hpp"', "", "#include <cstddef>", ""]
    said = [op for op in ops if "slope_when" in op]
    out += [f"#include <rlk/ops/{op['name']}.h>" for op in said]
    out += ["", "// clang-format off", "namespace rlk::core {", "",
            "const Expr* slope_when(const OpDecl& backward) {", "  const std::string_view name = backward.name;"]
    for op in said:
        out += [f"  static constexpr Expr k{camel(op['name'])} = {Tables(op).expr(op['slope_when'])};",
                f'  if (name == "{op["name"]}") return &k{camel(op["name"])};']
    out += ["  return nullptr;", "}", "", "}  // namespace rlk::core", ""]
    return "\n".join(out)


def table_of_extremes(ops):
    """core/declaration/extremes.hpp: limits of outputs, inputs of scores, and inputs that cases bring close to others."""
    limit = lambda output, key, none: repr(float(output[key])) if key in output else none
    limited = [(op, a) for op in ops for a in op["output"] if "at_least" in a or "at_most" in a]
    when = lambda op, a: f", {Tables(op).expr(a['at_least_when'])}" if "at_least_when" in a else ""
    limits = [f'{{"{op["name"]}", "{a["name"]}", {{{limit(a, "at_least", "-kNone")}, {limit(a, "at_most", "kNone")}'
              f'{when(op, a)}}}}},' for op, a in limited]
    said = lambda an_input, key: an_input.get("domain", {}).get(key)
    inputs = [(op, a) for op in ops for a in op.get("input", [])]
    scores = [f'{{"{op["name"]}", "{a["name"]}", Extreme::{said(a, "extreme")}}},' for op, a in inputs if said(a, "extreme")]
    close = [f'{{"{op["name"]}", "{a["name"]}", "{said(a, "close_to")}"}},' for op, a in inputs if said(a, "close_to")]
    lookup = lambda rows, column, found, otherwise: [
        f"  for (const auto& row : {rows}) {{", f"    if (row.op == op && row.{column} == {column}) return {found};", "  }",
        f"  return {otherwise};", "}", ""]
    return "\n".join([
        f"// {NOTE.format('*.toml')}", '#include "core/declaration/extremes.hpp"', "", "#include <cstddef>", "",
        *(f"#include <rlk/ops/{name}.h>" for name in dict.fromkeys(op["name"] for op, a in limited if when(op, a))),
        "", "// clang-format off", "namespace rlk::core {", "namespace {", "",
        "constexpr double kNone = std::numeric_limits<double>::infinity();", "",
        "struct LimitsRow {", "  std::string_view op, output;", "  Limits limits;", "};",
        "constexpr LimitsRow kLimits[] = {", *(f"    {row}" for row in limits), "};", "",
        "struct InputRow {", "  std::string_view op, input;", "  Extreme extreme;", "};",
        "constexpr InputRow kExtreme[] = {", *(f"    {row}" for row in scores), "};", "",
        "struct CloseRow {", "  std::string_view op, input, other;", "};",
        "constexpr CloseRow kClose[] = {", *(f"    {row}" for row in close), "};", "", "}  // namespace", "",
        "Limits limits_of(std::string_view op, std::string_view output) {", *lookup("kLimits", "output", "row.limits", "{}"),
        "Extreme extreme_of(std::string_view op, std::string_view input) {",
        *lookup("kExtreme", "input", "row.extreme", "Extreme::none"),
        "std::string_view close_to(std::string_view op, std::string_view input) {",
        *lookup("kClose", "input", "row.other", "{}"), "}  // namespace rlk::core", ""])


def list_of_tables(ops, note=NOTE):
    """Each table is in a file of its own, so that a change to one operator compiles one file."""
    out = [f"// {note.format('*.toml')}", '#include "core/declaration/declaration.hpp"', "", "// clang-format off",
           "namespace rlk::core {", ""]
    out += [f"extern const OpDecl {declared(op)};" for op in ops]
    out += ["", "std::span<const OpDecl> declarations() {", "  static const OpDecl all[] = {"]
    out += [f"      {declared(op)}," for op in ops]
    out += ["  };", "  return all;", "}", "", "}  // namespace rlk::core", ""]
    return "\n".join(out)


def declared(op):
    return f"k{camel(op['name'])}Declaration"
