"""The call of a C++ application, loader/api/include/rlk/ops/<op>.hpp: arguments by name."""
from generate_text import NOTE, camel, documented, folded, shape_text


def call_header(op):
    name, camel_name = op["name"], camel(op["name"])
    out = [f"// {NOTE.format(name + '.toml')}", *folded("// " + op["summary"], "// "),
           f"// What it means: <rlk/ops/{name}.h>.", "#pragma once", "", f"#include <rlk/ops/{name}.h>",
           "#include <rlk/rlk.hpp>", "", "// clang-format off", "namespace rlk::ops {", "", f"struct {camel_name} {{"]
    written = {a["name"] for a in op["output"] if a.get("must_alias") == a["name"]}  # where they are
    for kind, tag in (("input", "In"), ("output", "Out")):
        out.append(f"  struct {tag} {{")
        for a in op[kind]:
            if kind == "output" and a.get("must_alias") == a["name"]:
                continue  # in-out: one tensor, among the inputs
            flags = ("optional, " if a.get("optional") else "") + (a["form"] + " only, " if "form" in a else "")
            flags += "in-out, " if a.get("inout") else ""
            view = "ConstTensor" if kind == "input" and a["name"] not in written else "Tensor"
            out += documented(f"    {view} {a['name']} = {{}};",
                              f"{flags}{a['dtype']} {shape_text(a['shape'])}: {a['doc']}", c=False)
        out.append(f"  }} {tag.lower()} = {{}};")
    out += [f"  rlk_{name}_params params = RLK_{name.upper()}_PARAMS_INIT;", "",
            "  // Enqueues it; nothing is kept of this object. Throws Exception.",
            "  void operator()(const Stream& stream, const rlk_call_options* options = nullptr) const {",
            "    call(stream, op(), &params, inputs(), outputs(), options);", "  }",
            "  // Where that call would go, and why: the document of rlk_explain_json. The tensors' data may be nullptr.",
            "  std::string explain(const Stream& stream, const rlk_call_options* options = nullptr) const {",
            "    return rlk::explain(stream, op(), &params, inputs(), outputs(), options);", "  }", "", "private:",
            "  static const rlk_op* op() {", f'    static const rlk_op* const found = find_op("{name}");',
            "    return found;", "  }"]
    for kind, tag in (("input", "in"), ("output", "out")):
        members = ", ".join(f"&{'in' if a.get('must_alias') == a['name'] else tag}.{a['name']}" for a in op[kind])
        out.append(f"  std::array<const ConstTensor*, {len(op[kind])}> {kind}s() const {{")
        out += folded(f"    return {{{members}}};", "    ") + ["  }"]
    out += ["};", "", "}  // namespace rlk::ops", ""]
    return "\n".join(out)
