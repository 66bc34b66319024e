// The gradient of ratio_kl with respect to logp: the derivatives of the declaration's formula, fp64.
#include <rlk/ops/ratio_kl_backward.h>

#include "core/golden/ratio_kl.hpp"

namespace rlk::golden {

static_assert(RLK_RATIO_KL_BACKWARD_KL_KIND_K3 == RLK_RATIO_KL_KL_KIND_K3);

Answer answer_ratio_kl_backward(const Call& call) {
  const auto& params = call.params_as<rlk_ratio_kl_backward_params>();
  const View& logp = call[RLK_RATIO_KL_BACKWARD_IN_LOGP];
  const View& grad_kl = call[RLK_RATIO_KL_BACKWARD_IN_GRAD_KL];
  Answer answer;
  answer.outputs.resize(RLK_RATIO_KL_BACKWARD_N_OUTPUTS);
  for (int64_t n = 0; n < logp.shape[0]; ++n) {
    Tracked gradient = 0.0;
    if (is_kept(call[RLK_RATIO_KL_BACKWARD_IN_MASK], n)) {
      const TokenRatioKl token =
          token_ratio_kl(ratio_kl_rules(params), logp.load(n), maybe(call[RLK_RATIO_KL_BACKWARD_IN_OLD_LOGP], n),
                         maybe(call[RLK_RATIO_KL_BACKWARD_IN_REF_LOGP], n));
      gradient = Tracked(call[RLK_RATIO_KL_BACKWARD_IN_GRAD_RATIO].load(n)) * token.d_ratio;
      if (grad_kl.present()) gradient = gradient + Tracked(grad_kl.load(n)) * token.d_kl;
    }
    put(answer.outputs[RLK_RATIO_KL_BACKWARD_OUT_GRAD_LOGP], gradient);
  }
  return answer;
}

}  // namespace rlk::golden
