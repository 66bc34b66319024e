// Tensors of a step as views of memory: of a tensor of the call, with more dimensions, with two exchanged, in pieces.
#pragma once

#include <algorithm>
#include <utility>

#include "program.hpp"

namespace rlk::composed {

inline Dims padded(Dims dims, size_t rank) {
  dims.insert(dims.begin(), rank - std::min(rank, dims.size()), 1);
  return dims;
}

inline Operand operand_of(const View& view) {
  Operand operand;
  operand.place = view.place == View::Place::input  ? Operand::Place::input
                  : view.place == View::Place::kept ? Operand::Place::kept
                                                    : Operand::Place::output;
  operand.index = view.index;
  operand.byte_offset = view.byte_offset;
  operand.dtype = view.dtype;
  operand.dims = view.dims;
  operand.strides = view.strides;
  return operand;
}

// With as many dimensions as the output of its step, one at least.
inline Operand with_rank(Operand operand, size_t rank) {
  while (operand.dims.size() < std::max<size_t>(rank, 1)) {
    operand.dims.insert(operand.dims.begin(), 1);
    operand.strides.insert(operand.strides.begin(), 1);
  }
  for (size_t i = 0; i < operand.dims.size(); ++i) {
    if (operand.dims[i] == 1) operand.strides[i] = 1;  // any is legal, none is used
  }
  return operand;
}

// A dimension and the next in exchanged places.
inline Operand exchanged(Operand operand, size_t axis) {
  std::swap(operand.dims[axis], operand.dims[axis + 1]);
  std::swap(operand.strides[axis], operand.strides[axis + 1]);
  return operand;
}
inline Operand transposed(Operand operand) {
  const size_t axis = operand.dims.size() - 2;
  return exchanged(std::move(operand), axis);
}
inline bool has_repeats(const Operand& operand) {
  for (size_t i = 0; i < operand.dims.size(); ++i) {
    if (operand.strides[i] == 0 && operand.dims[i] > 1) return true;
  }
  return false;
}
inline Operand record_of(const Dims& dims) {
  Operand record;
  record.place = Operand::Place::record;
  record.dtype = sdk::Dtype::boolean;
  record.dims = dims;
  record.strides = dense_strides(dims);
  return record;
}

inline Operand number_operand(const Node& own) {
  Operand operand;
  operand.place = Operand::Place::number;
  operand.dtype = own.dtype;
  operand.number = own.number;
  return with_rank(operand, 1);
}

// Pieces of [sequences, tokens, columns] from row `first` on that strides have, each beside its part of a matrix: the
// rest of a sequence, sequences as wholes, what has begun of one.
template <class Visit>
void each_piece(const Operand& whole, int64_t first, const Operand& matrix, const Visit& visit) {
  const int64_t tokens = whole.dims[1], columns = whole.dims[2], rows = matrix.dims[0];
  const auto bytes = static_cast<int64_t>(sdk::bytes_of(whole.dtype));
  for (int64_t row = 0; row < rows;) {
    const int64_t token = (first + row) % tokens, sequence = (first + row) / tokens, left = rows - row;
    const bool is_whole = token == 0 && left >= tokens;
    const int64_t sequences = is_whole ? left / tokens : 1, each = is_whole ? tokens : std::min(tokens - token, left);
    Operand piece = whole, part = matrix;
    piece.byte_offset += (sequence * whole.strides[0] + token * whole.strides[1]) * bytes;
    part.byte_offset += row * columns * static_cast<int64_t>(sdk::bytes_of(matrix.dtype));
    piece.dims = part.dims = {sequences, each, columns};
    part.strides = dense_strides(part.dims);
    visit(with_rank(piece, 3), with_rank(part, 3));
    row += sequences * each;
  }
}

}  // namespace rlk::composed
