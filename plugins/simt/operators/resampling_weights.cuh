// How often each sample of a batch is to be drawn again.
#include "../skeleton/resampling.cuh"

RLK_SIMT_GROUPS(ResamplingWeights, resampling_weights, resampling(call))
