// From a declared call to what golden reads, and to the faults that its answer may name.
#include "core/conformance/golden_bridge.hpp"

#include <cstring>
#include <memory>
#include <string_view>

#include "core/conformance/answers.hpp"
#include "core/conformance/elements.hpp"
#include "core/declaration/numerics.hpp"
#include "core/golden/bulk.hpp"

namespace rlk::core::conformance {
namespace {

// Views of a call's inputs for golden: contiguous, floating values widened to fp64, which holds them exactly. So golden
// decodes no 16-bit number twice.
class Widened {
public:
  explicit Widened(const ConcreteCall& call) : views_(call.inputs.size()), values_(call.inputs.size()) {
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      const Argument& argument = call.inputs[i];
      if (!argument.present) continue;
      strides_.push_back(place(Layout::contiguous, argument.shape).strides);
      golden::View& view = views_[i];
      view.ndim = static_cast<int>(argument.shape.size());
      view.shape = argument.shape.data();
      view.strides = strides_.back().data();
      view.data = argument.bytes.data();
      view.dtype = golden_dtype(argument.dtype);
      if (!is_floating(argument.dtype)) continue;
      std::vector<double>& wide = values_[i];
      wide.resize(static_cast<size_t>(argument.count()));
      golden::load_all(argument.bytes.data(), view.dtype, wide);
      view.data = wide.data();
      view.dtype = golden::Dtype::f64;
    }
  }
  std::span<const golden::View> views() const { return views_; }

private:
  std::vector<golden::View> views_;
  std::vector<std::vector<double>> values_;
  std::vector<std::vector<int64_t>> strides_;
};

// What the declaration permits intermediates to be rounded to: golden sees only widened inputs.
golden::Rounding rounding_of(const ConcreteCall& call) {
  if (!may_round(*call.decl, call.dtypes[0])) return {};
  return call.dtypes[0] == Dtype::bf16 ? golden::Rounding{7, -126} : golden::Rounding{10, -14};
}

int output_index(const OpDecl& decl, std::string_view name) {
  for (size_t i = 0; i < decl.outputs.size(); ++i) {
    if (name == decl.outputs[i].name) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace

ConcreteCall forward_call(const ConcreteCall& call, const OpDecl& decl) {
  ConcreteCall forward;
  forward.decl = &decl;
  const auto* defaults = static_cast<const std::byte*>(decl.defaults);
  forward.params.assign(defaults, defaults + decl.params_size);
  for (size_t i = 0; i < decl.params.size(); ++i) {
    const int same = param_index(*call.decl, decl.params[i].name);
    if (same < 0) continue;
    std::memcpy(forward.params.data() + decl.params[i].offset,
                call.params.data() + call.decl->params[static_cast<size_t>(same)].offset, sizeof(int64_t));
  }
  for (size_t i = 0; i < decl.symbols.size(); ++i) {
    const int same = symbol_index(*call.decl, decl.symbols[i].name);
    forward.symbols[i] = same >= 0 ? call.symbols[static_cast<size_t>(same)] : -1;
  }
  forward.inputs.resize(decl.inputs.size());
  for (size_t i = 0; i < decl.inputs.size(); ++i) {
    const int same = input_index(*call.decl, decl.inputs[i].name);
    if (same >= 0) forward.inputs[i] = call.inputs[static_cast<size_t>(same)];
  }
  forward.outputs.resize(decl.outputs.size());
  for (size_t i = 0; i < decl.outputs.size(); ++i) forward.outputs[i].present = !decl.outputs[i].optional;
  return forward;
}

bool has_golden(const OpDecl& decl) {
  return golden::find(decl.name) != nullptr;
}

Answer golden_answer(const ConcreteCall& call) {
  const Widened inputs(call);
  uint64_t wanted = 0;
  for (size_t i = 0; i < call.outputs.size(); ++i) wanted |= uint64_t{call.outputs[i].present} << i;
  std::vector<golden::Dtype> dtypes;
  for (const Argument& output : call.outputs) dtypes.push_back(golden_dtype(output.dtype));
  const double epsilon = call.arithmetic() == Dtype::f64 ? 0x1p-53 : 0x1p-24;
  golden::Answer golden = golden::find(call.decl->name)(
      {inputs.views(), call.params.data(), wanted, rounding_of(call), call.symbols, epsilon, dtypes});
  const golden::DataError error = golden.error;
  Answer answer{std::move(golden.outputs), {}, call.has_more_faults};
  if (error.kind == golden::kNoDataError) return answer;
  answer.faults.push_back({error.kind, error.row, error.value});
  // Where several faults were planted, an implementation may meet any of them first.
  for (const Fault& fault : call.faults) {
    if (fault.kind == error.kind) answer.faults.push_back(fault);
  }
  return answer;
}

std::vector<ForwardInput> forward_inputs(const ConcreteCall& call, Answers* answers) {
  std::vector<ForwardInput> list;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    if (call.inputs[i].present && call.decl->inputs[i].domain.kind == Domain::forward) list.push_back({i, {}});
  }
  // A call may have outputs of several operators; each operator is asked once, for all that is wanted of it.
  std::vector<bool> done(list.size());
  for (size_t first = 0; first < list.size(); ++first) {
    if (done[first]) continue;
    const std::string_view op = call.decl->inputs[list[first].input].domain.forward_op;
    ConcreteCall forward = forward_call(call, *find_declaration(op));
    std::vector<std::pair<size_t, size_t>> wanted;  // of the list, and the output
    for (size_t k = first; k < list.size(); ++k) {
      const DomainDecl& domain = call.decl->inputs[list[k].input].domain;
      if (domain.forward_op != op) continue;
      done[k] = true;
      const auto output = static_cast<size_t>(output_index(*forward.decl, domain.forward_output));
      forward.outputs[output].present = true;
      wanted.emplace_back(k, output);
    }
    const auto answer =
        answers != nullptr ? answers->to(forward) : std::make_shared<const Answer>(golden_answer(forward));
    for (const auto& [k, output] : wanted) list[k].values = answer->outputs[output].value;
  }
  // A shard is given the values of the whole vocabulary, which its own logits do not determine: an implementation that
  // computes them anew instead of reading them must be seen.
  const int global_vocab = param_index(*call.decl, "global_vocab");
  if (global_vocab >= 0 && call.i64(global_vocab) > 0) {
    for (ForwardInput& input : list) {
      for (double& value : input.values) value += 0.625;
    }
  }
  return list;
}

}  // namespace rlk::core::conformance
