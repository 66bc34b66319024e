// The sequence of calls, and which options are declined. Ids are looked at as pairs of 32-bit integers: what CNNL does
// with 64-bit ones differs between its versions.
#include "logp.hpp"

#include <algorithm>
#include <limits>

#include "ids.hpp"

namespace rlk::cambricon {
namespace {

using Op = sdk::ops::Logp;
using Named = sdk::Arguments<Op>;

constexpr float kLowest = -std::numeric_limits<float>::max();

// Rows of a chunk that needs this much memory a row.
int chunk_rows(int64_t vocab) {
  const int64_t countable = std::numeric_limits<int32_t>::max() / 2 / vocab;  // also as halves
  return static_cast<int>(std::max<int64_t>(1, std::min(workspace_limit() / (8 * vocab), countable)));
}

class LogpPlan final : public ProgramPlan {
public:
  LogpPlan(Device& device, const sdk::Call<Op>& described)
      : ProgramPlan(device), params_(described.params()), temperature_(static_cast<float>(params_.temperature)) {
    const Named call = sdk::arguments_of(described);
    vocab_ = static_cast<int>(call.V);
    wide_ids_ = sdk::dtype_of(*call.ids) == sdk::Dtype::i64;
    dtype_ = sdk::dtype_of(*call.logits) == sdk::Dtype::bf16 ? kInt16 : kFloat;
    constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
    dynamic_symbols = sdk::bits_of(&Named::N, &Named::R);
    symbol_min = {0, 0, vocab_};
    symbol_max = {kMost / vocab_, kMost / vocab_, vocab_};
  }

private:
  // Vectors over all rows, [N]. low and high are the words of the ids; ignored has no dims where nothing is.
  struct Tokens {
    int number = 0;
    Operand low, high, known, ignored, column;
    Operand zero, floats_zero;
  };

  void build(Calls& c, const sdk::Run& run, Stream* stream) override {
    const Named call = sdk::arguments_of<Op>(run, params_);
    const Operand logits = operand_of(*call.logits, dtype_);
    const int n = logits.dims[0];
    if (n == 0) return;
    const Tokens tokens = tokens_of(c, call, n);
    const bool wants_entropy = call.entropy != nullptr;
    const Operand logp = c.scratch(kFloat, {n, 1}), lse = c.scratch(kFloat, {n, 1}), max = c.scratch(kFloat, {n, 1});
    const Operand entropy = wants_entropy ? c.scratch(kFloat, {n, 1}) : Operand();
    const uint64_t before_chunks = c.mark();
    const int chunk = chunk_rows(vocab_);
    for (int first = 0; first < n; first += chunk) {
      const bool is_last = n - first <= chunk;
      if (c.measures() && first > 0 && !is_last) continue;  // all but the last are alike
      const int number = std::min(chunk, n - first);
      const auto part = [&](const Operand& vector) { return rows(vector, first, number); };
      c.rewind(before_chunks);
      add_chunk(c, part(logits), call.bias, part(reshaped(tokens.column, {n, 1})), part(logp), part(lse), part(max),
                wants_entropy ? part(entropy) : Operand());
    }
    c.rewind(before_chunks);

    // "Nothing finite": a maximum of NaN is none, and neither is one of +inf.
    const Operand lowest = c.scratch(kFloat, {n}), empty = c.scratch(kBool, {n});
    c.fill(lowest, kLowest);
    c.compare(kLess, reshaped(max, {n}), lowest, empty);
    const Operand nan = c.scratch(kFloat, {n});
    c.fill(nan, std::numeric_limits<float>::quiet_NaN());
    const auto put = [&](const Operand& value, const rlk_tensor* output) {
      if (output == nullptr) return;
      const Operand found = choose(c, empty, nan, reshaped(value, {n}));
      const Operand right = choose(c, tokens.known, found, nan);
      const Operand out = operand_of(*output, kFloat);
      if (tokens.ignored.dims.empty())
        c.copy_bytes(right, out);
      else
        c.select(tokens.ignored, tokens.floats_zero, right, out);
    };
    put(logp, call.logp);
    put(lse, call.lse);
    put(entropy, call.entropy);
    add_error(c, run, tokens, empty, stream);
  }

  static Operand choose(Calls& c, const Operand& condition, const Operand& x, const Operand& y) {
    Operand out = c.scratch(x.dtype, x.dims);
    c.select(condition, x, y, out);
    return out;
  }
  static Operand compared(Calls& c, int operation, const Operand& x, const Operand& y) {
    Operand out = c.scratch(kBool, x.dims);
    c.compare(operation, x, y, out);
    return out;
  }
  static Operand constant(Calls& c, int number, int32_t value) {
    Operand out = c.scratch(kInt32, {number});
    c.fill(out, value);
    return out;
  }

  Tokens tokens_of(Calls& c, const Named& call, int n) const {
    Tokens t;
    t.number = n;
    t.zero = constant(c, n, 0);
    t.floats_zero = c.scratch(kFloat, {n});
    c.fill(t.floats_zero, 0.0F);
    const IdWords words = words_of(c, {sdk::data_of(call.ids), kInt32, {wide_ids_ ? 2 * n : n}}, wide_ids_);
    t.low = words.low;
    t.high = words.high;
    const Operand below = compared(c, kLess, t.low, constant(c, n, vocab_));
    const Operand in_range = compared(c, kAnd, compared(c, kGreaterEqual, t.low, t.zero), below);
    t.known = compared(c, kAnd, in_range, compared(c, kEqual, t.high, t.zero));
    t.column = choose(c, t.known, t.low, t.zero);

    const auto ignore = static_cast<uint64_t>(params_.ignore_index);
    const Operand same_low = compared(c, kEqual, t.low, constant(c, n, static_cast<int32_t>(ignore)));
    t.ignored =
        compared(c, kAnd, same_low, compared(c, kEqual, t.high, constant(c, n, static_cast<int32_t>(ignore >> 32))));
    if (call.mask != nullptr) {
      const Operand hidden = c.scratch(kUint8, {n});
      c.fill_bytes(hidden, 0);
      t.ignored = compared(c, kOr, t.ignored, compared(c, kEqual, operand_of(*call.mask, kUint8), hidden));
    }
    return t;
  }

  void add_chunk(Calls& c, Operand z, const rlk_tensor* bias, const Operand& column, const Operand& logp,
                 const Operand& lse, const Operand& max, const Operand& entropy) const {
    const int n = z.dims[0];
    const Operand scores = c.scratch(kFloat, z.dims), weights = c.scratch(kFloat, z.dims);
    if (dtype_ == kInt16) {
      c.widen(z, scores);
      z = scores;
    }
    if (bias != nullptr) {
      Operand added = reshaped(operand_of(*bias, dtype_), {1, vocab_});
      if (dtype_ == kInt16) {
        const Operand wide = c.scratch(kFloat, added.dims);
        c.widen(added, wide);
        added = wide;
      }
      c.add(z, 1, added, 1, scores);
      z = scores;
    }
    if (temperature_ != 1) {
      c.scale(z, 1 / temperature_, scores);
      z = scores;
    }
    // A maximum of -inf becomes the lowest number: every exp is then 0 and the logarithm of their sum -inf.
    const Operand finite = c.scratch(kFloat, {n, 1}), sum = c.scratch(kFloat, {n, 1}),
                  log_sum = c.scratch(kFloat, {n, 1});
    c.max(z, 1, max);
    c.at_least(max, kLowest, finite);
    c.add(z, 1, finite, -1, scores);
    c.exp(scores, weights);
    c.sum(weights, 1, sum);
    c.log(sum, log_sum);
    const Operand target = c.scratch(kFloat, {n, 1});
    c.gather(scores, 1, column, target);
    c.add(target, 1, log_sum, -1, logp);
    c.add(log_sum, 1, finite, 1, lse);
    if (entropy.dims.empty()) return;
    // entropy = log sum - mean of (z - max) under p; a weight of 0 must meet a finite number.
    c.at_least(scores, kLowest, scores);
    c.multiply(scores, weights, scores);
    const Operand moment = c.scratch(kFloat, {n, 1}), mean = c.scratch(kFloat, {n, 1});
    c.sum(scores, 1, moment);
    c.divide(moment, sum, mean);
    c.add(log_sum, 1, mean, -1, entropy);
  }

  // The first wrong row, if any, becomes the stream's record unless that has one already.
  static void add_error(Calls& c, const sdk::Run& run, const Tokens& t, const Operand& empty, Stream* stream) {
    static_assert(RLK_DATA_ID_OUT_OF_RANGE == 1 && RLK_DATA_NO_FINITE_LOGIT == 2);
    const int n = t.number;
    const Operand one = c.scratch(kFloat, {n});
    c.fill(one, 1.0F);
    const Operand wrong = choose(c, t.known, choose(c, empty, one, t.floats_zero), one);
    const Operand score = choose(c, t.ignored, t.floats_zero, wrong);
    const Operand told = c.scratch(kInt32, {3, n});
    const auto row_of = [&](int i) { return reshaped(rows(told, i, 1), {n}); };
    c.select(t.known, constant(c, n, 2), constant(c, n, 1), row_of(0));
    c.select(t.known, t.zero, t.low, row_of(1));
    c.select(t.known, t.zero, t.high, row_of(2));
    int32_t* const record = stream != nullptr ? stream->error_record() : nullptr;
    record_first_error(c, {score, told, 0, static_cast<int32_t>(run.tag()), record});
  }

  const Op::Params params_;
  const float temperature_;
  int vocab_ = 0;
  bool wide_ids_ = false;
  CnnlDtype dtype_ = kFloat;  // of logits and bias; bf16 is looked at as kInt16
};

}  // namespace

sdk::Support Logp::query(Device&, const sdk::Call<Op>& described) {
  const Runtime& r = runtime();
  const Named call = sdk::arguments_of(described);
  const auto& params = call.params;
  if (auto no = sdk::refuse_dtype(call.logits, "logits", {sdk::Dtype::f32, sdk::Dtype::bf16})) return *no;
  if (auto no = sdk::refuse_dtype(call.logp, "logp", {sdk::Dtype::f32})) return *no;
  if (auto no = sdk::refuse_input(call.row_indices, "row_indices")) return *no;
  if (auto no = sdk::refuse_input(call.keep_mask, "keep_mask")) return *no;
  if (auto no = sdk::refuse_output(call.sum_p2, "sum_p2")) return *no;
  if (params.softcap > 0) return sdk::Support::no("PARAMETER", "softcap is not composed of CNNL calls yet");
  if (params.global_vocab > 0 && params.global_vocab != call.V)
    return sdk::Support::no("PARAMETER", "a shard of the vocabulary is not composed of CNNL calls yet");
  const bool reduces = (r.cnnlReduce_v2 != nullptr && r.cnnlGetReduceOpWorkspaceSize_v2 != nullptr) ||
                       (r.cnnlReduce != nullptr && r.cnnlGetReduceOpWorkspaceSize != nullptr);
  if (auto no = refuse_missing({RLK_CNNL_NEEDS(cnnlSetTensorDescriptorEx),
                                RLK_CNNL_NEEDS(cnnlCreateOpTensorDescriptor),
                                RLK_CNNL_NEEDS(cnnlSetOpTensorDescriptor),
                                RLK_CNNL_NEEDS(cnnlDestroyOpTensorDescriptor),
                                RLK_CNNL_NEEDS(cnnlGetOpTensorWorkspaceSize),
                                RLK_CNNL_NEEDS(cnnlOpTensor),
                                RLK_CNNL_NEEDS(cnnlCreateReduceDescriptor),
                                RLK_CNNL_NEEDS(cnnlSetReduceDescriptor_v2),
                                RLK_CNNL_NEEDS(cnnlDestroyReduceDescriptor),
                                Needed{"cnnlReduce", reduces},
                                RLK_CNNL_NEEDS(cnnlExp_v2),
                                RLK_CNNL_NEEDS(cnnlLog_v2),
                                RLK_CNNL_NEEDS(cnnlGetDivWorkspaceSize),
                                RLK_CNNL_NEEDS(cnnlDiv_v2),
                                RLK_CNNL_NEEDS(cnnlTransform_v2),
                                RLK_CNNL_NEEDS(cnnlClip_v2),
                                RLK_CNNL_NEEDS(cnnlFill_v3),
                                RLK_CNNL_NEEDS(cnnlCopy),
                                RLK_CNNL_NEEDS(cnnlExpand),
                                RLK_CNNL_NEEDS(cnnlGetLogicOpWorkspaceSize),
                                RLK_CNNL_NEEDS(cnnlLogicOp),
                                RLK_CNNL_NEEDS(cnnlGetSelectV2WorkspaceSize),
                                RLK_CNNL_NEEDS(cnnlSelectV2),
                                RLK_CNNL_NEEDS(cnnlGather),
                                RLK_CNNL_NEEDS(cnnlIndexSelect)})) {
    return *no;
  }
  if (auto no = refuse_tensors(described.desc())) return *no;
  sdk::Support yes = sdk::Support::yes(kName, 0);
  yes.workspace_bound = UINT64_MAX;
  return yes;
}

std::unique_ptr<sdk::Plan> Logp::plan(Device& device, const sdk::Call<Op>& call) {
  return std::make_unique<LogpPlan>(device, call);
}

}  // namespace rlk::cambricon
