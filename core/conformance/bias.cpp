// Least squares over the elements of an output.
#include "core/conformance/bias.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <unordered_set>
#include <vector>

#include "core/conformance/elements.hpp"
#include "core/conformance/quality.hpp"

namespace rlk::core::conformance {
namespace {

bool is_of_16_bits(Dtype dtype) {
  return dtype == Dtype::bf16 || dtype == Dtype::f16;
}

// How many of equal weight would count as much.
class Effective {
public:
  void add(double weight) {
    sum_ += weight;
    squares_ += weight * weight;
  }
  double count() const { return squares_ > 0 ? sum_ * sum_ / squares_ : 0.0; }

private:
  double sum_ = 0, squares_ = 0;
};

}  // namespace

std::optional<Bias> bias_of(const ConcreteCall& call, size_t output, const Answer& answer, const Outcome& outcome) {
  const Argument& argument = call.outputs[output];
  const golden::Output& expected = answer.outputs[output];
  if (!argument.present || !is_floating(argument.dtype)) return std::nullopt;
  const Dtype dtype = is_of_16_bits(argument.dtype) ? argument.dtype : call.dtypes[0];
  if (!is_of_16_bits(argument.dtype) && expected.rounded.empty()) return std::nullopt;

  const golden::View got = flat_view(outcome.outputs[output], argument.dtype);
  const Bound bound(call, output);
  const size_t columns = argument.shape.size() > 1 ? static_cast<size_t>(argument.shape.back()) : 1;
  Effective elements, rows;
  double products = 0, squares = 0, of_row = 0;
  // Where one number is written many times, its rounding is one error and not many.
  std::unordered_set<double> seen;
  for (size_t i = 0; i < expected.value.size(); ++i) {
    const double value = expected.value[i], result = got.load_at(static_cast<int64_t>(i));
    const double rounded = expected.rounded.empty() ? 0.0 : expected.rounded[i];
    const bool written = i >= expected.kept.size() || !expected.kept[i];
    if (written && std::isfinite(value) && value != 0 && std::isfinite(result) && seen.insert(value).second) {
      const double allowed = bound(value, expected.cond[i], rounded).accurate + rounded;
      const double share = value / allowed;
      products += share * (result - value) / allowed;
      squares += share * share;
      of_row += share * share;
      elements.add(share * share);
    }
    if ((i + 1) % columns != 0) continue;
    rows.add(of_row);
    of_row = 0;
  }
  if (squares == 0) return Bias{};
  const double unit = ulp_of(1.0, dtype) / 2;
  return Bias{products / squares / unit, elements.count(), rows.count()};
}

std::optional<Failure> check_bias(const ConcreteCall& call, const Answer& answer, const Outcome& outcome,
                                  Quality& quality) {
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const std::optional<Bias> bias = bias_of(call, i, answer, outcome);
    if (!bias || !bias->is_known()) continue;
    quality.shrinkage = std::max(quality.shrinkage, -bias->units);
    if (-bias->units <= kLargestBias) continue;
    char text[320];
    std::snprintf(
        text, sizeof(text),
        "output %s: numbers without sign come out too small, by %.2f of half an ulp of %s on average over %.0f "
        "elements in %.0f rows; expected 0 +- %.2f. Is something truncated that should be rounded to nearest?",
        call.decl->outputs[i].name, -bias->units,
        name_of(is_of_16_bits(call.outputs[i].dtype) ? call.outputs[i].dtype : call.dtypes[0]), bias->elements,
        bias->rows, kLargestBias);
    return Failure{"BIASED", text};
  }
  return std::nullopt;
}

}  // namespace rlk::core::conformance
