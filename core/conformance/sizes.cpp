// The ladder, its residues and alignments, and how the other symbols shrink to make room.
#include "core/conformance/sizes.hpp"

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

namespace rlk::core::conformance {
namespace {

constexpr int64_t kSmallest = 64;          // of the ladder; declarations have the sizes below
constexpr int64_t kResidues = 16;          // elements; a vector register of bytes
constexpr int64_t kResidueCost = 1 << 14;  // see cost_of
constexpr int64_t kSmokeCost = 1 << 14;
constexpr int64_t kCheapRung = 1 << 10;  // up to it the ladder doubles, beyond in the smoke test it quadruples
constexpr int64_t kFullCost = 1 << 19;
constexpr int64_t kTogetherCost = 1 << 23;
constexpr int64_t kMiddleCost = 1 << 12;
constexpr int64_t kLong = 1 << 10;      // least size of a symbol that a call is long in
constexpr size_t kOptionsTogether = 4;  // at sizes of 1 and of production
constexpr int64_t kSmallSymbol = 128;   // largest production size of what is a count of few: heads, shards

// What can grow: a symbol, or the first or last dimension of a shape case.
struct Axis {
  int symbol = -1;
  int shape_case = -1;
  bool first = false;
  std::span<const int64_t> production;

  int64_t largest() const { return *std::max_element(production.begin(), production.end()); }
};

std::vector<Axis> axes_of(const OpDecl& decl, int form) {
  std::vector<Axis> list;
  for (size_t i = 0; i < decl.symbols.size(); ++i) {
    const SymbolDecl& symbol = decl.symbols[i];
    if ((symbol.form >= 0 && symbol.form != form) || symbol.production.empty()) continue;
    list.push_back({static_cast<int>(i), -1, false, symbol.production});
  }
  for (size_t i = 0; i < decl.shape_cases.size(); ++i) {
    const ShapeCase& shape_case = decl.shape_cases[i];
    if (shape_case.production.empty()) continue;
    list.push_back({-1, static_cast<int>(i), false, shape_case.production});
    const bool has_rows = std::any_of(shape_case.shapes.begin(), shape_case.shapes.end(),
                                      [](const auto& shape) { return shape.size() > 1; });
    if (has_rows) list.push_back({-1, static_cast<int>(i), true, shape_case.production});
  }
  return list;
}

void set_size(Case& c, const Axis& axis, int64_t size) {
  if (axis.symbol >= 0) {
    c.size_given[static_cast<size_t>(axis.symbol)] = size;
  } else {
    c.shape_case = axis.shape_case;
    (axis.first ? c.first_given : c.last_given) = size;
  }
}

}  // namespace

int64_t elements_of(const ConcreteCall& call) {
  int64_t elements = 0;
  for (const std::vector<Argument>* arguments : {&call.inputs, &call.outputs}) {
    for (const Argument& argument : *arguments) elements += argument.present ? argument.count() : 0;
  }
  return elements;
}

int64_t cost_of(const ConcreteCall& call) {
  const int64_t elements = elements_of(call);
  int64_t products = 1;
  for (size_t i = 0; i < call.decl->symbols.size(); ++i) {
    // What equals another symbol makes nothing larger.
    if (call.symbols[i] > 0 && !call.decl->symbols[i].production.empty()) products *= call.symbols[i];
  }
  return std::max(elements / 2, products);
}

namespace {

bool is_legal(const Case& c, int64_t limit) {
  ConcreteCall call;
  return resolve(c, call) && cost_of(call) <= limit;
}

// Makes the symbols outside of `kept` smaller, the last ones first, until the case costs at most `limit`, or as little
// as it can. False when the case is not legal.
bool make_room(Case& c, uint64_t kept, int64_t limit) {
  ConcreteCall call;
  if (!resolve(c, call)) return false;
  for (const int64_t least_of_all : {2, 1}) {
    for (size_t i = c.decl->symbols.size(); i-- > 0 && cost_of(call) > limit;) {
      const SymbolDecl& symbol = c.decl->symbols[i];
      const int64_t size = call.symbols[i];
      // One row alone says nothing where rows are taken together.
      const int64_t least = i == 0 && !c.decl->batch_invariant ? 2 : least_of_all;
      if ((kept >> i & 1) != 0 || symbol.production.empty() || size <= std::max(symbol.min, least)) continue;
      Case smaller = c;
      const auto fitting = static_cast<int64_t>(static_cast<double>(size) * static_cast<double>(limit) /
                                                static_cast<double>(cost_of(call)));
      smaller.size_given[i] = std::clamp(fitting, std::max(symbol.min, least), size);
      ConcreteCall other;
      if (!resolve(smaller, other)) continue;
      c = std::move(smaller);
      call = std::move(other);
    }
  }
  return true;
}

// A symbol that only an optional input has comes with that input, and with what a feature says goes together with it.
void bring_in(Case& c, int symbol) {
  ConcreteCall call;
  if (symbol < 0 || !resolve(c, call) || call.symbols[static_cast<size_t>(symbol)] >= 0) return;
  std::vector<uint64_t> sets;
  for (size_t i = 0; i < c.decl->inputs.size(); ++i) sets.push_back(uint64_t{1} << i);
  for (const FeatureDecl& feature : c.decl->features) sets.push_back(feature.present);
  for (const uint64_t present : sets) {
    Case other = c;
    other.variations.emplace_back().present = present;
    if (!resolve(other, call) || call.symbols[static_cast<size_t>(symbol)] < 0) continue;
    c = std::move(other);
    return;
  }
}

// The symbol of the tokens, or samples, that as many sequences or groups as `symbol` says share; -1: there is none.
int total_of(const Case& c, int symbol) {
  for (const ArgDecl& input : c.decl->inputs) {
    const ShapeDecl& shape = input.shapes[static_cast<size_t>(c.form)];
    if (input.domain.kind != Domain::cu_seqlens || shape.dims.empty() || shape.dims[0].symbol != symbol) continue;
    return symbol_index(*c.decl, input.domain.high.text);
  }
  return -1;
}

// The case of a free shape with the other end of the shape as it is, or so small that there is room.
std::optional<Case> with_room(Case c, const Axis& axis, int64_t limit) {
  if (is_legal(c, limit)) return c;
  for (const int64_t other : {2, 1}) {
    (axis.first ? c.last_given : c.first_given) = other;
    if (is_legal(c, limit)) return c;
  }
  return std::nullopt;
}

// The case with this size of the axis. Where it is not legal alone (heads must divide heads), another symbol follows.
std::optional<Case> at_size(const Case& ordinary, const Axis& axis, int64_t size, int64_t limit) {
  Case c = ordinary;
  set_size(c, axis, size);
  bring_in(c, axis.symbol);
  if (axis.symbol < 0) return with_room(std::move(c), axis, std::max(limit, 16 * size));
  uint64_t kept = uint64_t{1} << axis.symbol;
  if (const int total = total_of(ordinary, axis.symbol); total >= 0) {
    c.size_given[static_cast<size_t>(total)] = 4 * size;
    kept |= uint64_t{1} << total;
  }
  ConcreteCall call;
  for (size_t i = 0; i < c.decl->symbols.size() && !resolve(c, call); ++i) {
    const SymbolDecl& other = c.decl->symbols[i];
    if (static_cast<int>(i) == axis.symbol || (other.form >= 0 && other.form != c.form)) continue;
    Case both = c;
    both.size_given[i] = size;
    if (!resolve(both, call)) continue;
    kept |= uint64_t{1} << i;
    c = std::move(both);
  }
  return make_room(c, kept, limit) ? std::optional(c) : std::nullopt;
}

// How the tensors of the k-th misaligned case start: past a boundary by an element or by so many bytes, all of them or
// one side only.
void misalign(Case& c, size_t k) {
  static constexpr uint64_t kAll = ~uint64_t{0}, kInputs = 0xffffffffu, kOutputs = kInputs << 32;
  static constexpr std::pair<int64_t, uint64_t> kWays[] = {{1, kAll},     {16, kAll},     {1, kOutputs}, {32, kAll},
                                                           {1, kInputs},  {8, kAll},      {4, kAll},     {64, kAll},
                                                           {16, kInputs}, {16, kOutputs}, {2, kAll},     {128, kAll}};
  const auto& [bytes, which] = kWays[k % std::size(kWays)];
  c.misaligned_by = bytes;
  c.misaligned_of = which;
}

class List {
public:
  List(const OpDecl& decl, int dtype_choice, int form, bool smoke)
      : axes_(axes_of(decl, form)), dtypes_(decl.dtypes), dtype_(static_cast<size_t>(dtype_choice)), smoke_(smoke) {
    ordinary_.decl = &decl;
    ordinary_.form = form;
    ordinary_.dtype_choice[0] = dtype_choice;
    ordinary_.brief = true;
  }

  std::vector<Case> cases() {
    residues();
    for (const Axis& axis : axes_) ladder(axis);
    together();
    return std::move(list_);
  }
  std::vector<Case> middle() {
    Case c = ordinary_;
    if (!is_rare() && share(c, kMiddleCost)) add(c);
    return std::move(list_);
  }
  // At one production size; in the smoke test where it climbs the ladder to the top.
  std::vector<Case> options() {
    for (const Axis& axis : axes_) {
      add_options(axis, 1);
      if (axis.largest() < kLong || (smoke_ && !climbs(axis))) continue;
      add_options(axis, axis.production[0] < kLong ? axis.largest() : axis.production[0]);
    }
    return std::move(list_);
  }

  std::vector<Case> production() {
    Case c = ordinary_;
    if (!c.decl->shape_cases.empty()) {  // of which the others repeat one operand
      c.shapes_given.emplace(c.decl->shape_cases[0].shapes.size(), std::vector<int64_t>{9, 33, 35});
      add(c);
    } else if (share(c, smoke_ ? kResidueCost : kFullCost)) {
      add(c);
    }
    std::vector<const Axis*> order;
    for (const Axis& axis : axes_) order.push_back(&axis);
    std::stable_sort(order.begin(), order.end(),
                     [](const Axis* a, const Axis* b) { return a->largest() > b->largest(); });
    if (is_rare()) order.resize(std::min<size_t>(order.size(), 1));
    for (const Axis* axis : order) {
      const int64_t size =
          smoke_ ? std::min(axis->largest(), is_rare() ? 4 * kCheapRung : 16 * kCheapRung) : axis->largest();
      add(at_size(ordinary_, *axis, size, smoke_ ? kSmokeCost : kFullCost));
    }
    return std::move(list_);
  }

private:
  void add(std::optional<Case> c) {
    if (c) list_.push_back(std::move(*c));
  }

  static bool is_legal_with(Case c, const Variation& option) {
    const auto fits = [&](const Variation& other) { return compatible(option, other); };
    if (!std::all_of(c.variations.begin(), c.variations.end(), fits)) return false;
    c.variations.push_back(option);
    ConcreteCall call;
    return resolve(c, call);
  }

  // Each option once, a few in a case; when one fails, its options are tried alone. Some need room: groups that divide
  // the channels.
  void add_options(const Axis& axis, int64_t size) {
    std::vector<Variation> left = options_of(*ordinary_.decl);
    for (const int64_t limit : {kSmokeCost, kFullCost}) {
      const std::optional<Case> base = at_size(ordinary_, axis, size, limit);
      while (base && !left.empty()) {
        Case c = *base;
        std::vector<Variation> others;
        for (const Variation& option : left) {
          const bool has_room = c.variations.size() < base->variations.size() + kOptionsTogether;
          (has_room && is_legal_with(c, option) ? c.variations : others).push_back(option);
        }
        if (others.size() == left.size()) break;
        left = std::move(others);
        add(std::move(c));
      }
    }
  }

  // All symbols at once, each in an order of its own, as far as the case stays cheap; the others alone. Aligned where
  // rows stay so, misaligned elsewhere.
  void residues() {
    for (int64_t r = 0; r < kResidues; ++r) {
      if (is_rare() && r % 2 != 0) continue;
      Case joint = ordinary_;
      uint64_t kept = 0;
      int64_t order = 1;
      for (const Axis& axis : axes_) {
        if (axis.largest() < kSmallSymbol) continue;
        // Around a multiple of many powers of two.
        const int64_t size =
            (&axis == widest_axis() ? 2 * kSmallest - 1 : kResidues) + (order * r + order / 2) % kResidues;
        order += 2;  // odd: each residue once
        Case c = joint;
        set_size(c, axis, size);
        const bool joins = axis.symbol >= 0 && total_of(joint, axis.symbol) < 0;  // groups come with their samples
        if (joins && make_room(c, kept | uint64_t{1} << axis.symbol, kResidueCost) && is_legal(c, kResidueCost)) {
          kept |= uint64_t{1} << axis.symbol;
          joint = std::move(c);
        } else {
          add_residue(at_size(ordinary_, axis, size, kResidueCost), r);
        }
      }
      if (kept != 0) add_residue(joint, r);
    }
  }

  void add_residue(std::optional<Case> c, int64_t r) {
    if (c && r % 4 != 0) misalign(*c, static_cast<size_t>(r - r / 4 - 1));
    add(std::move(c));
  }

  const Axis* widest_axis() const {
    return &*std::max_element(axes_.begin(), axes_.end(),
                              [](const Axis& a, const Axis& b) { return a.largest() < b.largest(); });
  }

  // The first power of two beyond the declared sizes.
  int64_t first_rung(const Axis& axis) const {
    int64_t declared = 8;
    ConcreteCall call;
    if (axis.symbol >= 0 && resolve(ordinary_, call)) {
      for (const Expr& size : ordinary_.decl->symbols[static_cast<size_t>(axis.symbol)].sizes) {
        declared = std::max(declared, size.eval(call.values()));
      }
    }
    return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::min(declared, kSmallest))));
  }

  // Powers of two, aligned, and beside them, misaligned, in turn.
  void ladder(const Axis& axis) {
    static constexpr int64_t kBeside[] = {1, -1, 7, -3, 13, -5, 9, 3};
    const int64_t largest = axis.largest();
    size_t k = dtype_;
    if (largest >= 2 * kSmallest) {  // rungs have every distance but these
      add_one(axis, 2 * kSmallest - 1, dtype_ % 2 == 0, k);
      add_one(axis, 2 * kSmallest + 1, dtype_ % 2 != 0, k);
    }
    bool beside = dtype_ % 2 != 0;
    for (int64_t size = first_rung(axis); size < largest * 3 / 4; size = next_rung(size), beside = !beside, ++k) {
      if (smoke_) {
        if (size <= largest_rung(axis)) add_one(axis, size + (beside ? kBeside[k % std::size(kBeside)] : 0), beside, k);
        continue;
      }
      for (int64_t r = -1; r < kResidues; ++r, ++k) {
        add_one(axis, size + r, false, k);
        if (r % 4 == static_cast<int64_t>(k % 4)) add_one(axis, size + r, true, k);
      }
      add_one(axis, size, true, k);
    }
    smoke_ ? some_production(axis, k) : all_production(axis, k);
  }

  int64_t next_rung(int64_t size) const { return smoke_ && size >= kCheapRung ? 4 * size : 2 * size; }

  // The smoke test climbs to the top in f32 and bf16; what every form has, in the first form. Elsewhere it tries a part
  // and then the top at once.
  bool climbs(const Axis& axis) const {
    const bool is_shared =
        ordinary_.form > 0 && axis.symbol >= 0 && ordinary_.decl->symbols[static_cast<size_t>(axis.symbol)].form < 0;
    return dtype_ < 2 && !is_shared;
  }
  int64_t largest_rung(const Axis& axis) const {
    return climbs(axis) ? axis.largest() : is_rare() ? 4 * kCheapRung : 16 * kCheapRung;
  }
  // Models are not trained in f64: the smoke test has fewer sizes of it.
  bool is_rare() const { return smoke_ && !dtypes_.empty() && dtypes_[0].choices[dtype_].dtype == Dtype::f64; }

  // Once in each dtype.
  void some_production(const Axis& axis, size_t k) {
    const int64_t largest = axis.largest();
    if (is_rare() && largest > 4 * kCheapRung) return;
    const bool misaligned = dtype_ > 1;
    // What classes promise of rows is looked at where they are longest, and in the full test everywhere.
    const bool in_full = &axis == widest_axis();
    add_one(axis, misaligned ? largest - beside_top(largest, k) : largest, misaligned, k, in_full);
    if (climbs(axis) && axis.production[0] != largest) add_one(axis, axis.production[0], false, k);
  }

  static int64_t beside_top(int64_t largest, size_t k) {
    return largest > 2 * kResidues ? 1 + 2 * static_cast<int64_t>(k % 8) : 0;
  }

  void all_production(const Axis& axis, size_t k) {
    for (const int64_t size : axis.production) {
      add_one(axis, size, false, k, true);
      add_one(axis, size - beside_top(size, k), true, k);
      add_one(axis, size, true, ++k);
      add_one(axis, size + 1, false, k);
    }
  }

  void add_one(const Axis& axis, int64_t size, bool misaligned, size_t k, bool in_full = false) {
    static constexpr int64_t kBytes[] = {1, 4, 8, 2};  // of all tensors: past each boundary of a vector
    if (size < 1) return;
    std::optional<Case> c = at_size(ordinary_, axis, size, smoke_ ? kSmokeCost : kFullCost);
    if (c && misaligned) c->misaligned_by = kBytes[k % std::size(kBytes)];
    if (c) c->brief = !in_full;
    add(std::move(c));
  }

  // Every symbol grows by the same factor, but none beyond its production sizes, until the case costs `limit`; odd
  // sizes. False when nothing grew.
  bool share(Case& c, int64_t limit) const {
    bool grew = false;
    for (int64_t factor = 2; factor <= limit; factor *= 2) {
      Case larger = c;
      bool any = false;
      for (const Axis& axis : axes_) {
        if (axis.symbol < 0 || axis.largest() < kSmallSymbol) continue;
        const int64_t size = std::min(axis.largest(), 16 * factor) + 1;
        Case other = larger;
        set_size(other, axis, size);
        if (!is_legal(other, limit)) continue;
        larger = std::move(other);
        any = true;
      }
      if (!any) break;
      c = std::move(larger);
      grew = true;
    }
    return grew;
  }

  void together() {
    Case c = ordinary_;
    c.brief = false;
    if (share(c, kSmokeCost)) add(c);
    if (smoke_) return;
    for (const Axis& a : axes_) {
      for (const Axis& b : axes_) {
        if (&a == &b || a.symbol < 0 || b.symbol < 0) continue;
        pair(a, b);
      }
    }
  }

  // One symbol at its largest production size, another at the largest that leaves room.
  void pair(const Axis& a, const Axis& b) {
    for (int64_t size = b.largest(); size >= kSmallest; size /= 2) {
      Case c = ordinary_;
      set_size(c, a, a.largest());
      set_size(c, b, size);
      if (!make_room(c, uint64_t{1} << a.symbol | uint64_t{1} << b.symbol, kTogetherCost)) continue;
      if (!is_legal(c, kTogetherCost)) continue;
      add(c);
      return;
    }
  }

  std::vector<Axis> axes_;
  std::span<const DtypeVariable> dtypes_;
  size_t dtype_;
  bool smoke_;
  Case ordinary_;
  std::vector<Case> list_;
};

}  // namespace

std::vector<Case> size_cases(const OpDecl& decl, int dtype_choice, int form, bool smoke) {
  return List(decl, dtype_choice, form, smoke).cases();
}

std::vector<Case> middle_bases(const OpDecl& decl, int dtype_choice, int form, bool smoke) {
  return List(decl, dtype_choice, form, smoke).middle();
}

std::vector<Case> production_bases(const OpDecl& decl, int dtype_choice, int form, bool smoke) {
  return List(decl, dtype_choice, form, smoke).production();
}

std::vector<Case> option_cases(const OpDecl& decl, int dtype_choice, int form, bool smoke) {
  return List(decl, dtype_choice, form, smoke).options();
}

}  // namespace rlk::core::conformance
