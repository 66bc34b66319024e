// The rows of one sequence that share a key head, as the tasks of attention and of its backward read and write them.
#pragma once

#include <algorithm>
#include <limits>

#include "core/cpu/simd/walk.hpp"

namespace rlk::cpu {

// Rows of D elements, or of one number (lse): row r is token r / group, head r % group. group is 1 for keys.
struct AttentionRows {
  Dtype dtype;
  void* data;  // of row 0; null when absent
  int64_t token_stride, head_stride, d_stride, group;

  bool present() const { return data != nullptr; }
  void* row(int64_t r) const { return row(r / group, r % group); }
  void* row(int64_t token, int64_t head) const {
    return element(data, token * token_stride + head * head_stride, dtype);
  }
};

// Keys or values of a sequence, wherever they lie: one after the other, in the blocks of a cache, or in two places.
struct AttentionKeys {
  static constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

  AttentionRows rows{};  // of the first key; in blocks: of the first place of block 0
  // In blocks: keys [i * block_size, (i + 1) * block_size) lie in block number blocks.get(i).
  IntArray blocks{};
  int64_t block_size = kAll, block_stride = 0;
  // Keys from split on lie in rest.
  int64_t split = kAll;
  AttentionRows rest{};
  // Elements of a row: `piece` neighbours d_stride apart, pieces piece_stride apart; 0: the row is one piece.
  int64_t piece = 0, piece_stride = 0;

  AttentionKeys() = default;
  AttentionKeys(const AttentionRows& in_order) : rows(in_order) {}  // NOLINT(google-explicit-constructor)

  void* row(int64_t j) const {
    if (j >= split) return rest.row(j - split, 0);
    if (block_size == kAll) return rows.row(j, 0);
    return element(rows.row(j % block_size, 0), blocks.get(j / block_size) * block_stride, rows.dtype);
  }
  // What key j is one of, and where the next ones begin that are not.
  const AttentionRows& part_of(int64_t j) const { return j >= split ? rest : rows; }
  int64_t part_end(int64_t j) const { return j >= split ? kAll : split; }
  // Up to which key they lie at one distance, from key j on.
  int64_t even_end(int64_t j) const {
    return block_size == kAll ? part_end(j) : std::min(part_end(j), (j / block_size + 1) * block_size);
  }
};

// Whether keys count, of a mask in one or two places; without one every key does.
struct AttentionKeyMask {
  Line first{}, rest{};  // keys from split on are those of `rest`
  int64_t split = AttentionKeys::kAll;

  AttentionKeyMask() = default;
  AttentionKeyMask(const Line& line) : first(line) {}  // NOLINT(google-explicit-constructor)

  bool present() const { return first.present() || rest.present(); }
  bool keeps(int64_t j) const { return j >= split ? rest.keeps(j - split) : first.keeps(j); }
};

}  // namespace rlk::cpu
