// Names, and the rule by which `accurate` and `tolerance` are one.
#include "core/declaration/numerics.hpp"

namespace rlk::core {

std::span<const NumericsClass> numerics_classes() {
  static constexpr NumericsClass kClasses[] = {{RLK_NUMERICS_TOLERANCE, "tolerance", 'T'},
                                               {RLK_NUMERICS_ACCURATE, "accurate", 'A'},
                                               {RLK_NUMERICS_DETERMINISTIC, "deterministic", 'D'},
                                               {RLK_NUMERICS_BATCH_INVARIANT, "batch_invariant", 'B'},
                                               {RLK_NUMERICS_PORTABLE, "portable", 'P'}};
  return kClasses;
}

std::vector<std::string> names_of_numerics(uint32_t numerics) {
  std::vector<std::string> names;
  for (const NumericsClass& one : numerics_classes()) {
    if ((numerics & one.bit) != 0) names.emplace_back(one.name);
  }
  return names;
}

std::string text_of_numerics(uint32_t numerics) {
  std::string text;
  for (const std::string& name : names_of_numerics(numerics)) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "nothing" : text;
}

uint32_t numerics_of_name(std::string_view name) {
  for (const NumericsClass& one : numerics_classes()) {
    if (name == one.name) return one.bit;
  }
  return 0;
}

bool may_round(const OpDecl& decl, Dtype dtype) {
  return !decl.rounded.empty() && (dtype == Dtype::bf16 || dtype == Dtype::f16);
}

}  // namespace rlk::core
