// A search among small sizes, first with the plain call and then with each option.
#include "core/conformance/orders.hpp"

#include <algorithm>
#include <cctype>
#include <optional>
#include <string_view>
#include <utility>

#include "core/conformance/sizes.hpp"

namespace rlk::core::conformance {
namespace {

constexpr int64_t kMostCost = 1 << 16;  // see cost_of
// Far apart first: a loop over the wrong size is then seen in many rows. Some divide each other, some are 1.
constexpr int64_t kSmaller[] = {3, 8, 1, 2, 4}, kLarger[] = {17, 40, 9, 16, 5, 2};

using Order = std::pair<size_t, size_t>;  // the smaller symbol, the larger one

// The case with the order, what it has already kept.
std::optional<Case> with_order(const Case& base, const Order& order, bool may_be_costly) {
  const size_t smaller = order.first, larger = order.second;
  const std::optional<int64_t> least = base.size_given[smaller], most = base.size_given[larger];
  std::optional<Case> costly;  // where there is no other
  const auto tried = [&](int64_t low, int64_t high) -> std::optional<Case> {
    if (low >= high) return std::nullopt;
    Case c = base;
    c.size_given[smaller] = low;
    c.size_given[larger] = high;
    ConcreteCall call;
    if (!resolve(c, call) || call.symbols[smaller] != low || call.symbols[larger] != high) return std::nullopt;
    if (cost_of(call) <= kMostCost) return c;
    if (!costly) costly = std::move(c);
    return std::nullopt;
  };
  if (least && most) return tried(*least, *most);
  for (const int64_t low : kSmaller) {
    for (const int64_t high : kLarger) {
      if (auto c = tried(least.value_or(low), most.value_or(high))) return c;
    }
  }
  return may_be_costly ? costly : std::nullopt;
}

bool mentions(std::string_view text, std::string_view name) {
  const auto is_word = [&](size_t at) {
    return at < text.size() && (std::isalnum(static_cast<unsigned char>(text[at])) != 0 || text[at] == '_');
  };
  for (size_t at = text.find(name); at != std::string_view::npos; at = text.find(name, at + 1)) {
    if ((at == 0 || !is_word(at - 1)) && !is_word(at + name.size())) return true;
  }
  return false;
}

// Whether sizes may be other ones with the option than without: it brings a size in, or stands in a rule of sizes.
bool concerns_sizes(const Variation& option, const ConcreteCall& plain, const ConcreteCall& with) {
  const OpDecl& decl = *plain.decl;
  for (size_t i = 0; i < decl.symbols.size(); ++i) {
    if (plain.symbols[i] < 0 && with.symbols[i] >= 0) return true;
  }
  std::vector<std::string_view> names;
  if (option.try_param >= 0) names.emplace_back(decl.params[static_cast<size_t>(option.try_param)].name);
  for (const FeatureSetting& setting : option.params)
    names.emplace_back(decl.params[static_cast<size_t>(setting.param)].name);
  for (size_t i = 0; i < decl.inputs.size(); ++i) {
    if ((option.present >> i & 1) != 0) names.emplace_back(decl.inputs[i].name);
  }
  return std::any_of(decl.rules.begin(), decl.rules.end(), [&](const RuleDecl& rule) {
    const auto stands_in = [&](std::string_view name) { return mentions(rule.holds.text, name); };
    return std::any_of(decl.symbols.begin(), decl.symbols.end(),
                       [&](const SymbolDecl& symbol) { return stands_in(symbol.name); }) &&
           std::any_of(names.begin(), names.end(), stands_in);
  });
}

}  // namespace

void Orders::note(const ConcreteCall& call) {
  const size_t symbols = call.decl->symbols.size();
  for (size_t a = 0; a < symbols; ++a) {
    for (size_t b = 0; b < symbols; ++b) {
      if (call.symbols[a] > 0 && call.symbols[a] < call.symbols[b]) seen_.set(a * kMaxSymbols + b);
    }
  }
}

std::vector<Case> order_cases(const OpDecl& decl, int dtype_choice, int form, std::span<const Case> others) {
  Orders seen;
  ConcreteCall call;
  for (const Case& c : others) {
    if (c.variations.empty() && resolve(c, call)) seen.note(call);
  }
  std::vector<Case> bases(1);
  bases[0].decl = &decl;
  bases[0].form = form;
  bases[0].dtype_choice[0] = dtype_choice;
  ConcreteCall plain;
  if (!resolve(bases[0], plain)) plain = {};
  for (const Variation& option : options_of(decl)) {
    Case c = bases[0];
    c.variations = {option};
    if (resolve(c, call) && (plain.decl == nullptr || concerns_sizes(option, plain, call)))
      bases.push_back(std::move(c));
  }
  std::vector<Order> open;
  for (size_t a = 0; a < decl.symbols.size(); ++a) {
    for (size_t b = 0; b < decl.symbols.size(); ++b) {
      if (a != b && !seen.has(a, b)) open.emplace_back(a, b);
    }
  }
  std::vector<Case> list;
  for (const Case& base : bases) {
    for (size_t i = 0; i < open.size(); ++i) {
      if (seen.has(open[i].first, open[i].second)) continue;
      std::optional<Case> c = with_order(base, open[i], /*may_be_costly=*/true);
      if (!c) continue;
      for (size_t k = i + 1; k < open.size(); ++k) {
        if (seen.has(open[k].first, open[k].second)) continue;
        if (auto both = with_order(*c, open[k], /*may_be_costly=*/false)) c = std::move(both);
      }
      if (resolve(*c, call)) seen.note(call);
      list.push_back(std::move(*c));
    }
  }
  return list;
}

}  // namespace rlk::core::conformance
