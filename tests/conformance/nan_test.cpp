// Does a NaN go where the declarations say? Golden with one NaN in one input against golden without, for every
// operator, every real input and every parameter that cases try.
//
// What an element depends on is found by changing it: whatever moves under some finite change must be NaN under a NaN,
// unless the declared word is `text`; and what is outside the word's reach must keep its bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <set>

#include "core/conformance/data.hpp"
#include "core/conformance/elements.hpp"
#include "core/conformance/golden_bridge.hpp"
#include "core/conformance/nan.hpp"

namespace rlk::core::conformance {
namespace {

using Index = std::vector<int64_t>;

Index index_of(const std::vector<int64_t>& shape, int64_t element) {
  Index index(shape.size());
  for (size_t axis = shape.size(); axis-- > 0;) {
    index[axis] = element % shape[axis];
    element /= shape[axis];
  }
  return index;
}

// Which sequence a row belongs to, by the cumulative lengths of the named input.
int64_t sequence_at(const ConcreteCall& call, const char* cu_seqlens, int64_t row) {
  const Argument& lengths = call.inputs[static_cast<size_t>(input_index(*call.decl, cu_seqlens))];
  int64_t b = 0;
  while (get_int(lengths, b + 1) <= row) ++b;
  return b;
}

// The elements of an output that a word allows to depend on one element of an input.
class Reach {
public:
  Reach(const ConcreteCall& call, size_t input, int64_t element)
      : call_(call),
        declared_(call.decl->inputs[input]),
        shape_(call.inputs[input].shape),
        index_(index_of(shape_, element)) {}

  bool contains(NanReach word, size_t output, int64_t element) const {
    const std::vector<int64_t>& shape = call_.outputs[output].shape;
    const Index index = index_of(shape, element);
    switch (word) {
      case NanReach::none:
        return false;
      case NanReach::element:
        return same_place(shape, index);
      case NanReach::row:
        return in_row(index);
      case NanReach::column:
        return index.back() == index_.back();
      case NanReach::earlier:
        return sequence(true) == sequence_of(call_.decl->outputs[output], index) && index.back() <= index_.back();
      case NanReach::sequence:
        return sequence(true) == sequence_of(call_.decl->outputs[output], index);
      case NanReach::head:
        return in_head(call_.decl->outputs[output], index);
      case NanReach::group:
        return group_of(sequence(false)) == group_of(sequence_of(call_.decl->outputs[output], index));
      default:
        return true;
    }
  }

private:
  bool is_packed() const { return call_.form > 0 && std::string_view(call_.decl->forms[1]) == "packed"; }

  // The broadcast of operands repeats elements of size 1.
  bool same_place(const std::vector<int64_t>& shape, const Index& index) const {
    const size_t missing = shape.size() - shape_.size();
    for (size_t axis = 0; axis < shape_.size(); ++axis) {
      if (shape_[axis] != 1 && index[axis + missing] != index_[axis]) return false;
    }
    return true;
  }
  bool in_row(const Index& index) const {
    const Argument* indices = find_domain(call_, Domain::row_index);
    const bool from_logits = indices != nullptr && shape_.size() == 2;  // [R, V]
    if (indices != nullptr && from_logits != (index.size() == 2)) {
      const int64_t n = from_logits ? index[0] : index_[0], r = from_logits ? index_[0] : index[0];
      return get_int(*indices, n) == r;
    }
    size_t leading = std::min(index.size(), index_.size());
    if (index.size() == index_.size() && leading > 1) --leading;
    return std::equal(index.begin(), index.begin() + static_cast<std::ptrdiff_t>(leading), index_.begin());
  }
  // The first dimension of the input counts sequences, or tokens of packed ones.
  int64_t sequence(bool) const { return sequence_of(declared_, index_); }
  int64_t sequence_of(const ArgDecl& arg, const Index& index) const {
    const Dim& first = arg.shapes[static_cast<size_t>(call_.form)].dims[0];
    const bool counts_sequences = std::string_view(call_.decl->symbols[static_cast<size_t>(first.symbol)].name) == "B";
    return counts_sequences || !is_packed() ? index[0] : sequence_at(call_, "cu_seqlens", index[0]);
  }
  int64_t group_of(int64_t b) const {
    const OpDecl& decl = *call_.decl;
    const auto find = [&](const char* name) {
      const int i = input_index(decl, name);
      return i >= 0 && call_.inputs[static_cast<size_t>(i)].present ? &call_.inputs[static_cast<size_t>(i)] : nullptr;
    };
    if (const Argument* ids = find("group_ids")) return get_int(*ids, b);
    if (find("group_boundaries") != nullptr) return sequence_at(call_, "group_boundaries", b);
    const int64_t samples = call_.i64(param_index(decl, "samples_per_prompt"));
    return samples > 0 ? b / samples : 0;
  }
  // Tensors of attention are [B, S, H, D] or [T, H, D], without D for one number per query.
  bool in_head(const ArgDecl& output, const Index& index) const {
    const auto place = [&](const ArgDecl& arg, const Index& at) {
      const ShapeDecl& shape = arg.shapes[static_cast<size_t>(call_.form)];
      const auto name = [&](size_t axis) {
        return std::string_view(call_.decl->symbols[static_cast<size_t>(shape.dims[axis].symbol)].name);
      };
      const size_t axis = is_packed() ? 1 : 2;
      const int64_t of_q = call_.symbols[static_cast<size_t>(symbol_index(*call_.decl, "Hq"))];
      const int64_t of_kv = call_.symbols[static_cast<size_t>(symbol_index(*call_.decl, "Hkv"))];
      const int64_t head = name(axis) == "Hq" ? at[axis] / (of_q / of_kv) : at[axis];
      if (!is_packed()) return std::pair(at[0], head);
      return std::pair(sequence_at(call_, name(0) == "Tq" ? "cu_seqlens_q" : "cu_seqlens_k", at[0]), head);
    };
    return place(declared_, index_) == place(output, index);
  }

  const ConcreteCall& call_;
  const ArgDecl& declared_;
  const std::vector<int64_t>& shape_;
  Index index_;
};

bool same_bits(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b) || (std::isnan(a) && std::isnan(b));
}

// What one case showed, in one line of the table.
struct Seen {
  std::set<std::string> words;
  int64_t elements = 0, became_nan = 0;
};

class Rules : public ::testing::TestWithParam<const OpDecl*> {
protected:
  std::map<std::pair<std::string, std::string>, Seen> table_;

  void try_element(const std::string& words, const ConcreteCall& call, const Answer& clean, size_t input,
                   int64_t element) {
    const OpDecl& decl = *call.decl;
    const auto with = [&](double value) {
      ConcreteCall changed = call;
      set(changed.inputs[input], element, value);
      return golden_answer(changed);
    };
    const double old = get(call.inputs[input], element);
    const Answer dirty = with(std::numeric_limits<double>::quiet_NaN());
    std::vector<Answer> moved;
    for (const double step : {0.03125, -0.0625}) moved.push_back(with(old + step));
    const Reach reach(call, input, element);
    for (size_t o = 0; o < call.outputs.size(); ++o) {
      if (!call.outputs[o].present) continue;
      const NanReach word = nan_reach(decl.inputs[input], static_cast<int>(o), call.values());
      Seen& seen = table_[{decl.inputs[input].name, decl.outputs[o].name}];
      seen.words.insert(name_of(word));
      ++seen.elements;
      const bool is_real = call.outputs[o].dtype <= Dtype::f64;
      bool any = false;
      for (size_t e = 0; e < clean.outputs[o].value.size(); ++e) {
        const double before = clean.outputs[o].value[e], after = dirty.outputs[o].value[e];
        const auto where = [&] {
          return std::string(decl.name) + " " + words + ": NaN in " + decl.inputs[input].name + " element " +
                 std::to_string(element) + ", output " + decl.outputs[o].name + " element " + std::to_string(e) +
                 ", declared " + name_of(word);
        };
        any |= std::isnan(after) && !std::isnan(before);
        if (!reach.contains(word, o, static_cast<int64_t>(e))) {
          EXPECT_TRUE(same_bits(before, after)) << where() << ": " << before << " became " << after;
        }
        const bool depends = std::any_of(moved.begin(), moved.end(), [&](const Answer& answer) {
          return !same_bits(before, answer.outputs[o].value[e]);
        });
        if (depends && is_real && word != NanReach::text && word != NanReach::undefined) {
          EXPECT_TRUE(std::isnan(after)) << where() << ": " << before << " became " << after;
        }
      }
      seen.became_nan += any ? 1 : 0;
      if (HasFailure()) return;
    }
  }

  void try_case(const Case& c) {
    ConcreteCall call;
    if (!resolve(c, call)) return;
    fill_inputs(c, 1, call);
    const Answer clean = golden_answer(call);
    const std::string words = describe(c, call);
    for (size_t i = 0; i < call.inputs.size() && !HasFailure(); ++i) {
      const Argument& argument = call.inputs[i];
      if (!argument.present || argument.dtype > Dtype::f64) continue;
      // A prime step: of large tensors some elements, in all rows and columns.
      const int64_t step = argument.count() > 64 ? argument.count() / 32 | 1 : 1;
      for (int64_t k = 0; k < argument.count() && !HasFailure(); k += step) {
        if (!is_hidden(call, i, k)) {
          try_element(words, call, clean, i, k);
          continue;
        }
        ConcreteCall changed = call;
        set(changed.inputs[i], k, 0.5);
        const Answer other = golden_answer(changed);
        for (size_t o = 0; o < clean.outputs.size(); ++o) {
          for (size_t e = 0; e < clean.outputs[o].value.size(); ++e) {
            EXPECT_TRUE(same_bits(clean.outputs[o].value[e], other.outputs[o].value[e]))
                << c.decl->name << " " << words << ": " << c.decl->inputs[i].name << " element " << k
                << " is hidden and changes " << c.decl->outputs[o].name << " element " << e;
          }
        }
      }
    }
  }
};

TEST_P(Rules, AreWhatGoldenDoes) {
  const OpDecl& decl = *GetParam();
  const auto& choices = decl.dtypes[0].choices;
  const auto is_f64 = [](const DtypeExpr& choice) { return choice.dtype == Dtype::f64; };
  const auto f64 = static_cast<int>(std::find_if(choices.begin(), choices.end(), is_f64) - choices.begin());
  if (f64 == static_cast<int>(choices.size())) GTEST_SKIP() << "no numbers that could be NaN";
  for (size_t form = 0; form < decl.forms.size(); ++form) {
    const std::vector<Case> bases = variation_bases(decl, f64, static_cast<int>(form), true);
    if (bases.empty()) continue;
    try_case(bases[0]);
    for (const Case& single : single_cases(bases[0], true)) {
      const Variation& v = single.variations[0];
      if (v.layout == Layout::contiguous && v.alias_output < 0 && v.dtype_variable < 0) try_case(single);
      if (HasFailure()) break;
    }
  }
  for (const auto& [names, seen] : table_) {
    std::string words;
    for (const std::string& word : seen.words) words += (words.empty() ? "" : ", ") + word;
    std::printf("%-24s %-20s -> %-14s %-20s %6lld of %6lld elements seen\n", decl.name, names.first.c_str(),
                names.second.c_str(), words.c_str(), static_cast<long long>(seen.became_nan),
                static_cast<long long>(seen.elements));
  }
}

// The cases of the engine would prove nothing if their NaN were planted where no implementation looks.
TEST_P(Rules, AreSeenInTheCasesOfTheEngine) {
  const OpDecl& decl = *GetParam();
  std::set<int> open;
  for (size_t i = 0; i < decl.inputs.size(); ++i) {
    const auto& rules = decl.inputs[i].nan;
    const bool is_read =
        std::any_of(rules.begin(), rules.end(), [](const NanRule& r) { return r.reach != NanReach::none; });
    if (is_read) open.insert(static_cast<int>(i));
  }
  for (size_t form = 0; form < decl.forms.size(); ++form) {
    for (const Case& base : variation_bases(decl, 0, static_cast<int>(form), true)) {
      std::vector<Case> cases = nan_cases(base, true);
      for (const Case& single : single_cases(base, true)) {
        for (const Case& c : nan_cases(single, true)) cases.push_back(c);
      }
      for (const Case& c : cases) {
        ConcreteCall call;
        if (!open.count(c.nan_input) || !resolve(c, call)) continue;
        fill_inputs(c, 1, call);
        const Answer dirty = golden_answer(call);
        Case ordinary = c;
        ordinary.content = Content::ordinary;
        fill_inputs(ordinary, 1, call);
        const Answer clean = golden_answer(call);
        for (size_t o = 0; o < clean.outputs.size(); ++o) {
          for (size_t e = 0; e < clean.outputs[o].value.size(); ++e) {
            if (!same_bits(clean.outputs[o].value[e], dirty.outputs[o].value[e])) open.erase(c.nan_input);
          }
        }
      }
    }
  }
  for (const int input : open) {
    ADD_FAILURE() << decl.name << ": no case shows the NaN in " << decl.inputs[static_cast<size_t>(input)].name;
  }
}

std::vector<const OpDecl*> all_operators() {
  std::vector<const OpDecl*> list;
  for (const OpDecl& decl : declarations()) list.push_back(&decl);
  return list;
}

INSTANTIATE_TEST_SUITE_P(Operators, Rules, ::testing::ValuesIn(all_operators()),
                         [](const auto& test) { return std::string(test.param->name); });

}  // namespace
}  // namespace rlk::core::conformance
