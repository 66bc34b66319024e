// The attention kernels without matrix units. Names: attention_plan, attention_simt_<dtype>.
#include "../../simt/attention_simt.cuh"

using namespace rlk::simt;

extern "C" __global__ void __launch_bounds__(kPlanThreads)
    attention_plan_packed(const __grid_constant__ AttentionArgs args) {
  attention_plan(args);
}

#define RLK_ATTENTION_SIMT(suffix, T)                                       \
  extern "C" __global__ void __launch_bounds__(kSimtWaves* kWave, 2)        \
      attention_simt_##suffix(const __grid_constant__ AttentionArgs args) { \
    attention_simt<T>(args);                                                \
  }

RLK_ATTENTION_SIMT(f32, float)
RLK_ATTENTION_SIMT(bf16, bf16)
RLK_ATTENTION_SIMT(f16, f16)
RLK_ATTENTION_SIMT(f64, double)
