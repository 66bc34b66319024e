// After step k each row holds the sum of the last 2^k rows of its id up to itself, so that the last of an id has all.
#include "embedding_backward.hpp"

#include <algorithm>

#include "slots.hpp"

namespace rlk::ascend {
namespace {

using Op = sdk::ops::EmbeddingBackward;
using Operands = Op::Args<Operand>;
using sdk::Dtype;

Operand columns_of(Operand matrix, int64_t first, int64_t count) {
  matrix.byte_offset += first * matrix.strides[1] * element_bytes(matrix.dtype);
  matrix.dims[1] = count;
  return matrix;
}

class EmbeddingBackwardPlan final : public ProgramPlan {
public:
  EmbeddingBackwardPlan(Device& device, int64_t padding, bool scales)
      : ProgramPlan(device, Op::kInputs, Op::kOutputs, Op::kSymbols),
        padding_(padding),
        scales_(scales),
        c_(constants_),
        one_(constants_.add(1.0F)),
        nan_(constants_.add(std::numeric_limits<float>::quiet_NaN())) {}

private:
  void build(Builder& b, const sdk::Run& run) override {
    const Operands call = operands_of<Op>(run);
    const Operand& out = call.grad_weight;
    const int64_t n = call.ids.dims[0], width = out.dims[1];
    if (n == 0) {
      if (element_count(out.dims) > 0) b.fill_bytes(out, 0);
      return;
    }
    const SlotWrites writes =
        add_slot_writes(b, c_, call.ids, out.dims[0], padding_ >= 0 ? std::optional<int64_t>(padding_) : std::nullopt);
    if (width == 0) return;
    const Operand spoiled = add_spoiled(b, writes.wrong), base = b.scratch(kAclFloat, {1, 1});
    b.where(spoiled, nan_, c_.zero, base);
    b.copy(as_dtype(b, base, out.dtype), out);

    const Operand counts = scales_ ? add_counts(b, writes.slot_key) : Operand::absent();
    constexpr int64_t kBuffers = 8;
    const int64_t most = chunk_rows(kBuffers * n * static_cast<int64_t>(sizeof(float)));
    const int64_t mark = b.program().mark();
    for (int64_t first = 0; first < width; first += most) {
      b.program().rewind(mark);
      const int64_t count = std::min(most, width - first);
      const Operand sorted = b.scratch(call.grad_y.dtype, {n, count}), taken = b.scratch(kAclFloat, {n, count});
      b.index_select(columns_of(call.grad_y, first, count), 0, writes.token, sorted);
      const Operand sums = add_sums(b, as_dtype(b, sorted, kAclFloat), writes.slot_key);
      if (counts.present) b.divide(sums, counts, sums);
      b.index_select(sums, 0, writes.place, taken);
      // Without an id all write 0 to the first row.
      b.where(writes.has_any, taken, c_.zero, taken);
      b.where(spoiled, nan_, taken, taken);
      b.index_copy(columns_of(out, first, count), 0, writes.slot, as_dtype(b, taken, out.dtype));
    }
  }

  static Operand as_dtype(Builder& b, const Operand& x, int32_t dtype) {
    if (x.dtype == dtype) return x;
    Operand out = b.scratch(dtype, x.dims);
    b.cast(x, out);
    return out;
  }
  // BOOL [1, 1]: an id is unknown.
  Operand add_spoiled(Builder& b, const Operand& wrong) {
    const Operand score = b.scratch(kAclFloat, wrong.dims), most = b.scratch(kAclFloat, {1});
    Operand spoiled = b.scratch(kAclBool, {1, 1});
    b.where(wrong, one_, c_.zero, score);
    b.largest(score, 0, true, most);
    b.less(c_.zero, most, reshaped(spoiled, {1}));
    return spoiled;
  }
  // BOOL [n - by, 1]: the row `by` places before has the same id.
  static Operand add_same(Builder& b, const Operand& key, int64_t by) {
    const int64_t left = key.dims[0] - by;
    Operand same = b.scratch(kAclBool, {left, 1});
    b.equal(reshaped(shifted(key, by, left), {left, 1}), reshaped(shifted(key, 0, left), {left, 1}), same);
    return same;
  }
  // How many of the id there are up to each row: [n, 1].
  Operand add_counts(Builder& b, const Operand& key) {
    const int64_t n = key.dims[0];
    Operand counts = b.scratch(kAclFloat, {n, 1});
    b.fill(counts, 1.0F);
    for (int64_t by = 1; by < n; by *= 2) {
      const Operand more = b.scratch(kAclFloat, {n - by, 1});
      b.where(add_same(b, key, by), rows(counts, 0, n - by), c_.zero, more);
      b.add(rows(counts, by, n - by), more, rows(counts, by, n - by));
    }
    return counts;
  }
  // Over `sum`, with what each sum has lost.
  Operand add_sums(Builder& b, const Operand& sum, const Operand& key) {
    const int64_t n = sum.dims[0], count = sum.dims[1];
    const Operand lost = b.scratch(kAclFloat, sum.dims);
    b.fill_bytes(lost, 0);
    const int64_t mark = b.program().mark();
    for (int64_t by = 1; by < n; by *= 2) {
      b.program().rewind(mark);
      const int64_t left = n - by;
      const auto scratch = [&] { return b.scratch(kAclFloat, {left, count}); };
      const Operand same = add_same(b, key, by), more = scratch(), next = scratch(), part = scratch(), own = scratch();
      const Operand here = rows(sum, by, left), lost_here = rows(lost, by, left);
      b.where(same, rows(sum, 0, left), c_.zero, more);
      b.add(here, more, next);
      b.subtract(next, here, part);
      b.subtract(next, part, own);
      b.subtract(here, own, own);
      b.subtract(more, part, part);
      b.add(own, part, own);
      b.where(same, rows(lost, 0, left), c_.zero, more);
      b.add(own, more, own);
      b.add(lost_here, own, lost_here);
      b.copy(next, here);
    }
    b.program().rewind(mark);
    // What is infinite or NaN has lost nothing.
    const Operand whole = b.scratch(kAclFloat, sum.dims), is_finite = b.scratch(kAclBool, sum.dims);
    b.unary(runtime().Abs, lost, whole);
    b.less_scalar(whole, std::numeric_limits<float>::infinity(), is_finite);
    b.add(sum, lost, whole);
    b.where(is_finite, whole, sum, sum);
    return sum;
  }

  const int64_t padding_;
  const bool scales_;
  const SlotConstants c_;
  const Operand one_, nan_;
};

}  // namespace

sdk::Support EmbeddingBackward::query(Device&, const sdk::Call<Op>& described) {
  const auto call = sdk::arguments_of(described);
  const Runtime& r = runtime();
  if (auto no = sdk::refuse_dtype(call.grad_y, "grad_y", {Dtype::f32, Dtype::bf16, Dtype::f16})) return *no;
  if (auto no = decline_missing(missing_for_slots())) return *no;
  if (auto no = decline_missing(missing(r.Add, r.Sub, r.Div, r.Abs, r.LtTensor, r.LtScalar, r.Amax, r.InplaceCopy)))
    return *no;
  if (auto no = decline_views(described.desc())) return *no;
  if (auto no = sdk::refuse_gaps(call.ids, "ids")) return *no;
  if (auto no = sdk::refuse_gaps(call.grad_weight, "grad_weight")) return *no;
  if (call.N > kMostSlots || call.V > kMostSlots)
    return sdk::Support::no("SIZE", "more than 16777216 tokens or rows in one call");
  sdk::Support yes = sdk::Support::yes(kName, RLK_NUMERICS_DETERMINISTIC);
  yes.workspace_bound = std::numeric_limits<uint64_t>::max();
  return yes;
}

std::unique_ptr<sdk::Plan> EmbeddingBackward::plan(Device& device, const sdk::Call<Op>& described) {
  const auto call = sdk::arguments_of(described);
  const bool scales = call.params.scale_by_frequency == decltype(call.params.scale_by_frequency)::on;
  return std::make_unique<EmbeddingBackwardPlan>(device, call.params.padding_idx, scales);
}

}  // namespace rlk::ascend
