// attention against the golden reference over layouts, masks, heads and sizes, and its batch invariance bit by bit.
#include <cmath>
#include <limits>

#include "core/cpu/kernels/attention.hpp"
#include "core/cpu/tbb_parallel.hpp"
#include "unit/cpu/support.hpp"

namespace rlk::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct AttentionCase {
  Tensor q, k, v, cu_seqlens_q, cu_seqlens_k;
  bool causal = false;
  int64_t window_left = -1, window_right = -1;
  double scale = 0.0;
  Strides output_strides = Strides::contiguous;
  bool packed() const { return cu_seqlens_q.present(); }
};

struct Heads {
  int64_t q, kv, size;
};

AttentionCase dense(Dtype dtype, int64_t batch, int64_t queries, int64_t keys, Heads heads,
                    Strides strides = Strides::contiguous) {
  AttentionCase c;
  c.q = random_tensor(dtype, {batch, queries, heads.q, heads.size}, 1.0, 1, strides);
  c.k = random_tensor(dtype, {batch, keys, heads.kv, heads.size}, 1.0, 2, strides);
  c.v = random_tensor(dtype, {batch, keys, heads.kv, heads.size}, 1.0, 3, strides);
  c.output_strides = strides;
  return c;
}

AttentionCase packed(Dtype dtype, const std::vector<int64_t>& q_lengths, const std::vector<int64_t>& k_lengths,
                     Heads heads, Dtype index = Dtype::i32) {
  const auto cumulate = [index](const std::vector<int64_t>& lengths) {
    Tensor cu(index, {static_cast<int64_t>(lengths.size()) + 1});
    cu.set_int(0, 0);
    for (size_t b = 0; b < lengths.size(); ++b) {
      cu.set_int(static_cast<int64_t>(b) + 1, cu.get_int(static_cast<int64_t>(b)) + lengths[b]);
    }
    return cu;
  };
  AttentionCase c;
  c.cu_seqlens_q = cumulate(q_lengths);
  c.cu_seqlens_k = cumulate(k_lengths);
  const auto batch = static_cast<int64_t>(q_lengths.size());
  c.q = random_tensor(dtype, {c.cu_seqlens_q.get_int(batch), heads.q, heads.size}, 1.0, 1);
  c.k = random_tensor(dtype, {c.cu_seqlens_k.get_int(batch), heads.kv, heads.size}, 1.0, 2);
  c.v = random_tensor(dtype, {c.cu_seqlens_k.get_int(batch), heads.kv, heads.size}, 1.0, 3);
  return c;
}

cpu::AttentionTensor describe(Tensor& tensor, bool is_packed, bool has_d) {
  const int token = is_packed ? 0 : 1;
  return {tensor.data(), is_packed ? 0 : tensor.stride(0), tensor.stride(token), tensor.stride(token + 1),
          has_d ? tensor.stride(token + 2) : 1};
}

struct AttentionOutputs {
  Tensor out, lse;
  cpu::DataError error;
};

AttentionOutputs run(AttentionCase& c, const cpu::ParallelFor& hook) {
  const int token = c.packed() ? 0 : 1;
  AttentionOutputs outputs;
  auto shape = c.q.shape();
  outputs.out = Tensor(c.q.dtype(), shape, c.output_strides);
  shape.pop_back();
  outputs.lse = Tensor(accumulator(c.q.dtype()), shape, c.output_strides);
  cpu::AttentionArgs args;
  args.dtype = kernel_dtype(c.q.dtype());
  args.q = describe(c.q, c.packed(), true);
  args.k = describe(c.k, c.packed(), true);
  args.v = describe(c.v, c.packed(), true);
  args.out = describe(outputs.out, c.packed(), true);
  args.lse = describe(outputs.lse, c.packed(), false);
  args.packed = c.packed();
  args.batch = c.packed() ? c.cu_seqlens_q.size() - 1 : c.q.shape()[0];
  args.q_tokens = c.q.shape()[static_cast<size_t>(token)];
  args.k_tokens = c.k.shape()[static_cast<size_t>(token)];
  args.cu_seqlens_q = c.cu_seqlens_q.data();
  args.cu_seqlens_k = c.cu_seqlens_k.data();
  args.cu_seqlens_are_i64 = c.packed() && c.cu_seqlens_q.dtype() == Dtype::i64;
  args.q_heads = c.q.shape()[static_cast<size_t>(token) + 1];
  args.kv_heads = c.k.shape()[static_cast<size_t>(token) + 1];
  args.head_size = c.q.shape()[static_cast<size_t>(token) + 2];
  args.causal = c.causal;
  args.window_left = c.window_left;
  args.window_right = c.window_right;
  args.scale = c.scale;
  std::vector<int64_t> workspace(static_cast<size_t>(cpu::attention_workspace_bytes(args.batch, args.packed) / 8 + 1));
  args.workspace = workspace.data();
  EXPECT_EQ(cpu::attention(args, hook, &outputs.error), cpu::AttentionStatus::ok);
  return outputs;
}

golden::AttentionResult run_golden(const AttentionCase& c) {
  golden::AttentionCall call;
  call.q = c.q.view();
  call.k = c.k.view();
  call.v = c.v.view();
  call.cu_seqlens_q = c.cu_seqlens_q.view();
  call.cu_seqlens_k = c.cu_seqlens_k.view();
  call.layout = c.packed() ? golden::Layout::packed : golden::Layout::dense;
  call.causal = c.causal ? golden::Causal::bottom_right : golden::Causal::none;
  call.window_left = c.window_left;
  call.window_right = c.window_right;
  call.scale = c.scale;
  call.want_lse = true;
  return golden::attention(call);
}

void expect_golden(AttentionCase& c) {
  const golden::AttentionResult expected = run_golden(c);
  const AttentionOutputs got = run(c, cpu::serial_parallel());
  EXPECT_TRUE(matches(got.out, expected.out, c.q.dtype())) << "out";
  EXPECT_TRUE(matches(got.lse, expected.lse, c.q.dtype())) << "lse";
  EXPECT_EQ(got.error.kind, expected.error.kind);
  EXPECT_EQ(got.error.row, expected.error.row);
  EXPECT_EQ(got.error.value, expected.error.value);
  for (const cpu::ParallelFor& hook : {cpu::tbb_parallel(), backwards_parallel()}) {
    const AttentionOutputs again = run(c, hook);
    EXPECT_EQ(again.out.bytes(), got.out.bytes());
    EXPECT_EQ(again.lse.bytes(), got.lse.bytes());
  }
}

TEST(CpuAttention, MatchesGoldenForEverySizeAndDtype) {
  for_each_target([] {
    for (Dtype dtype : kFloatDtypes) {
      for (auto [queries, keys] :
           std::vector<std::pair<int64_t, int64_t>>{{7, 7}, {1, 13}, {65, 130}, {0, 5}, {5, 0}, {3, 1}, {49, 64}}) {
        for (Heads heads : {Heads{2, 2, 16}, Heads{4, 2, 40}, Heads{3, 1, 1}}) {
          for (bool causal : {false, true}) {
            SCOPED_TRACE(name(dtype) + " " + std::to_string(queries) + "x" + std::to_string(keys) + " D" +
                         std::to_string(heads.size) + (causal ? " causal" : ""));
            AttentionCase c = dense(dtype, 2, queries, keys, heads);
            c.causal = causal;
            expect_golden(c);
          }
        }
      }
    }
  });
}

TEST(CpuAttention, MatchesGoldenForLargeHeads) {
  for_each_target([] {
    for (Dtype dtype : kFloatDtypes) {
      for (int64_t size : {64, 128, 129, 256}) {
        SCOPED_TRACE(name(dtype) + " D" + std::to_string(size));
        AttentionCase c = dense(dtype, 1, 9, 70, {2, 1, size});
        c.causal = true;
        expect_golden(c);
      }
    }
  });
}

TEST(CpuAttention, MatchesGoldenForWindowsScalesAndStrides) {
  for_each_target([] {
    for (int64_t left : {-1, 0, 3, 70}) {
      for (int64_t right : {-1, 0, 2, 70}) {
        for (bool causal : {false, true}) {
          for (auto [queries, keys] : std::vector<std::pair<int64_t, int64_t>>{{90, 150}, {150, 90}, {4, 4}}) {
            SCOPED_TRACE(std::to_string(left) + "," + std::to_string(right) + (causal ? " causal " : " ") +
                         std::to_string(queries) + "x" + std::to_string(keys));
            AttentionCase c = dense(Dtype::f32, 1, queries, keys, {2, 2, 8},
                                    left == 3   ? Strides::gaps
                                    : left == 0 ? Strides::reversed
                                                : Strides::contiguous);
            c.causal = causal;
            c.window_left = left;
            c.window_right = right;
            if (right == 2) c.scale = 0.3;
            expect_golden(c);
          }
        }
      }
    }
  });
  AttentionCase c = dense(Dtype::f32, 1, 5, 5, {1, 1, 8});
  c.window_left = c.window_right = std::numeric_limits<int64_t>::max();
  expect_golden(c);
}

TEST(CpuAttention, MatchesGoldenForPackedSequences) {
  for_each_target([] {
    for (Dtype dtype : kFloatDtypes) {
      for (Dtype index : {Dtype::i32, Dtype::i64}) {
        AttentionCase c = packed(dtype, {5, 0, 60, 1, 3}, {5, 4, 70, 100, 0}, {4, 2, 40}, index);
        c.causal = true;
        expect_golden(c);
        AttentionCase none = packed(dtype, {}, {}, {2, 2, 8}, index);
        expect_golden(none);
      }
    }
  });
}

TEST(CpuAttention, BadCuSeqlensAreADataErrorAndTheOutputIsNan) {
  const auto broken = [](int64_t position, int64_t content, bool of_keys) {
    AttentionCase c = packed(Dtype::f32, {3, 4, 2}, {4, 4, 1}, {2, 2, 8});
    (of_keys ? c.cu_seqlens_k : c.cu_seqlens_q).set_int(position, content);
    expect_golden(c);
    const AttentionOutputs got = run(c, cpu::serial_parallel());
    EXPECT_EQ(got.error.kind, cpu::kBadSeqlens);
    EXPECT_TRUE(std::isnan(got.out.get(0)) && std::isnan(got.lse.get(17)));
    return got.error;
  };
  EXPECT_EQ(broken(0, 1, false).row, 0);
  EXPECT_EQ(broken(1, -2, false).row, 1);
  EXPECT_EQ(broken(1, 100, false).row, 2);  // the next one decreases
  EXPECT_EQ(broken(3, 10, true).value, 10);
}

TEST(CpuAttention, HiddenKeysAreNotTouchedEvenWhenTheyAreNanOrInfinite) {
  for_each_target([] {
    for (Dtype dtype : kFloatDtypes) {
      for (double poison : {kNan, kInfinity}) {
        constexpr int64_t kRow = 48, kFirstBad = 40, kLength = 70;  // elements of a token, tokens
        AttentionCase clean = dense(dtype, 1, kLength, kLength, {2, 2, 24});
        clean.causal = true;
        AttentionCase poisoned = clean;
        for (int64_t i = kFirstBad * kRow; i < kLength * kRow; ++i)
          poisoned.k.set(i, poison), poisoned.v.set(i, poison);
        const AttentionOutputs want = run(clean, cpu::serial_parallel());
        const AttentionOutputs got = run(poisoned, cpu::serial_parallel());
        EXPECT_EQ(got.out.bits(0, kFirstBad * kRow), want.out.bits(0, kFirstBad * kRow)) << name(dtype);
        EXPECT_EQ(got.lse.bits(0, 80), want.lse.bits(0, 80));
        EXPECT_TRUE(std::isnan(got.out.get((kLength - 1) * kRow)));
      }
    }
  });
}

// A query's bits are the same alone, in a batch, in a packed buffer at another place, and as the end of a longer chunk.
TEST(CpuAttention, BitsDoNotDependOnBatchPackingOrChunking) {
  for_each_target([] {
    for (Dtype dtype : kFloatDtypes) {
      for (int64_t window : {-1, 20}) {
        const Heads heads{4, 2, 40};
        const int64_t row = heads.q * heads.size, kv_row = heads.kv * heads.size, length = 150;
        AttentionCase whole = dense(dtype, 1, length, length, heads);
        whole.causal = true;
        whole.window_left = window;
        const AttentionOutputs expected = run(whole, cpu::tbb_parallel());
        for (int64_t chunk : {1, 3, 70}) {
          AttentionCase part = dense(dtype, 1, chunk, length, heads);
          part.k = whole.k;
          part.v = whole.v;
          part.causal = true;
          part.window_left = window;
          const int64_t first = length - chunk;
          part.q.fill([&](int64_t i) { return whole.q.get(first * row + i); });
          const AttentionOutputs got = run(part, cpu::tbb_parallel());
          EXPECT_EQ(got.out.bits(0, chunk * row), expected.out.bits(first * row, length * row));
          EXPECT_EQ(got.lse.bits(0, chunk * heads.q), expected.lse.bits(first * heads.q, length * heads.q));
        }
        AttentionCase pack = packed(dtype, {11, length, 5}, {30, length, 9}, heads);
        pack.causal = true;
        pack.window_left = window;
        for (int64_t i = 0; i < length * row; ++i) pack.q.set(11 * row + i, whole.q.get(i));
        for (int64_t i = 0; i < length * kv_row; ++i) {
          pack.k.set(30 * kv_row + i, whole.k.get(i));
          pack.v.set(30 * kv_row + i, whole.v.get(i));
        }
        const AttentionOutputs got = run(pack, cpu::tbb_parallel());
        EXPECT_EQ(got.out.bits(11 * row, (11 + length) * row), expected.out.bits(0, length * row));
      }
    }
  });
}

TEST(CpuAttention, LargeScoresAndScalesStayFinite) {
  for_each_target([] {
    for (double scale : {1e-40, 5.0, 1e25}) {
      AttentionCase c = dense(Dtype::f32, 1, 5, 90, {1, 1, 16});
      c.scale = scale;
      expect_golden(c);
    }
  });
}

}  // namespace
}  // namespace rlk::test
