// One task of products of matrices, compiled for every instruction set. Internal to product.cpp.
#pragma once

#include "core/cpu/linear/product.hpp"

namespace rlk::cpu {

// Some rows of a product: at most kLinearTilesPerTask tiles.
struct ProductPiece {
  const Product& product;
  int64_t row;        // the first of them
  LinearBatch batch;  // their numbers from that one on
};
LinearOperands operands_of(const ProductPiece& piece);

// Rows for which a piece of `count` has room in packed memory.
int64_t product_room(int64_t count, bool in_f64);
// Columns [column, column + kLinearBlock), or as many as there are. False without memory for scratch.
bool product_task(const ProductPiece& piece, int64_t column);

}  // namespace rlk::cpu
