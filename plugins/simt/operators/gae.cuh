// Generalised advantage estimates: a scan from the last token to the first, in fp64.
#include "../skeleton/scan.cuh"

RLK_SIMT_SCAN_TOKENS(Gae, Discounted, discounted_advantages(call))
