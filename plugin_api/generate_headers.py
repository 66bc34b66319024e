"""The C headers, include/rlk/ops/<op>.h: an operator's meaning, its parameters, and the places of its arguments."""
from declaration_load import elements, hidden_by, nan_rules
from generate_text import NOTE, WIDTH, documented, flags, folded, limits_text, shape_text


def c_default(p):
    if p["type"] == "f64":
        return repr(float(p["default"]))
    if p["type"] == "enum":
        return str(p["values"].index(p["default"]))
    return str(p["default"])


def bounds_text(p):
    bounds = [f">= {p['min']:g}"] if "min" in p else [f"> {p['min_exclusive']:g}"] if "min_exclusive" in p else []
    bounds += ["or infinity"] if p.get("finite") is False else []
    return f" ({' '.join(bounds)})" if bounds else ""


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
                              f"{flags(op, kind, a)}{a['dtype']} {shape_text(a['shape'])}: {a['doc']}{limits_text(a)}")
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
