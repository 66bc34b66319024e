// Numbers of 16 bits. The numbers of two of CNNL's casts are public, those between fp16 and fp32; bf16 is read and
// written as the upper half of fp32, which is rounded before by sums and products alone.
#include <algorithm>
#include <limits>

#include "descriptors.hpp"

namespace rlk::cambricon {
namespace {

constexpr int kPiece = 1 << 20;  // elements that are rounded at once: four tensors of 4 MiB beside the operands

Operand part_of(const Operand& whole, int first, int number, size_t bytes) {
  return {static_cast<std::byte*>(whole.data) + static_cast<size_t>(first) * bytes, whole.dtype, {number}};
}

}  // namespace

void Calls::convert(int kind, const Operand& x, const Operand& out) {
  const Descriptor from(x), to(out);
  call("cnnlCastDataType",
       [&](CnnlHandle h) { return runtime().cnnlCastDataType(h, from, x.data, kind, to, out.data); });
}

void Calls::widen(const Operand& x, const Operand& out) {
  fill_bytes(out, 0);
  const auto elements = static_cast<int>(count(x.dims));
  copy({x.data, kInt16, {elements}}, {static_cast<std::byte*>(out.data) + sizeof(int16_t), kInt16, {elements}, {2}});
}

void Calls::upper_halves(const Operand& x, const Operand& out) {
  const auto elements = static_cast<int>(count(x.dims));
  copy({static_cast<std::byte*>(x.data) + sizeof(int16_t), kInt16, {elements}, {2}}, {out.data, kInt16, {elements}});
}

void Calls::narrow(const Operand& x, const Operand& out) {
  const auto elements = static_cast<int>(count(x.dims));
  const uint64_t before = mark();
  for (int first = 0; first < elements; first += kPiece) {
    const int number = std::min(kPiece, elements - first);
    rewind(before);
    narrow_piece(part_of(x, first, number, sizeof(float)), part_of(out, first, number, sizeof(int16_t)));
  }
  rewind(before);
}

// To 8 digits, ties to even: with c = (2^16 + 1) x, c + (x - c) is x without what is below its eighth digit (T. J.
// Dekker, 1971). Large numbers are made smaller before, so that c is finite, and below the normal numbers a sum with a
// number of the right size rounds. What is infinite or NaN is added to itself, which keeps it.
void Calls::narrow_piece(const Operand& x, const Operand& out) {
  constexpr float kLarge = 0x1p100F, kDown = 0x1p-32F, kUp = 0x1p32F, kSplit = 0x1p16F + 1;
  constexpr float kNormal = 0x1p-126F, kRounds = 0x1.8p-110F;
  const Operand size = scratch(kFloat, x.dims), bound = scratch(kFloat, x.dims);
  const Operand scaled = scratch(kFloat, x.dims), split = scratch(kFloat, x.dims), rounded = scratch(kFloat, x.dims);
  const Operand is_large = scratch(kBool, x.dims), chosen = scratch(kBool, x.dims);
  const auto ask = [&](int operation, float than, const Operand& mask) {
    fill(bound, than);
    compare(operation, size, bound, mask);
  };
  absolute(x, size);
  ask(kGreaterEqual, kLarge, is_large);
  scale(x, kDown, split);
  select(is_large, split, x, scaled);
  scale(scaled, kSplit, split);
  add(scaled, 1, split, -1, rounded);
  add(split, 1, rounded, 1, scaled);
  scale(scaled, kUp, split);
  select(is_large, split, scaled, rounded);

  ask(kLess, kNormal, chosen);
  affine(x, 1.0F, kRounds, split);
  affine(split, 1.0F, -kRounds, split);
  select(chosen, split, rounded, scaled);

  ask(kLess, std::numeric_limits<float>::infinity(), chosen);
  add(x, 1, x, 1, split);
  select(chosen, scaled, split, rounded);
  upper_halves(rounded, out);
}

}  // namespace rlk::cambricon
