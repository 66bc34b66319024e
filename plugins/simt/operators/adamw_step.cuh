#include "../skeleton/map.cuh"

#include <rlk/formula/adamw.hpp>

RLK_SIMT_MAP_BY(AdamwStep, (out_param, out_exp_avg, out_exp_avg_sq),
                (call.out_param, call.out_exp_avg, call.out_exp_avg_sq), (grad, param, exp_avg, exp_avg_sq),
                (call.grad, call.param, call.exp_avg, call.exp_avg_sq), (AdamwRates, rates, adamw_rates(call.params)),
                adamw_of(d, rates, grad, param, exp_avg, exp_avg_sq))
