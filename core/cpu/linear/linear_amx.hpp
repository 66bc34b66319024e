// Products of bf16 by the tile unit (simd/amx.hpp): sixteen by sixteen sums of 32 products in 16 cycles. Internal to
// the kernels.
//
// A sum runs in fp32 over kAmxChain numbers of the depth and then in fp64. What it is made of depends on the depth
// alone, not on the other rows or columns of the call. Subnormal numbers count as 0.
#pragma once

#include "core/cpu/linear/linear_operands.hpp"

namespace rlk::cpu {

constexpr int64_t kAmxRows = 16;  // of hidden, in one tile: a group

// Calls that are computed so on every thread: depth decides, and what the tensors are.
bool takes_amx(const LinearOperands& operands);

// Writes one group, `count` of rows[], as [depth / 2][room][2] with zeros behind the depth and behind the rows; room is
// kAmxRows, or count in a batch of fewer rows than that.
void amx_pack_group(const LinearOperands& operands, const int64_t* rows, int64_t count, int64_t room, uint16_t* to);
inline int64_t amx_packed_numbers(int64_t depth, int64_t room) {
  return round_up(depth, kAmxDepth) * room;
}

// Where the sums of a group go: sums[column * stride + row] in fp64, which are added to.
struct AmxGroup {
  const uint16_t* packed;
  double* sums;
  int64_t stride;
};
// The products of weights [column, column + columns) with groups of `room` rows. scratch: kAmxScratch bytes, aligned to
// 64.
constexpr int64_t kAmxScratch = 2 * kAmxRows * kAmxChain * 2;
void amx_products(const LinearOperands& operands, int64_t column, int64_t columns, const AmxGroup* groups,
                  int64_t group_count, int64_t room, void* scratch);

}  // namespace rlk::cpu
