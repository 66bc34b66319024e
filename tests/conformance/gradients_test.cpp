// Is every backward the slope of its forward? Golden against golden: along directions drawn at random, one input at a
// time, the difference of the forward's outputs is compared with what the backward says, for the cases that follow from
// the declarations. Where a gradient is not the slope by intention, the declaration says so (slope_when), and
// parameters that only the backward has are at their defaults.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <set>
#include <string>

#include "core/conformance/data.hpp"
#include "core/conformance/elements.hpp"
#include "core/conformance/golden_bridge.hpp"
#include "core/conformance/schedule.hpp"
#include "core/declaration/slope.hpp"

namespace rlk::test {

using namespace core;
using namespace core::conformance;

namespace {

const OpDecl* forward_of(const OpDecl& backward) {
  for (const OpDecl& decl : declarations()) {
    if (std::string_view(decl.backward) == backward.name) return &decl;
  }
  return nullptr;
}

bool has_own_settings(const ConcreteCall& call, const OpDecl& forward) {
  const auto* defaults = static_cast<const std::byte*>(call.decl->defaults);
  return std::any_of(call.decl->params.begin(), call.decl->params.end(), [&](const ParamDecl& param) {
    return param_index(forward, param.name) < 0 &&
           std::memcmp(call.params.data() + param.offset, defaults + param.offset, sizeof(int64_t)) != 0;
  });
}

void widen(Argument& argument) {
  if (!argument.present || !is_floating(argument.dtype) || argument.dtype == Dtype::f64) return;
  Argument wide = argument;
  wide.dtype = Dtype::f64;
  wide.bytes.assign(static_cast<size_t>(wide.byte_count()), std::byte{0});
  for (int64_t i = 0; i < argument.count(); ++i) set(wide, i, get(argument, i));
  argument = wide;
}

// Numbers of a step, which cases have too, meet at kinks.
void leave_ties(std::mt19937_64& engine, Domain domain, Argument& argument) {
  if (!argument.present || (domain != Domain::real && domain != Domain::uniform)) return;
  std::uniform_real_distribution<double> uniform(-0.03, 0.03);
  for (int64_t i = 0; i < argument.count(); ++i) set(argument, i, get(argument, i) + uniform(engine));
}

// One point: a call of the backward, and the scalar whose slope it claims to be, sum(grad_Y * Y) over the outputs Y.
class Point {
public:
  Point(const OpDecl& forward, const Case& c, uint64_t seed, ConcreteCall& call) : backward_(call) {
    fill_inputs(c, seed, backward_);
    std::mt19937_64 engine(seed);
    for (size_t i = 0; i < backward_.inputs.size(); ++i) {
      widen(backward_.inputs[i]);
      leave_ties(engine, backward_.decl->inputs[i].domain.kind, backward_.inputs[i]);
    }
    for (const auto& [input, values] : forward_inputs(backward_)) {
      for (size_t k = 0; k < values.size(); ++k) set(backward_.inputs[input], static_cast<int64_t>(k), values[k]);
    }
    forward_ = forward_call(backward_, forward);
    add_sources(engine);
    for (size_t i = 0; i < forward.outputs.size(); ++i) {
      const int gradient = input_index(*backward_.decl, std::string("grad_") + forward.outputs[i].name);
      forward_.outputs[i].present = gradient >= 0 && backward_.inputs[static_cast<size_t>(gradient)].present;
      weights_.push_back(forward_.outputs[i].present ? &backward_.inputs[static_cast<size_t>(gradient)] : nullptr);
    }
    start_ = golden_answer(forward_);
    leave_out_infinities();
    answer_ = golden_answer(backward_);
  }
  Point(const Point&) = delete;
  Point& operator=(const Point&) = delete;

  bool is_legal() const { return start_.faults.empty() && answer_.faults.empty(); }
  const ConcreteCall& backward() const { return backward_; }
  const ConcreteCall& forward() const { return forward_; }
  const golden::Output& gradient(size_t output) const { return answer_.outputs[output]; }

  // What is left out at the start is left out everywhere: an lse of -inf of a row that sees nothing.
  double objective(const Answer& answer) const {
    double sum = 0;
    each_weighted([&](size_t output, size_t i, double weight) { sum += weight * answer.outputs[output].value[i]; });
    return sum;
  }
  // How far it may be off by fp64's roundings.
  double noise() const {
    double sum = 0;
    each_weighted([&](size_t output, size_t i, double weight) {
      const golden::Output& out = start_.outputs[output];
      const double cond = std::isfinite(out.cond[i]) ? out.cond[i] : 0;
      sum += std::fabs(weight) * (std::fabs(out.value[i]) + cond) * 0x1p-52;
    });
    return sum;
  }

  // Of the objective along a direction of one input, from four points.
  double difference(size_t input, const std::vector<double>& direction, double step) const {
    ConcreteCall moved = forward_;
    double sum = 0;
    for (const auto& [steps, weight] : {std::pair{-2.0, 1.0}, {-1.0, -8.0}, {1.0, 8.0}, {2.0, -1.0}}) {
      for (size_t i = 0; i < direction.size(); ++i) {
        const auto at = static_cast<int64_t>(i);
        set(moved.inputs[input], at, get(forward_.inputs[input], at) + steps * step * direction[i]);
      }
      sum += weight * objective(golden_answer(moved));
    }
    return sum / (12 * step);
  }

private:
  // What is not finite has no slope: the log-probability of a target that keep_mask drops.
  void leave_out_infinities() {
    for (size_t output = 0; output < weights_.size(); ++output) {
      if (weights_[output] == nullptr || !start_.faults.empty()) continue;
      const auto weight = static_cast<size_t>(weights_[output] - backward_.inputs.data());
      for (size_t i = 0; i < start_.outputs[output].value.size(); ++i) {
        if (std::isinf(start_.outputs[output].value[i])) set(backward_.inputs[weight], static_cast<int64_t>(i), 0);
      }
    }
  }

  // Inputs that only the forward has: makes those that an output comes from (ref_logits) which the backward takes in
  // their place (ref_logp), and takes that from the forward; and those whose gradient needs no value of theirs (a
  // bias).
  void add_sources(std::mt19937_64& engine) {
    std::vector<std::pair<size_t, size_t>> taken;  // backward's input, forward's output
    for (size_t i = 0; i < backward_.inputs.size(); ++i) {
      if (!backward_.inputs[i].present || backward_.decl->inputs[i].domain.kind == Domain::forward) continue;
      for (size_t k = 0; k < forward_.outputs.size(); ++k) {
        if (std::string_view(forward_.decl->outputs[k].name) == backward_.decl->inputs[i].name)
          taken.emplace_back(i, k);
      }
    }
    for (size_t i = 0; i < forward_.inputs.size(); ++i) {
      const ArgDecl& decl = forward_.decl->inputs[i];
      if (input_index(*backward_.decl, decl.name) >= 0 || decl.domain.kind != Domain::real) continue;
      if (taken.empty() && !has_gradient(decl.name)) continue;
      Argument& source = forward_.inputs[i];
      source.present = true;
      source.dtype = Dtype::f64;
      const ShapeDecl& shape = decl.shapes[static_cast<size_t>(backward_.form)];
      for (const Dim& dim : shape.dims) source.shape.push_back(forward_.symbols[static_cast<size_t>(dim.symbol)]);
      if (shape.kind != ShapeDecl::Kind::dims) source.shape = backward_.inputs[taken.at(0).first].shape;
      source.bytes.assign(static_cast<size_t>(source.byte_count()), std::byte{0});
      std::normal_distribution<double> normal(0, decl.domain.scale);
      for (int64_t k = 0; k < source.count(); ++k) set(source, k, normal(engine));
    }
    if (taken.empty()) return;
    for (const auto& [input, output] : taken) forward_.outputs[output].present = true;
    const Answer answer = golden_answer(forward_);
    for (const auto& [input, output] : taken) {
      const std::vector<double>& values = answer.outputs[output].value;
      for (size_t k = 0; k < values.size(); ++k) set(backward_.inputs[input], static_cast<int64_t>(k), values[k]);
    }
  }

  bool has_gradient(const std::string& input) const {
    const auto& outputs = backward_.decl->outputs;
    return std::any_of(outputs.begin(), outputs.end(), [&](const ArgDecl& o) { return o.name == "grad_" + input; });
  }

  template <class Use>
  void each_weighted(const Use& use) const {
    for (size_t output = 0; output < weights_.size(); ++output) {
      if (weights_[output] == nullptr) continue;
      for (size_t i = 0; i < start_.outputs[output].value.size(); ++i) {
        const double weight = get(*weights_[output], static_cast<int64_t>(i));
        if (std::isfinite(start_.outputs[output].value[i]) && std::isfinite(weight)) use(output, i, weight);
      }
    }
  }

  ConcreteCall& backward_;
  ConcreteCall forward_;
  std::vector<const Argument*> weights_;  // of the forward's outputs; null: not weighted
  Answer start_, answer_;
};

enum class Found { slope, no_slope, kink };

class Gradients : public ::testing::TestWithParam<const OpDecl*> {
protected:
  void try_case(const Case& c);
  Case with_slope(const Case& c) const;
  Found compare(const Point& point, size_t input, size_t output, std::mt19937_64& engine, std::string& text);

  const OpDecl& decl() const { return *GetParam(); }
  std::set<std::string> seen_;
  std::set<std::string> moved_;  // inputs whose gradient was not 0 somewhere
  int compared_ = 0, kinks_ = 0, intended_ = 0;
};

// Two steps that disagree have a kink between them, or a curve that they do not resolve.
Found Gradients::compare(const Point& point, size_t input, size_t output, std::mt19937_64& engine, std::string& text) {
  const Argument& at = point.forward().inputs[input];
  const golden::Output& gradient = point.gradient(output);
  std::vector<double> direction(static_cast<size_t>(at.count()));
  double slope = 0, magnitude = 0;
  for (size_t i = 0; i < direction.size(); ++i) {
    direction[i] = (engine() % 2 == 0 ? -1 : 1) * (0.5 + static_cast<double>(engine() >> 11) * 0x1p-53);
    slope += direction[i] * gradient.value[i];
    magnitude += std::fabs(direction[i] * gradient.value[i]);
  }
  constexpr double kStep = 0x1p-14;
  const double far = point.difference(input, direction, kStep), near = point.difference(input, direction, kStep / 2);
  const double allowed = 1e-6 * magnitude + 64 * point.noise() / kStep + 1e-12;
  if (std::fabs(far - near) > allowed) return Found::kink;
  if (std::fabs(slope - near) <= allowed) {
    if (magnitude > 1e4 * allowed || magnitude > 1e-3) moved_.insert(point.forward().decl->inputs[input].name);
    return Found::slope;
  }
  char buffer[200];
  std::snprintf(buffer, sizeof(buffer), ": along a direction the gradient gives %.9g, differences %.9g (allowed %.2g)",
                slope, near, allowed);
  text = decl().outputs[output].name + std::string(buffer);
  for (size_t i = 0; i < direction.size(); ++i) {
    std::fill(direction.begin(), direction.end(), 0.0);
    direction[i] = 1;
    const double alone = point.difference(input, direction, kStep / 2);
    if (std::fabs(alone - gradient.value[i]) <= allowed) continue;
    std::snprintf(buffer, sizeof(buffer), "; of element %zu it is %.9g, differences %.9g", i, gradient.value[i], alone);
    return text += buffer, Found::no_slope;
  }
  return Found::no_slope;
}

bool is_slope(const ConcreteCall& call) {
  const Expr* when = slope_when(*call.decl);
  return when == nullptr || when->eval(call.values()) != 0;
}

// The case, with one more optional input where the gradients are the slope only then (has(old_logp)).
Case Gradients::with_slope(const Case& c) const {
  ConcreteCall call;
  if (!resolve(c, call) || is_slope(call)) return c;
  for (size_t i = 0; i < decl().inputs.size(); ++i) {
    if (!decl().inputs[i].optional || call.inputs[i].present) continue;
    Case more = c;
    more.variations.emplace_back().present = uint64_t{1} << i;
    if (resolve(more, call) && is_slope(call)) return more;
  }
  return c;
}

void Gradients::try_case(const Case& plain) {
  const OpDecl& forward = *forward_of(decl());
  const Case c = with_slope(plain);
  ConcreteCall call;
  if (!resolve(c, call) || !shows_variations(call) || !seen_.insert(describe(c, call)).second) return;
  if (has_own_settings(call, forward)) return;
  if (!is_slope(call)) {
    ++intended_;
    return;
  }
  SCOPED_TRACE(std::string(decl().name) + " " + describe(c, call));
  for (size_t output = 0; output < decl().outputs.size(); ++output) {
    if (!call.outputs[output].present) continue;
    const std::string name = std::string(decl().outputs[output].name).substr(std::strlen("grad_"));
    const int input = input_index(forward, name);
    ASSERT_GE(input, 0) << decl().outputs[output].name << " is the gradient of no input of " << forward.name;
    const int own = input_index(decl(), name);
    if (own >= 0 && !call.inputs[static_cast<size_t>(own)].present) continue;
    Found found = Found::kink;
    std::string text;
    for (uint64_t seed = 1; seed <= 6 && found == Found::kink; ++seed) {
      ConcreteCall filled = call;
      const Point point(forward, c, seed, filled);
      if (!point.is_legal()) continue;
      std::mt19937_64 engine(seed);
      found = compare(point, static_cast<size_t>(input), output, engine, text);
    }
    ++compared_;
    if (found == Found::kink) ++kinks_;
    EXPECT_TRUE(found != Found::no_slope) << text;
  }
}

TEST_P(Gradients, AreTheSlopeOfTheForward) {
  ASSERT_NE(forward_of(decl()), nullptr);
  int wide = 0;
  for (size_t i = 0; i < decl().dtypes[0].choices.size(); ++i) {
    if (decl().dtypes[0].choices[i].dtype == Dtype::f64) wide = static_cast<int>(i);
  }
  for (size_t form = 0; form < decl().forms.size(); ++form) {
    schedule(decl(), wide, static_cast<int>(form), Extent::smoke, {}, 1, [&](const Case& c, Stage stage) {
      const bool is_ordinary = c.content == Content::ordinary && c.misaligned_by == 0;
      const bool is_dense = std::none_of(c.variations.begin(), c.variations.end(), [](const Variation& v) {
        return v.layout != Layout::contiguous || v.alias_output >= 0;
      });
      if (stage != Stage::size && is_ordinary && is_dense) try_case(c);
      return std::vector<std::string>{};
    });
  }
  std::printf("%s: %d gradients compared, %d with a kink nearby, %d cases that are no slopes by intention\n",
              decl().name, compared_, kinks_, intended_);
  EXPECT_LT(10 * kinks_, compared_);
  for (const ArgDecl& output : decl().outputs) {
    EXPECT_EQ(moved_.count(std::string(output.name).substr(std::strlen("grad_"))), 1u)
        << output.name << " was 0 everywhere";
  }
}

std::vector<const OpDecl*> backwards() {
  std::vector<const OpDecl*> list;
  for (const OpDecl& decl : declarations()) {
    if (forward_of(decl) != nullptr) list.push_back(&decl);
  }
  return list;
}
INSTANTIATE_TEST_SUITE_P(Backwards, Gradients, ::testing::ValuesIn(backwards()),
                         [](const auto& op) { return std::string(op.param->name); });

}  // namespace
}  // namespace rlk::test
