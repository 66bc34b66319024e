"""What finds an operator's golden answer and its CPU implementation by name."""
from generate_text import NOTE, camel, folded


def golden_table(ops, note=NOTE):
    """Each operator's answer is a function of typed arguments."""
    out = [f"// {note.format('*.toml')}", '#include "core/golden/operator.hpp"']
    out += [f"#include <rlk/sdk/ops/{op['name']}.hpp>" for op in ops]
    out += ["", "namespace rlk::golden {", ""]
    out += [f"DataError {op['name']}(CallOf<sdk::ops::{camel(op['name'])}>& call);" for op in ops]
    out += ["", "Function find(std::string_view op) {"]
    out += [f'  if (op == "{op["name"]}") return &answer<sdk::ops::{camel(op["name"])}, {op["name"]}>;' for op in ops]
    out += ["  return nullptr;", "}", "", "}  // namespace rlk::golden", ""]
    return "\n".join(out)


def cpu_implementations(ops):
    """Each operator's kernel, as it is registered beside itself."""
    out = [f"// {NOTE.format('*.toml')}", "// The built-in plugin implements every operator that is declared.",
           "#pragma once", "", "#include <rlk/sdk/ops.hpp>", "", '#include "core/cpu/plugin/implementation.hpp"', "",
           "namespace rlk::cpu {"]
    names = ", ".join(f"CpuImplementation<sdk::ops::{camel(op['name'])}>" for op in ops)
    out += ["", "// clang-format off", *folded(f"using CpuImplementations = std::tuple<{names}>;"), "// clang-format on"]
    out += ["", "}  // namespace rlk::cpu", ""]
    return "\n".join(out)
