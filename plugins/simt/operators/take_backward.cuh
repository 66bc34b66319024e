// Gradients of what was taken by ids: sums of what came from one place.
#include "../skeleton/sums.cuh"

RLK_SIMT_MOVES_KERNEL(sort, ids_sort(args);)
RLK_SIMT_MOVES_KERNEL(rank, ids_rank(args);)
RLK_SIMT_MOVES_KERNEL(along, sums_along(args);)
RLK_SIMT_MOVES_KERNEL(across, sums_across(args);)
RLK_SIMT_MOVES(GatherBackward, ("sort", "rank", "along"), sums_along(call.grad_x, call.grad_y, call.index))
RLK_SIMT_MOVES(IndexSelectBackward, ("sort", "rank", "along"), sums_along(call.grad_x, call.grad_y, call.index))
RLK_SIMT_MOVES(EmbeddingBackward, ("sort", "rank", "across"),
               sums_across(call.grad_weight, call.grad_y, call.ids, call.params.padding_idx,
                           call.params.scale_by_frequency == decltype(call.params.scale_by_frequency)::on))
