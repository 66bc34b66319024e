// Cases that see what a bound per element cannot. A bound that lets every softmax weight be rounded is as wide as one
// key's share of a long sum, and as what truncation costs.
#include <algorithm>

#include "core/conformance/bias.hpp"
#include "core/conformance/cases.hpp"

namespace rlk::core::conformance {
namespace {

// With two sequences in a packed layout, one of them has half of these.
constexpr int64_t kLongSum = 1040;

bool is_legal(const Case& c) {
  ConcreteCall call;
  return resolve(c, call);
}

bool is_16_bit(Dtype dtype) {
  return dtype == Dtype::bf16 || dtype == Dtype::f16;
}

int narrow_outputs(const Case& c) {
  ConcreteCall call;
  if (!resolve(c, call)) return 0;
  return static_cast<int>(std::count_if(call.outputs.begin(), call.outputs.end(), [](const Argument& output) {
    return output.present && is_16_bit(output.dtype);
  }));
}

// Whether an output of 16 bits has too few elements to see whether they are truncated.
bool has_too_few(const Case& c) {
  ConcreteCall call;
  return resolve(c, call) && std::any_of(call.outputs.begin(), call.outputs.end(), [](const Argument& output) {
           return output.present && is_16_bit(output.dtype) && output.count() < 2 * kEnoughElements;
         });
}

// The case at a size at which truncation shows, unless it has it.
std::vector<Case> with_enough_elements(const Case& c) {
  if (!has_too_few(c)) return {};
  for (size_t i = 0; i < c.decl->symbols.size(); ++i) {
    const SymbolDecl& symbol = c.decl->symbols[i];
    if (!symbol.dynamic || (symbol.form >= 0 && symbol.form != c.form)) continue;
    Case more = c;
    more.size_given[i] = 2 * kEnoughElements;
    if (is_legal(more) && !has_too_few(more)) return {more};
  }
  return {};
}

// A long sum costs its length times the rest of the case. The leading symbol, unless the operator sums over it, counts
// calls in one: one of them is enough where it has outputs enough.
void try_once(Case& c) {
  for (const RoundedDecl& rounded : c.decl->rounded) {
    if (std::find(rounded.over.begin(), rounded.over.end(), 0) != rounded.over.end()) return;
  }
  Case one = c;
  one.size_given[0] = 1;
  ConcreteCall call;
  const auto outputs = [&call](const Case& of) { return resolve(of, call) ? call.outputs[0].count() : 0; };
  const int64_t fewer = outputs(one);
  if (fewer >= 4 * kEnoughElements && fewer < outputs(c)) c = std::move(one);
}

}  // namespace

std::vector<Case> rounding_cases(const Case& base) {
  std::vector<Case> list;
  const auto add = [&](Case c, Content content) {
    c.content = content;
    if (is_legal(c)) list.push_back(std::move(c));
  };
  add(base, Content::positive);
  for (Case& c : with_enough_elements(base)) add(std::move(c), Content::positive);
  // Outputs that have 16 bits only when they are asked for so.
  for (size_t i = 1; i < base.decl->dtypes.size(); ++i) {
    for (size_t k = 1; k < base.decl->dtypes[i].choices.size(); ++k) {
      Case other = base;
      Variation v;
      v.dtype_variable = static_cast<int>(i);
      v.dtype_choice = static_cast<int>(k);
      other.variations.push_back(v);
      if (narrow_outputs(other) <= narrow_outputs(base)) continue;
      for (Case& c : with_enough_elements(other)) add(std::move(c), Content::positive);
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
      try_once(longer);
      add(longer, Content::positive);
      add(longer, Content::sparse);
    }
  }
  return list;
}

}  // namespace rlk::core::conformance
