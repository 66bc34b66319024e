// The products of experts as a program: the same numbers whatever is cut into parts, experts without rows, weights of
// either orientation, offsets that are wrong, and in which dtype 16 bits are multiplied.
#include <gtest/gtest.h>

#include "interpreter.hpp"

#include <rlk/sdk/ops.hpp>

// The operators' file lists itself for plugins.
#define RLK_COMPOSED_LISTED(Operator)
#include "plugins/composed/operators/grouped_gemm.hpp"

namespace {

using namespace composed_test;
using Numbers = std::vector<float>;
using Forward = Arguments<rlk::sdk::ops::GroupedGemm>;
using Backward = Arguments<rlk::sdk::ops::GroupedGemmBackward>;

constexpr int64_t kDepth = 35, kColumns = 33;  // K and M

Numbers numbers(int64_t count, int64_t seed) {
  Numbers made(static_cast<size_t>(count));
  for (size_t i = 0; i < made.size(); ++i)
    made[i] = static_cast<float>((static_cast<int64_t>(i) * 37 + seed * 11) % 29) / 10 - 1.4F;
  return made;
}

View view(View::Place place, uint32_t index, const Dims& dims, Dtype dtype = Dtype::f32) {
  View made;
  made.place = place;
  made.index = index;
  made.dtype = dtype;
  made.dims = dims;
  made.strides = dense_strides(dims);
  return made;
}

struct Tensors {
  Numbers x, weight, y, grad_y, grad_x, grad_weight;

  Tensors(int64_t rows, int64_t experts)
      : x(numbers(rows * kDepth, 1)),
        weight(numbers(experts * kColumns * kDepth, 2)),
        y(static_cast<size_t>(rows * kColumns)),
        grad_y(numbers(rows * kColumns, 3)),
        grad_x(x.size()),
        grad_weight(weight.size(), 7.0F) {}
};

// The declaration, in fp64. is_exchanged: the weights lie as [E, K, M].
Tensors expected(const std::vector<int64_t>& starts, bool is_exchanged) {
  const auto experts = static_cast<int64_t>(starts.size()) - 1;
  Tensors t(starts.back(), experts);
  std::vector<double> y(t.y.size()), grad_x(t.x.size()), grad_weight(t.weight.size());
  for (int64_t e = 0; e < experts; ++e) {
    for (int64_t row = starts[static_cast<size_t>(e)]; row < starts[static_cast<size_t>(e) + 1]; ++row) {
      for (int64_t m = 0; m < kColumns; ++m) {
        for (int64_t k = 0; k < kDepth; ++k) {
          const auto xi = static_cast<size_t>(row * kDepth + k), yi = static_cast<size_t>(row * kColumns + m);
          const auto gi = static_cast<size_t>((e * kColumns + m) * kDepth + k);
          const auto wi = is_exchanged ? static_cast<size_t>((e * kDepth + k) * kColumns + m) : gi;
          y[yi] += double{t.x[xi]} * double{t.weight[wi]};
          grad_x[xi] += double{t.grad_y[yi]} * double{t.weight[wi]};
          grad_weight[gi] += double{t.grad_y[yi]} * double{t.x[xi]};
        }
      }
    }
  }
  const auto narrow = [](const std::vector<double>& from, Numbers& to) {
    for (size_t i = 0; i < from.size(); ++i) to[i] = static_cast<float>(from[i]);
  };
  narrow(y, t.y), narrow(grad_x, t.grad_x), narrow(grad_weight, t.grad_weight);
  return t;
}

struct Starts {
  std::vector<int64_t> values;

  int64_t experts() const { return static_cast<int64_t>(values.size()) - 1; }
  View view_of(uint32_t index) const {
    View made = view(View::Place::input, index, {experts() + 1}, Dtype::i64);
    made.host = values.data();
    return made;
  }
};
View weights(uint32_t index, int64_t experts, bool is_exchanged, Dtype dtype = Dtype::f32) {
  View made = view(View::Place::input, index, {experts, kColumns, kDepth}, dtype);
  if (is_exchanged) made.strides = {kColumns * kDepth, 1, kColumns};
  return made;
}
template <class Call>
Call sizes_of(const Starts& starts, int64_t rows) {
  Call call;
  call.E = starts.experts(), call.R = rows, call.K = kDepth, call.M = kColumns;
  return call;
}
Forward forward_of(const Starts& starts, int64_t rows, bool is_exchanged = false, Dtype dtype = Dtype::f32) {
  auto call = sizes_of<Forward>(starts, rows);
  call.x = view(View::Place::input, 0, {rows, kDepth}, dtype);
  call.weight = weights(1, call.E, is_exchanged, dtype);
  call.cu_seqlens = starts.view_of(2);
  call.y = view(View::Place::output, 0, {rows, kColumns}, dtype);
  return call;
}
Backward backward_of(const Starts& starts, int64_t rows, bool is_exchanged = false, Dtype dtype = Dtype::f32) {
  auto call = sizes_of<Backward>(starts, rows);
  call.grad_y = view(View::Place::input, 0, {rows, kColumns}, dtype);
  call.x = view(View::Place::input, 1, {rows, kDepth}, dtype);
  call.weight = weights(2, call.E, is_exchanged, dtype);
  call.cu_seqlens = starts.view_of(3);
  call.grad_x = view(View::Place::output, 0, {rows, kDepth}, dtype);
  call.grad_weight = view(View::Place::output, 1, {call.E, kColumns, kDepth});
  return call;
}
template <class Call>
Program composed(const Primitives& primitives, void (*compose)(Parts&, const Call&), const Call& call) {
  const std::vector<Alias> aliases;
  Parts parts(primitives, aliases);
  compose(parts, call);
  return parts.take();
}

void expect_near(const Numbers& seen, const Numbers& wanted, const char* which) {
  ASSERT_EQ(seen.size(), wanted.size());
  for (size_t i = 0; i < seen.size(); ++i) EXPECT_NEAR(seen[i], wanted[i], 2e-4F) << which << " " << i;
}

// On a vendor with so much workspace; answers both programs' steps.
size_t check(const Starts& starts, bool is_exchanged, bool is_strict, uint64_t workspace_bytes) {
  const Primitives primitives = vendor(is_strict, workspace_bytes);
  const int64_t rows = starts.values.back();
  const Tensors wanted = expected(starts.values, is_exchanged);
  Tensors t(rows, starts.experts());
  const Program program = composed(primitives, compose_grouped_gemm, forward_of(starts, rows, is_exchanged));
  EXPECT_FALSE(program.refusal);
  EXPECT_FALSE(program.error);
  Interpreter(primitives, {&t.x, &t.weight}, {&t.y}).run(program);
  expect_near(t.y, wanted.y, "y");
  const Program gradients =
      composed(primitives, compose_grouped_gemm_backward, backward_of(starts, rows, is_exchanged));
  EXPECT_FALSE(gradients.refusal);
  Interpreter(primitives, {&t.grad_y, &t.x, &t.weight}, {&t.grad_x, &t.grad_weight}).run(gradients);
  expect_near(t.grad_x, wanted.grad_x, "grad_x");
  expect_near(t.grad_weight, wanted.grad_weight, "grad_weight");
  EXPECT_LE(program.workspace_bytes, workspace_bytes);
  EXPECT_LE(gradients.workspace_bytes, workspace_bytes);
  return program.steps.size() + gradients.steps.size();
}

TEST(ComposedGrouped, PartsOfAnySizeGiveTheSameNumbers) {
  const Starts all[] = {{{0, 5, 5, 9, 13, 60}}, {{0, 0}}, {{0, 0, 3}}, {{0, 2, 4, 6}}};
  for (const Starts& starts : all) {
    for (const bool is_exchanged : {false, true}) {
      for (const bool is_strict : {false, true}) {
        SCOPED_TRACE(testing::Message() << "rows " << starts.values.back() << ", exchanged " << is_exchanged
                                        << ", strict " << is_strict);
        const size_t steps = check(starts, is_exchanged, is_strict, ~uint64_t{0});
        EXPECT_LE(steps, check(starts, is_exchanged, is_strict, 2048));
      }
    }
  }
}

TEST(ComposedGrouped, ExpertsOfEquallyManyRowsAreOneBatch) {
  const Primitives primitives = vendor(false);
  const auto products = [&](const Starts& starts) {
    return composed(primitives, compose_grouped_gemm, forward_of(starts, starts.values.back())).steps.size();
  };
  EXPECT_EQ(products({{0, 2, 4, 6, 6, 6}}), 1U);
  EXPECT_EQ(products({{0, 2, 4, 7, 7, 10}}), 3U);
}

// A tensor with gaps is copied; so that the copies fit, rows, columns and what is summed over are divided.
TEST(ComposedGrouped, AProductLargerThanTheWorkspaceIsDividedInAllDirections) {
  const Starts starts{{0, 70}};
  const Tensors wanted = expected(starts.values, false);
  Tensors t(70, 1);
  size_t steps = 0;
  for (const uint64_t bytes : {~uint64_t{0}, uint64_t{9000}, uint64_t{2500}}) {
    const Primitives primitives = vendor(true, bytes);
    auto call = backward_of(starts, 70);
    Numbers gaps(70 * (kDepth + 3)), grad_weight(kColumns * (kDepth + 1));
    for (size_t i = 0; i < t.x.size(); ++i) gaps[i / kDepth * (kDepth + 3) + i % kDepth] = t.x[i];
    call.x.strides[0] = kDepth + 3;
    call.grad_weight.strides = {kColumns * (kDepth + 1), kDepth + 1, 1};
    const Program program = composed(primitives, compose_grouped_gemm_backward, call);
    EXPECT_LE(program.workspace_bytes, bytes);
    EXPECT_GT(program.steps.size(), steps);
    steps = program.steps.size();
    Interpreter(primitives, {&t.grad_y, &gaps, &t.weight}, {&t.grad_x, &grad_weight}).run(program);
    expect_near(t.grad_x, wanted.grad_x, "grad_x");
    for (size_t i = 0; i < t.grad_weight.size(); ++i)
      t.grad_weight[i] = grad_weight[i / kDepth * (kDepth + 1) + i % kDepth];
    expect_near(t.grad_weight, wanted.grad_weight, "grad_weight");
  }
}

TEST(ComposedGrouped, OffsetsThatAreWrongAreNanAndReported) {
  struct Wrong {
    Starts starts;
    int64_t row, value;
  };
  const Wrong all[] = {{{{1, 3, 7}}, 0, 1}, {{{0, 5, 4}}, 2, 4}, {{{0, 3, 6}}, 2, 6}, {{{0, 9, 7}}, 2, 7}};
  const Primitives primitives = vendor(true);
  for (const Wrong& wrong : all) {
    const Program program = composed(primitives, compose_grouped_gemm_backward, backward_of(wrong.starts, 7));
    ASSERT_TRUE(program.error);
    EXPECT_EQ(program.error->kind, RLK_DATA_BAD_SEQLENS);
    EXPECT_EQ(program.error->row, wrong.row);
    EXPECT_EQ(program.error->value, wrong.value);
    Tensors t(7, 2);
    Interpreter(primitives, {}, {&t.grad_x, &t.grad_weight}).run(program);
    for (const float number : t.grad_x) EXPECT_TRUE(std::isnan(number));
    for (const float number : t.grad_weight) EXPECT_TRUE(std::isnan(number));
  }
}

// In 16 bits where the vendor rounds a sum in fp32 once; the gradients of weights are fp32 and their factors, too.
TEST(ComposedGrouped, SixteenBitsAreMultipliedAsSuchWhereTheResultHasThem) {
  Primitives primitives = vendor(false);
  for (Primitive& one : primitives.table) one.dtypes = {Dtype::f32, Dtype::bf16, Dtype::boolean};
  Primitive cast{Word::cast, false, "a cast", true, {Dtype::f32, Dtype::bf16}, {Dtype::f32, Dtype::bf16}};
  primitives.table.push_back(cast);
  const Starts starts{{0, 4, 7}};
  const auto words = [&](const Program& program, Dtype dtype) {
    int64_t products = 0, casts = 0;
    for (const Step& step : program.steps) {
      const Word word = primitives.table[step.primitive].word;
      products += word == Word::product && step.in[0].dtype == dtype && step.in[1].dtype == dtype ? 1 : 0;
      casts += word == Word::cast ? 1 : 0;
    }
    return std::pair{products, casts};
  };
  using Counts = std::pair<int64_t, int64_t>;
  for (const bool rounds : {false, true}) {
    primitives.abilities.rounds_products = rounds;
    const Program forward = composed(primitives, compose_grouped_gemm, forward_of(starts, 7, false, Dtype::bf16));
    EXPECT_EQ(words(forward, rounds ? Dtype::bf16 : Dtype::f32), (rounds ? Counts{2, 0} : Counts{2, 6}));
    const Program backward =
        composed(primitives, compose_grouped_gemm_backward, backward_of(starts, 7, false, Dtype::bf16));
    EXPECT_EQ(words(backward, Dtype::bf16), (rounds ? Counts{2, 4} : Counts{0, 10}));
    EXPECT_EQ(words(backward, Dtype::f32).first, rounds ? 2 : 4);
  }
}

// A query knows no offsets: it asks for what a call of any could need.
TEST(ComposedGrouped, AQueryReadsNothingOnTheHost) {
  for (const int64_t rows : {0, 7}) {
    Primitives primitives = vendor(false);
    const std::vector<Alias> aliases;
    auto call = forward_of({{0, 4, rows}}, rows);
    call.cu_seqlens.host = nullptr;
    for (const bool has_product : {true, false}) {
      for (Primitive& one : primitives.table) one.is_present = has_product || one.word != Word::product;
      Parts parts(primitives, aliases, true);
      compose_grouped_gemm(parts, call);
      EXPECT_EQ(parts.take().refusal.has_value(), !has_product) << rows;
    }
  }
}

}  // namespace
