// The kernels of attention's gradients. Names: attention_gradients_terms_<dtype>, _rows_<dtype>, _keys_<dtype> and
// _prefix_<dtype>.
#include "../attention_gradients.cuh"

using namespace rlk::simt;

#define RLK_ATTENTION_GRADIENTS(kind, suffix, T)                                         \
  RLK_SIMT_KERNEL(kGradientThreads, 1)                                                   \
  attention_gradients_##kind##_##suffix(RLK_SIMT_ARGUMENT(AttentionGradientArgs) args) { \
    attention_gradients_##kind<T>(args);                                                 \
  }
#define RLK_ATTENTION_GRADIENTS_OF(suffix, T) \
  RLK_ATTENTION_GRADIENTS(terms, suffix, T)   \
  RLK_ATTENTION_GRADIENTS(rows, suffix, T)    \
  RLK_ATTENTION_GRADIENTS(keys, suffix, T)    \
  RLK_ATTENTION_GRADIENTS(prefix, suffix, T)

RLK_ATTENTION_GRADIENTS_OF(f32, float)
RLK_ATTENTION_GRADIENTS_OF(bf16, bf16)
RLK_ATTENTION_GRADIENTS_OF(f16, f16)
RLK_ATTENTION_GRADIENTS_OF(f64, double)
