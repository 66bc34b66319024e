// Importance ratio and KL estimate of every token, and their gradient. In fp64, as the formula asks.
#include "../map.hpp"

#include <rlk/formula/ratio_kl.hpp>

RLK_COMPOSED_MAP_F64_BY(RatioKl, (call.ratio, or_none(call.kl)), (logp, old_logp, ref_logp, mask),
                        (call.logp, or_number(call.old_logp, 0), or_number(call.ref_logp, 0), mask_of(call.mask)),
                        (RatioKlTerms, terms,
                         ratio_kl_terms(call.params, call.old_logp.is_present(), call.kl.is_present())),
                        Two<V>{ratio_of(d, terms, logp, old_logp, mask),
                               terms.has_kl ? kl_of(d, terms, logp, old_logp, ref_logp, mask) : Zero(d)})
RLK_COMPOSED_MAP_F64_BY(RatioKlBackward, (call.grad_logp), (logp, old_logp, ref_logp, mask, grad_ratio, grad_kl),
                        (call.logp, or_number(call.old_logp, 0), or_number(call.ref_logp, 0), mask_of(call.mask),
                         call.grad_ratio, or_number(call.grad_kl, 0)),
                        (RatioKlTerms, terms,
                         ratio_kl_gradient_terms(call.params, call.old_logp.is_present(), call.grad_kl.is_present())),
                        ratio_kl_gradient(d, terms, logp, old_logp, ref_logp, mask, grad_ratio, grad_kl))
