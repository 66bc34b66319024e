// Gradients of hidden, weight and bias from those of linear_logp's outputs, the scores computed anew.
#include <rlk/sdk/ops/linear_logp_backward.hpp>

#include "core/cpu/linear/linear_gradient_batches.hpp"
#include "core/cpu/simd/registration.hpp"

namespace rlk::cpu {
namespace {

using Call = CallOf<sdk::ops::LinearLogpBackward>;

struct Gradients {
  explicit Gradients(const Call& c) : call(c) {}
  RowGradient operator()(int64_t n) const { return row_gradient(call, n); }
  const Call& call;
};

}  // namespace

RLK_CPU_KERNEL(LinearLogpBackward, .run = logp_gradients<Call, Gradients>,
               .operations = linear_gradient_operations<Call>,
               .workspace_bytes = logp_gradients_workspace_bytes<Call, Gradients>,
               .switches = kLinearSwitches<kMostColumns>);

}  // namespace rlk::cpu
