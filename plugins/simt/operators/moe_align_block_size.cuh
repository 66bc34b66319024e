// Tokens in order of their experts, each expert's padded to whole blocks.
//
//   plan   one block finds where each expert begins, among the sorted ids and among the blocks
//   fill   a thread writes a place of the output, and the expert of a block
#include "../skeleton/align.cuh"

RLK_SIMT_MOVES_KERNEL(sort, ids_sort(args);)
RLK_SIMT_MOVES_KERNEL(rank, ids_rank(args);)
RLK_SIMT_MOVES_KERNEL(plan, align_plan(args);)
RLK_SIMT_MOVES_UNITS(fill, align_fill(args, unit);)
RLK_SIMT_MOVES(MoeAlignBlockSize, ("sort", "rank", "plan", "fill"), aligned_to_blocks(call))
