// Masked normalisation over a whole batch: moments of chunks, then every number.
#include "../skeleton/whitening.cuh"

RLK_SIMT_GROUPS(Whiten, whiten, whitening(call))
RLK_SIMT_PACKED_GROUPS(Whiten, whiten)
