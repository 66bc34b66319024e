// The kernels of add. Names: add_<dtype>_<packs|packs_a_scalar|packs_b_scalar|strided_packs|strided>.
#include "../add.cuh"

using namespace rlk::simt;

#define RLK_ADD_KERNEL(name, body)                                     \
  RLK_SIMT_KERNEL(kAddThreads) name(RLK_SIMT_ARGUMENT(AddArgs) args) { \
    body(args);                                                        \
  }
#define RLK_ADD_KERNELS(suffix, T)                                                \
  RLK_ADD_KERNEL(add_##suffix##_packs, (add_contiguous<T, false, false>))         \
  RLK_ADD_KERNEL(add_##suffix##_packs_a_scalar, (add_contiguous<T, true, false>)) \
  RLK_ADD_KERNEL(add_##suffix##_packs_b_scalar, (add_contiguous<T, false, true>)) \
  RLK_ADD_KERNEL(add_##suffix##_strided_packs, (add_strided<T, true>))            \
  RLK_ADD_KERNEL(add_##suffix##_strided, (add_strided<T, false>))

RLK_ADD_KERNELS(f32, float)
RLK_ADD_KERNELS(bf16, bf16)
RLK_ADD_KERNELS(f16, f16)
RLK_ADD_KERNELS(f64, double)
