// The kernels of logp_backward. Names: logp_backward_<dtype>_<rows|plain|plain_entropy|transform_entropy|masked|bias>,
// and logp_backward_f32_<plain|plain_entropy|transform_entropy>_to_bf16, whose gradients are bf16.
#include "../logp_backward.cuh"

using namespace rlk::simt;

#define RLK_BACKWARD_KERNEL(name, threads, blocks, body)                            \
  RLK_SIMT_KERNEL(threads, blocks) name(RLK_SIMT_ARGUMENT(LogpBackwardArgs) args) { \
    body(args);                                                                     \
  }
#define RLK_BACKWARD_KERNELS(suffix, T)                                                              \
  RLK_BACKWARD_KERNEL(logp_backward_##suffix##_rows, kBackwardRowsThreads, 1, logp_backward_rows<T>) \
  RLK_BACKWARD_KERNEL(logp_backward_##suffix##_plain, kBackwardThreads, 4,                           \
                      (logp_backward_gradient<T, false, false, false>))                              \
  RLK_BACKWARD_KERNEL(logp_backward_##suffix##_plain_entropy, kBackwardThreads, 4,                   \
                      (logp_backward_gradient<T, false, true, false>))                               \
  RLK_BACKWARD_KERNEL(logp_backward_##suffix##_transform_entropy, kBackwardThreads, 2,               \
                      (logp_backward_gradient<T, true, true, false>))                                \
  RLK_BACKWARD_KERNEL(logp_backward_##suffix##_masked, kBackwardThreads, 2,                          \
                      (logp_backward_gradient<T, true, true, true>))                                 \
  RLK_BACKWARD_KERNEL(logp_backward_##suffix##_bias, kBackwardBiasThreads, 1, logp_backward_bias<T>)

RLK_BACKWARD_KERNELS(f32, float)
RLK_BACKWARD_KERNELS(bf16, bf16)
RLK_BACKWARD_KERNELS(f16, f16)
RLK_BACKWARD_KERNELS(f64, double)
RLK_BACKWARD_KERNEL(logp_backward_f32_plain_to_bf16, kBackwardThreads, 4,
                    (logp_backward_gradient<float, false, false, false, bf16>))
RLK_BACKWARD_KERNEL(logp_backward_f32_plain_entropy_to_bf16, kBackwardThreads, 4,
                    (logp_backward_gradient<float, false, true, false, bf16>))
RLK_BACKWARD_KERNEL(logp_backward_f32_transform_entropy_to_bf16, kBackwardThreads, 2,
                    (logp_backward_gradient<float, true, true, false, bf16>))
