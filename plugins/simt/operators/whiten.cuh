// Masked normalisation over a whole batch: moments of chunks, then every number.
#include "../skeleton/groups.cuh"

RLK_SIMT_GROUPS(Whiten, whiten, whitening(call))
