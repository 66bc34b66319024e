// Decoding over blocks of a cache. The vendor's call does not check blocks, and its documentation wants as many blocks
// in the cache as all sequences together have: every entry that it gets is a block, and where sequences share blocks
// these are copied first, one for each place of a table.
#include "paged_attention.hpp"

#include <algorithm>
#include <cmath>

#include "fused_attention.hpp"
#include "tokens.hpp"

namespace rlk::ascend {
namespace {

using Op = sdk::ops::PagedAttention;
using Named = sdk::Arguments<Op>;
using Operands = Op::Args<Operand>;
using sdk::ops::paged_attention::Layout;

// What the host knows of a sequence; `kind` is 0 unless its length or a block of it is bad.
struct Sequence {
  int64_t length = 0;
  int32_t kind = 0;
  int64_t value = 0;
};

class PagedAttentionPlan final : public ProgramPlan {
public:
  PagedAttentionPlan(Device& device, const Named& call)
      : ProgramPlan(device, Op::kInputs, Op::kOutputs, Op::kSymbols),
        block_size_(call.BS),
        q_heads_(call.Hq),
        kv_heads_(call.Hkv),
        head_size_(call.D),
        scale_(call.params.scale > 0 ? call.params.scale : 1 / std::sqrt(static_cast<double>(head_size_))),
        c_(constants_, 0) {
    dynamic_symbols = sdk::bits_of(&Named::B, &Named::Tq, &Named::NB, &Named::MB);
    host_inputs = read_by_host();
  }

  static uint64_t read_by_host() { return sdk::bits_of(&Named::block_table, &Named::context_lens); }

private:
  // The device reads the blocks of a program from the call's table: the program depends on no more than this.
  std::vector<Sequence> sequences_of(const sdk::Run& run) const {
    const Dims lengths = host_values(run, sdk::index_of(&Named::context_lens));
    const Dims table = host_values(run, sdk::index_of(&Named::block_table));
    const int64_t blocks = run.input(sdk::index_of(&Named::key_cache))->shape[0];
    const int64_t most = run.input(sdk::index_of(&Named::block_table))->shape[1];
    std::vector<Sequence> sequences;
    for (size_t b = 0; b < lengths.size(); ++b) {
      Sequence sequence{lengths[b]};
      if (sequence.length < 0 || sequence.length > most * block_size_) sequence = {0, RLK_DATA_BAD_SEQLENS, lengths[b]};
      for (int64_t m = 0; m * block_size_ < sequence.length; ++m) {
        const int64_t block = table[b * static_cast<size_t>(most) + static_cast<size_t>(m)];
        if (block < 0 || block >= blocks) sequence = {0, RLK_DATA_ID_OUT_OF_RANGE, block};
      }
      sequences.push_back(sequence);
    }
    return sequences;
  }

  void append_key(std::vector<int64_t>& key, const sdk::Run& run) const override {
    for (const Sequence& sequence : sequences_of(run))
      key.insert(key.end(), {sequence.length, sequence.kind, sequence.value});
  }

  int64_t blocks_of(const Sequence& sequence) const { return (sequence.length + block_size_ - 1) / block_size_; }

  void build(Builder& b, const sdk::Run& run) override {
    const Operands call = operands_of<Op>(run);
    const std::vector<Sequence> sequences = sequences_of(run);
    if (sequences.empty()) return;
    int64_t total = 0, most = 0;
    for (const Sequence& sequence : sequences) {
      total += blocks_of(sequence);
      most = std::max(most, blocks_of(sequence));
    }
    if (most > 0) add_fused(b, call, sequences, total, most);
    add_rest(b, call, sequences);
  }

  void add_fused(Builder& b, const Operands& call, const std::vector<Sequence>& sequences, int64_t total,
                 int64_t most) {
    const int64_t batch = call.q.dims[0], blocks = call.key_cache.dims[0];
    const int64_t block_elements = block_size_ * kv_heads_ * head_size_;
    Operand ids = call.block_table;
    if (ids.dtype != kAclInt64) {
      ids = b.scratch(kAclInt64, ids.dims);
      b.cast(call.block_table, ids);
    }
    const Operand table = b.scratch(kAclInt64, ids.dims);
    b.clamp(ids, 0, blocks - 1, table);

    const Dims vendors = {batch, q_heads_, 1, 1};
    const bool direct = call.lse.present && call.lse.strides == contiguous_strides(call.lse.dims);
    const Operand lse = !call.lse.present ? call.lse
                        : direct          ? reshaped(call.lse, vendors)
                                          : b.scratch(kAclFloat, vendors);
    FusedAttention fused{q_heads_, kv_heads_, scale_};
    fused.block_size = block_size_;
    const auto add = [&](int64_t first, int64_t count, const Operand& key, const Operand& value,
                         const Operand& rows_of) {
      const Dims heads = {count, 1, q_heads_, head_size_}, cache = {key.dims[0], block_size_, kv_heads_ * head_size_};
      fused.k_lengths.clear();
      for (int64_t i = first; i < first + count; ++i)
        fused.k_lengths.push_back(sequences[static_cast<size_t>(i)].length);
      fused.q = reshaped(rows(call.q, first, count), heads);
      fused.k = reshaped(key, cache), fused.v = reshaped(value, cache);
      fused.out = reshaped(rows(call.out, first, count), heads);
      if (lse.present) fused.lse = reshaped(rows(lse, first, count), {count, q_heads_, 1, 1});
      fused.block_table = b.scratch(kAclInt32, rows_of.dims);
      b.cast(rows_of, fused.block_table);
      add_fused_attention(b, fused);
    };
    if (total <= blocks) {
      add(0, batch, call.key_cache, call.value_cache, table);
    } else {
      const Operand key_cache = reshaped(call.key_cache, {blocks, block_elements});
      const Operand value_cache = reshaped(call.value_cache, {blocks, block_elements});
      const int64_t bytes = 2 * most * block_elements * element_bytes(call.q.dtype);
      const int64_t at_once = std::clamp<int64_t>(workspace_limit() / bytes, 1, batch);
      const int64_t mark = b.program().mark();
      for (int64_t first = 0; first < batch; first += at_once) {
        b.program().rewind(mark);
        const int64_t count = std::min(at_once, batch - first), places = count * most;
        Operand named = rows(table, first, count);
        named.dims[1] = most;
        const Operand wanted = b.scratch(kAclInt64, {count, most}), in_order = b.scratch(kAclInt64, {places});
        const Operand key = b.scratch(call.q.dtype, {places, block_elements});
        const Operand value = b.scratch(call.q.dtype, {places, block_elements});
        b.copy(named, wanted);
        b.index_select(key_cache, 0, reshaped(wanted, {places}), key);
        b.index_select(value_cache, 0, reshaped(wanted, {places}), value);
        b.arange(int64_t{0}, places, int64_t{1}, in_order);
        add(first, count, key, value, reshaped(in_order, {count, most}));
      }
    }
    if (call.lse.present && !direct) b.copy(reshaped(lse, call.lse.dims), call.lse);
  }

  // Queries without keys give out 0 and lse -inf, whatever the vendor writes, and those of bad sequences NaN.
  void add_rest(Builder& b, const Operands& call, const std::vector<Sequence>& sequences) {
    const Operand out = reshaped(call.out, {call.out.dims[0], q_heads_ * head_size_});
    const auto add = [&](int64_t first, int64_t count, float value, float lse) {
      b.fill(rows(out, first, count), value);
      if (call.lse.present) b.fill(rows(call.lse, first, count), lse);
    };
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();
    const auto is_alike = [&](size_t i, size_t j) {
      return sequences[i].length == 0 && sequences[j].length == 0 &&
             (sequences[i].kind == 0) == (sequences[j].kind == 0);
    };
    for (size_t i = 0, end; i < sequences.size(); i = end) {
      for (end = i + 1; end < sequences.size() && is_alike(i, end);) ++end;
      const auto first = static_cast<int64_t>(i), count = static_cast<int64_t>(end - i);
      if (sequences[i].kind != 0)
        add(first, count, kNan, kNan);
      else if (sequences[i].length == 0)
        add(first, count, 0, -kInf);
    }
    for (size_t i = 0; i < sequences.size(); ++i) {
      const Sequence& bad = sequences[i];
      if (bad.kind != 0) return add_known_error(b, c_, bad.kind, static_cast<int64_t>(i), bad.value);
    }
  }

  const int64_t block_size_, q_heads_, kv_heads_, head_size_;
  const double scale_;
  const TokenConstants c_;
};

}  // namespace

sdk::Support PagedAttention::query(Device& device, const sdk::Call<Op>& described) {
  using sdk::Support;
  const Named call = sdk::arguments_of(described);
  const auto& params = call.params;
  if (auto no = decline_fused_attention(device, {call.q, call.Hq, call.Hkv, call.D, params.scale, params.softcap})) {
    return *no;
  }
  const Runtime& r = runtime();
  if (auto no = decline_missing(missing(r.FusedInferAttentionScoreV3, r.InplaceFillScalar, r.InplaceCopy, r.Cast,
                                        r.Clamp, r.IndexSelect, r.Arange, r.EqTensor, r.SWhere))) {
    return *no;
  }
  if (params.layout != Layout::token_major)
    return Support::no("LAYOUT", "the fused attention takes no cache whose keys are in pieces");
  if (call.cu_seqlens_q != nullptr)
    return Support::no("CU_SEQLENS", "several queries of a sequence are not served; without cu_seqlens_q it has one");
  // The only query of a sequence stands at its last key: causality and a limit to the right hide nothing.
  if (params.window_left >= 0) return Support::no("WINDOW", "the vendor's kernel for single queries knows no window");
  if (call.BS % 16 != 0 || call.BS > 512) {
    return Support::no("SIZE", sdk::format("blocks of %lld tokens; the fused attention takes multiples of 16 up to 512",
                                           static_cast<long long>(call.BS)));
  }
  if (call.Hkv * call.D > 65535 || call.B > 65536)
    return Support::no("SIZE", "the fused attention takes up to 65535 numbers of a key's heads, and 65536 sequences");
  if (auto no = decline_views(described.desc())) return *no;
  for (const rlk_tensor* tensor : {call.q, call.key_cache, call.value_cache, call.out}) {
    if (auto no = sdk::refuse_gaps(tensor, "q, the caches and out")) return *no;
  }
  Support yes = Support::yes(kName, RLK_NUMERICS_DETERMINISTIC, RLK_SUPPORT_PREFERRED);
  yes.workspace_bound = std::numeric_limits<uint64_t>::max();
  yes.host_inputs = PagedAttentionPlan::read_by_host();
  return yes;
}

std::unique_ptr<sdk::Plan> PagedAttention::plan(Device& device, const sdk::Call<Op>& call) {
  return std::make_unique<PagedAttentionPlan>(device, sdk::arguments_of(call));
}

}  // namespace rlk::ascend
