// One token per row, drawn from filtered and tempered logits.
#include "../skeleton/sample_rows.cuh"

RLK_SIMT_MOVES_KERNEL(peaks, sample_peaks(args);)
RLK_SIMT_MOVES_KERNEL(weigh, sample_weigh(args);)
RLK_SIMT_MOVES_KERNEL_OF(draw, kPeakThreads, sample_draw(args);)
RLK_SIMT_MOVES(Sample, ("peaks", "weigh", "draw"), sampled(call))
