// attention, one query and head after the other, with a few of its possible defects. The scores of a query lie in the
// workspace; cu_seqlens are read on the host.
#include "conformance/simple/device.hpp"
#include "conformance/simple/element.hpp"
#include "conformance/simple/implementations.hpp"

#include <algorithm>
#include <limits>

namespace rlk::simple {
namespace {

struct Sequence {
  int64_t batch, q_first, q_length, k_first, k_length;
};

struct Memory {
  bool packed;
  Tensor q, k, v, key_mask, out, lse;
  // The element (sequence's token i, head, d) of a dense or packed tensor.
  int64_t at(const Tensor& t, int64_t batch, int64_t token, int64_t head, int64_t d) const {
    return packed ? t.at(token, head, d) : t.at(batch, token, head, d);
  }
};

class AttentionPlan : public sdk::Plan {
public:
  explicit AttentionPlan(const sdk::Call<sdk::ops::Attention>& call) : params_(call.params()) {
    for (const int symbol : {RLK_ATTENTION_SYM_B, RLK_ATTENTION_SYM_SQ, RLK_ATTENTION_SYM_SK, RLK_ATTENTION_SYM_TQ,
                             RLK_ATTENTION_SYM_TK}) {
      dynamic_symbols |= uint64_t{1} << symbol;
    }
    flags = RLK_PLAN_SHAREABLE | RLK_PLAN_PREPARE;
    workspace_bound = UINT64_MAX;
    if (packed()) host_inputs = 1u << RLK_ATTENTION_IN_CU_SEQLENS_Q | 1u << RLK_ATTENTION_IN_CU_SEQLENS_K;
    numerics = kAllClasses;
    variant = "serial";
  }

  uint64_t prepare(const sdk::Run& run) override {
    int64_t longest = 0;
    for (const Sequence& sequence : sequences(run, nullptr)) longest = std::max(longest, sequence.k_length);
    return static_cast<uint64_t>(longest) * sizeof(double);
  }

  void enqueue(sdk::Stream&, const sdk::Run& run) override {
    if (sdk::dtype_of(*run.input(RLK_ATTENTION_IN_Q)) == Dtype::f64) return attend_all<double>(run);
    attend_all<float>(run);
  }

private:
  bool packed() const { return params_.layout == RLK_ATTENTION_LAYOUT_PACKED; }

  static int64_t read(const sdk::Run& run, uint32_t input, int64_t i) {
    const bool wide = sdk::dtype_of(*run.input(input)) == Dtype::i64 && !mutant("seqlens_read_as_i32");
    return wide ? static_cast<const int64_t*>(run.host_input(input))[i]
                : static_cast<const int32_t*>(run.host_input(input))[i];
  }

  // Empty when cu_seqlens are bad, which is reported where `wrong` is given.
  std::vector<Sequence> sequences(const sdk::Run& run, bool* wrong) {
    std::vector<Sequence> list;
    const int64_t batch = run.symbol(RLK_ATTENTION_SYM_B);
    if (!packed()) {
      for (int64_t b = 0; b < batch; ++b) {
        list.push_back({b, 0, run.symbol(RLK_ATTENTION_SYM_SQ), 0, run.symbol(RLK_ATTENTION_SYM_SK)});
      }
      return list;
    }
    const int64_t q_tokens = run.symbol(RLK_ATTENTION_SYM_TQ), k_tokens = run.symbol(RLK_ATTENTION_SYM_TK);
    if (mutant("one_sequence")) return {{0, 0, q_tokens, 0, k_tokens}};
    if (!check(run, RLK_ATTENTION_IN_CU_SEQLENS_Q, q_tokens, wrong)) return {};
    if (!check(run, RLK_ATTENTION_IN_CU_SEQLENS_K, k_tokens, wrong)) return {};
    if (mutant("stale_seqlens") && !stale_.empty() && static_cast<int64_t>(stale_.size()) == batch) return stale_;
    for (int64_t b = 0; b < batch; ++b) {
      const int64_t q0 = read(run, RLK_ATTENTION_IN_CU_SEQLENS_Q, b), k0 = read(run, RLK_ATTENTION_IN_CU_SEQLENS_K, b);
      list.push_back({b, q0, read(run, RLK_ATTENTION_IN_CU_SEQLENS_Q, b + 1) - q0, k0,
                      read(run, RLK_ATTENTION_IN_CU_SEQLENS_K, b + 1) - k0});
    }
    if (mutant("stale_seqlens")) stale_ = list;
    return list;
  }

  static bool check(const sdk::Run& run, uint32_t input, int64_t total, bool* wrong) {
    const int64_t last = run.symbol(RLK_ATTENTION_SYM_B);
    for (int64_t b = 0; b <= last; ++b) {
      const int64_t content = read(run, input, b);
      const bool bad =
          (b == 0 && content != 0) || (b > 0 && content < read(run, input, b - 1)) || (b == last && content != total);
      if (!bad) continue;
      const bool is_second = input == RLK_ATTENTION_IN_CU_SEQLENS_K && !mutant("other_seqlens_blamed");
      if (wrong != nullptr && !mutant("seqlens_not_told"))
        report(run, is_second ? RLK_DATA_BAD_SECOND_SEQLENS : RLK_DATA_BAD_SEQLENS, b, content);
      if (wrong != nullptr) *wrong = true;
      return false;
    }
    return true;
  }

  template <class A>
  void attend_all(const sdk::Run& run) {
    const Memory memory{packed(),
                        Tensor(run.input(RLK_ATTENTION_IN_Q)),
                        Tensor(run.input(RLK_ATTENTION_IN_K)),
                        Tensor(run.input(RLK_ATTENTION_IN_V)),
                        Tensor(mutant("key_mask_ignored") ? nullptr : run.input(RLK_ATTENTION_IN_KEY_MASK)),
                        Tensor(run.output(RLK_ATTENTION_OUT_OUT)),
                        Tensor(mutant("attention_lse_not_written") ? nullptr : run.output(RLK_ATTENTION_OUT_LSE))};
    bool wrong = false;
    const std::vector<Sequence> list = sequences(run, &wrong);
    if (wrong) return spoil<A>(run, memory);
    A* scores = static_cast<A*>(run.workspace());
    for (const Sequence& sequence : list) {
      const bool alone = list.size() == 1;
      for (int64_t i = 0; i < sequence.q_length; ++i) {
        for (int64_t h = 0; h < run.symbol(RLK_ATTENTION_SYM_HQ); ++h) {
          attend<A>(run, memory, sequence, alone, i, h, scores);
        }
      }
      if (mutant("workspace_overrun") && run.workspace_bytes() > 0) scores[run.workspace_bytes() / sizeof(A)] = A(1);
    }
  }

  template <class A>
  static void spoil(const sdk::Run& run, const Memory& memory) {
    constexpr A kNan = std::numeric_limits<A>::quiet_NaN();
    for (int64_t i = 0; i < run.symbol(RLK_ATTENTION_SYM_TQ); ++i) {
      for (int64_t h = 0; h < run.symbol(RLK_ATTENTION_SYM_HQ); ++h) {
        if (memory.lse.given()) memory.lse.store(memory.lse.at(i, h), kNan);
        for (int64_t d = 0; d < run.symbol(RLK_ATTENTION_SYM_D); ++d) memory.out.store(memory.out.at(i, h, d), kNan);
      }
    }
  }

  bool sees(const Sequence& s, int64_t i, int64_t j) const {
    const bool from_start =
        params_.causal_alignment == RLK_ATTENTION_CAUSAL_ALIGNMENT_TOP_LEFT && !mutant("causal_alignment_ignored");
    const int64_t offset = from_start ? 0 : s.k_length - s.q_length;
    const int64_t position = i + (mutant("window_top_left") ? 0 : offset);
    const int64_t diagonal = i + (mutant("causal_top_left") ? 0 : offset);
    const int64_t more = mutant("window_one_more") ? 1 : 0;
    if (params_.causal != 0 && !mutant("causal_ignored") && j > diagonal) return false;
    if (params_.window_left >= 0 && !mutant("window_left_ignored") && j < position - params_.window_left - more) {
      return false;
    }
    return params_.window_right < 0 || mutant("window_right_ignored") || j <= position + params_.window_right;
  }

  template <class A>
  void attend(const sdk::Run& run, const Memory& memory, const Sequence& s, bool alone, int64_t i, int64_t h,
              A* scores) {
    constexpr A kLowest = -std::numeric_limits<A>::infinity();
    const int64_t size = run.symbol(RLK_ATTENTION_SYM_D);
    const int64_t kv_heads = run.symbol(RLK_ATTENTION_SYM_HKV);
    const int64_t g = mutant("heads_interleaved") ? h % kv_heads : h / (run.symbol(RLK_ATTENTION_SYM_HQ) / kv_heads);
    const bool own_scale = params_.scale > 0 && !mutant("scale_ignored");
    const A scale = own_scale ? static_cast<A>(params_.scale) : 1 / std::sqrt(static_cast<A>(size));
    int64_t keys = s.k_length;
    if (mutant("last_key_dropped") && keys > 64) --keys;
    A max = kLowest;
    for (int64_t j = 0; j < keys; ++j) {
      scores[j] = kLowest;
      if (!sees(s, i, j)) continue;
      if (memory.key_mask.given() && memory.key_mask.load_int(memory.key_mask.at(s.batch, j)) == 0) continue;
      A dot = 0;
      for (int64_t d = 0; d < size; ++d) {
        dot += memory.q.load<A>(memory.at(memory.q, s.batch, s.q_first + i, h, d)) *
               memory.k.load<A>(memory.at(memory.k, s.batch, s.k_first + j, g, d));
      }
      scores[j] = scale * dot;
      if (params_.softcap > 0 && !mutant("softcap_ignored")) {
        const auto cap = static_cast<A>(params_.softcap);
        scores[j] = cap * std::tanh(scores[j] / cap);
      }
      if (scores[j] > max || std::isnan(scores[j])) max = scores[j];  // std::max would lose a NaN
    }
    const bool empty = max == kLowest;
    if (mutant("no_maximum") && !empty) max = 0;
    const bool reverse = (mutant("alone_is_different") && alone && packed()) || (mutant("chunk_dependent") && i >= 4);
    BlockSum<A> weights;
    for (int64_t k = 0; k < keys && !empty; ++k) {
      const int64_t j = reverse ? keys - 1 - k : k;
      scores[j] = std::exp(scores[j] - max);
      weights.add(scores[j]);
    }
    const A sum = weights.value();
    if (memory.lse.given()) {
      A lse = empty ? kLowest : max + std::log(sum);
      if (mutant("lse_in_bits")) lse *= static_cast<A>(1.4426950408889634);
      memory.lse.store(packed() ? memory.lse.at(s.q_first + i, h) : memory.lse.at(s.batch, i, h), lse);
    }
    for (int64_t d = 0; d < size; ++d) {
      BlockSum<A> values;
      for (int64_t k = 0; k < keys && !empty; ++k) {
        const int64_t j = reverse ? keys - 1 - k : k;
        if (scores[j] == 0 && memory.key_mask.given() && !mutant("padding_weighs_zero")) continue;
        values.add(scores[j] * memory.v.load<A>(memory.at(memory.v, s.batch, s.k_first + j, g, d)));
      }
      A out = values.value();
      if (!empty || mutant("no_key_is_nan")) out /= sum;
      if (mutant("last_d_not_written") && d == size - 1) continue;
      memory.out.store(memory.at(memory.out, s.batch, s.q_first + i, h, d), out);
    }
  }

  rlk_attention_params params_;
  std::vector<Sequence> stale_;
};

}  // namespace

sdk::Support Attention::query(SimpleDevice&, const sdk::Call<Op>& call) {
  sdk::Support support = sdk::Support::yes("serial", kAllClasses);
  const bool packed = call.params().layout == RLK_ATTENTION_LAYOUT_PACKED;
  const int64_t keys = call.symbol(packed ? RLK_ATTENTION_SYM_TK : RLK_ATTENTION_SYM_SK);
  support.workspace_bound = static_cast<uint64_t>(keys) * sizeof(double);
  if (mutant("workspace_bound_too_small")) support.workspace_bound /= 2;
  if (packed) support.host_inputs = 1u << RLK_ATTENTION_IN_CU_SEQLENS_Q | 1u << RLK_ATTENTION_IN_CU_SEQLENS_K;
  return support;
}

std::unique_ptr<sdk::Plan> Attention::plan(SimpleDevice&, const sdk::Call<Op>& call) {
  return std::make_unique<AttentionPlan>(call);
}

}  // namespace rlk::simple
