// Calls drawn at random from a declaration: sizes, parameters, optional arguments, dtypes, layouts and contents all at
// once, as the generated cases never have them together.
#pragma once

#include <optional>
#include <random>
#include <vector>

#include "core/conformance/cases.hpp"

namespace rlk::core::conformance {

class Draws {
public:
  explicit Draws(uint64_t seed) : engine_(seed) {}
  int64_t below(int64_t n) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(n)); }
  double uniform() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }
  bool chance(double share) { return uniform() < share; }
  double normal() { return std::normal_distribution<double>()(engine_); }
  template <class List>
  const auto& of(const List& list) {
    return list[static_cast<size_t>(below(static_cast<int64_t>(std::size(list))))];
  }

private:
  std::mt19937_64 engine_;
};

// A case of ordinary content with settings drawn anew one by one, until the declaration allows them together.
class RandomCase {
public:
  // dtype_choice: of the first dtype variable; drawn, too, where it is not given.
  RandomCase(const OpDecl& decl, std::optional<int> dtype_choice, Draws& draws);

  // The rules that the settings break; -1 when there is no such call for another reason.
  int broken_rules(ConcreteCall& call) const;
  // False when that did not come to an end.
  bool repair();
  Case result() const;

private:
  void draw_symbol(size_t i);
  void draw_param(size_t i);
  void draw_presence(double share);
  void draw_feature();
  void draw_shapes();
  void draw_layouts();
  double extent() const;
  void shrink();

  const OpDecl* decl_;
  Draws& draws_;
  Case case_;
  std::vector<Variation> params_;  // one per parameter; without a setting its default
  Variation presence_;
  std::vector<Variation> layouts_;
  uint64_t optional_ = 0;  // the optional arguments of the form
  int64_t largest_product_;
};

// What the inputs of a case hold: a content that hurts, a data error, or what draw_contents() makes.
void draw_content(Draws& draws, Case& c);
// Changes inputs that are filled: all sizes of numbers, ties, masks of nothing, lengths that are very unlike.
void draw_contents(uint64_t seed, ConcreteCall& call);

uint64_t seed_of_call(const OpDecl& decl, uint64_t seed, int64_t number);
// Those of `count` calls that come to an end; each follows from the operator, the dtype, the seed and its number alone.
std::vector<Case> random_cases(const OpDecl& decl, int dtype_choice, int64_t count, uint64_t seed);

}  // namespace rlk::core::conformance
