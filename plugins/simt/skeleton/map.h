// What the host passes to a kernel of a map, the same for every operator (map.cuh).
#pragma once

#include <cstdint>

namespace rlk::simt {

constexpr int kMapDims = 8;
constexpr int kMapTensors = 10;  // outputs, then inputs
constexpr int kMapNumbers = 16;
constexpr int kMapThreads = 256;
constexpr int kMapElements = 8;                      // of a thread and step
constexpr int kMapLongElements = 4;                  // of formulas that compute in fp64 whatever the tensors are
constexpr int64_t kMapManyPacks = int64_t{1} << 20;  // of a line: where much is computed, a thread takes two at once

// In the order of the declarations' dtypes.
constexpr int32_t kMapF32 = 0;
constexpr int32_t kMapBf16 = 1;
constexpr int32_t kMapF16 = 2;
constexpr int32_t kMapF64 = 3;
constexpr int32_t kMapI32 = 4;
constexpr int32_t kMapI64 = 5;
constexpr int32_t kMapU8 = 6;
constexpr int32_t kMapI8 = 7;
constexpr int32_t kMapI16 = 8;
constexpr int32_t kMapU16 = 9;
constexpr int32_t kMapU32 = 10;
constexpr int32_t kMapU64 = 11;
constexpr int32_t kMapBool = 12;

// What a piece is, by which threads are numbered.
constexpr int32_t kMapOneDtype = 0;  // 16 bytes of each tensor, all of one dtype
constexpr int32_t kMapMixed = 1;     // eight elements of each tensor
constexpr int32_t kMapAny = 2;       // an element

struct MapTensor {
  void* data;                // null: an input that is `value` everywhere, an output that the caller left out
  int64_t stride[kMapDims];  // in elements, outermost first; 0: repeated
  double value;
  int32_t dtype;
  int32_t reserved;
};

// How the tensors of a call lie, for kernels of lines: each is whole packs, one behind the other,
constexpr int32_t kMapNoLine = 0;
constexpr int32_t kMapLine = 1;   // of which a thread takes one at a time: of kMapOneDtype, and of kMapMixed where a
                                  // formula of fp64 reads fp32 and bytes
constexpr int32_t kMapPairs = 2;  // or two
constexpr int32_t kMapRows = 3;   // or it is rows of whole packs, with gaps between them

// All that a kernel of lines is passed: a launch takes longer the more its arguments are. What a line needs is in
// front: a small launch waits for each part of its arguments that it reads.
struct MapLineArgs {
  int64_t pieces;
  int64_t first_block;  // of this launch, when one grid cannot hold all blocks
  int32_t dtype;        // of the first tensor
  int32_t line;
  void* begin[kMapTensors];    // null: a number, or an output that the caller left out
  double number[kMapNumbers];  // the operator's parameters, or what the host made of them
  // Of kMapRows: packs of a row, by which pieces are divided, and from one row to the next; 0: it is repeated.
  uint32_t row, multiplier, shift;
  int32_t stride[kMapTensors];
  uint32_t masks;             // of a formula of fp64: a bit for each tensor of bytes
  double value[kMapTensors];  // and what an input that is not there is everywhere
};

struct MapArgs : MapLineArgs {
  int32_t form;
  int32_t brief;  // of a formula of fp64: 1: no output is, 2: nor an input
  int64_t elements;
  int64_t shape[kMapDims];  // outermost first; of the last dimension in pieces
  uint32_t multipliers[kMapDims];
  uint32_t shifts[kMapDims];
  int32_t dims;
  int32_t halves;  // whether all tensors are bf16, or all f16
  MapTensor tensor[kMapTensors];
};

// The multiplier and the shift by which map_divide divides numbers below 2^31 by `size`.
constexpr uint32_t map_shift(int64_t size) {
  uint32_t shift = 0;
  while (shift < 31 && (int64_t{1} << shift) < size) ++shift;
  return shift;
}
constexpr uint32_t map_multiplier(int64_t size) {
  const uint64_t power = uint64_t{1} << map_shift(size);
  const uint64_t divisor = static_cast<uint64_t>(size);
  // Beyond 2^31 every quotient is 0: multiplier 0 and shift 31 give that.
  return divisor > power ? 0 : static_cast<uint32_t>(((power - divisor) << 32) / divisor + 1);
}

}  // namespace rlk::simt
