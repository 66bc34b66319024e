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


def table_of_extremes(ops):
    """core/declaration/extremes.hpp: limits of outputs, and inputs of scores."""
    limit = lambda output, key, none: repr(float(output[key])) if key in output else none
    limits = [f'{{"{op["name"]}", "{output["name"]}", {{{limit(output, "at_least", "-kNone")}, '
              f'{limit(output, "at_most", "kNone")}}}}},'
              for op in ops for output in op["output"] if "at_least" in output or "at_most" in output]
    kind = lambda an_input: an_input.get("domain", {}).get("extreme")
    scores = [f'{{"{op["name"]}", "{an_input["name"]}", Extreme::{kind(an_input)}}},'
              for op in ops for an_input in op.get("input", []) if kind(an_input)]
    return "\n".join([
        f"// {NOTE.format('*.toml')}", '#include "core/declaration/extremes.hpp"', "", "namespace rlk::core {",
        "namespace {", "", "constexpr double kNone = std::numeric_limits<double>::infinity();", "",
        "struct LimitsRow {", "  std::string_view op, output;", "  Limits limits;", "};",
        "constexpr LimitsRow kLimits[] = {", *(f"    {row}" for row in limits), "};", "",
        "struct InputRow {", "  std::string_view op, input;", "  Extreme extreme;", "};",
        "constexpr InputRow kExtreme[] = {", *(f"    {row}" for row in scores), "};", "", "}  // namespace", "",
        "Limits limits_of(std::string_view op, std::string_view output) {",
        "  for (const LimitsRow& row : kLimits) {",
        "    if (row.op == op && row.output == output) return row.limits;", "  }", "  return {};", "}", "",
        "Extreme extreme_of(std::string_view op, std::string_view input) {",
        "  for (const InputRow& row : kExtreme) {",
        "    if (row.op == op && row.input == input) return row.extreme;", "  }", "  return Extreme::none;", "}", "",
        "}  // namespace rlk::core", ""])
