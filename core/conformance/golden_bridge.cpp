// From a declared call to the structs of the golden functions.
#include "core/conformance/golden_bridge.hpp"

#include <rlk/ops/add.h>
#include <rlk/ops/attention.h>
#include <rlk/ops/logp.h>
#include <rlk/ops/logp_backward.h>

#include <cstring>
#include <string_view>

#include "core/conformance/elements.hpp"

namespace rlk::core::conformance {
namespace {

// In every row: one rounding to fp32 (2^-24, relative) of each intermediate that the condition names costs a factor of
// 1; what comes on top is in the reason.
constexpr ErrorBound kErrorBounds[] = {
    {"logp", 8, "exp, log and tanh good to 2 ulp (4 units each), and sums over the vocabulary in blocks or lanes"},
    {"logp_backward", 8,
     "exp and tanh good to 2 ulp (4 units each), their product with the gradients, and sums of rows"},
    {"attention", 16, "the general limit of golden.hpp (8 times 2^-23): exp, dot products, rescaling, sums over keys"},
    {"add", 2, "alpha is rounded to fp32, the product with it once more, and the sum is the output's own rounding"},
};

// Views of a call's inputs for golden: contiguous, floating values widened to fp64, which holds them exactly. So golden
// decodes no 16-bit number twice.
class Widened {
public:
  explicit Widened(const Call& call) : views_(call.inputs.size()), values_(call.inputs.size()) {
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
      if (argument.dtype > Dtype::f64) continue;
      std::vector<double>& wide = values_[i];
      for (int64_t k = 0; k < argument.count(); ++k) wide.push_back(get(argument, k));
      view.data = wide.data();
      view.dtype = golden::Dtype::f64;
    }
  }
  const golden::View& operator[](int input) const { return views_[static_cast<size_t>(input)]; }

private:
  std::vector<golden::View> views_;
  std::vector<std::vector<double>> values_;
  std::vector<std::vector<int64_t>> strides_;
};

template <class Params>
Params params_of(const Call& call) {
  Params params;
  std::memcpy(&params, call.params.data(), sizeof(params));
  return params;
}

bool wants(const Call& call, int output) {
  return call.outputs[static_cast<size_t>(output)].present;
}

template <class Golden, class Params>
void set_logp_params(Golden& golden, const Params& params) {
  golden.temperature = params.temperature;
  golden.softcap = params.softcap;
  golden.ignore_index = params.ignore_index;
  golden.vocab_start = params.vocab_start;
  golden.global_vocab = params.global_vocab;
}

golden::DataError logp(const Call& call, const Widened& in, std::vector<golden::Output>& outputs) {
  golden::LogpCall golden;
  golden.logits = in[RLK_LOGP_IN_LOGITS];
  golden.ids = in[RLK_LOGP_IN_IDS];
  golden.bias = in[RLK_LOGP_IN_BIAS];
  golden.mask = in[RLK_LOGP_IN_MASK];
  golden.row_indices = in[RLK_LOGP_IN_ROW_INDICES];
  set_logp_params(golden, params_of<rlk_logp_params>(call));
  golden.want_lse = wants(call, RLK_LOGP_OUT_LSE);
  golden.want_entropy = wants(call, RLK_LOGP_OUT_ENTROPY);
  golden::LogpResult result = golden::logp(golden);
  outputs = {std::move(result.logp), std::move(result.lse), std::move(result.entropy)};
  return result.error;
}

golden::DataError logp_backward(const Call& call, const Widened& in, std::vector<golden::Output>& outputs) {
  golden::LogpBackwardCall golden;
  golden.logits = in[RLK_LOGP_BACKWARD_IN_LOGITS];
  golden.ids = in[RLK_LOGP_BACKWARD_IN_IDS];
  golden.lse = in[RLK_LOGP_BACKWARD_IN_LSE];
  golden.grad_logp = in[RLK_LOGP_BACKWARD_IN_GRAD_LOGP];
  golden.grad_lse = in[RLK_LOGP_BACKWARD_IN_GRAD_LSE];
  golden.grad_entropy = in[RLK_LOGP_BACKWARD_IN_GRAD_ENTROPY];
  golden.entropy = in[RLK_LOGP_BACKWARD_IN_ENTROPY];
  golden.bias = in[RLK_LOGP_BACKWARD_IN_BIAS];
  golden.mask = in[RLK_LOGP_BACKWARD_IN_MASK];
  golden.row_indices = in[RLK_LOGP_BACKWARD_IN_ROW_INDICES];
  set_logp_params(golden, params_of<rlk_logp_backward_params>(call));
  golden.want_grad_bias = wants(call, RLK_LOGP_BACKWARD_OUT_GRAD_BIAS);
  golden::LogpBackwardResult result = golden::logp_backward(golden);
  outputs = {std::move(result.grad_logits), std::move(result.grad_bias)};
  return result.error;
}

golden::DataError attention(const Call& call, const Widened& in, std::vector<golden::Output>& outputs) {
  const auto params = params_of<rlk_attention_params>(call);
  golden::AttentionCall golden;
  golden.q = in[RLK_ATTENTION_IN_Q];
  golden.k = in[RLK_ATTENTION_IN_K];
  golden.v = in[RLK_ATTENTION_IN_V];
  golden.cu_seqlens_q = in[RLK_ATTENTION_IN_CU_SEQLENS_Q];
  golden.cu_seqlens_k = in[RLK_ATTENTION_IN_CU_SEQLENS_K];
  golden.layout = static_cast<golden::Layout>(params.layout);
  golden.causal = static_cast<golden::Causal>(params.causal);
  golden.window_left = params.window_left;
  golden.window_right = params.window_right;
  golden.scale = params.scale;
  golden.want_lse = wants(call, RLK_ATTENTION_OUT_LSE);
  golden::AttentionResult result = golden::attention(golden);
  outputs = {std::move(result.out), std::move(result.lse)};
  return result.error;
}

golden::DataError add(const Call& call, const Widened& in, std::vector<golden::Output>& outputs) {
  golden::AddCall golden;
  golden.a = in[RLK_ADD_IN_A];
  golden.b = in[RLK_ADD_IN_B];
  golden.alpha = params_of<rlk_add_params>(call).alpha;
  outputs = {golden::add(golden).out};
  return {};
}

using Function = golden::DataError (*)(const Call&, const Widened&, std::vector<golden::Output>&);
Function function_of(std::string_view op) {
  return op == "logp"            ? logp
         : op == "logp_backward" ? logp_backward
         : op == "attention"     ? attention
         : op == "add"           ? add
                                 : nullptr;
}

}  // namespace

std::span<const ErrorBound> error_bounds() {
  return kErrorBounds;
}

bool has_golden(const OpDecl& decl) {
  return function_of(decl.name) != nullptr;
}

Answer golden_answer(const Call& call) {
  Answer answer;
  const golden::DataError error = function_of(call.decl->name)(call, Widened(call), answer.outputs);
  if (error.kind == golden::kNoDataError) return answer;
  answer.faults.push_back({error.kind, error.row, error.value});
  // Where several faults were planted, which one is met first is the implementation's own affair.
  for (const Fault& fault : call.faults) {
    if (fault.kind == error.kind) answer.faults.push_back(fault);
  }
  return answer;
}

std::vector<double> forward_values(const Call& call, size_t input) {
  const DomainDecl& domain = call.decl->inputs[input].domain;
  const OpDecl& decl = *find_declaration(domain.forward_op);
  Call forward;
  forward.decl = &decl;
  const auto* defaults = static_cast<const std::byte*>(decl.defaults);
  forward.params.assign(defaults, defaults + decl.params_size);
  for (size_t i = 0; i < decl.params.size(); ++i) {
    const int same = param_index(*call.decl, decl.params[i].name);
    if (same < 0) continue;
    std::memcpy(forward.params.data() + decl.params[i].offset,
                call.params.data() + call.decl->params[static_cast<size_t>(same)].offset, sizeof(int64_t));
  }
  forward.inputs.resize(decl.inputs.size());
  for (size_t i = 0; i < decl.inputs.size(); ++i) {
    const int same = input_index(*call.decl, decl.inputs[i].name);
    if (same >= 0) forward.inputs[i] = call.inputs[static_cast<size_t>(same)];
  }
  forward.outputs.resize(decl.outputs.size());
  size_t wanted = 0;
  for (size_t i = 0; i < decl.outputs.size(); ++i) {
    const bool is_wanted = std::string_view(decl.outputs[i].name) == domain.forward_output;
    forward.outputs[i].present = is_wanted || !decl.outputs[i].optional;
    if (is_wanted) wanted = i;
  }
  std::vector<double> values = golden_answer(forward).outputs[wanted].value;
  // A shard is given the values of the whole vocabulary, which its own logits do not determine: an implementation that
  // computes them anew instead of reading them must be seen.
  const int global_vocab = param_index(*call.decl, "global_vocab");
  if (global_vocab >= 0 && call.i64(global_vocab) > 0) {
    for (double& value : values) value += 0.625;
  }
  return values;
}

}  // namespace rlk::core::conformance
