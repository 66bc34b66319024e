// Which blocks of a cache, and which places in them, does a block table name?
#pragma once

#include "core/conformance/elements.hpp"

namespace rlk::core::conformance {

// A block table of a call with the lengths of its rows.
class BlockTable {
public:
  // `input` has the domain block_table.
  BlockTable(const ConcreteCall& call, size_t input)
      : table_(call.inputs[input]),
        lengths_(call.inputs[static_cast<size_t>(call.decl->inputs[input].domain.lengths)]),
        block_(call.symbols[static_cast<size_t>(call.decl->inputs[input].domain.block)]) {}

  int64_t rows() const { return table_.shape[0]; }
  int64_t columns() const { return table_.shape[1]; }
  int64_t block() const { return block_; }
  // Tokens of a row; none where its length is a data error.
  int64_t tokens(int64_t row) const {
    const int64_t length = get_int(lengths_, row);
    return length < 0 || length > columns() * block_ ? 0 : length;
  }
  // How many entries of a row are read.
  int64_t used(int64_t row) const { return ceil_divide(tokens(row), block_); }
  int64_t entry(int64_t row, int64_t column) const { return get_int(table_, row * columns() + column); }

  // Places [block * block() + place] of a cache of so many blocks in which a token lies.
  std::vector<bool> places(int64_t blocks) const {
    std::vector<bool> list(static_cast<size_t>(blocks * block_), false);
    for (int64_t row = 0; row < rows(); ++row) {
      for (int64_t token = 0; token < tokens(row); ++token) {
        const int64_t at = entry(row, token / block_);
        if (at >= 0 && at < blocks) list[static_cast<size_t>(at * block_ + token % block_)] = true;
      }
    }
    return list;
  }

private:
  const Argument& table_;
  const Argument& lengths_;
  const int64_t block_;
};

}  // namespace rlk::core::conformance
