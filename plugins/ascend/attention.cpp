// Which options the vendor's call has, sequences by their lengths, and what it does not cover: blind queries.
#include "attention.hpp"

#include <algorithm>
#include <cmath>

#include "fused_attention.hpp"
#include "plugins/composed/heads.hpp"
#include "tokens.hpp"

namespace rlk::ascend {
namespace {

using Op = sdk::ops::Attention;
using Named = sdk::Arguments<Op>;
using Operands = Op::Args<Operand>;
using sdk::ops::attention::Causal;
using sdk::ops::attention::CausalAlignment;
using sdk::ops::attention::Layout;

struct Sequence {
  int64_t q_first, q_length, k_first, k_length;
};

struct Window {
  int64_t left = -1, right = -1;  // -1: no limit; causal is right = 0
};

// How many queries at the beginning of a sequence see no key: query i is at key position i + Lk - Lq and sees nothing
// when even its last key lies before the first. Never queries at the end: their own position is a key.
int64_t blind_queries(const Sequence& s, const Window& window) {
  if (s.k_length == 0) return s.q_length;
  return window.right < 0 ? 0 : std::clamp<int64_t>(s.q_length - s.k_length - window.right, 0, s.q_length);
}

class AttentionPlan final : public ProgramPlan {
public:
  AttentionPlan(Device& device, const Named& call)
      : ProgramPlan(device, Op::kInputs, Op::kOutputs, Op::kSymbols),
        packed_(call.params.layout == Layout::packed),
        q_heads_(call.Hq),
        kv_heads_(call.Hkv),
        head_size_(call.D),
        scale_(call.params.scale > 0 ? call.params.scale : 1 / std::sqrt(static_cast<double>(head_size_))),
        c_(constants_, 0) {
    window_.left = call.params.window_left;
    window_.right = call.params.causal == Causal::on ? 0 : call.params.window_right;
    if (window_.left >= 0 || window_.right >= 0) mask_ = device.attention_mask();
    dynamic_symbols =
        packed_ ? sdk::bits_of(&Named::B, &Named::Tq, &Named::Tk) : sdk::bits_of(&Named::B, &Named::Sq, &Named::Sk);
    if (packed_) host_inputs = lengths();
  }

  // What the host must read of a packed batch.
  static uint64_t lengths() { return sdk::bits_of(&Named::cu_seqlens_q, &Named::cu_seqlens_k); }

private:
  void append_key(std::vector<int64_t>& key, const sdk::Run& run) const override {
    if (!packed_) return;
    for (const auto lengths_of : {&Named::cu_seqlens_q, &Named::cu_seqlens_k}) {
      const Dims values = host_values(run, sdk::index_of(lengths_of));
      key.insert(key.end(), values.begin(), values.end());
    }
  }

  void build(Builder& b, const sdk::Run& run) override {
    // Rows of heads: tokens of all sequences one after the other, in both layouts.
    const Operands call = operands_of<Op>(run);
    const Dims &q_dims = call.q.dims, &k_dims = call.k.dims;
    const int64_t q_tokens = packed_ ? q_dims[0] : q_dims[0] * q_dims[1];
    const int64_t k_tokens = packed_ ? k_dims[0] : k_dims[0] * k_dims[1];
    const Operand out = reshaped(call.out, {q_tokens, q_heads_ * head_size_});

    std::vector<Sequence> sequences;
    Dims q_ends, k_ends;
    if (packed_) {
      const Dims q_starts = host_values(run, sdk::index_of(&Named::cu_seqlens_q));
      const Dims k_starts = host_values(run, sdk::index_of(&Named::cu_seqlens_k));
      auto bad = composed::bad_seqlens(q_starts, q_tokens, RLK_DATA_BAD_SEQLENS);
      if (!bad) bad = composed::bad_seqlens(k_starts, k_tokens, RLK_DATA_BAD_SECOND_SEQLENS);
      if (bad) return add_bad_seqlens(b, *bad, out, call.lse);
      for (size_t i = 0; i + 1 < q_starts.size(); ++i) {
        sequences.push_back({q_starts[i], q_starts[i + 1] - q_starts[i], k_starts[i], k_starts[i + 1] - k_starts[i]});
      }
      q_ends.assign(q_starts.begin() + 1, q_starts.end());
      k_ends.assign(k_starts.begin() + 1, k_starts.end());
    } else {
      for (int64_t i = 0; i < q_dims[0]; ++i) sequences.push_back({i * q_dims[1], q_dims[1], i * k_dims[1], k_dims[1]});
    }
    if (q_tokens == 0) return;
    if (k_tokens > 0) add_fused(b, call, sequences, q_ends, k_ends);
    add_blind_queries(b, sequences, out, call.lse);
  }

  void add_bad_seqlens(Builder& b, const composed::DataError& bad, const Operand& out, const Operand& lse) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    if (element_count(out.dims) > 0) b.fill(out, nan);
    if (lse.present && element_count(lse.dims) > 0) b.fill(lse, nan);
    add_known_error(b, c_, bad.kind, bad.row, bad.value);
  }

  void add_fused(Builder& b, const Operands& call, const std::vector<Sequence>& sequences, const Dims& q_ends,
                 const Dims& k_ends) {
    // Only what hides a key of some sequence is asked for: the vendor's single-query kernels know no masks.
    int64_t longest_q = 0, longest_k = 0;
    for (const Sequence& s : sequences) {
      longest_q = std::max(longest_q, s.q_length);
      longest_k = std::max(longest_k, s.k_length);
    }
    const bool hides_right = window_.right >= 0 && window_.right < longest_q - 1;
    const bool hides_left = window_.left >= 0 && window_.left < longest_k - 1;
    FusedAttention fused{q_heads_, kv_heads_, scale_, packed_, q_ends, k_ends};
    if (hides_left || (hides_right && window_.right > 0))
      fused.sparse_mode = kBand;
    else if (hides_right)
      fused.sparse_mode = kCausal;
    if (hides_left) fused.before = std::min(window_.left, kNoLimit);
    if (hides_right) fused.after = std::min(window_.right, kNoLimit);
    if (fused.sparse_mode != kEverything) {
      Operand mask;
      mask.place = Place::fixed;
      mask.fixed = mask_;
      mask.dtype = kAclBool;
      fused.mask = reshaped(mask, {kMaskSize, kMaskSize});
    }
    fused.q = call.q, fused.k = call.k, fused.v = call.v, fused.out = call.out;
    const Operand &q = call.q, &lse = call.lse;
    // The vendor writes [tokens, heads, 1] for packed and [batch, heads, queries, 1] for dense sequences.
    const Dims vendors = packed_ ? Dims{q.dims[0], q_heads_, 1} : Dims{q.dims[0], q_heads_, q.dims[1], 1};
    const bool direct =
        lse.present && lse.strides == contiguous_strides(lse.dims) && (packed_ || q_heads_ == 1 || q.dims[1] == 1);
    const Operand vendor_lse = !lse.present ? lse : direct ? reshaped(lse, vendors) : b.scratch(kAclFloat, vendors);
    fused.lse = vendor_lse;
    add_fused_attention(b, fused);
    if (!lse.present || direct) return;
    Operand as_ours = vendor_lse;
    if (packed_) {
      as_ours = reshaped(vendor_lse, lse.dims);
    } else {
      as_ours.dims = lse.dims;
      as_ours.strides = {q_heads_ * q.dims[1], 1, q.dims[1]};
    }
    b.copy(as_ours, lse);
  }

  // What the vendor writes for a query without keys depends on its version: it is overwritten with 0 and -inf.
  void add_blind_queries(Builder& b, const std::vector<Sequence>& sequences, const Operand& out, const Operand& lse) {
    Operand lse_rows = lse;
    if (lse.present && !packed_) {
      lse_rows.dims = {lse.dims[0] * lse.dims[1], lse.dims[2]};
      lse_rows.strides = {lse.strides[1], lse.strides[2]};
    }
    for (size_t i = 0; i < sequences.size();) {
      const int64_t first = sequences[i].q_first;
      int64_t end = first + blind_queries(sequences[i], window_);
      // Neighbours that are blind as a whole join.
      for (++i; i < sequences.size() && end == sequences[i].q_first; ++i) end += blind_queries(sequences[i], window_);
      if (end == first) continue;
      b.fill_bytes(rows(out, first, end - first), 0);
      if (lse.present) b.fill(rows(lse_rows, first, end - first), -std::numeric_limits<float>::infinity());
    }
  }

  const bool packed_;
  const int64_t q_heads_, kv_heads_, head_size_;
  const double scale_;
  Window window_;
  void* mask_ = nullptr;  // absent where nothing is ever hidden
  const TokenConstants c_;
};

}  // namespace

sdk::Support Attention::query(Device& device, const sdk::Call<Op>& described) {
  const Named call = sdk::arguments_of(described);
  if (auto no = decline_fused_attention(device,
                                        {call.q, call.Hq, call.Hkv, call.D, call.params.scale, call.params.softcap})) {
    return *no;
  }
  if (auto no = decline_missing(missing(runtime().FusedInferAttentionScoreV3, runtime().InplaceFillScalar,
                                        runtime().InplaceCopy, runtime().EqTensor, runtime().SWhere))) {
    return *no;
  }
  if (call.key_mask != nullptr) {
    return sdk::Support::no("KEY_MASK", "key masks are not served; pack the sequences without their padding");
  }
  const auto& params = call.params;
  const bool hides = params.causal != Causal::off || params.window_left >= 0 || params.window_right >= 0;
  if (hides && params.causal_alignment != CausalAlignment::bottom_right) {
    // There is a sparse mode for it (2), but none with windows, and none in the kernels for single queries.
    return sdk::Support::no("CAUSAL_ALIGNMENT", "causality and windows are served aligned bottom_right only");
  }
  if (auto no = decline_views(described.desc())) return *no;
  for (const rlk_tensor* tensor : {call.q, call.k, call.v, call.out}) {
    if (auto no = sdk::refuse_gaps(tensor, "q, k, v and out")) return *no;
  }
  // Rows of a dense lse are filled as one view of tokens and heads.
  const rlk_tensor* lse = call.lse;
  if (lse != nullptr && lse->ndim == 3 && lse->shape[0] > 1 && lse->strides[0] != lse->shape[1] * lse->strides[1]) {
    return sdk::Support::no("STRIDES", "lse whose sequences do not follow each other", RLK_SUPPORT_IF_CONTIGUOUS);
  }
  sdk::Support yes = sdk::Support::yes(kName, RLK_NUMERICS_DETERMINISTIC, RLK_SUPPORT_PREFERRED);
  yes.workspace_bound = std::numeric_limits<uint64_t>::max();
  if (params.layout == Layout::packed) yes.host_inputs = AttentionPlan::lengths();
  return yes;
}

std::unique_ptr<sdk::Plan> Attention::plan(Device& device, const sdk::Call<Op>& call) {
  return std::make_unique<AttentionPlan>(device, sdk::arguments_of(call));
}

}  // namespace rlk::ascend
