// Calls drawn at random from the declarations: every size, parameter, optional argument, dtype and layout at once, and
// contents that the generated cases do not have.
#pragma once

#include <deque>
#include <memory>
#include <random>

#include "core/conformance/cases.hpp"

namespace rlk::test {

class Random {
public:
  explicit Random(uint64_t seed) : engine_(seed) {}
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

// A case with settings drawn anew one by one, until the declaration allows them together.
class RandomCase {
public:
  RandomCase(const core::OpDecl& decl, Random& random);

  // The rules that the settings break; -1 when there is no such call for another reason.
  int broken_rules(core::conformance::ConcreteCall& call) const;
  // False when that did not come to an end.
  bool repair();
  core::conformance::Case result() const;

private:
  void draw_symbol(size_t symbol);
  void draw_param(size_t param);
  void draw_presence(double share);
  void draw_feature();
  void draw_shapes();
  void draw_layouts();
  double extent() const;
  void shrink();

  const core::OpDecl* decl_;
  Random& random_;
  core::conformance::Case case_;
  std::vector<core::conformance::Variation> params_;  // one per parameter; without a setting its default
  core::conformance::Variation presence_;
  std::vector<core::conformance::Variation> layouts_;
  uint64_t optional_ = 0;  // the optional arguments of the form
  int64_t largest_product_;
  // Shapes of an operator that takes any: a copy of its declaration has them.
  std::shared_ptr<core::OpDecl> own_decl_;
  std::deque<std::vector<int64_t>> shapes_;
  std::vector<std::span<const int64_t>> shape_list_;
  core::ShapeCase shape_case_;
};

// Content beyond the declared domains: all sizes of numbers, ties, masks of nothing, lengths that are very unlike.
void make_special(Random& random, core::conformance::ConcreteCall& call);

}  // namespace rlk::test
