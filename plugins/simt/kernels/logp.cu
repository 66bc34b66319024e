// The kernels of logp. Names: logp_<dtype>_<plain|plain_entropy|transform_entropy|options> and logp_finish_<dtype>.
// options: also a keep_mask and sum_p2.
#include "../logp.cuh"

using namespace rlk::simt;

#define RLK_LOGP_KERNEL(name, T, transform, entropy, options, blocks)            \
  RLK_SIMT_KERNEL(kLogpThreads, blocks) name(RLK_SIMT_ARGUMENT(LogpArgs) args) { \
    logp_segments<T, transform, entropy, options>(args);                         \
  }
#define RLK_LOGP_KERNELS(suffix, T)                                           \
  RLK_LOGP_KERNEL(logp_##suffix##_plain, T, false, false, false, 4)           \
  RLK_LOGP_KERNEL(logp_##suffix##_plain_entropy, T, false, true, false, 4)    \
  RLK_LOGP_KERNEL(logp_##suffix##_transform_entropy, T, true, true, false, 3) \
  RLK_LOGP_KERNEL(logp_##suffix##_options, T, true, true, true, 2)            \
  RLK_SIMT_KERNEL(kLogpFinishThreads)                                         \
  logp_finish_##suffix(RLK_SIMT_ARGUMENT(LogpArgs) args) {                    \
    logp_finish<T>(args);                                                     \
  }

RLK_LOGP_KERNELS(f32, float)
RLK_LOGP_KERNELS(bf16, bf16)
RLK_LOGP_KERNELS(f16, f16)
RLK_LOGP_KERNELS(f64, double)
