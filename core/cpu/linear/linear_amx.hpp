// Products of bf16 by the tile unit (simd/amx.hpp): sixteen by sixteen sums of 32 products in 16 cycles. Internal to
// the kernels.
//
// A sum runs in fp32 over kAmxChain numbers of the depth and then in fp64. What it is made of depends on the depth
// alone, not on the other rows or columns of the call. Subnormal numbers count as 0.
#pragma once

#include "core/cpu/linear/linear_operands.hpp"

namespace rlk::cpu {

// What is multiplied at a time with groups of rows: a block of columns stays in L2 while they pass.
constexpr int64_t kAmxPanelBytes = kLinearBlock * kAmxPanelDepth * 2;

// Calls that are computed so on every thread: depth decides, and what the tensors are.
bool takes_amx(const LinearOperands& operands);

// A group of kAmxRows rows lies as [depth / 2][room][2] with zeros behind the depth and behind the rows; room is
// kAmxRows, or the number of rows in a batch of fewer than that.
inline int64_t amx_packed_numbers(int64_t depth, int64_t room) {
  return round_up(depth, kAmxDepth) * room;
}

// Where the sums of a group go: sums[column * stride + row] in fp64.
struct AmxGroup {
  const uint16_t* packed;
  double* sums;
  int64_t stride;
};

// Weights as tiles: their rows are row_bytes apart, those of the next kAmxDepth numbers step_bytes, those of the next
// sixteen columns block_bytes.
struct AmxPanel {
  int64_t columns = 0;           // at most kLinearBlock
  int64_t depth = 0, steps = 0;  // of the hidden state: at most kAmxPanelDepth numbers
  const char* data = nullptr;
  int64_t row_bytes = 0, step_bytes = 0, block_bytes = 0;
  int64_t columns_in_memory = 0;  // from the panel's first on: what may be fetched ahead

  // Read in place where they are read once or twice and nothing sticks out; `column` is the panel's first.
  bool lies_in(const LinearOperands& operands, int64_t column, int64_t group_count) {
    const Array& weight = operands.weight;
    if (group_count > 2 || columns % kAmxRows != 0 || weight.strides[1] != 1) return false;
    if (depth + steps * kAmxDepth > operands.depth) return false;
    row_bytes = weight.strides[0] * 2;
    step_bytes = kAmxDepth * 2;
    block_bytes = kAmxRows * row_bytes;
    data = weight.as<const char>() + column * row_bytes + depth * 2;
    columns_in_memory = operands.vocab - column;
    return true;
  }
  // As packed tiles, a block of sixteen columns after the other.
  void is_packed_at(const uint16_t* packed) {
    constexpr int64_t kTileBytes = kAmxRows * kAmxDepth * 2;
    data = reinterpret_cast<const char*>(packed);
    row_bytes = kAmxDepth * 2;
    step_bytes = kTileBytes;
    block_bytes = steps * kTileBytes;
    columns_in_memory = 0;
  }
};

// The products of a panel with groups of `room` rows: written where its depth is the first, else added.
void amx_products(const AmxPanel& panel, const AmxGroup* groups, int64_t group_count, int64_t room);

}  // namespace rlk::cpu
