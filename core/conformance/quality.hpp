// How good is a result? The error bounds of one element, the worst error of a run, and whether errors are biased to one
// side.
#pragma once

#include <span>
#include <string>

#include "core/conformance/call.hpp"

namespace rlk::core::conformance {

// What a run's elements came to.
struct Quality {
  double ratio = 0;  // worst |difference| / what class `tolerance` allows
  // Worst |difference| in ulp of the output dtype, at the golden value or at the root mean square of its row where that
  // is larger: of numbers near zero among others an ulp says nothing. Where terms cancel in the whole row, in roundings
  // of fp32 intermediates.
  double ulp = 0;
  double shrinkage = 0;      // how far results lean towards zero, 0 where that was not looked at: bias.hpp
  std::string inaccurate{};  // the first element beyond what class `accurate` allows, in words; empty: all are within

  void merge(const Quality& other);
};

// The limits of an output's elements.
class Bound {
public:
  Bound(const ConcreteCall& call, size_t output);

  struct Limits {
    double accurate = 0;      // what class `accurate` allows: every intermediate in fp32, or fp64 for fp64
    double intermediate = 0;  // one rounding of every intermediate
  };
  // An element that is an integer, or zero by definition and not by arithmetic, has none.
  Limits operator()(double value, double condition, double rounded) const;

private:
  Dtype dtype_;
  double epsilon_, factor_;
  double absolute_ = 0;
};

// Of the finite ones; 0 of none.
double root_mean_square(std::span<const double> values);

// The largest finite number of a floating dtype, and the distance of its numbers at a value.
double largest_of(Dtype dtype);
double ulp_of(double value, Dtype dtype);

}  // namespace rlk::core::conformance
