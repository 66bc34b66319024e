// take: y[i, j] = x[..., id(i, j), ...], bits of any dtype. Where ids are of rows and rows contiguous, an element is
// the widest word that the addresses allow.
//
// Tensors: y (rows, columns), x (rows, columns, places), ids (rows, columns); a stride may be 0.
#pragma once

#include "move.cuh"

#if defined(RLK_SIMT_MOVES_ON_DEVICE)

namespace rlk::simt {

template <class Bits>
__device__ __forceinline__ void take_of(const MoveArgs& args) {
  const MoveTensor &y = args.tensor[0], &x = args.tensor[1], &ids = args.tensor[2];
  const int64_t columns = args.size[kTakeColumns], places = args.size[kTakePlaces];
  const int64_t step = static_cast<int64_t>(gridDim.x) * kMoveThreads * kMoveItems;
  Bits missing;
  const int64_t pattern[2] = {args.size[kTakeMissing], args.size[kTakeMissing]};
  __builtin_memcpy(&missing, pattern, sizeof(missing));
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * kMoveThreads * kMoveItems + threadIdx.x; first < args.units;
       first += step) {
    int64_t id[kMoveItems], row[kMoveItems];
    Bits moved[kMoveItems];
#pragma unroll
    for (int k = 0; k < kMoveItems; ++k) {
      const int64_t unit = first + k * kMoveThreads;
      if (unit >= args.units) continue;
      row[k] = move_divide(args.divisor[0], unit);
      id[k] = move_id(ids, row[k] * ids.stride[0] + (unit - row[k] * columns) * ids.stride[1]);
    }
    // Errors first: loads that are asked for between them would wait for each other.
    bool is_there[kMoveItems];
#pragma unroll
    for (int k = 0; k < kMoveItems; ++k) {
      const int64_t unit = first + k * kMoveThreads;
      is_there[k] = unit < args.units && id[k] >= 0 && id[k] < places;
      if (unit >= args.units || is_there[k]) continue;
      const int64_t column = unit - row[k] * columns;
      report_data_error(args.errors, kDataIdOutOfRange, args.size[kTakeByColumn] != 0 ? column : row[k], id[k]);
    }
    if (y.data == nullptr) continue;  // nothing is taken, but the ids are looked at
#pragma unroll
    for (int k = 0; k < kMoveItems; ++k) {
      moved[k] = missing;
      if (!is_there[k]) continue;
      const int64_t column = first + k * kMoveThreads - row[k] * columns;
      const Bits* const from = static_cast<const Bits*>(x.data) + row[k] * x.stride[0] + column * x.stride[1];
      if constexpr (sizeof(Bits) == sizeof(uint4)) {
        moved[k] = load_stream(from + id[k] * x.stride[2]);
      } else {
        moved[k] = from[id[k] * x.stride[2]];
      }
    }
#pragma unroll
    for (int k = 0; k < kMoveItems; ++k) {
      const int64_t unit = first + k * kMoveThreads;
      if (unit >= args.units) continue;
      Bits* const to = static_cast<Bits*>(y.data) + row[k] * y.stride[0] + (unit - row[k] * columns) * y.stride[1];
      if constexpr (sizeof(Bits) == sizeof(uint4)) {
        store_stream(to, moved[k]);
      } else {
        *to = moved[k];
      }
    }
  }
}

__device__ __forceinline__ void take(const MoveArgs& args) {
  const int64_t bytes = args.size[kTakeBytes];
  if (bytes == 16) return take_of<uint4>(args);
  if (bytes == 8) return take_of<uint64_t>(args);
  if (bytes == 4) return take_of<uint32_t>(args);
  if (bytes == 2) return take_of<uint16_t>(args);
  take_of<uint8_t>(args);
}

}  // namespace rlk::simt

#endif
