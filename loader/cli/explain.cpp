// `rlk-plugins explain`: who would take a call, and why not the others.
#include <fmt/core.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "loader/cli/output.hpp"
#include "loader/cli/session.hpp"
#include "loader/cli/table.hpp"
#include "loader/cli/verbs.hpp"

namespace rlk::cli {
namespace {

void print(const OpCall& call, const std::string& backend, const nlohmann::json& explained, const std::string& chosen) {
  std::string arguments;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    if (!call.inputs[i]) continue;
    arguments += (arguments.empty() ? "" : ", ") +
                 fmt::format("{} {}", call.decl->inputs[i].name, core::name_of(call.inputs[i]->dtype));
    for (size_t axis = 0; axis < call.inputs[i]->shape.size(); ++axis)
      arguments += (axis == 0 ? " " : "x") + std::to_string(call.inputs[i]->shape[axis]);
  }
  std::fprintf(output(), "%s on %s: %s\nchosen: %s\n\n", call.decl->name, backend.c_str(), arguments.c_str(),
               chosen.empty() ? "nobody: the call is refused" : chosen.c_str());
  Table table({"candidate", "verdict", "numerics", "cost us", "why"});
  for (const auto& candidate : explained.at("candidates")) {
    const std::string verdict = candidate.value("verdict", "");
    const std::string implementation = candidate.value("implementation", "");
    const std::string code = candidate.value("reason_code", "");
    const std::string reason = candidate.value("reason", "");
    std::string classes;
    for (const auto& name : candidate.at("numerics"))
      classes += (classes.empty() ? "" : ", ") + name.get<std::string>();
    const double cost = candidate.value("cost_us", 0.0);
    char cost_text[32] = "";
    if (cost > 0) std::snprintf(cost_text, sizeof(cost_text), "%.1f", cost);
    table.row({candidate.value("plugin", "") + (implementation.empty() ? "" : "/" + implementation),
               {verdict, verdict == "taken"    ? Tone::good
                         : verdict == "failed" ? Tone::bad
                                               : Tone::plain},
               classes,
               cost_text,
               code});
    if (!reason.empty()) table.note(reason);
  }
  table.print();
  if (chosen.empty()) std::fprintf(output(), "\n%s", wrapped(explained.value("refused", ""), 0).c_str());
  const auto fallback = explained.find("fallback");
  if (fallback != explained.end() && !chosen.empty()) {
    std::fprintf(
        output(), "\n%s",
        wrapped(fmt::format("a fallback ({}): {}", fallback->value("reason_code", ""), fallback->value("reason", "")),
                0)
            .c_str());
  }
}

int run_explain(const Arguments& arguments) {
  const OpCall call = describe_call(find_op(arguments.operand(0)), arguments);
  const std::string pin = arguments.value("backend");
  Session session;
  session.open_for(call, pin);
  const rlk_call_options options = call_options_of(pin, parse_numerics(arguments.value("numerics")));
  const std::string document = session.explain_json(call, options);
  const std::string chosen = chosen_of(document);
  if (arguments.json()) {
    std::fprintf(output(), "%s\n", document.c_str());
  } else {
    print(call, session.backend(), nlohmann::json::parse(document), chosen);
  }
  return chosen.empty() ? kBroken : kFine;
}

}  // namespace

Verb verb_explain() {
  std::vector<Option> options = call_options();
  options.push_back({"backend", "B[:IMPL]", "pin the call, as cuda, cpu:fused or plugin/implementation"});
  options.push_back({"numerics", "CLASS,...", "demand classes: accurate, deterministic, batch_invariant, portable"});
  return {
      "explain",
      "Which implementation would take a call, and the reason for every other one.",
      "Sizes and dtypes that are not given are the first that the operator's declaration names. The environment\n"
      "(RLK_FALLBACK, RLK_BACKEND, RLK_OP_<NAME>, RLK_CONFIG) counts as for the call. Exit code 1: nobody takes it.",
      "rlk-plugins explain logp --dtype bf16 --shape N=4096,V=151936 --with entropy",
      {{"OP", true}},
      std::move(options),
      run_explain};
}

}  // namespace rlk::cli
