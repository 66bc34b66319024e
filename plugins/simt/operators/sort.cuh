// Rows in order, and the first numbers of rows.
#include "../skeleton/radix.cuh"

RLK_SIMT_MOVES_KERNEL(chunks, with_order_type(args, [&](auto type) { order_chunks<decltype(type)>(args); });)
RLK_SIMT_MOVES_KERNEL(count, with_place_type(args, [&](auto place) { radix_count<decltype(place)>(args); });)
RLK_SIMT_MOVES_KERNEL_OF(offset, kOrderWideThreads, radix_offset(args);)
// Three blocks that wait for each step's counts keep a multiprocessor busy.
#define RLK_SIMT_SCATTER_BOUNDS kMoveThreads, 3
RLK_SIMT_MOVES_KERNEL_OF(scatter, RLK_SIMT_SCATTER_BOUNDS,
                         with_place_type(args, [&](auto place) { radix_scatter<decltype(place)>(args); });)
RLK_SIMT_MOVES_KERNEL(peaks, with_order_type(args, [&](auto type) { order_peaks<decltype(type)>(args); });)
RLK_SIMT_MOVES_KERNEL_OF(first, kPeakThreads,
                         with_order_type(args, [&](auto type) { order_first<decltype(type)>(args); });)

RLK_SIMT_MOVES(Sort, ("chunks", "count", "offset", "scatter"),
               in_order(call.y, call.index, call.x, call.D,
                        call.params.descending == decltype(call.params.descending)::on, false))
RLK_SIMT_MOVES(TopK, ("chunks", "count", "offset", "scatter", "peaks", "first"),
               in_order(call.y, call.index, call.x, call.params.k,
                        call.params.largest == decltype(call.params.largest)::on, true))
