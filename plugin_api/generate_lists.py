"""What finds an operator's golden answer and its CPU implementation by name."""
import pathlib

from generate_text import NOTE, camel, folded

ROOT = pathlib.Path(__file__).resolve().parent.parent


def golden_table(ops, note=NOTE):
    """Operators whose answer is a function of typed arguments, and those that still read a Call by index."""
    sources = "".join(path.read_text() for folder in ("core/golden", "tests/declarations")
                      for path in (ROOT / folder).glob("*.cpp") if path.name != "generated.cpp")
    typed = [op for op in ops if f"Answer answer_{op['name']}(" not in sources]
    out = [f"// {note.format('*.toml')}", '#include "core/golden/operator.hpp"']
    out += [f"#include <rlk/sdk/ops/{op['name']}.hpp>" for op in typed]
    out += ["", "namespace rlk::golden {", ""]
    for op in ops:
        if op in typed:
            out.append(f"DataError {op['name']}(CallOf<sdk::ops::{camel(op['name'])}>& call);")
        else:
            out.append(f"Answer answer_{op['name']}(const Call& call);")
    out += ["", "Function find(std::string_view op) {"]
    for op in ops:
        function = f"&answer<sdk::ops::{camel(op['name'])}, {op['name']}>" if op in typed else f"answer_{op['name']}"
        out.append(f'  if (op == "{op["name"]}") return {function};')
    out += ["  return nullptr;", "}", "", "}  // namespace rlk::golden", ""]
    return "\n".join(out)


def cpu_implementations(ops):
    """Those that still have a query and a plan of their own in core/cpu/plugin are bound by hand."""
    own = "".join(path.read_text() for path in (ROOT / "core/cpu/plugin").glob("*.cpp"))
    by_hand = {op["name"] for op in ops if f"Cpu{camel(op['name'])}::query" in own}
    out = [f"// {NOTE.format('*.toml')}", "// The built-in plugin implements every operator that is declared.",
           "#pragma once", "", "#include <rlk/sdk/ops.hpp>", "", '#include "core/cpu/plugin/implementation.hpp"', "",
           "namespace rlk::cpu {", ""]
    for op in ops:
        name = camel(op["name"])
        if op["name"] not in by_hand:
            out += ["template <>", f"const Kernel<sdk::ops::{name}>& kernel<sdk::ops::{name}>();"]
            continue
        out += [f"struct Cpu{name} : HandBound<sdk::ops::{name}> {{",
                "  static sdk::Support query(CpuDevice& device, const sdk::Call<Op>& call);",
                "  static std::unique_ptr<sdk::Plan> plan(CpuDevice& device, const sdk::Call<Op>& call);", "};"]
    names = ", ".join(f"Cpu{camel(op['name'])}" if op["name"] in by_hand
                      else f"CpuImplementation<sdk::ops::{camel(op['name'])}>" for op in ops)
    out += ["", "// clang-format off", *folded(f"using CpuImplementations = std::tuple<{names}>;"), "// clang-format on"]
    out += ["", "}  // namespace rlk::cpu", ""]
    return "\n".join(out)
