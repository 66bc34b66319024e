// Draws: sizes next to what tiles and vectors have, and what the declaration does not allow is drawn anew.
#include "core/conformance/random_calls.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string_view>
#include <tuple>

#include "core/conformance/data_errors.hpp"
#include "core/conformance/elements.hpp"
#include "core/conformance/golden_bridge.hpp"
#include "core/conformance/nan.hpp"

namespace rlk::core::conformance {
namespace {

constexpr int64_t kSmall[] = {1, 1, 2, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17};
constexpr int64_t kMiddle[] = {24, 31, 32, 33, 47, 48, 49, 63, 64, 65, 95, 96, 97, 127, 128, 129};
constexpr int64_t kLarge[] = {191, 192,  193,  255,  256,  257,  511,  512,  513,  959,  960,   961,
                              962, 1023, 1024, 1025, 2047, 2048, 2049, 4095, 4096, 4097, 32768, 50257};
constexpr int64_t kProducts[] = {300, 3000, 3000, 20'000, 20'000, 70'000, 300'000};

bool in_form(const SymbolDecl& symbol, int form) {
  return symbol.form < 0 || symbol.form == form;
}

// The usual size follows from other symbols ("N", as opposed to "17").
bool is_tied(const SymbolDecl& symbol) {
  return symbol.sizes[0].text[0] < '0' || symbol.sizes[0].text[0] > '9';
}

int64_t draw_size(Draws& draws, int64_t min) {
  const double kind = draws.uniform();
  if (kind < 0.06) return min;
  if (kind < 0.6) return draws.of(kSmall);
  return kind < 0.8 ? draws.of(kMiddle) : draws.of(kLarge);
}

// Near the numbers that the declaration names, or a number that tends to hurt. A share or a discount stays one: to the
// power of thousands of tokens more than 1 is beyond fp64.
double draw_f64(Draws& draws, const ParamDecl& param) {
  if (!param.finite && draws.chance(0.05)) return std::numeric_limits<double>::infinity();
  constexpr double kHurting[] = {0, 1, 0.5, 0.05, 2, 10, 1e4, -1, -0.5};
  double value = param.default_f64;
  const double kind = draws.uniform();
  if (kind < 0.6 && !param.tries.empty()) value = draws.of(param.tries);
  if (kind > 0.9) value = draws.of(kHurting);
  if (kind > 0.4 && kind < 0.75) value = (value == 0 ? 0.1 : value) * std::exp(draws.normal());
  const bool at_most_one = param.default_f64 == 1 && std::all_of(param.tries.begin(), param.tries.end(),
                                                                 [](double number) { return number <= 1; });
  if (at_most_one) value = std::min(value, 1.0);
  if (param.has_min && !(param.min_exclusive ? value > param.min : value >= param.min)) return param.default_f64;
  return value;
}

int64_t draw_i64(Draws& draws, const ParamDecl& param, std::span<const int64_t> symbols) {
  int64_t value = param.default_i64;
  const double kind = draws.uniform();
  if (kind < 0.35 && !param.tries.empty()) value = static_cast<int64_t>(draws.of(param.tries));
  if (kind > 0.5) value = draws.below(9) - 2;
  if (kind > 0.65 && !symbols.empty()) value = std::max<int64_t>(draws.of(symbols), 1) + draws.below(3) - 1;
  if (kind > 0.8 && !symbols.empty()) value = draws.below(std::max<int64_t>(draws.of(symbols), 1)) + 1;
  const auto number = static_cast<double>(value);
  if (param.has_min && !(param.min_exclusive ? number > param.min : number >= param.min)) return param.default_i64;
  return value;
}

}  // namespace

RandomCase::RandomCase(const OpDecl& decl, std::optional<int> dtype_choice, Draws& draws)
    : decl_(&decl), draws_(draws), params_(decl.params.size()) {
  case_.decl = decl_;
  case_.form = static_cast<int>(draws.below(static_cast<int64_t>(decl.forms.size())));
  for (size_t i = 0; i < decl.dtypes.size(); ++i) {
    const bool first = i > 0 && draws.chance(0.5);
    case_.dtype_choice[i] = first ? 0 : static_cast<int>(draws.below(std::ssize(decl.dtypes[i].choices)));
  }
  if (dtype_choice) case_.dtype_choice[0] = *dtype_choice;
  largest_product_ = draws.of(kProducts);
  for (size_t i = 0; i < decl.symbols.size(); ++i) draw_symbol(i);
  if (!decl.shape_cases.empty()) draw_shapes();
  shrink();
  const auto note = [&](std::span<const ArgDecl> args, int first_bit) {
    for (size_t i = 0; i < args.size(); ++i) {
      const bool here = args[i].form < 0 || args[i].form == case_.form;
      if (!args[i].optional || !here) continue;
      if (args[i].shapes[static_cast<size_t>(case_.form)].kind == ShapeDecl::Kind::none) continue;
      optional_ |= uint64_t{1} << (first_bit + static_cast<int>(i));
    }
  };
  note(decl.inputs, 0);
  note(decl.outputs, 32);
  constexpr double kShares[] = {0, 0.2, 0.5, 0.8, 1};
  draw_presence(draws.of(kShares));
  const double share = draws.of(kShares);
  for (size_t i = 0; i < params_.size(); ++i) {
    if (draws.chance(share)) draw_param(i);
  }
  if (draws.chance(0.3)) draw_feature();
  draw_layouts();
  case_.misaligned_by = draws.chance(0.1) ? 1 : 0;
}

void RandomCase::draw_symbol(size_t i) {
  const SymbolDecl& symbol = decl_->symbols[i];
  case_.size_given[i].reset();
  if (!in_form(symbol, case_.form)) return;
  // Its usual size follows from others; where the rules let it, it may be any other, smaller ones too.
  if (is_tied(symbol) && draws_.chance(0.85)) {
    const int last = static_cast<int>(symbol.sizes.size()) - 1;
    case_.size_choice[i] = draws_.chance(0.3) ? last : 0;
  } else {
    case_.size_given[i] = draw_size(draws_, symbol.min);
  }
}

// The product of the drawn sizes, or the numbers of the largest tensor where sizes that follow from others make more.
double RandomCase::extent() const {
  double extent = 1;
  for (const auto& size : case_.size_given) extent *= size ? static_cast<double>(std::max<int64_t>(*size, 1)) : 1.0;
  ConcreteCall call;
  static_cast<void>(resolve(result(), call));
  for (const auto* arguments : {&call.inputs, &call.outputs}) {
    for (const Argument& argument : *arguments) extent = std::max(extent, static_cast<double>(argument.count()));
  }
  return extent;
}

// Until golden answers in a moment.
void RandomCase::shrink() {
  const auto large = [](const std::optional<int64_t>& size) { return size && *size > 1; };
  while (extent() > static_cast<double>(largest_product_) &&
         std::any_of(case_.size_given.begin(), case_.size_given.end(), large)) {
    auto& size = case_.size_given[static_cast<size_t>(draws_.below(std::ssize(decl_->symbols)))];
    if (large(size)) size = draws_.chance(0.3) ? *size - *size / 3 : std::min(*size, draws_.of(kSmall));
  }
}

void RandomCase::draw_param(size_t i) {
  const ParamDecl& param = decl_->params[i];
  if (static_cast<int>(i) == decl_->form_param) return;
  Variation& v = params_[i];
  v = {};
  if (draws_.chance(0.2)) return;
  v.try_param = static_cast<int>(i);
  if (param.type == ParamType::f64) v.try_value = draw_f64(draws_, param);
  if (param.type == ParamType::enumeration) v.try_value = static_cast<double>(draws_.below(std::ssize(param.values)));
  if (param.type != ParamType::i64) return;
  std::vector<int64_t> symbols;
  for (const auto& size : case_.size_given) {
    if (size) symbols.push_back(*size);
  }
  v.try_value = static_cast<double>(draw_i64(draws_, param, symbols));
}

void RandomCase::draw_presence(double share) {
  presence_.present = 0;
  for (int bit = 0; bit < 64; ++bit) {
    const uint64_t mask = uint64_t{1} << bit;
    if ((optional_ & mask) != 0 && draws_.chance(share)) presence_.present |= mask;
  }
}

void RandomCase::draw_feature() {
  if (decl_->features.empty()) return;
  const FeatureDecl& feature = draws_.of(decl_->features);
  presence_.present |= feature.present & optional_;
  for (const FeatureSetting& setting : feature.settings) {
    if (setting.param == decl_->form_param) continue;
    Variation& v = params_[static_cast<size_t>(setting.param)];
    v = {};
    v.params = {setting};
  }
}

// Two shapes that broadcast together.
void RandomCase::draw_shapes() {
  std::vector<int64_t> common;
  for (int64_t rank = draws_.below(5); rank > 0; --rank) {
    common.push_back(draws_.chance(0.05) ? 0 : draw_size(draws_, 0));
  }
  for (int64_t& size : common) size = std::min(size, largest_product_);
  while (true) {
    double product = 1;
    for (const int64_t size : common) product *= static_cast<double>(std::max<int64_t>(size, 1));
    if (product <= static_cast<double>(largest_product_)) break;
    common[static_cast<size_t>(draws_.below(std::ssize(common)))] = draws_.of(kSmall);
  }
  auto& shapes = case_.shapes_given.emplace();
  for (size_t i = 0; i < decl_->shape_cases[0].shapes.size(); ++i) {
    const auto dropped = draws_.chance(0.3) ? draws_.below(std::ssize(common) + 1) : 0;
    std::vector<int64_t>& shape = shapes.emplace_back(common.begin() + dropped, common.end());
    for (int64_t& size : shape) {
      if (draws_.chance(0.15)) size = 1;
    }
  }
}

void RandomCase::draw_layouts() {
  constexpr Layout kLayouts[] = {Layout::padded, Layout::stepped, Layout::reversed, Layout::transposed,
                                 Layout::expanded};
  if (draws_.chance(0.4)) {
    const double share = draws_.uniform();
    for (size_t bit = 0; bit < 64; ++bit) {
      const bool is_argument = bit < 32 ? bit < decl_->inputs.size() : bit - 32 < decl_->outputs.size();
      if (!is_argument || !draws_.chance(share)) continue;
      Variation& v = layouts_.emplace_back();
      v.layout = draws_.of(kLayouts);
      v.layout_of = uint64_t{1} << bit;
    }
  }
  std::vector<Variation> aliases;
  for (size_t i = 0; i < decl_->outputs.size(); ++i) {
    for (const int input : decl_->outputs[i].may_alias) {
      aliases.emplace_back();
      aliases.back().alias_output = static_cast<int>(i);
      aliases.back().alias_input = input;
    }
  }
  if (!aliases.empty() && draws_.chance(0.3)) layouts_.push_back(draws_.of(aliases));
}

Case RandomCase::result() const {
  Case c = case_;
  c.variations = params_;
  c.variations.push_back(presence_);
  c.variations.insert(c.variations.end(), layouts_.begin(), layouts_.end());
  return c;
}

int RandomCase::broken_rules(ConcreteCall& call) const {
  if (resolve(result(), call)) return 0;
  if (call.outputs.size() != decl_->outputs.size()) return -1;
  int broken = 0;
  for (const RuleDecl& rule : decl_->rules) broken += rule.holds.eval(call.values()) == 0 ? 1 : 0;
  return broken > 0 ? broken : -1;
}

bool RandomCase::repair() {
  ConcreteCall call;
  const auto cost = [&] {
    const int broken = broken_rules(call);
    return broken < 0 ? 100 : broken;
  };
  int now = cost();
  for (int tries = 0; now > 0 && tries < 2000; ++tries) {
    const auto before = std::make_tuple(case_, params_, presence_, layouts_);
    const double kind = draws_.uniform();
    if (kind < 0.15 && !decl_->symbols.empty()) {
      draw_symbol(static_cast<size_t>(draws_.below(std::ssize(decl_->symbols))));
      shrink();
    } else if (kind < 0.4) {
      for (int bit = 0; bit < 64; ++bit) {
        if ((optional_ >> bit & 1) != 0 && draws_.chance(0.2)) presence_.present ^= uint64_t{1} << bit;
      }
    } else if (kind < 0.5) {
      draw_feature();
    } else if (kind < 0.55) {
      layouts_.clear();
    } else if (kind < 0.6) {
      for (size_t i = 1; i < decl_->dtypes.size(); ++i) case_.dtype_choice[i] = 0;
    } else if (!params_.empty()) {
      draw_param(static_cast<size_t>(draws_.below(std::ssize(params_))));
    }
    const int then = cost();
    if (then <= now) {
      now = then;
    } else {
      std::tie(case_, params_, presence_, layouts_) = before;
    }
  }
  return now == 0;
}

// ---- contents ------------------------------------------------------------------------------------------------------

namespace {

// The largest number that the dtype and what is computed from it take without harm.
double limit_of(Dtype dtype) {
  return dtype == Dtype::f16 ? 6e4 : 1e30;
}

// The elements that an expanded layout repeats; 0: nothing repeats.
int64_t repeated_slice(const Argument& argument) {
  const bool repeats = argument.layout == Layout::expanded && !argument.shape.empty() && argument.shape[0] > 0;
  return repeats ? argument.count() / argument.shape[0] : 0;
}

template <class Change>
void change_each(Argument& argument, const Change& change) {
  const int64_t slice = repeated_slice(argument);
  for (int64_t i = 0; i < argument.count(); ++i) {
    const double old = get(argument, i);
    if (!std::isfinite(old)) continue;
    const double limit = limit_of(argument.dtype);
    set(argument, i, std::clamp<double>(change(slice > 0 ? i % slice : i, old), -limit, limit));
  }
}

// Logits are of any size. What may be the difference of two log-probabilities, which are exponents, is not.
void draw_numbers(Draws& draws, bool logits, Argument& argument) {
  constexpr double kScales[] = {0, 1e-30, 1e-4, 0.1, 3, 20, 1000, 1e4};
  const double scale = kScales[draws.below(logits ? 8 : 6)], extreme = logits && draws.chance(0.5) ? 1e4 : 80;
  const int64_t every = 2 + draws.below(20), kind = draws.below(5);
  const double first = argument.count() > 0 ? get(argument, draws.below(argument.count())) : 0;
  change_each(argument, [&](int64_t i, double old) -> double {
    if (kind == 0) return old * scale;
    if (kind == 1) return std::isfinite(first) ? first : old;
    if (kind == 2) return std::round(2 * old) / 2;
    if (kind == 3) return i % every == 1 ? (i / every % 2 == 0 ? extreme : -extreme) : old;
    return i % every == 1 ? 0.0 : old;
  });
}

void draw_mask(Draws& draws, ConcreteCall& call, size_t index) {
  Argument& mask = call.inputs[index];
  const int64_t columns = mask.shape.empty() || mask.shape.back() == 0 ? 1 : mask.shape.back();
  const int64_t kind = draws.below(4), cut = draws.below(columns + 1);
  const int64_t slice = repeated_slice(mask);
  for (int64_t i = 0; i < mask.count(); ++i) {
    const int64_t at = slice > 0 ? i % slice : i, row = at / columns, column = at % columns;
    const bool zero = kind == 0 ? true : kind == 1 ? column >= cut : kind == 2 ? column < cut : row % 2 == 0;
    if (zero) set_int(mask, i, 0);
  }
  spoil_hidden(call);
}

// One long sequence among empty ones, or among sequences of one token.
void draw_lengths(Draws& draws, Argument& cu_seqlens) {
  const int64_t sequences = cu_seqlens.count() - 1;
  if (sequences < 1) return;
  const int64_t total = get_int(cu_seqlens, sequences), others = draws.chance(0.5) ? 0 : 1;
  if (others * (sequences - 1) > total) return;
  const int64_t longest = draws.below(sequences);
  for (int64_t b = 0; b <= sequences; ++b) {
    set_int(cu_seqlens, b, b <= longest ? others * b : total - others * (sequences - b));
  }
}

}  // namespace

// Content beyond the declared domains: all sizes of numbers, ties, masks of nothing, lengths that are very unlike.
void draw_contents(uint64_t seed, ConcreteCall& call) {
  Draws draws(seed);
  const double share = draws.uniform();
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    Argument& argument = call.inputs[i];
    if (!argument.present || argument.count() == 0 || !draws.chance(share)) continue;
    const Domain kind = call.decl->inputs[i].domain.kind;
    const bool number = kind == Domain::real || (kind == Domain::uniform && draws.chance(0.5));
    if (number) draw_numbers(draws, call.decl->inputs[i].domain.minus_inf, argument);
    if (kind == Domain::mask) draw_mask(draws, call, i);
    if (kind == Domain::cu_seqlens) draw_lengths(draws, argument);
  }
  for (const auto& [input, values] : forward_inputs(call)) {
    for (size_t k = 0; k < values.size(); ++k) set(call.inputs[input], static_cast<int64_t>(k), values[k]);
  }
}

void draw_content(Draws& draws, Case& c) {
  constexpr Content kContents[] = {Content::ordinary, Content::ordinary, Content::ordinary,     Content::minus_inf,
                                   Content::nan,      Content::wide,     Content::all_minus_inf};
  c.content = draws.of(kContents);
  ConcreteCall call;
  if (!resolve(c, call)) return;
  const std::vector<int> faults = faults_of(call, true);
  const bool repeats = std::any_of(call.inputs.begin(), call.inputs.end(),
                                   [](const Argument& input) { return input.layout == Layout::expanded; });
  if (!faults.empty() && !repeats && draws.chance(0.08)) {
    c.content = Content::fault;
    c.fault = draws.of(faults);
  } else if (draws.chance(0.6)) {
    c.drawn = 1 + static_cast<uint64_t>(draws.below(1 << 30));
  }
}

uint64_t seed_of_call(const OpDecl& decl, uint64_t seed, int64_t number) {
  return seed * 0x9e3779b97f4a7c15u + std::hash<std::string_view>()(decl.name) +
         static_cast<uint64_t>(number) * 0xbf58476d1ce4e5b9u;
}

std::vector<Case> random_cases(const OpDecl& decl, int dtype_choice, int64_t count, uint64_t seed) {
  std::vector<Case> cases;
  for (int64_t number = 0; number < count; ++number) {
    Draws draws(seed_of_call(decl, seed, number));
    RandomCase draft(decl, dtype_choice, draws);
    if (!draft.repair()) continue;
    Case& c = cases.emplace_back(draft.result());
    draw_content(draws, c);
  }
  return cases;
}

}  // namespace rlk::core::conformance
