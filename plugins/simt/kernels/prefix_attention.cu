// The kernels of prefix_shared_attention without matrix units. Names: prefix_attention_<dtype>.
#include "../prefix_attention.cuh"

using namespace rlk::simt;

#define RLK_PREFIX_ATTENTION(suffix, T)                                    \
  RLK_SIMT_KERNEL(kSimtWaves* kWave, 2)                                    \
  prefix_attention_##suffix(RLK_SIMT_ARGUMENT(SampleAttentionArgs) args) { \
    prefix_attention<T>(args);                                             \
  }

RLK_PREFIX_ATTENTION(f32, float)
RLK_PREFIX_ATTENTION(bf16, bf16)
RLK_PREFIX_ATTENTION(f16, f16)
RLK_PREFIX_ATTENTION(f64, double)
