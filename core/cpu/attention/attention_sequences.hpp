// What attention and its backward agree on: where a sequence lies, which keys a query sees, how a score is scaled.
#pragma once

#include <algorithm>
#include <cmath>

#include "core/cpu/attention/attention.hpp"
#include "core/cpu/simd/element.hpp"

namespace rlk::cpu {

struct AttentionSequence {
  int64_t batch, q_first, q_length, k_first, k_length;
};

// Query i sees keys max(0, i + first) .. min(k_length - 1, i + last), but masked ones.
struct AttentionWindow {
  int64_t first, last;
};

class AttentionSequences {
public:
  explicit AttentionSequences(const AttentionArgs& args) : args_(args) {}

  double scale() const { return args_.scale > 0 ? args_.scale : 1 / std::sqrt(static_cast<double>(args_.head_size)); }
  // Extreme parameters leave the range of fp32.
  bool in_f64() const {
    const bool ordinary_cap = args_.softcap == 0 || (args_.softcap > 0x1p-60 && args_.softcap < 0x1p60);
    return args_.dtype == Dtype::f64 || scale() > 0x1p60 || !ordinary_cap;
  }
  int64_t group() const { return args_.q_heads / args_.kv_heads; }

  DataError check() const {
    if (!args_.packed) return {};
    const DataError error = check(args_.cu_seqlens_q, args_.cu_seqlens_q_stride, args_.q_tokens);
    return error.kind != kNoDataError ? error : check(args_.cu_seqlens_k, args_.cu_seqlens_k_stride, args_.k_tokens);
  }

  AttentionSequence operator[](int64_t b) const {
    if (!args_.packed) return {b, 0, args_.q_tokens, 0, args_.k_tokens};
    const int64_t q = seqlen(args_.cu_seqlens_q, b * args_.cu_seqlens_q_stride);
    const int64_t k = seqlen(args_.cu_seqlens_k, b * args_.cu_seqlens_k_stride);
    return {b, q, seqlen(args_.cu_seqlens_q, (b + 1) * args_.cu_seqlens_q_stride) - q, k,
            seqlen(args_.cu_seqlens_k, (b + 1) * args_.cu_seqlens_k_stride) - k};
  }

  AttentionWindow window(const AttentionSequence& s) const {
    const auto limit = [](int64_t window) { return window < 0 ? kUnlimited : std::min(window, kUnlimited); };
    const int64_t diagonal = args_.top_left ? 0 : s.k_length - s.q_length;
    const int64_t after = args_.causal ? 0 : kUnlimited;
    return {diagonal - limit(args_.window_left), diagonal + std::min(after, limit(args_.window_right))};
  }

  // The row of a tensor at the sequence's token and a head.
  void* row(const AttentionTensor& tensor, const AttentionSequence& s, int64_t token, int64_t head, Dtype dtype) const {
    const int64_t batch = args_.packed ? 0 : s.batch * tensor.batch_stride;
    return element(tensor.data, batch + token * tensor.token_stride + head * tensor.head_stride, dtype);
  }
  const uint8_t* key_mask(const AttentionSequence& s) const {
    return args_.key_mask == nullptr ? nullptr : args_.key_mask + s.batch * args_.key_mask_batch_stride;
  }

  // After a data error. d_count is 1 for a tensor without D.
  void fill_nan(const AttentionTensor& tensor, int64_t tokens, int64_t heads, int64_t d_count, Dtype dtype) const {
    const int64_t sequences = args_.packed ? 1 : args_.batch;
    for (int64_t b = 0; b < sequences && tensor.data != nullptr; ++b) {
      for (int64_t token = 0; token < tokens; ++token) {
        for (int64_t h = 0; h < heads; ++h) {
          const int64_t row = b * tensor.batch_stride + token * tensor.token_stride + h * tensor.head_stride;
          for (int64_t d = 0; d < d_count; ++d) {
            store_element(tensor.data, dtype, row + d * tensor.d_stride, std::numeric_limits<double>::quiet_NaN());
          }
        }
      }
    }
  }

private:
  static constexpr int64_t kUnlimited = int64_t{1} << 60;  // positions stay far below; sums of two stay in range

  int64_t seqlen(const void* cu_seqlens, int64_t at) const {
    return args_.cu_seqlens_are_i64 ? static_cast<const int64_t*>(cu_seqlens)[at]
                                    : static_cast<const int32_t*>(cu_seqlens)[at];
  }
  DataError check(const void* cu_seqlens, int64_t stride, int64_t total) const {
    int64_t previous = 0;
    for (int64_t position = 0; position <= args_.batch; ++position) {
      const int64_t content = seqlen(cu_seqlens, position * stride);
      const bool starts_wrong = position == 0 && content != 0;
      const bool ends_wrong = position == args_.batch && content != total;
      if (starts_wrong || content < previous || ends_wrong) return {kBadSeqlens, position, content};
      previous = content;
    }
    return {};
  }

  const AttentionArgs& args_;
};

}  // namespace rlk::cpu
