// Where NaN go, and where none may be seen.
#include "core/conformance/nan.hpp"

#include <algorithm>
#include <limits>
#include <optional>

#include "core/conformance/blocks.hpp"

namespace rlk::core::conformance {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

bool is_real(const Argument& argument) {
  return argument.present && argument.dtype <= Dtype::f64;
}

// Which rows of the input no output row that counts reads; empty without row indices.
std::vector<bool> unnamed_rows(const ConcreteCall& call, size_t input) {
  const Argument* indices = find_domain(call, Domain::row_index);
  const int64_t rows = call.inputs[input].shape.empty() ? 0 : call.inputs[input].shape[0];
  std::vector<bool> unnamed(static_cast<size_t>(rows), true);
  for (int64_t n = 0; n < indices->count(); ++n) {
    const int64_t row = get_int(*indices, n);
    if (!is_ignored(call, n) && row >= 0 && row < rows) unnamed[static_cast<size_t>(row)] = false;
  }
  return unnamed;
}

// Of a cache [block, ...], one of whose dimensions counts the places in a block: which elements lie where no token
// does.
std::vector<bool> unnamed_places(const ConcreteCall& call, size_t table, size_t cache) {
  const Argument& argument = call.inputs[cache];
  const BlockTable blocks(call, table);
  const std::vector<bool> named = blocks.places(argument.shape[0]);
  const ShapeDecl& shape = call.decl->inputs[cache].shapes[static_cast<size_t>(call.form)];
  size_t axis = 1;
  while (shape.dims[axis].symbol != call.decl->inputs[table].domain.block) ++axis;
  int64_t inner = 1;
  for (size_t i = axis + 1; i < argument.shape.size(); ++i) inner *= argument.shape[i];
  std::vector<bool> unnamed(static_cast<size_t>(argument.count()));
  const int64_t count = argument.count(), of_block = count > 0 ? count / argument.shape[0] : 0;
  for (int64_t k = 0; k < count; ++k) {
    const int64_t block = k / of_block, place = k / inner % blocks.block();
    unnamed[static_cast<size_t>(k)] = !named[static_cast<size_t>(block * blocks.block() + place)];
  }
  return unnamed;
}

// Which elements of an input are hidden.
class Hidden {
public:
  Hidden(const ConcreteCall& call, size_t input) {
    const uint32_t bits = call.decl->inputs[input].domain.hidden_by;
    const Argument& argument = call.inputs[input];
    const int64_t count = argument.present ? argument.count() : 0;
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      if ((bits >> i & 1) == 0 || !call.inputs[i].present) continue;
      const DomainDecl& domain = call.decl->inputs[i].domain;
      if (domain.kind == Domain::block_table) {
        by_blocks_ = unnamed_places(call, i, input);
        continue;
      }
      if (domain.kind == Domain::row_index) by_index_ = true;
      By by{&call.inputs[i], 0, domain.kind == Domain::mask, is_keep_mask(call, i), std::nullopt};
      if (by.argument->count() > 0) by.elements = count / by.argument->count();
      if (domain.ignore_param >= 0) by.ignored = call.i64(domain.ignore_param);
      by_.push_back(by);
    }
    if (!by_index_) return;
    unnamed_ = unnamed_rows(call, input);
    if (!unnamed_.empty()) row_elements_ = count / static_cast<int64_t>(unnamed_.size());
  }
  bool none() const { return by_.empty() && by_blocks_.empty(); }
  bool operator()(int64_t element) const {
    if (!by_blocks_.empty() && by_blocks_[static_cast<size_t>(element)]) return true;
    if (by_index_ && unnamed_[static_cast<size_t>(element / row_elements_)]) return true;
    return std::any_of(by_.begin(), by_.end(), [&](const By& by) {
      // With row indices the masks and ids of rows are those of output rows: unnamed_ has seen them.
      return (!by_index_ || by.is_keep_mask) && hides(by, element);
    });
  }

private:
  struct By {
    const Argument* argument;
    int64_t elements;  // of the input, for each of its own
    bool is_mask, is_keep_mask;
    std::optional<int64_t> ignored;
  };
  static bool hides(const By& by, int64_t element) {
    if (by.elements == 0) return false;
    const int64_t value = get_int(*by.argument, element / by.elements);
    return by.is_mask ? value == 0 : value == by.ignored;
  }

  std::vector<By> by_;
  bool by_index_ = false;
  int64_t row_elements_ = 0;
  std::vector<bool> unnamed_;
  std::vector<bool> by_blocks_;  // empty without a block table
};

// Where the declaration leaves open what becomes of some output, golden's answer is one of several.
bool is_undefined(const ConcreteCall& call, size_t input) {
  for (size_t o = 0; o < call.outputs.size(); ++o) {
    const NanReach reach = nan_reach(call.decl->inputs[input], static_cast<int>(o), call.values());
    if (call.outputs[o].present && reach == NanReach::undefined) return true;
  }
  return false;
}

}  // namespace

bool is_hidden(const ConcreteCall& call, size_t input, int64_t element) {
  return Hidden(call, input)(element);
}

void spoil_hidden(ConcreteCall& call) {
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    Argument& argument = call.inputs[i];
    if (!is_real(argument) || argument.layout == Layout::expanded || argument.count() == 0) continue;
    const Hidden hidden(call, i);
    if (hidden.none()) continue;
    const double kHidden[] = {kInfinity, kNan, -kNan};
    for (int64_t k = 0, count = argument.count(); k < count; ++k) {
      if (hidden(k)) set(argument, k, kHidden[k % 3]);
    }
  }
}

bool plant_nan(size_t input, ConcreteCall& call) {
  Argument& argument = call.inputs[input];
  const Hidden hidden(call, input);
  const int64_t count = argument.count();
  // Where no NaN need follow, a single one may change nothing: every second element.
  const bool may_pass = nan_reach(call.decl->inputs[input], 0, call.values()) == NanReach::text;
  bool planted = false;
  for (int64_t k = 0; k < count; ++k) {
    const int64_t element = (count / 2 + k) % count;
    if (hidden(element)) continue;
    set(argument, element, element % 2 == 0 ? kNan : -kNan);
    planted = true;
    if (!may_pass) return true;
    ++k;
  }
  return planted;
}

std::vector<Case> nan_cases(const Case& base, bool smoke) {
  std::vector<Case> list;
  ConcreteCall call;
  if (!resolve(base, call)) return list;
  uint64_t added = 0;
  for (const Variation& v : base.variations) added |= v.present;
  const bool alone = base.variations.empty();
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    if (!is_real(call.inputs[i]) || call.inputs[i].count() == 0) continue;
    if (is_undefined(call, i)) continue;
    if (smoke && !alone && base.dtype_choice[0] != 0 && (added >> i & 1) == 0) continue;
    Case c = base;
    c.content = Content::one_nan;
    c.nan_input = static_cast<int>(i);
    list.push_back(std::move(c));
  }
  return list;
}

}  // namespace rlk::core::conformance
