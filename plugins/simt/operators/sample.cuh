// One token per row, drawn from filtered and tempered logits.
#include "../skeleton/sample_rows.cuh"

RLK_SIMT_MOVES_KERNEL(peaks, sample_peaks(args);)
RLK_SIMT_MOVES_KERNEL(bound, sample_bound(args);)
RLK_SIMT_MOVES_KERNEL(gather, sample_gather(args);)
RLK_SIMT_MOVES_KERNEL_OF(draw, kOrderWideThreads, sample_draw(args);)
RLK_SIMT_MOVES(Sample, ("peaks", "bound", "gather", "draw"), sampled(call))
