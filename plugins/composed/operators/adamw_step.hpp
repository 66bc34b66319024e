// One step of AdamW.
#include "../map.hpp"

#include <rlk/formula/adamw.hpp>

RLK_COMPOSED_MAP_BY(AdamwStep, (call.out_param, call.out_exp_avg, call.out_exp_avg_sq),
                    (grad, param, exp_avg, exp_avg_sq), (call.grad, call.param, call.exp_avg, call.exp_avg_sq),
                    (AdamwRates, rates, adamw_rates(call.params)), adamw_of(d, rates, grad, param, exp_avg, exp_avg_sq))
