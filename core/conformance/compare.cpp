// Elements against their bounds, and what is said when one is broken.
#include "core/conformance/compare.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "core/conformance/elements.hpp"
#include "core/declaration/extremes.hpp"
#include "core/golden/bulk.hpp"

namespace rlk::core::conformance {
namespace {

bool holds_poison(const std::vector<std::byte>& bytes, size_t at, size_t size, uint8_t poison) {
  return std::all_of(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                     bytes.begin() + static_cast<std::ptrdiff_t>(at + size),
                     [poison](std::byte b) { return b == std::byte{poison}; });
}

std::string number(double value, Dtype dtype) {
  char text[40];
  std::snprintf(text, sizeof(text), "%.*g", dtype == Dtype::f64 || dtype == Dtype::i64 ? 17 : 9, value);
  return text;
}

// "output out[0, 3]: got 1.5, expected 1, allowed 0.0078125".
std::string difference_text(const ConcreteCall& call, size_t output, int64_t index, double got, double want,
                            double allowed) {
  const Dtype dtype = call.outputs[output].dtype;
  return fmt::format("output {}: got {}, expected {}, allowed {}", element_name(call, output, index),
                     number(got, dtype), number(want, dtype), number(allowed, Dtype::f32));
}

// "output logp[3]: got 8.0e-07, expected at most 0 whatever the rounding: the declaration says so".
Failure beyond_limit(const ConcreteCall& call, size_t output, size_t index, const Limits& limits, double got,
                     double want) {
  const Dtype dtype = call.outputs[output].dtype;
  const bool low = got < limits.at_least;
  return {"BEYOND_LIMIT", fmt::format("output {}: got {}, expected at {} {} however it is rounded (by golden {})",
                                      element_name(call, output, static_cast<int64_t>(index)), number(got, dtype),
                                      low ? "least" : "most", number(low ? limits.at_least : limits.at_most, dtype),
                                      number(want, dtype))};
}

std::optional<Failure> check_output(const ConcreteCall& call, size_t output, const golden::Output& expected,
                                    const std::vector<std::byte>& bytes, uint8_t poison, Quality& quality) {
  const Argument& argument = call.outputs[output];
  const golden::View got_view = flat_view(bytes, argument.dtype);
  const Bound bound(call, output);
  const double largest = largest_of(argument.dtype);
  const auto element = static_cast<size_t>(size_of(argument.dtype));
  if (expected.value.size() != static_cast<size_t>(argument.count())) {
    return Failure{"ENGINE",
                   fmt::format("golden has {} elements of {}", expected.value.size(), call.decl->outputs[output].name)};
  }
  const size_t columns = argument.shape.size() > 1 ? static_cast<size_t>(argument.shape.back()) : expected.value.size();
  std::vector<double> all_got(expected.value.size());
  golden::load_all(bytes.data(), got_view.dtype, all_got);
  Limits limits_of_all = limits_of(call.decl->name, call.decl->outputs[output].name);
  if (!limits_of_all.has_least(call.values())) limits_of_all.at_least = -std::numeric_limits<double>::infinity();
  const auto outside = [&](double value) { return value < limits_of_all.at_least || value > limits_of_all.at_most; };
  double row_size = 0;
  const int over = call.decl->outputs[output].must_alias;
  for (size_t i = 0; i < expected.value.size(); ++i) {
    if (i % columns == 0) row_size = root_mean_square(std::span(expected.value).subspan(i, columns));
    if (i < expected.kept.size() && expected.kept[i] && over >= 0) {
      const std::vector<std::byte>& before = call.inputs[static_cast<size_t>(over)].bytes;
      if (std::memcmp(bytes.data() + i * element, before.data() + i * element, element) == 0) continue;
      return Failure{
          "NOT_KEPT",
          fmt::format(
              "output {}: got {}, expected the bits of before the call ({}): the call does not write this element",
              element_name(call, output, static_cast<int64_t>(i)),
              number(got_view.load_at(static_cast<int64_t>(i)), argument.dtype),
              number(get(call.inputs[static_cast<size_t>(over)], static_cast<int64_t>(i)), argument.dtype))};
    }
    const double want = expected.value[i];
    const double got = all_got[i];
    double allowed = 0;
    bool right = false;
    if (!expected.exact.empty()) {
      const int64_t integer = got_view.load_int_at(static_cast<int64_t>(i));
      if (integer == expected.exact[i]) continue;
      if (!holds_poison(bytes, i * element, element, output_poison(poison))) {
        return Failure{"WRONG_RESULT",
                       fmt::format("output {}: got {}, expected {}",
                                   element_name(call, output, static_cast<int64_t>(i)), integer, expected.exact[i])};
      }
    } else if (std::isinf(expected.cond[i])) {
      right = !holds_poison(bytes, i * element, element, output_poison(poison));
    } else if (std::isnan(want) || std::isinf(want)) {
      right = std::isnan(want) ? std::isnan(got) : got == want;
    } else if (got == want) {
      continue;
    } else {
      const double rounded = expected.rounded.empty() ? 0.0 : expected.rounded[i];
      const Bound::Limits limits = bound(want, expected.cond[i], rounded);
      allowed = limits.accurate + rounded;
      const double difference = std::fabs(got - want);
      // Where a bound reaches beyond the largest number of the dtype, infinity is the right rounding.
      const auto within = [&](double limit) {
        return difference <= limit || (std::isinf(got) && (got > 0 ? want : -want) + limit > largest);
      };
      right = within(allowed);
      if (right && allowed > 0 && std::isfinite(got)) {
        quality.ratio = std::max(quality.ratio, difference / allowed);
        const double ulp = ulp_of(std::max(std::fabs(want), row_size), argument.dtype);
        quality.ulp = std::max(quality.ulp, difference / std::max(ulp, limits.intermediate));
      }
      if (right && quality.inaccurate.empty() && !within(limits.accurate)) {
        quality.inaccurate = difference_text(call, output, static_cast<int64_t>(i), got, want, limits.accurate);
      }
    }
    // Golden itself is beyond a limit where the caller's inputs are.
    if (right && outside(got) && !outside(want) && !holds_poison(bytes, i * element, element, output_poison(poison))) {
      return beyond_limit(call, output, i, limits_of_all, got, want);
    }
    if (right) continue;
    if (holds_poison(bytes, i * element, element, output_poison(poison))) {
      return Failure{"NOT_WRITTEN",
                     fmt::format("output {}: still holds the poison of before the call, expected {}",
                                 element_name(call, output, static_cast<int64_t>(i)), number(want, argument.dtype))};
    }
    return Failure{"WRONG_RESULT", difference_text(call, output, static_cast<int64_t>(i), got, want, allowed)};
  }
  return std::nullopt;
}

std::string words(const Fault& fault) {
  static constexpr const char* kKinds[] = {"NONE",        "ID_OUT_OF_RANGE",   "NO_FINITE_LOGIT", "ROW_OUT_OF_RANGE",
                                           "BAD_SEQLENS", "BAD_SECOND_SEQLENS"};
  const std::string kind = fault.kind >= 0 && fault.kind <= 5 ? kKinds[fault.kind] : std::to_string(fault.kind);
  return fmt::format("{} row {} value {}", kind, fault.row, fault.value);
}

std::optional<Failure> check_told(const Answer& answer, const Outcome& outcome) {
  if (answer.faults.empty()) {
    if (outcome.told.empty()) return std::nullopt;
    return Failure{"UNEXPECTED_DATA_ERROR", "the stream told of a data error (" + words(outcome.told[0]) +
                                                "), but the values keep their domains"};
  }
  if (outcome.told.empty()) {
    return Failure{"DATA_ERROR_MISSING",
                   "the stream answered RLK_OK, expected RLK_DATA_ERROR " + words(answer.faults[0])};
  }
  if (outcome.told.size() > 1) {
    return Failure{"DATA_ERROR_REPEATED", "the stream told of the same data error again (" + words(outcome.told[1]) +
                                              "), expected it to be forgotten once told"};
  }
  const Fault& told = outcome.told[0];
  const bool known = std::any_of(answer.faults.begin(), answer.faults.end(), [&](const Fault& fault) {
    const bool is_it = fault.row == told.row && fault.value == told.value;
    return fault.kind == told.kind && (is_it || answer.has_more_faults);
  });
  if (!known) {
    return Failure{"DATA_ERROR_WRONG",
                   fmt::format("the stream told of {}, expected {}", words(told), words(answer.faults[0]))};
  }
  if (outcome.tags[0] != outcome.tag) {
    return Failure{"DATA_ERROR_WRONG",
                   fmt::format("the data error has tag {}, expected {}", outcome.tags[0], outcome.tag)};
  }
  return std::nullopt;
}

}  // namespace

std::string element_name(const ConcreteCall& call, size_t output, int64_t index) {
  const std::vector<int64_t>& shape = call.outputs[output].shape;
  std::string text;
  for (size_t axis = shape.size(); axis-- > 0;) {
    text.insert(0, (axis > 0 ? ", " : "") + std::to_string(index % shape[axis]));
    index /= shape[axis];
  }
  return fmt::format("{}[{}]", call.decl->outputs[output].name, text);
}

std::optional<Failure> check(const ConcreteCall& call, const Answer& answer, const Outcome& outcome, uint8_t poison,
                             Quality& quality) {
  if (outcome.failure) return outcome.failure;
  if (auto failure = check_told(answer, outcome)) return failure;
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    if (!call.outputs[i].present) continue;
    if (auto failure = check_output(call, i, answer.outputs[i], outcome.outputs[i], poison, quality)) return failure;
  }
  return std::nullopt;
}

std::optional<Failure> check_portable(const ConcreteCall& call, const Answer& answer, const Outcome& outcome) {
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    if (!call.outputs[i].present) continue;
    Argument expected = call.outputs[i];
    expected.bytes.resize(static_cast<size_t>(expected.byte_count()));
    const golden::Output& golden = answer.outputs[i];
    for (int64_t k = 0; k < expected.count(); ++k) {
      const auto at = static_cast<size_t>(k);
      golden.exact.empty() ? set(expected, k, golden.value[at]) : set_int(expected, k, golden.exact[at]);
    }
    const std::string difference = first_difference(call, i, expected.bytes, outcome.outputs[i]);
    if (difference.empty()) continue;
    return Failure{"NOT_PORTABLE", difference + ", expected the first, which the declaration specifies to the bit"};
  }
  return std::nullopt;
}

std::string first_difference(const ConcreteCall& call, size_t output, const std::vector<std::byte>& a,
                             const std::vector<std::byte>& b) {
  if (a == b) return {};
  const Argument& argument = call.outputs[output];
  const auto element = static_cast<size_t>(size_of(argument.dtype));
  for (int64_t i = 0; i < argument.count(); ++i) {
    const size_t at = static_cast<size_t>(i) * element;
    if (std::memcmp(a.data() + at, b.data() + at, element) == 0) continue;
    const double x = flat_view(a, argument.dtype).load_at(i), y = flat_view(b, argument.dtype).load_at(i);
    if (std::isnan(x) && std::isnan(y)) continue;
    char text[80];
    std::snprintf(text, sizeof(text), ": %a and %a", x, y);
    return fmt::format("output {}{}", element_name(call, output, i), text);
  }
  return {};
}

}  // namespace rlk::core::conformance
