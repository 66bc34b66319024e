// Cases that see what a bound per element cannot. A bound that lets every softmax weight be rounded is as wide as one
// key's share of a long sum, and as what truncation costs.
#include <algorithm>

#include "core/conformance/cases.hpp"
#include "core/conformance/lean.hpp"

namespace rlk::core::conformance {
namespace {

// With two sequences in a packed layout, one of them has half of these.
constexpr int64_t kLongSum = 1040;

bool is_legal(const Case& c) {
  Call call;
  return resolve(c, call);
}

bool is_16_bit(Dtype dtype) {
  return dtype == Dtype::bf16 || dtype == Dtype::f16;
}

// Whether the case has 16-bit outputs, and all of them too few elements to see whether they are truncated.
bool has_too_few(const Case& c) {
  Call call;
  if (!resolve(c, call)) return false;
  bool any = false;
  for (const Argument& output : call.outputs) {
    if (!output.present || !is_16_bit(output.dtype)) continue;
    if (output.count() >= kEnoughElements) return false;
    any = true;
  }
  return any;
}

}  // namespace

std::vector<Case> rounding_cases(const Case& base) {
  std::vector<Case> list;
  const auto add = [&](Case c, Content content) {
    c.content = content;
    if (is_legal(c)) list.push_back(std::move(c));
  };
  add(base, Content::positive);
  if (has_too_few(base) && base.decl->shape_cases.empty()) {
    for (size_t i = 0; i < base.decl->symbols.size(); ++i) {
      const SymbolDecl& symbol = base.decl->symbols[i];
      if (!symbol.dynamic || (symbol.form >= 0 && symbol.form != base.form)) continue;
      Case more = base;
      more.size_given[i] = 2 * kEnoughElements;
      if (!is_legal(more) || has_too_few(more)) continue;
      add(more, Content::positive);
      break;
    }
  }
  for (const RoundedDecl& rounded : base.decl->rounded) {
    for (const int symbol : rounded.over) {
      const SymbolDecl& decl = base.decl->symbols[static_cast<size_t>(symbol)];
      if (decl.form >= 0 && decl.form != base.form) continue;
      Case longer = base;
      longer.size_given[static_cast<size_t>(symbol)] = kLongSum;
      const bool is_known = std::any_of(list.begin(), list.end(),
                                        [&](const Case& other) { return other.size_given == longer.size_given; });
      if (is_known) continue;
      add(longer, Content::positive);
      add(longer, Content::sparse);
    }
  }
  return list;
}

}  // namespace rlk::core::conformance
