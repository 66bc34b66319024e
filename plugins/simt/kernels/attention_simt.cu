// The attention kernels without matrix units. Names: attention_plan, attention_simt_<dtype>.
#include "../attention_simt.cuh"

using namespace rlk::simt;

RLK_SIMT_KERNEL(kPlanThreads)
attention_plan_packed(RLK_SIMT_ARGUMENT(AttentionArgs) args) {
  attention_plan(args);
}

#define RLK_ATTENTION_SIMT(suffix, T)                              \
  RLK_SIMT_KERNEL(kSimtWaves* kWave, 2)                            \
  attention_simt_##suffix(RLK_SIMT_ARGUMENT(AttentionArgs) args) { \
    attention_simt<T>(args);                                       \
  }

RLK_ATTENTION_SIMT(f32, float)
RLK_ATTENTION_SIMT(bf16, bf16)
RLK_ATTENTION_SIMT(f16, f16)
RLK_ATTENTION_SIMT(f64, double)
