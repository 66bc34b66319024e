// The sequence of calls, chunk after chunk, and which options are declined.
#include "logp_backward.hpp"

#include "tokens.hpp"

namespace rlk::ascend {
namespace {

using Op = sdk::ops::LogpBackward;
using Named = sdk::Arguments<Op>;
using Operands = Op::Args<Operand>;

class LogpBackwardPlan final : public ProgramPlan {
public:
  LogpBackwardPlan(Device& device, const Named& call)
      : ProgramPlan(device, Op::kInputs, Op::kOutputs, Op::kSymbols),
        vocab_(call.V),
        options_(logp_options(call.params, vocab_)),
        c_(constants_, options_.ignore_index) {
    dynamic_symbols = sdk::bits_of(&Named::N, &Named::R);
    symbol_min = {0, 0, vocab_};
    symbol_max = {kMaxTokens, std::numeric_limits<int64_t>::max(), vocab_};
  }

private:
  // What each token's place means: is it valid, and is its row (range and order)? row_valid is absent without
  // row_indices.
  struct Validity {
    Operand valid, row_valid;
  };

  // Per logits row, [R]: the numbers of its token, and what its gradient is when it has none.
  struct RowValues {
    Operand column, lse, base, target_gradient;  // base = grad_lse - grad_logp; target_gradient: 0 where not owned
    Operand entropy, grad_entropy;               // absent without an entropy gradient
    Operand keep, fill;                          // fill where not keep: 0 or NaN
    Operand has_token;                           // a valid one; keep, but for rows that a wrong token names too
    Operand empty;                               // out: the row has a token and every logit is -inf
  };

  struct Chunk {
    Operand a, b, c, hidden;  // fp32 [rows, V] three times (c: entropy gradient only), BOOL [rows, V]
    Operand bias, grad_bias;  // fp32 [V]; absent without them
  };

  void build(Builder& b, const sdk::Run& run) override {
    const Operands call = operands_of<Op>(run);
    const int64_t n = call.ids.dims[0];
    const int64_t r = call.logits.dims[0];
    if (n == 0) {
      if (r > 0) b.fill(call.grad_logits, 0.0F);
      if (call.grad_bias.present) b.fill(call.grad_bias, 0.0F);
      return;
    }
    const Tokens tokens = add_tokens(b, c_, options_, vocab_, r, call.ids, call.mask, call.row_indices);
    const Validity validity =
        call.row_indices.present ? add_order_check(b, tokens) : Validity{tokens.id_ok, Operand::absent()};

    Chunk chunk{};
    chunk.bias = call.bias;
    chunk.grad_bias = Operand::absent();
    if (call.grad_bias.present) {
      chunk.grad_bias = b.scratch(kAclFloat, {vocab_});
      b.fill_bytes(chunk.grad_bias, 0);
    }
    Operand valid = validity.valid;
    if (r > 0) {
      RowValues values = add_row_values(b, tokens, validity, call);
      add_chunks(b, call.logits, call.grad_logits, values, chunk);
      if (!options_.sharded) valid = without_empty_rows(b, tokens, valid, values.empty);
    }
    const Operand found = b.scratch(kAclBool, {1});
    add_error_record(b, c_, tokens, valid, validity.row_valid, call.row_indices, &found);
    if (call.grad_bias.present) {  // any data error spoils the sum, also one that no row of logits stands for
      const Operand spoiled = b.scratch(kAclFloat, {1});
      b.where(found, c_.nan, c_.f0, spoiled);
      b.add(chunk.grad_bias, spoiled, call.grad_bias);
    }
  }

  // Active rows that are in range must increase. The highest row before each token is a running maximum, found by
  // doubling: after step k each element has seen the 2k elements up to itself.
  Validity add_order_check(Builder& b, const Tokens& tokens) {
    const int64_t n = tokens.count;
    const Operand named = b.scratch(kAclInt64, {n});  // the row, or -1 where it does not count
    const Operand minus_one = b.scratch(kAclInt64, {1});
    b.fill_bytes(minus_one, 0xff);
    b.where(tokens.row_ok, tokens.row, minus_one, named);
    b.where(tokens.ignored, minus_one, named, named);

    // Two buffers with n elements of -1 before the data, where a step looks past the beginning.
    Operand from = b.scratch(kAclInt64, {2 * n});
    Operand to = b.scratch(kAclInt64, {2 * n});
    const Operand is_less = b.scratch(kAclBool, {n});
    b.fill_bytes(from, 0xff);
    b.fill_bytes(to, 0xff);
    b.add_scalar(named, int64_t{0}, shifted(from, n, n));
    for (int64_t k = 1; k < n; k *= 2) {
      const Operand here = shifted(from, n, n);
      const Operand before = shifted(from, n - k, n);
      b.less(here, before, is_less);
      b.where(is_less, before, here, shifted(to, n, n));
      std::swap(from, to);
    }
    const Operand increases = b.scratch(kAclBool, {n});
    b.less(shifted(from, n - 1, n), named, increases);

    Validity validity{b.scratch(kAclBool, {n}), b.scratch(kAclBool, {n})};
    b.multiply(tokens.row_ok, increases, validity.row_valid);
    b.multiply(tokens.id_ok, validity.row_valid, validity.valid);
    return validity;
  }

  // The token of each logits row among those that `chosen` marks, -1 where there is none, [R].
  Operand add_owners(Builder& b, const Tokens& tokens, const Operand& chosen, const Operand& positions, int64_t r) {
    // Tokens that are not chosen write to one place more, which is never read.
    const Operand nowhere = b.scratch(kAclInt64, {1});
    b.fill(nowhere, r);
    const Operand place = b.scratch(kAclInt64, {tokens.count});
    b.where(chosen, tokens.row, nowhere, place);
    b.where(tokens.ignored, nowhere, place, place);
    const Operand owners = b.scratch(kAclInt64, {r + 1});
    b.fill_bytes(owners, 0xff);
    b.index_copy(owners, 0, place, positions);
    return shifted(owners, 0, r);
  }

  RowValues add_row_values(Builder& b, const Tokens& tokens, const Validity& validity, const Operands& call) {
    const int64_t n = tokens.count, r = call.logits.dims[0];
    const bool with_entropy = call.grad_entropy.present;
    const auto widened = [&](const Operand& vector) {
      if (vector.dtype == kAclFloat) return vector;
      Operand wide = b.scratch(kAclFloat, vector.dims);
      b.cast(vector, wide);
      return wide;
    };
    RowValues values{};
    values.column = tokens.column;
    values.lse = call.lse;
    const Operand grad_logp = widened(call.grad_logp);
    values.base = b.scratch(kAclFloat, {n});
    b.subtract(call.grad_lse.present ? call.grad_lse : c_.f0, grad_logp, values.base);
    values.target_gradient = b.scratch(kAclFloat, {n});
    b.where(tokens.owned, grad_logp, c_.f0, values.target_gradient);
    values.entropy = with_entropy ? call.entropy : Operand::absent();
    values.grad_entropy = call.grad_entropy;

    values.keep = b.scratch(kAclBool, {r});
    values.fill = b.scratch(kAclFloat, {r});
    values.empty = b.scratch(kAclBool, {r});
    b.fill_bytes(values.empty, 0);
    if (!tokens.row.present) {
      b.where(tokens.ignored, c_.no, validity.valid, values.keep);
      b.where(validity.valid, c_.f0, c_.nan, values.fill);
      b.where(tokens.ignored, c_.f0, values.fill, values.fill);
      values.has_token = values.keep;
      return values;
    }

    // Each logits row's own token, and whether a token in error named it.
    const Operand positions = b.scratch(kAclInt64, {n});
    b.arange(int64_t{0}, n, int64_t{1}, positions);
    const Operand owner = add_owners(b, tokens, validity.valid, positions, r);
    const Operand wrong = b.scratch(kAclBool, {n});
    b.where(validity.valid, c_.no, tokens.row_ok, wrong);
    const Operand wrong_owner = add_owners(b, tokens, wrong, positions, r);
    const Operand known_owner = b.scratch(kAclInt64, {r});
    b.clamp_min(owner, int64_t{0}, known_owner);
    values.has_token = b.scratch(kAclBool, {r});
    b.equal(owner, known_owner, values.has_token);
    const Operand known_wrong = b.scratch(kAclInt64, {r});
    const Operand is_wrong = b.scratch(kAclBool, {r});
    b.clamp_min(wrong_owner, int64_t{0}, known_wrong);
    b.equal(wrong_owner, known_wrong, is_wrong);
    b.where(is_wrong, c_.no, values.has_token, values.keep);
    b.where(is_wrong, c_.nan, c_.f0, values.fill);
    for (Operand* vector :
         {&values.column, &values.lse, &values.base, &values.target_gradient, &values.entropy, &values.grad_entropy}) {
      if (!vector->present) continue;
      const Operand of_row = b.scratch(vector->dtype, {r});
      b.index_select(*vector, 0, known_owner, of_row);
      *vector = of_row;
    }
    return values;
  }

  void add_chunks(Builder& b, const Operand& logits, const Operand& grad_logits, const RowValues& values,
                  Chunk& chunk) {
    const int64_t r = logits.dims[0];
    const bool with_entropy = values.grad_entropy.present;
    const int64_t count = std::min(r, chunk_rows(vocab_ * (with_entropy ? 13 : 9)));
    chunk.a = b.scratch(kAclFloat, {count, vocab_});
    chunk.b = b.scratch(kAclFloat, {count, vocab_});
    if (with_entropy) chunk.c = b.scratch(kAclFloat, {count, vocab_});
    chunk.hidden = b.scratch(kAclBool, {count, vocab_});
    if (chunk.bias.present && chunk.bias.dtype != kAclFloat) {
      const Operand wide = b.scratch(kAclFloat, {vocab_});
      b.cast(chunk.bias, wide);
      chunk.bias = wide;
    }
    b.program().section(r / count);
    add_chunk(b, logits, grad_logits, values, chunk, 0, count, true);
    b.program().section(1);
    if (r % count != 0) add_chunk(b, logits, grad_logits, values, chunk, r / count * count, r % count, false);
    b.program().section(1);
  }

  void add_chunk(Builder& b, const Operand& logits, const Operand& grad_logits, const RowValues& values,
                 const Chunk& memory, int64_t first, int64_t count, bool loop) {
    const Operand x = rows(memory.a, 0, count);
    const Operand g = rows(memory.b, 0, count);
    const auto part = [&](const Operand& vector) { return column_of(vector, first, count, loop); };

    // x is the cap's tanh (with softcap), z the score; z is where it is now.
    Operand z = rows(logits, first, count, loop);
    if (z.dtype != kAclFloat) b.cast(z, x), z = x;
    if (memory.bias.present) b.add(z, memory.bias, x), z = x;
    if (options_.softcap > 0) {
      b.divide_scalar(z, options_.softcap, x);
      b.tanh(x, x);
      b.multiply_scalar(x, options_.softcap, g);
      z = g;
    }
    if (options_.temperature != 1.0F) b.divide_scalar(z, options_.temperature, g), z = g;

    // A capped logit is finite, so hidden logits and rows without any other exist without a cap only.
    const Operand hidden = rows(memory.hidden, 0, count);
    if (options_.softcap == 0) {
      b.less_scalar(z, kLowest, hidden);
      if (!options_.sharded) add_empty_rows(b, z, values, part, count);
    }

    // p (base - grad_entropy (log p + entropy)), and grad_logp at the target.
    b.subtract(z, part(values.lse), g);
    if (values.grad_entropy.present) {
      const Operand factor = rows(memory.c, 0, count);
      b.add(g, part(values.entropy), factor);
      b.multiply(factor, part(values.grad_entropy), factor);
      b.subtract(part(values.base), factor, factor);
      b.exp(g, g);
      b.multiply(g, factor, g);
    } else {
      b.exp(g, g);
      b.multiply(g, part(values.base), g);
    }
    add_target(b, g, values, first, count, loop);
    if (options_.softcap == 0) b.where(hidden, c_.f0, g, g);

    if (options_.softcap > 0) {  // d cap(x) / d x = 1 - tanh^2
      b.multiply(x, x, x);
      b.multiply_scalar(x, -1.0F, x);
      b.add_scalar(x, 1.0F, x);
      b.multiply(g, x, g);
    }
    if (options_.temperature != 1.0F) b.divide_scalar(g, options_.temperature, g);

    const Operand out = rows(grad_logits, first, count, loop);
    const bool direct = out.dtype == kAclFloat && !memory.grad_bias.present;
    b.where(part(values.keep), g, part(values.fill), direct ? out : g);
    if (memory.grad_bias.present) {
      const Operand sum = b.scratch(kAclFloat, {vocab_});
      b.sum(g, 0, false, sum);
      b.add(memory.grad_bias, sum, memory.grad_bias);
    }
    if (!direct) b.cast(g, out);
  }

  // Rows of -inf alone that have a token: NaN, and remembered for the record.
  template <class Part>
  void add_empty_rows(Builder& b, const Operand& z, const RowValues& values, const Part& part, int64_t count) {
    const Operand max = b.scratch(kAclFloat, {count, 1});
    const Operand empty = b.scratch(kAclBool, {count, 1});
    b.max(z, 1, true, max, b.scratch(kAclInt32, {count, 1}));
    b.less_scalar(max, kLowest, empty);
    b.multiply(empty, part(values.has_token), part(values.empty));
    b.where(part(values.empty), c_.nan, part(values.fill), part(values.fill));
    b.where(part(values.empty), c_.no, part(values.keep), part(values.keep));
  }

  // g[row, column] += grad_logp, as one element per row of the flattened chunk.
  void add_target(Builder& b, const Operand& g, const RowValues& values, int64_t first, int64_t count, bool loop) {
    const Operand at_target = b.scratch(kAclFloat, {count, 1});
    b.gather(g, 1, column_of(values.column, first, count, loop), at_target);
    b.add(at_target, column_of(values.target_gradient, first, count, loop), at_target);
    const Operand place = b.scratch(kAclInt64, {count});
    b.arange(int64_t{0}, count * vocab_, vocab_, place);
    b.add_i64(place, rows(values.column, first, count, loop), place);
    b.index_copy(reshaped(g, {count * vocab_}), 0, place, reshaped(at_target, {count}));
  }

  // The tokens whose own row is not empty, among the valid ones.
  Operand without_empty_rows(Builder& b, const Tokens& tokens, const Operand& valid, Operand empty) {
    if (tokens.row.present) {
      const Operand of_token = b.scratch(kAclBool, {tokens.count});
      b.index_select(empty, 0, tokens.row, of_token);
      empty = of_token;
    }
    Operand result = b.scratch(kAclBool, {tokens.count});
    b.where(empty, c_.no, valid, result);
    return result;
  }

  const int64_t vocab_;
  const LogpOptions options_;
  const TokenConstants c_;
};

}  // namespace

sdk::Support LogpBackward::query(Device&, const sdk::Call<Op>& described) {
  const Named call = sdk::arguments_of(described);
  const Runtime& r = runtime();
  // Its sums and maxima are fp32.
  if (auto no = sdk::refuse_dtype(call.logits, "logits", {sdk::Dtype::f32, sdk::Dtype::bf16, sdk::Dtype::f16})) {
    return *no;
  }
  if (auto no = sdk::refuse_input(call.keep_mask, "keep_mask")) return *no;
  if (auto no =
          decline_missing(missing(r.Add, r.Adds, r.Sub, r.Mul, r.Muls, r.Divs, r.Exp, r.Tanh, r.Clamp, r.ClampMin,
                                  r.EqTensor, r.LtTensor, r.LtScalar, r.SWhere, r.Cast, r.InplaceFillScalar,
                                  r.InplaceIndexCopy, r.Arange, r.ReduceSum, r.MaxDim, r.Gather, r.IndexSelect))) {
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

std::unique_ptr<sdk::Plan> LogpBackward::plan(Device& device, const sdk::Call<Op>& call) {
  return std::make_unique<LogpBackwardPlan>(device, sdk::arguments_of(call));
}

}  // namespace rlk::ascend
