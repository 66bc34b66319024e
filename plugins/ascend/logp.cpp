// The sequence of calls, chunk after chunk, and which options are declined.
#include "logp.hpp"

#include "tokens.hpp"

namespace rlk::ascend {
namespace {

using Op = sdk::ops::Logp;
using Named = sdk::Arguments<Op>;
using Operands = Op::Args<Operand>;

class LogpPlan final : public ProgramPlan {
public:
  LogpPlan(Device& device, const Named& call)
      : ProgramPlan(device, Op::kInputs, Op::kOutputs, Op::kSymbols),
        vocab_(call.V),
        options_(logp_options(call.params, vocab_)),
        c_(constants_, options_.ignore_index) {
    dynamic_symbols = sdk::bits_of(&Named::N, &Named::R);
    symbol_min = {0, 0, vocab_};
    symbol_max = {kMaxTokens, std::numeric_limits<int64_t>::max(), vocab_};
  }

private:
  // The results of all rows before ignored and wrong ones are overwritten, [N], and the memory of one chunk.
  struct Results {
    Operand logp, lse, entropy, empty;  // empty: every logit is -inf
    Operand scores, weights, gathered;
    bool want_lse, want_entropy;
  };

  void build(Builder& b, const sdk::Run& run) override {
    const Operands call = operands_of<Op>(run);
    const int64_t n = call.ids.dims[0], logits_rows = call.logits.dims[0];
    if (n == 0) return;
    const Tokens tokens = add_tokens(b, c_, options_, vocab_, logits_rows, call.ids, call.mask, call.row_indices);
    Results results{};
    results.want_lse = call.lse.present;
    results.want_entropy = call.entropy.present;
    results.logp = b.scratch(kAclFloat, {n});
    results.lse = b.scratch(kAclFloat, {n});
    results.entropy = b.scratch(kAclFloat, {n});
    results.empty = b.scratch(kAclBool, {n});
    if (logits_rows > 0) {
      add_chunks(b, tokens, call.logits, call.bias, results);
    } else {  // no row can be read: every active one is an error
      for (const Operand& unused : {results.logp, results.lse, results.entropy, results.empty}) b.fill_bytes(unused, 0);
    }
    add_outputs(b, tokens, call, results);
  }

  void add_chunks(Builder& b, const Tokens& tokens, const Operand& logits, const Operand& bias, Results& results) {
    const int64_t n = tokens.count;
    const bool gathers = tokens.row.present;
    const int64_t chunk = std::min(n, chunk_rows(vocab_ * (gathers && logits.dtype != kAclFloat ? 10 : 8)));
    results.scores = b.scratch(kAclFloat, {chunk, vocab_});
    results.weights = b.scratch(kAclFloat, {chunk, vocab_});
    results.gathered = gathers && logits.dtype != kAclFloat ? b.scratch(logits.dtype, {chunk, vocab_}) : results.scores;
    Operand wide_bias = bias;
    if (bias.present && bias.dtype != kAclFloat) b.cast(bias, wide_bias = b.scratch(kAclFloat, {vocab_}));

    const int64_t whole_chunks = n / chunk;
    b.program().section(whole_chunks);
    add_chunk(b, tokens, logits, wide_bias, results, 0, chunk, true);
    b.program().section(1);
    if (n % chunk != 0) add_chunk(b, tokens, logits, wide_bias, results, whole_chunks * chunk, n % chunk, false);
    b.program().section(1);
  }

  void add_chunk(Builder& b, const Tokens& tokens, const Operand& logits, const Operand& bias, const Results& results,
                 int64_t first, int64_t count, bool loop) {
    const Operand scores = rows(results.scores, 0, count);
    const Operand weights = rows(results.weights, 0, count);
    const auto part = [&](const Operand& vector) { return column_of(vector, first, count, loop); };
    const auto scratch = [&](int32_t dtype) { return b.scratch(dtype, {count, 1}); };

    // z, in fp32: `z` is where it is now.
    Operand z = rows(logits, tokens.row.present ? 0 : first, tokens.row.present ? logits.dims[0] : count,
                     loop && !tokens.row.present);
    if (tokens.row.present) {
      const Operand gathered = rows(results.gathered, 0, count);
      b.index_select(z, 0, rows(tokens.row, first, count, loop), gathered);
      z = gathered;
    }
    if (z.dtype != kAclFloat) b.cast(z, scores), z = scores;
    if (bias.present) b.add(z, bias, scores), z = scores;
    if (options_.softcap > 0) {
      b.divide_scalar(z, options_.softcap, scores);
      b.tanh(scores, scores);
      b.multiply_scalar(scores, options_.softcap, scores);
      z = scores;
    }
    if (options_.temperature != 1.0F) b.divide_scalar(z, options_.temperature, scores), z = scores;

    // A maximum of -inf becomes the lowest number: every exp is then 0 and the logarithm of their sum -inf.
    const Operand max = scratch(kAclFloat);
    b.max(z, 1, true, max, scratch(kAclInt32));
    b.less_scalar(max, kLowest, part(results.empty));
    b.clamp_min(max, kLowest, max);
    b.subtract(z, max, scores);
    b.exp(scores, weights);
    const Operand sum = scratch(kAclFloat);
    const Operand log_sum = scratch(kAclFloat);
    b.sum(weights, 1, true, sum);
    b.log(sum, log_sum);

    const Operand target = scratch(kAclFloat);
    b.gather(scores, 1, part(tokens.column), target);
    b.subtract(target, log_sum, part(results.logp));
    if (results.want_lse) b.add(log_sum, max, part(results.lse));
    if (!results.want_entropy) return;
    // entropy = log sum - mean of (z - max) under p; a weight of 0 must meet a finite number.
    b.clamp_min(scores, kLowest, scores);
    b.multiply(scores, weights, weights);
    const Operand mean = scratch(kAclFloat);
    b.sum(weights, 1, true, mean);
    b.divide(mean, sum, mean);
    b.subtract(log_sum, mean, part(results.entropy));
  }

  void add_outputs(Builder& b, const Tokens& tokens, const Operands& call, const Results& results) {
    const int64_t n = tokens.count;
    Operand valid = tokens.id_ok;
    const auto require = [&](const Operand& condition) {
      const Operand both = b.scratch(kAclBool, {n});
      b.multiply(valid, condition, both);
      valid = both;
    };
    if (tokens.row_ok.present) require(tokens.row_ok);
    if (options_.sharded) {
      // Another shard owns the id, or this one is all -inf.
      b.where(tokens.owned, results.logp, c_.minus_inf, results.logp);
      b.where(results.empty, c_.minus_inf, results.logp, results.logp);
      if (results.want_entropy) b.where(results.empty, c_.f0, results.entropy, results.entropy);
    } else {
      const Operand both = b.scratch(kAclBool, {n});
      b.where(results.empty, c_.no, valid, both);
      valid = both;
    }
    add_output(b, tokens, valid, results.logp, call.logp);
    if (results.want_lse) add_output(b, tokens, valid, results.lse, call.lse);
    if (results.want_entropy) add_output(b, tokens, valid, results.entropy, call.entropy);
    add_error_record(b, c_, tokens, valid, tokens.row_ok, call.row_indices, nullptr);
  }

  // NaN where a row is in error, 0 where it is ignored, in the output's dtype.
  void add_output(Builder& b, const Tokens& tokens, const Operand& valid, const Operand& value, const Operand& out) {
    b.where(valid, value, c_.nan, value);
    if (out.dtype == kAclFloat) return b.where(tokens.ignored, c_.f0, value, out);
    b.where(tokens.ignored, c_.f0, value, value);
    b.cast(value, out);
  }

  const int64_t vocab_;
  const LogpOptions options_;
  const TokenConstants c_;
};

}  // namespace

sdk::Support Logp::query(Device&, const sdk::Call<Op>& described) {
  const Named call = sdk::arguments_of(described);
  const Runtime& r = runtime();
  // Its sums and maxima are fp32.
  if (auto no = sdk::refuse_dtype(call.logits, "logits", {sdk::Dtype::f32, sdk::Dtype::bf16, sdk::Dtype::f16})) {
    return *no;
  }
  if (auto no = sdk::refuse_input(call.keep_mask, "keep_mask")) return *no;
  if (auto no = sdk::refuse_output(call.sum_p2, "sum_p2")) return *no;
  if (auto no =
          decline_missing(missing(r.Add, r.Adds, r.Sub, r.Mul, r.Muls, r.Div, r.Divs, r.Exp, r.Log, r.Tanh, r.Clamp,
                                  r.ClampMin, r.EqTensor, r.LtTensor, r.LtScalar, r.SWhere, r.Cast, r.InplaceFillScalar,
                                  r.Arange, r.ReduceSum, r.MaxDim, r.Gather, r.IndexSelect))) {
    return *no;
  }
  if (auto no = decline_views(described.desc())) return *no;
  if (call.N > kMaxTokens) {
    return sdk::Support::no("SIZE", "more than 16777216 rows in one call");
  }
  sdk::Support yes = sdk::Support::yes(kName, RLK_NUMERICS_DETERMINISTIC);
  yes.workspace_bound = std::numeric_limits<uint64_t>::max();
  return yes;
}

std::unique_ptr<sdk::Plan> Logp::plan(Device& device, const sdk::Call<Op>& call) {
  return std::make_unique<LogpPlan>(device, sdk::arguments_of(call));
}

}  // namespace rlk::ascend
