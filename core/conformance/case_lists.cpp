// Which cases there are: sizes one at a time and in pairs, variations alone, in pairs and in covering groups.
#include <algorithm>
#include <set>

#include "core/conformance/cases.hpp"
#include "core/conformance/data_errors.hpp"
#include "core/conformance/elements.hpp"
#include "core/conformance/sizes.hpp"
#include "core/declaration/extremes.hpp"

namespace rlk::core::conformance {
namespace {

constexpr int64_t kLargestSwitch = int64_t{1} << 24;  // elements of one tensor: a size beyond is not reached by a test
constexpr int64_t kPairCost = int64_t{1} << 22;       // of two switches at once (cost_of)

bool is_legal(const Case& c) {
  ConcreteCall call;
  return resolve(c, call);
}

void add_legal(std::vector<Case>& list, Case c) {
  if (is_legal(c)) list.push_back(std::move(c));
}

bool in_form(const SymbolDecl& symbol, int form) {
  return symbol.form < 0 || symbol.form == form;
}

// Makes the case legal where its sizes ask for an optional input: more queries than sequences need their lengths.
bool resolve_with_what_sizes_ask(Case& c, ConcreteCall& call) {
  if (resolve(c, call)) return true;
  for (size_t i = 0; i < c.decl->inputs.size(); ++i) {
    if (!c.decl->inputs[i].optional) continue;
    Case with = c;
    with.variations.emplace_back().present = uint64_t{1} << i;
    if (!resolve(with, call)) continue;
    c = std::move(with);
    return true;
  }
  return false;
}

// Both sides of a switch, as far as a test reaches.
std::vector<Case> switch_cases(const Case& ordinary, const rlk_switch& change) {
  std::vector<Case> list;
  const int symbol = change.symbol != nullptr ? symbol_index(*ordinary.decl, change.symbol) : -1;
  if (symbol < 0 || !in_form(ordinary.decl->symbols[static_cast<size_t>(symbol)], ordinary.form)) return list;
  if (change.at < 0 || change.at > kLargestSwitch) return list;  // beside it numbers overflow
  for (int64_t size = change.at - 1; size <= change.at + 1; ++size) {
    if (size <= 0) continue;
    Case c = ordinary;
    c.size_given[static_cast<size_t>(symbol)] = size;
    ConcreteCall call;
    if (!resolve_with_what_sizes_ask(c, call)) continue;
    const auto fits = [](const Argument& a) { return !a.present || a.count() <= kLargestSwitch; };
    if (std::all_of(call.inputs.begin(), call.inputs.end(), fits)) list.push_back(std::move(c));
  }
  return list;
}

bool is_within(const rlk_switch& change) {
  return change.at > 0 && change.at <= kLargestSwitch;
}

// Two symbols at a switch, where that is cheap: which algorithm serves a call may depend on both. Tried once each in
// the smoke test, which has the switches alone for everything else.
void add_switch_pairs(std::vector<Case>& list, const Case& ordinary, std::span<const rlk_switch* const> switches,
                      bool smoke) {
  const auto symbol_of = [&](const rlk_switch* change) {
    if (change == nullptr || change->symbol == nullptr || !is_within(*change)) return -1;
    const int symbol = symbol_index(*ordinary.decl, change->symbol);
    return symbol >= 0 && in_form(ordinary.decl->symbols[static_cast<size_t>(symbol)], ordinary.form) ? symbol : -1;
  };
  for (size_t i = 0; i < switches.size(); ++i) {
    for (size_t k = i + 1; k < switches.size(); ++k) {
      const int a = symbol_of(switches[i]), b = symbol_of(switches[k]);
      if (a < 0 || b < 0 || a == b) continue;
      Case c = ordinary;
      c.brief = smoke;
      c.size_given[static_cast<size_t>(a)] = switches[i]->at;
      c.size_given[static_cast<size_t>(b)] = switches[k]->at;
      ConcreteCall call;
      if (resolve_with_what_sizes_ask(c, call) && cost_of(call) <= kPairCost) list.push_back(std::move(c));
    }
  }
}

void add_switch_sizes(std::vector<Case>& list, const Case& ordinary, std::span<const rlk_switch* const> switches) {
  for (const rlk_switch* change : switches) {
    if (change == nullptr) continue;
    for (Case& c : switch_cases(ordinary, *change)) list.push_back(std::move(c));
  }
}

// Whether any argument of the form has the dtype variable.
bool uses(const OpDecl& decl, int form, int variable) {
  const auto has = [&](const ArgDecl& arg) {
    return arg.dtype.variable == variable && (arg.form < 0 || arg.form == form);
  };
  return std::any_of(decl.inputs.begin(), decl.inputs.end(), has) ||
         std::any_of(decl.outputs.begin(), decl.outputs.end(), has);
}

void add_params(const OpDecl& decl, std::vector<Variation>& list) {
  for (size_t i = 0; i < decl.params.size(); ++i) {
    const ParamDecl& param = decl.params[i];
    Variation v;
    v.try_param = static_cast<int>(i);
    for (const double value : param.tries) {
      v.try_value = value;
      list.push_back(v);
    }
    for (size_t k = 0; k < param.values.size() && static_cast<int>(i) != decl.form_param; ++k) {
      v.try_value = static_cast<double>(k);
      if (static_cast<int64_t>(k) != param.default_i64) list.push_back(v);
    }
  }
  for (const FeatureDecl& feature : decl.features) {
    Variation v;
    v.params.assign(feature.settings.begin(), feature.settings.end());
    v.present = feature.present;
    list.push_back(v);
  }
}

void add_optional(const OpDecl& decl, std::vector<Variation>& list) {
  for (size_t i = 0; i < decl.inputs.size(); ++i) {
    if (!decl.inputs[i].optional) continue;
    Variation v;
    v.present = uint64_t{1} << i;
    const DomainDecl& domain = decl.inputs[i].domain;
    if (domain.kind == Domain::row_index) {
      list.push_back(v);  // every row named
      v.symbol = symbol_index(decl, domain.high.text);
    }
    list.push_back(v);
  }
  for (size_t i = 0; i < decl.outputs.size(); ++i) {
    if (!decl.outputs[i].optional || decl.outputs[i].must_alias >= 0) continue;  // it comes with its input
    Variation v;
    v.present = uint64_t{1} << (32 + i);
    list.push_back(v);
  }
}

void add_dtypes_and_aliases(const OpDecl& decl, int form, std::vector<Variation>& list) {
  for (size_t i = 1; i < decl.dtypes.size(); ++i) {
    for (size_t k = 1; k < decl.dtypes[i].choices.size() && uses(decl, form, static_cast<int>(i)); ++k) {
      Variation v;
      v.dtype_variable = static_cast<int>(i);
      v.dtype_choice = static_cast<int>(k);
      list.push_back(v);
    }
  }
  for (size_t i = 0; i < decl.outputs.size(); ++i) {
    for (const int input : decl.outputs[i].may_alias) {
      Variation v;
      v.alias_output = static_cast<int>(i);
      v.alias_input = input;
      // What may be left out must be there to be one memory.
      if (decl.inputs[static_cast<size_t>(input)].optional) v.present |= uint64_t{1} << input;
      if (decl.outputs[i].optional) v.present |= uint64_t{1} << (32 + i);
      list.push_back(v);
    }
  }
}

constexpr uint64_t kAllInputs = 0xffffffffu;
constexpr uint64_t kAllOutputs = kAllInputs << 32;

Variation strided(Layout layout, uint64_t which) {
  Variation v;
  v.layout = layout;
  v.layout_of = which;
  return v;
}

// The layouts that are tried alone.
std::vector<Variation> layouts(const Case& base, bool smoke) {
  std::vector<Variation> list;
  for (const Layout layout :
       {Layout::padded, Layout::stepped, Layout::reversed, Layout::transposed, Layout::expanded}) {
    list.push_back(strided(layout, kAllInputs));
  }
  list.push_back(strided(Layout::padded, kAllOutputs));
  list.push_back(strided(Layout::stepped, kAllOutputs));
  list.push_back(strided(Layout::stepped, kAllInputs | kAllOutputs));
  ConcreteCall call;
  if (!resolve(base, call)) return list;
  // Each tensor has strides of its own: one with gaps between rows or between numbers, the others without.
  const auto add_alone = [&](const std::vector<Argument>& arguments, int first_bit) {
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (!arguments[i].present || (smoke && (first_bit > 0 || i > 0))) continue;
      const uint64_t which = uint64_t{1} << (first_bit + static_cast<int>(i));
      if (arguments[i].shape.size() > 1) list.push_back(strided(Layout::padded, which));
      if (arguments[i].shape.size() <= 1 || !smoke) list.push_back(strided(Layout::stepped, which));
    }
  };
  add_alone(call.inputs, 0);
  add_alone(call.outputs, 32);
  if (!smoke) list.push_back(strided(Layout::reversed, kAllOutputs));
  return list;
}

// Every tensor with gaps: between rows, where there are rows.
Variation gaps(const Case& base) {
  ConcreteCall call;
  resolve(base, call);
  const bool rows =
      std::any_of(call.inputs.begin(), call.inputs.end(), [](const Argument& input) { return input.shape.size() > 1; });
  return strided(rows ? Layout::padded : Layout::stepped, kAllInputs | kAllOutputs);
}

// The variations of the base that are legal alone, and one layout with gaps.
std::vector<Variation> combinable(const Case& base) {
  std::vector<Variation> list = options_of(*base.decl), legal;
  add_dtypes_and_aliases(*base.decl, base.form, list);
  list.push_back(gaps(base));
  for (const Variation& v : list) {
    Case c = base;
    c.variations.push_back(v);
    if (is_legal(c)) legal.push_back(v);
  }
  return legal;
}

ParamSet params_of(const Variation& v) {
  ParamSet params;
  if (v.try_param >= 0) params.set(static_cast<size_t>(v.try_param));
  for (const FeatureSetting& setting : v.params) params.set(static_cast<size_t>(setting.param));
  return params;
}

Case ordinary_case(const OpDecl& decl, int dtype_choice, int form) {
  Case ordinary;
  ordinary.decl = &decl;
  ordinary.form = form;
  ordinary.dtype_choice[0] = dtype_choice;
  return ordinary;
}

// splitmix64
uint64_t next_random(uint64_t& state) {
  uint64_t z = (state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace

bool is_tested(const OpDecl& decl, int dtype_choice, const rlk_switch& change) {
  Case ordinary;
  ordinary.decl = &decl;
  ordinary.dtype_choice[0] = dtype_choice;
  for (size_t form = 0; form < decl.forms.size(); ++form) {
    ordinary.form = static_cast<int>(form);
    if (!switch_cases(ordinary, change).empty()) return true;
  }
  return false;
}

std::vector<Case> plain_cases(const OpDecl& decl, int dtype_choice, int form, bool smoke,
                              std::span<const rlk_switch* const> switches) {
  Case ordinary = ordinary_case(decl, dtype_choice, form);
  std::vector<Case> list;
  for (size_t i = 0; i < decl.shape_cases.size(); ++i) {
    ordinary.shape_case = static_cast<int>(i);
    add_legal(list, ordinary);
  }
  if (!decl.shape_cases.empty()) return list;

  add_legal(list, ordinary);
  const auto each_other_size = [&](size_t from, const Case& c, auto&& use) {
    for (size_t i = from; i < decl.symbols.size(); ++i) {
      if (!in_form(decl.symbols[i], form)) continue;
      for (size_t k = 1; k < decl.symbols[i].sizes.size(); ++k) {
        Case other = c;
        other.size_choice[i] = static_cast<int>(k);
        use(i, other);
      }
    }
  };
  each_other_size(0, ordinary, [&](size_t i, const Case& one) {
    add_legal(list, one);
    if (smoke) return;
    each_other_size(i + 1, one, [&](size_t, const Case& two) { add_legal(list, two); });
  });
  std::vector<Case> own = sizes_of_switches(decl, dtype_choice, form, smoke, switches);
  std::move(own.begin(), own.end(), std::back_inserter(list));
  return list;
}

std::vector<Case> sizes_of_switches(const OpDecl& decl, int dtype_choice, int form, bool smoke,
                                    std::span<const rlk_switch* const> switches) {
  Case ordinary = ordinary_case(decl, dtype_choice, form);
  std::vector<Case> list;
  if (!decl.shape_cases.empty()) return list;
  add_switch_sizes(list, ordinary, switches);
  add_switch_pairs(list, ordinary, switches, smoke);
  return list;
}

std::vector<Case> variation_bases(const OpDecl& decl, int dtype_choice, int form, bool smoke) {
  Case ordinary = ordinary_case(decl, dtype_choice, form);
  std::vector<Case> list;
  if (!decl.shape_cases.empty()) {
    for (size_t i = 0; i < decl.shape_cases.size() && i < 2; ++i) {
      ordinary.shape_case = static_cast<int>(i);
      add_legal(list, ordinary);
    }
    return list;
  }
  add_legal(list, ordinary);
  // Takes the last size of every symbol that `which` accepts and the rules allow.
  const auto with_last_sizes = [&](auto&& which) {
    Case c = ordinary;
    for (size_t i = 0; i < decl.symbols.size(); ++i) {
      if (!which(decl.symbols[i]) || !in_form(decl.symbols[i], form)) continue;
      Case larger = c;
      larger.size_choice[i] = static_cast<int>(decl.symbols[i].sizes.size()) - 1;
      if (is_legal(larger)) c = larger;
    }
    return c;
  };
  add_legal(list, with_last_sizes([](const SymbolDecl& symbol) { return symbol.dynamic; }));
  if (!smoke) add_legal(list, with_last_sizes([](const SymbolDecl& symbol) { return !symbol.dynamic; }));
  return list;
}

namespace {

// Whether an input of the case can leave out every row.
bool hides_rows(const Case& base) {
  ConcreteCall call;
  return resolve(base, call) && (find_row_mask(call) != nullptr || find_ignorable_ids(call) != nullptr);
}

// Whether the case has two inputs of which one can be brought close to the other.
bool compares_inputs(const Case& base) {
  ConcreteCall call;
  if (!resolve(base, call)) return false;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const int other = input_index(*base.decl, close_to(base.decl->name, base.decl->inputs[i].name));
    if (other >= 0 && call.inputs[i].present && call.inputs[static_cast<size_t>(other)].present) return true;
  }
  return false;
}

}  // namespace

std::vector<Case> content_cases(const Case& base) {
  std::vector<Case> list;
  bool minus_inf = false, nan = false, extreme = false;
  for (const ArgDecl& input : base.decl->inputs) {
    minus_inf |= input.domain.minus_inf;
    nan |= input.domain.nan_rows;
    extreme |= extreme_of(base.decl->name, input.name) != Extreme::none;
  }
  const auto add = [&](Content content) {
    Case c = base;
    c.content = content;
    add_legal(list, std::move(c));
  };
  if (minus_inf) add(Content::minus_inf);
  if (minus_inf) add(Content::all_minus_inf);
  if (nan) add(Content::nan);
  if (hides_rows(base)) add(Content::none_counts);
  add(Content::wide);
  if (extreme) add(Content::extreme);
  if (compares_inputs(base)) add(Content::close);
  add(Content::tiny);
  Case c = base;
  c.misaligned_by = 1;
  add_legal(list, std::move(c));
  return list;
}

std::vector<Case> fault_cases(const Case& base, bool every) {
  std::vector<Case> list;
  ConcreteCall call;
  if (!resolve(base, call)) return list;
  for (const int fault : faults_of(call, every)) {
    Case c = base;
    c.content = Content::fault;
    c.fault = fault;
    c.brief |= !is_in_the_middle(fault);
    list.push_back(std::move(c));
  }
  return list;
}

std::vector<Case> single_cases(const Case& base, bool smoke) {
  std::vector<Case> list;
  std::vector<Variation> variations = combinable(base);
  for (const Variation& v : layouts(base, smoke)) variations.push_back(v);
  for (const Variation& v : variations) {
    Case c = base;
    c.variations.push_back(v);
    add_legal(list, std::move(c));
  }
  return list;
}

bool compatible(const Variation& a, const Variation& b) {
  if ((params_of(a) & params_of(b)).any() || (a.present & b.present) != 0) return false;
  if (a.dtype_variable >= 0 && a.dtype_variable == b.dtype_variable) return false;
  if (a.alias_output >= 0 && (a.alias_output == b.alias_output || a.alias_input == b.alias_input)) return false;
  return a.layout_of == 0 || b.layout_of == 0;
}

std::vector<Variation> options_of(const OpDecl& decl) {
  std::vector<Variation> list;
  add_params(decl, list);
  add_optional(decl, list);
  return list;
}

std::vector<Case> pair_cases(const Case& base) {
  std::vector<Case> list;
  std::vector<Variation> variations = combinable(base);
  // Gaps between rows leave what has one number per row without any: here every number has its gap.
  if (gaps(base).layout != Layout::stepped) variations.push_back(strided(Layout::stepped, kAllInputs | kAllOutputs));
  for (size_t i = 0; i < variations.size(); ++i) {
    for (size_t k = i + 1; k < variations.size(); ++k) {
      if (!compatible(variations[i], variations[k])) continue;
      Case c = base;
      c.variations = {variations[i], variations[k]};
      add_legal(list, std::move(c));
    }
  }
  return list;
}

std::vector<Case> pairs_within(const Case& c) {
  std::vector<Case> list;
  for (size_t i = 0; i < c.variations.size(); ++i) {
    for (size_t k = i + 1; k < c.variations.size(); ++k) {
      Case pair = c;
      pair.variations = {c.variations[i], c.variations[k]};
      add_legal(list, std::move(pair));
    }
  }
  return list;
}

std::vector<Case> each_alone(const Case& c) {
  std::vector<Case> list;
  for (size_t i = 0; i < c.variations.size() && c.variations.size() > 1; ++i) {
    Case alone = c;
    alone.variations = {c.variations[i]};
    add_legal(list, std::move(alone));
  }
  return list;
}

std::vector<Case> covering_cases(const Case& base, uint64_t seed) {
  const std::vector<Variation> variations = combinable(base);
  const size_t n = variations.size();
  std::set<std::pair<size_t, size_t>> open;
  for (size_t i = 0; i < n; ++i) {
    for (size_t k = i + 1; k < n; ++k) {
      Case c = base;
      c.variations = {variations[i], variations[k]};
      if (compatible(variations[i], variations[k]) && is_legal(c)) open.insert({i, k});
    }
  }
  std::vector<Case> list;
  while (!open.empty()) {
    // An open pair, and others in random order up to half of all: a case with everything on hides one thing behind
    // another.
    std::vector<size_t> chosen = {open.begin()->first, open.begin()->second};
    std::vector<size_t> order;
    for (size_t i = 0; i < n; ++i) order.push_back(i);
    for (size_t i = n; i > 1; --i) std::swap(order[i - 1], order[next_random(seed) % i]);
    Case c = base;
    c.variations = {variations[chosen[0]], variations[chosen[1]]};
    for (const size_t candidate : order) {
      if (chosen.size() >= std::max<size_t>(2, (n + 1) / 2)) break;
      const auto fits = [&](size_t other) {
        return other != candidate && compatible(variations[candidate], variations[other]);
      };
      if (!std::all_of(chosen.begin(), chosen.end(), fits)) continue;
      c.variations.push_back(variations[candidate]);
      if (is_legal(c)) {
        chosen.push_back(candidate);
      } else {
        c.variations.pop_back();
      }
    }
    for (const size_t a : chosen) {
      for (const size_t b : chosen) open.erase({a, b});
    }
    list.push_back(std::move(c));
  }
  return list;
}

}  // namespace rlk::core::conformance
