// Groups of channels less their mean, divided by their standard deviation, and the gradients: fp64.
#include <rlk/sdk/ops/group_norm.hpp>
#include <rlk/sdk/ops/group_norm_backward.hpp>

#include "core/golden/moments.hpp"

namespace rlk::golden {

DataError group_norm(CallOf<sdk::ops::GroupNorm>& call) {
  Groups{call.N, call.C, call.S, call.C / call.params.groups}.normalise(call, [](const Moments&) {});
  return {};
}

DataError group_norm_backward(CallOf<sdk::ops::GroupNormBackward>& call) {
  Groups{call.N, call.C, call.S, call.C / call.params.groups}.gradients(call);
  return {};
}

}  // namespace rlk::golden
