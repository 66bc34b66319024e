// attention: one query and head at a time, its scores in the workspace.
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "elements.hpp"
#include "operators.hpp"

namespace golden_plugin {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The tokens of q (or k, v) that belong to one sequence: of batch entry b, or of the packed rows from `first`.
struct Tokens {
  bool dense;
  int64_t b, first, length;
  double real(const Elements& tensor, int64_t i, int64_t h, int64_t d) const {
    return dense ? tensor.real(b, i, h, d) : tensor.real(first + i, h, d);
  }
  void set(const Elements& tensor, double value, int64_t i, int64_t h, int64_t d) const {
    dense ? tensor.set(value, b, i, h, d) : tensor.set(value, first + i, h, d);
  }
  void set(const Elements& tensor, double value, int64_t i, int64_t h) const {
    dense ? tensor.set(value, b, i, h) : tensor.set(value, first + i, h);
  }
};

// The numbers of one head's keys or values, [length, head_size]: each is read once, and serves many queries.
std::vector<double> read_head(const Elements& tensor, const Tokens& tokens, int64_t head, int64_t head_size) {
  std::vector<double> rows(static_cast<size_t>(tokens.length * head_size));
  for (int64_t j = 0; j < tokens.length; ++j) {
    double* const row = rows.data() + j * head_size;
    for (int64_t d = 0; d < head_size; ++d) row[d] = tokens.real(tensor, j, head, d);
  }
  return rows;
}

struct Attention {
  const rlk_attention_params& params;
  Elements q, k, v, key_mask, out, lse;
  double* scores;  // [longest key sequence]
  int64_t q_heads, kv_heads, head_size;
  double scale;

  void sequence(const Tokens& queries, const Tokens& keys) const {
    const int64_t group = q_heads / kv_heads;
    for (int64_t g = 0; g < kv_heads; ++g) {
      const std::vector<double> key_rows = read_head(k, keys, g, head_size), values = read_head(v, keys, g, head_size);
      for (int64_t h = g * group; h < (g + 1) * group; ++h) {
        for (int64_t i = 0; i < queries.length; ++i) query(queries, keys, key_rows, values, i, h);
      }
    }
  }

  void query(const Tokens& queries, const Tokens& keys, const std::vector<double>& key_rows,
             const std::vector<double>& values, int64_t i, int64_t h) const {
    const bool from_start = params.causal_alignment == RLK_ATTENTION_CAUSAL_ALIGNMENT_TOP_LEFT;
    const int64_t position = from_start ? i : i + keys.length - queries.length;
    int64_t begin = 0, end = keys.length;
    // Compared as differences: a window may be as large as an int64_t.
    if (params.window_left >= 0 && position > params.window_left) begin = position - params.window_left;
    if (params.window_right >= 0 && end - 1 - position > params.window_right) end = position + params.window_right + 1;
    if (params.causal == RLK_ATTENTION_CAUSAL_ON && position + 1 < end) end = position + 1;

    const auto is_masked = [&](int64_t j) { return key_mask && key_mask.integer(keys.b, j) == 0; };
    std::vector<double> row(static_cast<size_t>(head_size)), weighted(row.size());
    for (int64_t d = 0; d < head_size; ++d) row[static_cast<size_t>(d)] = queries.real(q, i, h, d);
    double max = -kInfinity;
    bool sees_none = true;
    for (int64_t j = begin; j < end; ++j) {
      if (is_masked(j)) continue;
      sees_none = false;
      scores[j] = scale * std::inner_product(row.begin(), row.end(), key_rows.begin() + j * head_size, 0.0);
      if (params.softcap > 0) scores[j] = params.softcap * std::tanh(scores[j] / params.softcap);
      max = scores[j] > max ? scores[j] : max;
    }
    Sum sum;
    for (int64_t j = begin; j < end; ++j) {
      if (is_masked(j)) continue;
      scores[j] = std::exp(scores[j] - max);
      sum.add(scores[j]);
    }
    if (lse) queries.set(lse, sees_none ? -kInfinity : max + std::log(sum.value()), i, h);
    for (int64_t j = begin; j < end; ++j) {
      if (is_masked(j)) continue;
      const double* const value = values.data() + j * head_size;
      for (size_t d = 0; d < weighted.size(); ++d) weighted[d] += scores[j] * value[d];
    }
    for (int64_t d = 0; d < head_size; ++d) {
      queries.set(out, sees_none ? 0.0 : weighted[static_cast<size_t>(d)] / sum.value(), i, h, d);
    }
  }
};

// The host's contiguous copy of a cu_seqlens input.
class Seqlens {
public:
  Seqlens(const Run& run, uint32_t input)
      : data_(run.host_input(input)),
        last_(run.input(input)->shape[0] - 1),
        wide_(rlk::sdk::dtype_of(*run.input(input)) == rlk::sdk::Dtype::i64) {
    if (data_ == nullptr) throw rlk::sdk::Error(RLK_INTERNAL, "the host gave no host copy of cu_seqlens");
  }
  int64_t sequences() const { return last_; }
  int64_t operator[](int64_t i) const {
    return wide_ ? static_cast<const int64_t*>(data_)[i] : static_cast<const int32_t*>(data_)[i];
  }
  // The first position that breaks the rules, or -1.
  int64_t first_bad(int64_t total) const {
    for (int64_t i = 0; i <= last_; ++i) {
      const int64_t low = i == 0 ? 0 : (*this)[i - 1];
      if ((*this)[i] < low || (i == 0 && (*this)[i] != 0) || (i == last_ && (*this)[i] != total)) return i;
    }
    return -1;
  }

private:
  const void* data_;
  int64_t last_;
  bool wide_;
};

}  // namespace

void compute(const rlk_attention_params& params, const Run& run) {
  const bool dense = params.layout == RLK_ATTENTION_LAYOUT_DENSE;
  const int64_t head_size = run.symbol(RLK_ATTENTION_SYM_D);
  const Attention attention{params,
                            run.input(RLK_ATTENTION_IN_Q),
                            run.input(RLK_ATTENTION_IN_K),
                            run.input(RLK_ATTENTION_IN_V),
                            run.input(RLK_ATTENTION_IN_KEY_MASK),
                            run.output(RLK_ATTENTION_OUT_OUT),
                            run.output(RLK_ATTENTION_OUT_LSE),
                            static_cast<double*>(run.workspace()),
                            run.symbol(RLK_ATTENTION_SYM_HQ),
                            run.symbol(RLK_ATTENTION_SYM_HKV),
                            head_size,
                            params.scale > 0 ? params.scale : 1 / std::sqrt(static_cast<double>(head_size))};

  if (dense) {
    const int64_t n_queries = run.symbol(RLK_ATTENTION_SYM_SQ), n_keys = run.symbol(RLK_ATTENTION_SYM_SK);
    for (int64_t b = 0; b < run.symbol(RLK_ATTENTION_SYM_B); ++b) {
      attention.sequence({true, b, 0, n_queries}, {true, b, 0, n_keys});
    }
    return;
  }
  const int64_t n_queries = run.symbol(RLK_ATTENTION_SYM_TQ), n_keys = run.symbol(RLK_ATTENTION_SYM_TK);
  const Seqlens cu_q(run, RLK_ATTENTION_IN_CU_SEQLENS_Q), cu_k(run, RLK_ATTENTION_IN_CU_SEQLENS_K);
  const int64_t bad_q = cu_q.first_bad(n_queries), bad_k = cu_k.first_bad(n_keys);
  if (bad_q >= 0 || bad_k >= 0) {
    report(run, bad_q >= 0 ? RLK_DATA_BAD_SEQLENS : RLK_DATA_BAD_SECOND_SEQLENS, bad_q >= 0 ? bad_q : bad_k,
           bad_q >= 0 ? cu_q[bad_q] : cu_k[bad_k]);
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
    for (int64_t i = 0; i < n_queries; ++i) {
      for (int64_t h = 0; h < attention.q_heads; ++h) {
        if (attention.lse) attention.lse.set(kNan, i, h);
        for (int64_t d = 0; d < head_size; ++d) attention.out.set(kNan, i, h, d);
      }
    }
    return;
  }
  for (int64_t b = 0; b < cu_q.sequences(); ++b) {
    attention.sequence({false, 0, cu_q[b], cu_q[b + 1] - cu_q[b]}, {false, 0, cu_k[b], cu_k[b + 1] - cu_k[b]});
  }
}

}  // namespace golden_plugin
