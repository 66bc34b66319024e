// What a NaN in an input gives, as its declaration says.
#include "core/declaration/declaration.hpp"

#include <fmt/core.h>

namespace rlk::core {

const char* name_of(NanReach reach) {
  static constexpr const char* kNames[] = {"none", "element", "row", "column", "earlier",  "sequence",
                                           "head", "group",   "all", "text",   "undefined"};
  return kNames[static_cast<size_t>(reach)];
}

std::string nan_words(const OpDecl& decl, const ArgDecl& input) {
  const auto condition = [](const NanRule& rule) { return std::string_view(rule.when.text ? rule.when.text : ""); };
  const auto words = [&](std::string_view when) {
    std::string text;
    for (const NanRule& rule : input.nan) {
      if (condition(rule) != when) continue;
      text += text.empty() ? "" : ", ";
      if (rule.output >= 0) text += std::string(decl.outputs[static_cast<size_t>(rule.output)].name) + " ";
      text += name_of(rule.reach);
    }
    return text;
  };
  std::string text = words("");
  std::string_view last;
  for (const NanRule& rule : input.nan) {
    if (condition(rule).empty() || condition(rule) == last) continue;
    last = condition(rule);
    text += fmt::format("; where {}: {}", last, words(last));
  }
  if (*input.nan_text != 0) text += std::string(" (") + input.nan_text + ")";
  const char* separator = "; not read where hidden by ";
  for (size_t i = 0; i < decl.inputs.size(); ++i) {
    if ((input.domain.hidden_by >> i & 1) == 0) continue;
    text += separator + std::string(decl.inputs[i].name);
    separator = ", ";
  }
  return text;
}

NanReach nan_reach(const ArgDecl& input, int output, const Values& values) {
  for (const NanRule& rule : input.nan) {
    const bool holds = rule.when.eval == nullptr || rule.when.eval(values) != 0;
    if (holds && (rule.output < 0 || rule.output == output)) return rule.reach;
  }
  return NanReach::none;
}

}  // namespace rlk::core
