"""What finds an operator's golden answer and its CPU implementation by name."""
from generate_text import NOTE, camel, folded


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
