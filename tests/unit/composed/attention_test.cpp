// Attention as a program: the same numbers whatever is cut into parts, dense and packed, forward and backward, and
// sequences that are wrong.
#include "attention_calls.hpp"

#include <cmath>

// The operators' files list themselves for plugins.
#define RLK_COMPOSED_LISTED(Operator)
#include "plugins/composed/operators/attention.hpp"
#include "plugins/composed/operators/attention_backward.hpp"

namespace {

using namespace composed_test;

// One sequence: rows of its first query and first key, and how many of each.
struct Lengths {
  int64_t q_first, queries, k_first, keys;
};

// All tensors of a call and of its gradient, rows of tokens.
struct Tensors {
  Numbers q, k, v, out, lse, grad_out, grad_lse, grad_q, grad_k, grad_v;

  Tensors(int64_t queries, int64_t keys)
      : q(numbers(queries * kHeads * kColumns, 1)),
        k(numbers(keys * kKeyHeads * kColumns, 2)),
        v(numbers(keys * kKeyHeads * kColumns, 3)),
        out(q.size()),
        lse(static_cast<size_t>(queries * kHeads)),
        grad_out(numbers(queries * kHeads * kColumns, 4)),
        grad_lse(numbers(queries * kHeads, 5)),
        grad_q(q.size()),
        grad_k(k.size()),
        grad_v(k.size()) {}
};

// The declaration, in fp64.
Tensors expected(int64_t all_queries, int64_t all_keys, const std::vector<Lengths>& sequences, const Options& options) {
  Tensors t(all_queries, all_keys);
  std::vector<double> grad_k(t.k.size()), grad_v(t.k.size());
  const double scale = 1 / std::sqrt(static_cast<double>(kColumns));
  for (const Lengths& s : sequences) {
    const int64_t offset = options.top_left ? 0 : s.keys - s.queries;
    for (int64_t i = 0; i < s.queries; ++i) {
      for (int64_t h = 0; h < kHeads; ++h) {
        const int64_t row = (s.q_first + i) * kHeads + h;
        const auto key_row = [&](int64_t j) { return (s.k_first + j) * kKeyHeads + h / (kHeads / kKeyHeads); };
        const auto along = [&](const Numbers& a, int64_t x, const Numbers& b, int64_t y) {
          double sum = 0;
          for (int64_t c = 0; c < kColumns; ++c)
            sum += double{a[static_cast<size_t>(x * kColumns + c)]} * double{b[static_cast<size_t>(y * kColumns + c)]};
          return sum;
        };
        std::vector<int64_t> seen;
        std::vector<double> scores;
        double total = 0;
        for (int64_t j = 0; j < s.keys; ++j) {
          const int64_t from = j - i - offset;
          if ((options.causal && from > 0) || (options.left >= 0 && from < -options.left) ||
              (options.right >= 0 && from > options.right))
            continue;
          double x = scale * along(t.q, row, t.k, key_row(j));
          if (options.softcap > 0) x = options.softcap * std::tanh(x / options.softcap);
          seen.push_back(j);
          scores.push_back(x);
          total += std::exp(x);
        }
        const double lse = std::log(total);
        t.lse[static_cast<size_t>(row)] = static_cast<float>(lse);
        double delta = 0;
        for (int64_t c = 0; c < kColumns; ++c) {
          double sum = 0;
          for (size_t n = 0; n < seen.size(); ++n)
            sum += std::exp(scores[n] - lse) * double{t.v[static_cast<size_t>(key_row(seen[n]) * kColumns + c)]};
          t.out[static_cast<size_t>(row * kColumns + c)] = static_cast<float>(sum);
          delta += sum * double{t.grad_out[static_cast<size_t>(row * kColumns + c)]};
        }
        for (size_t n = 0; n < seen.size(); ++n) {
          const double p = std::exp(scores[n] - lse), cap = options.softcap > 0 ? scores[n] / options.softcap : 0;
          const double ds = p * (along(t.grad_out, row, t.v, key_row(seen[n])) - delta +
                                 double{t.grad_lse[static_cast<size_t>(row)]});
          const double dx = scale * ds * (1 - cap * cap);
          for (int64_t c = 0; c < kColumns; ++c) {
            const auto own = static_cast<size_t>(row * kColumns + c),
                       other = static_cast<size_t>(key_row(seen[n]) * kColumns + c);
            t.grad_q[own] += static_cast<float>(dx * double{t.k[other]});
            grad_k[other] += dx * double{t.q[own]};
            grad_v[other] += p * double{t.grad_out[own]};
          }
        }
      }
    }
  }
  for (size_t i = 0; i < grad_k.size(); ++i) {
    t.grad_k[i] = static_cast<float>(grad_k[i]);
    t.grad_v[i] = static_cast<float>(grad_v[i]);
  }
  return t;
}

struct Batch {
  int64_t sequences = 0, queries = 0, keys = 0;  // of each dense sequence
  std::vector<int64_t> q_starts = {}, k_starts = {};

  bool is_packed() const { return !q_starts.empty(); }
  int64_t all_queries() const { return is_packed() ? q_starts.back() : sequences * queries; }
  int64_t all_keys() const { return is_packed() ? k_starts.back() : sequences * keys; }
  std::vector<Lengths> lengths() const {
    std::vector<Lengths> all;
    for (int64_t b = 0; b < sequences; ++b) {
      const auto i = static_cast<size_t>(b);
      all.push_back(
          is_packed() ? Lengths{q_starts[i], q_starts[i + 1] - q_starts[i], k_starts[i], k_starts[i + 1] - k_starts[i]}
                      : Lengths{b * queries, queries, b * keys, keys});
    }
    return all;
  }
};

template <class Op>
Arguments<Op> described(const Batch& batch, const Options& options) {
  Arguments<Op> call;
  using Params = std::decay_t<decltype(call.params)>;
  call.params.layout = batch.is_packed() ? decltype(Params::layout)::packed : decltype(Params::layout)::dense;
  set(call.params, options);
  call.B = batch.sequences, call.Hq = kHeads, call.Hkv = kKeyHeads, call.D = kColumns;
  call.Sq = batch.queries, call.Sk = batch.keys;
  if (batch.is_packed()) call.Tq = batch.all_queries(), call.Tk = batch.all_keys();
  const auto starts = [&](uint32_t index, const std::vector<int64_t>& values) {
    View made = view(View::Place::input, index, {static_cast<int64_t>(values.size())});
    made.dtype = Dtype::i64;
    made.host = values.data();
    return made;
  };
  if (batch.is_packed()) {
    call.cu_seqlens_q = starts(20, batch.q_starts);
    call.cu_seqlens_k = starts(21, batch.k_starts);
  }
  return call;
}
Dims token_dims(const Batch& batch, bool is_query, int64_t heads, int64_t columns) {
  Dims dims = batch.is_packed() ? Dims{is_query ? batch.all_queries() : batch.all_keys()}
                                : Dims{batch.sequences, is_query ? batch.queries : batch.keys};
  dims.push_back(heads);
  if (columns > 0) dims.push_back(columns);
  return dims;
}

// On a vendor with so much workspace; answers how many steps it took.
size_t check(const Batch& batch, const Options& options, bool is_strict, uint64_t workspace_bytes) {
  using View::Place::input, View::Place::output;
  const Primitives primitives = vendor(is_strict, workspace_bytes);
  const std::vector<Alias> aliases;
  const Tensors wanted = expected(batch.all_queries(), batch.all_keys(), batch.lengths(), options);
  Tensors t(batch.all_queries(), batch.all_keys());
  const Dims q = token_dims(batch, true, kHeads, kColumns), k = token_dims(batch, false, kKeyHeads, kColumns);
  const Dims rows = token_dims(batch, true, kHeads, 0);

  auto forward = described<rlk::sdk::ops::Attention>(batch, options);
  forward.q = view(input, 0, q), forward.k = view(input, 1, k), forward.v = view(input, 2, k);
  forward.out = view(output, 0, q), forward.lse = view(output, 1, rows);
  Parts parts(primitives, aliases);
  compose_attention(parts, forward);
  const Program program = parts.take();
  EXPECT_FALSE(program.refusal);
  Interpreter(primitives, {&t.q, &t.k, &t.v}, {&t.out, &t.lse}).run(program);
  expect_near(t.out, wanted.out, "out");
  expect_near(t.lse, wanted.lse, "lse");

  auto backward = described<rlk::sdk::ops::AttentionBackward>(batch, options);
  backward.q = view(input, 0, q), backward.k = view(input, 1, k), backward.v = view(input, 2, k);
  backward.out = view(input, 3, q), backward.lse = view(input, 4, rows);
  backward.grad_out = view(input, 5, q), backward.grad_lse = view(input, 6, rows);
  backward.grad_q = view(output, 0, q), backward.grad_k = view(output, 1, k), backward.grad_v = view(output, 2, k);
  Parts back(primitives, aliases);
  compose_attention_backward(back, backward);
  const Program gradients = back.take();
  EXPECT_FALSE(gradients.refusal);
  Interpreter(primitives, {&t.q, &t.k, &t.v, &t.out, &t.lse, &t.grad_out, &t.grad_lse},
              {&t.grad_q, &t.grad_k, &t.grad_v})
      .run(gradients);
  expect_near(t.grad_q, wanted.grad_q, "grad_q");
  expect_near(t.grad_k, wanted.grad_k, "grad_k");
  expect_near(t.grad_v, wanted.grad_v, "grad_v");
  return program.steps.size();
}

TEST(ComposedAttention, PartsOfAnySizeGiveTheSameNumbers) {
  const Batch batches[] = {{2, 9, 11}, {1, 7, 4}, {3, 13, 0, {0, 5, 10, 13}, {0, 6, 12, 12}}, {1, 2, 150}};
  const Options options[] = {{}, {true}, {true, true}, {false, false, 3, 1}, {true, false, 2, -1, 1.5}};
  for (const Batch& batch : batches) {
    for (const Options& option : options) {
      for (const bool is_strict : {false, true}) {
        SCOPED_TRACE(testing::Message() << "keys " << batch.keys << ", option " << &option - options << ", strict "
                                        << is_strict);
        const size_t steps = check(batch, option, is_strict, ~uint64_t{0});
        EXPECT_LE(steps, check(batch, option, is_strict, 16384));
        EXPECT_LT(steps, check(batch, option, is_strict, 1));
      }
    }
  }
}

TEST(ComposedAttention, SequencesThatAreWrongAreNanAndReported) {
  const Batch batch{2, 0, 0, {0, 3, 7}, {0, 5, 4}};
  Options options;
  const Primitives primitives = vendor(true);
  const std::vector<Alias> aliases;
  auto call = described<rlk::sdk::ops::Attention>(batch, options);
  call.out = view(View::Place::output, 0, {7, kHeads, kColumns});
  Parts parts(primitives, aliases);
  compose_attention(parts, call);
  const Program program = parts.take();
  ASSERT_TRUE(program.error);
  EXPECT_EQ(program.error->kind, RLK_DATA_BAD_SECOND_SEQLENS);
  EXPECT_EQ(program.error->row, 2);
  EXPECT_EQ(program.error->value, 4);
  Numbers out(7 * kHeads * kColumns);
  Interpreter(primitives, {}, {&out}).run(program);
  for (const float number : out) EXPECT_TRUE(std::isnan(number));
}

}  // namespace
