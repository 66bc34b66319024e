// What is tried? Cases generated from the declarations: sizes, dtypes, forms, one variation at a time, variations
// together, contents that hurt, and data errors.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/conformance/call.hpp"

namespace rlk::core::conformance {

// One departure from the plain call. The fields that are set say which.
struct Variation {
  std::vector<FeatureSetting> params;  // by expression
  int try_param = -1;                  // a parameter at a value that the declaration says to try
  double try_value = 0;
  uint64_t present = 0;  // optional arguments, as in Values
  int symbol = -1;       // a symbol that takes its last declared size (logits rows with row_indices)
  int dtype_variable = -1;
  int dtype_choice = 0;
  Layout layout = Layout::contiguous;
  uint64_t layout_of = 0;  // the arguments that lie so, as in Values
  int alias_output = -1;
  int alias_input = -1;
};

// What the inputs hold.
enum class Content : uint8_t {
  ordinary,
  minus_inf,      // -inf here and there
  all_minus_inf,  // a whole row of -inf
  nan,            // a row of NaN, and one NaN in another
  one_nan,        // one NaN in one input: nan.hpp
  wide,           // magnitudes at which exp overflows unless the maximum is subtracted
  extreme,        // one score certain, or all close together, at magnitudes up to the largest of the dtype
  close,          // two inputs that are compared nearly agree: distributions whose divergence is about 0
  tiny,           // magnitudes about the smallest numbers of the dtype: results are subnormal
  fault,          // one element breaks its domain: data_errors.hpp
  positive,       // no negative number: sums only grow, and errors that lean to one side add up
  none_counts,    // every row is masked, or every id is the ignored one: no mean may divide by 0
  sparse,         // a row has one number and zeros: every term of a sum over rows is seen in a column of its own
};
const char* name_of(Content content);

struct Case {
  const OpDecl* decl = nullptr;
  int form = 0;
  std::array<int, kMaxDtypeVariables> dtype_choice{};
  std::array<int, kMaxSymbols> size_choice{};  // of SymbolDecl::sizes
  // Instead, where there is one: next to an implementation's switch.
  std::array<std::optional<int64_t>, kMaxSymbols> size_given{};
  int shape_case = 0;  // of declarations with free shapes
  // Instead, where they are given: the first and the last dimension of the shapes that do not repeat it.
  std::optional<int64_t> first_given{}, last_given{};
  // Instead of all of them, each input's.
  std::optional<std::vector<std::vector<int64_t>>> shapes_given{};
  std::vector<Variation> variations;
  int64_t misaligned_by = 0;              // bytes that tensors start past their memory, at least one element
  uint64_t misaligned_of = ~uint64_t{0};  // the arguments that do, as in Values
  bool brief = false;                     // of many sizes: run once, for its values
  Content content = Content::ordinary;
  int fault = 0;       // which, with Content::fault
  int nan_input = -1;  // which, with Content::one_nan
  // 0: none. Numbers, masks and lengths that no content has, drawn with this seed: random_calls.hpp.
  uint64_t drawn = 0;
};

// Shapes, dtypes, parameters and layouts of the case; no values yet. False when the declaration does not allow it.
bool resolve(const Case& c, ConcreteCall& out);

// The case in words, without the operator's name: "bf16 bias softcap=3 N=5,R=5,V=37". Equal words, equal case.
std::string describe(const Case& c, const ConcreteCall& call);

// Calls without any variation: the ordinary sizes, then others. `switches` adds sizes around each of them, and cheap
// pairs of them.
std::vector<Case> plain_cases(const OpDecl& decl, int dtype_choice, int form, bool smoke,
                              std::span<const rlk_switch* const> switches);
// Those of them that `switches` adds.
std::vector<Case> sizes_of_switches(const OpDecl& decl, int dtype_choice, int form, bool smoke,
                                    std::span<const rlk_switch* const> switches);
// Whether plain_cases has sizes beside the switch: not where it is too large for a test, or of no symbol.
bool is_tested(const OpDecl& decl, int dtype_choice, const rlk_switch& change);
// The sizes at which variations are tried beside the ordinary ones.
std::vector<Case> variation_bases(const OpDecl& decl, int dtype_choice, int form, bool smoke);
// Contents that hurt and a misaligned start, on the base's sizes.
std::vector<Case> content_cases(const Case& base);
// What the looser bound of class `tolerance` could hide, at the base's sizes and with long sums of intermediates that
// may be rounded: rounding_cases.cpp.
std::vector<Case> rounding_cases(const Case& base);
// Data errors: every one that the base's inputs can have, or only the first of each input.
std::vector<Case> fault_cases(const Case& base, bool every);
// Each variation alone.
std::vector<Case> single_cases(const Case& base, bool smoke);
// Of the variations those that can change what is computed: parameters, and what is present.
std::vector<Variation> options_of(const OpDecl& decl);
// Whether one call can have both.
bool compatible(const Variation& a, const Variation& b);
// A few calls that together contain every pair of compatible variations.
std::vector<Case> covering_cases(const Case& base, uint64_t seed);
// Every pair of compatible variations of the base, or of those that c contains.
std::vector<Case> pair_cases(const Case& base);
std::vector<Case> pairs_within(const Case& c);
// Each of its variations alone, where there are several.
std::vector<Case> each_alone(const Case& c);
// The same case at other sizes of the symbols in `dynamic`, for a plan that claims to serve them; c when there are
// none.
Case with_other_sizes(const Case& c, uint64_t dynamic, const int64_t* symbol_min, const int64_t* symbol_max);

}  // namespace rlk::core::conformance
