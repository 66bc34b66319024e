// Rows in order, and the first numbers of rows.
#include "../skeleton/order.cuh"

RLK_SIMT_MOVES_KERNEL(chunks, with_order_type(args, [&](auto type) { order_chunks<decltype(type)>(args); });)
RLK_SIMT_MOVES_KERNEL(merge, with_order_type(args, [&](auto type) { order_merge<decltype(type)>(args); });)
RLK_SIMT_MOVES_KERNEL(peaks, with_order_type(args, [&](auto type) { order_peaks<decltype(type)>(args); });)
RLK_SIMT_MOVES_KERNEL(bound, with_order_type(args, [&](auto type) { order_bound<decltype(type)>(args); });)
RLK_SIMT_MOVES_KERNEL(gather, with_order_type(args, [&](auto type) { order_gather<decltype(type)>(args); });)
RLK_SIMT_MOVES_KERNEL_OF(first, kOrderWideThreads,
                         with_order_type(args, [&](auto type) { order_first<decltype(type)>(args); });)

RLK_SIMT_MOVES(Sort, ("chunks", "merge"),
               in_order(call.y, call.index, call.x, call.D,
                        call.params.descending == decltype(call.params.descending)::on, false))
RLK_SIMT_MOVES(TopK, ("chunks", "merge", "peaks", "bound", "gather", "first"),
               in_order(call.y, call.index, call.x, call.params.k,
                        call.params.largest == decltype(call.params.largest)::on, true))
