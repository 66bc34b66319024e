// The kernels of all rows of losses over scores. Names: linear_losses_<reduce|shares>_<accumulator>.
#include "../linear_losses.cuh"

using namespace rlk::simt;

#define RLK_LINEAR_LOSSES(suffix, A)                                                                          \
  RLK_SIMT_KERNEL(kLinearLossThreads) linear_losses_reduce_##suffix(RLK_SIMT_ARGUMENT(LinearLossArgs) args) { \
    linear_losses_reduce<A>(args);                                                                            \
  }                                                                                                           \
  RLK_SIMT_KERNEL(kLinearLossThreads) linear_losses_shares_##suffix(RLK_SIMT_ARGUMENT(LinearLossArgs) args) { \
    linear_losses_shares<A>(args);                                                                            \
  }
RLK_LINEAR_LOSSES(f32, float)
RLK_LINEAR_LOSSES(f64, double)
