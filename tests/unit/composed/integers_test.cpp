// The integers of draws, as programs: to the last bit those of the formulas, and within 63 bits on the way.
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <random>

#include "interpreter.hpp"
#include "plugins/composed/sampling.hpp"

namespace {

using namespace composed_test;
namespace formula = rlk::formula;

View view(View::Place place, uint32_t index, Dtype dtype, Dims dims) {
  View made;
  made.place = place;
  made.index = index;
  made.dtype = dtype;
  made.strides = dense_strides(dims);
  made.dims = std::move(dims);
  return made;
}
template <class T>
constexpr Dtype kDtype = sizeof(T) == 8 ? Dtype::i64 : Dtype::f32;

// Inputs of [rows, columns], all of one type, by name of `value`.
template <class T>
struct Call {
  std::vector<std::vector<T>> inputs;
  Dims dims;
};
using Inputs = std::vector<Value>;

// What is made of them, on both vendors.
template <class Result, class T>
void expect_same(Call<T> call, const Dims& dims, const std::function<Value(Recording<float>, const Inputs&)>& record,
                 const std::vector<Result>& expected) {
  for (const bool is_strict : {false, true}) {
    const Primitives primitives = vendor_of_integers(is_strict);
    Recorder recorder(primitives.abilities);
    Inputs values;
    for (uint32_t i = 0; i < call.inputs.size(); ++i)
      values.push_back({&recorder, recorder.input(view(View::Place::input, i, kDtype<T>, call.dims))});
    recorder.output(view(View::Place::output, 0, kDtype<Result>, dims), record({&recorder}, values).node);
    const Program program = program_of(recorder, primitives, {});
    ASSERT_FALSE(program.refusal) << program.refusal->reason;
    const auto bytes = [](auto& numbers) { return reinterpret_cast<std::byte*>(numbers.data()); };
    std::vector<std::byte*> inputs;
    for (std::vector<T>& input : call.inputs) inputs.push_back(bytes(input));
    std::vector<Result> seen(expected.size());
    Interpreter(primitives, Interpreter::Tensors{inputs, {bytes(seen)}}).run(program);
    for (size_t i = 0; i < expected.size(); ++i) ASSERT_EQ(seen[i], expected[i]) << "element " << i;
  }
}

std::mt19937_64& dice() {
  static std::mt19937_64 made(20261201);
  return made;
}
// Of every size.
std::vector<int64_t> integers(size_t count, int bits) {
  std::vector<int64_t> made;
  for (size_t i = 0; i < count; ++i) made.push_back(static_cast<int64_t>(dice()() >> (64 - bits) >> dice()() % 40));
  return made;
}

TEST(ComposedIntegers, WeightsAreTheFormulasOfEveryDistance) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> u = {0.0F,       -0.0F,       -1e-40F,    -1e-30F,    -1e-8F,     -0.5F,
                          -0.693147F, -6.2383246F, -6.9315F,   -27.72588F, -27.7F,     -27.73F,
                          -27.99999F, -28,         -28.00001F, -1e30F,     -kInfinity, NAN};
  for (int i = 0; i < 20000; ++i) u.push_back(-28.5F * static_cast<float>(dice()() >> 40) / 0x1p24F);
  for (int i = 0; i < 2000; ++i) u.push_back(-std::ldexp(1.0F, -static_cast<int>(dice()() % 40)));
  std::vector<int64_t> expected;
  for (const float x : u) expected.push_back(static_cast<int64_t>(formula::sample_weight(x)));
  const auto rows = static_cast<int64_t>(u.size());
  expect_same<int64_t>(
      Call<float>{{u}, {rows, 1}}, {rows, 1}, [](auto d, const Inputs& in) { return sample_weight_of(d, in[0]); },
      expected);
}

TEST(ComposedIntegers, RandomNumbersAreThoseOfPhilox) {
  constexpr int64_t kRows = 300;
  std::vector<int64_t> seeds, rows, steps, high, low;
  for (int64_t i = 0; i < kRows; ++i) {
    seeds.push_back(static_cast<int64_t>(dice()()));
    rows.push_back(static_cast<int64_t>(dice()()));
    steps.push_back(i);
  }
  for (size_t i = 0; i < kRows; ++i) {
    const auto one = [](int64_t x) { return static_cast<uint64_t>(x); };
    const uint64_t drawn = formula::sample_random(one(seeds[i]), one(rows[i]), one(steps[i]));
    high.push_back(static_cast<int64_t>(drawn >> 32));
    low.push_back(static_cast<int64_t>(drawn & 0xffffffffu));
  }
  const Call<int64_t> call{{seeds, rows, steps}, {kRows, 1}};
  const auto drawn = [](const Inputs& in) { return sample_random_of(in[0], in[1], in[2]); };
  expect_same<int64_t>(
      call, call.dims, [&](auto, const Inputs& in) { return drawn(in).high; }, high);
  expect_same<int64_t>(
      call, call.dims, [&](auto, const Inputs& in) { return drawn(in).low; }, low);
}

TEST(ComposedIntegers, ASeedOfAllRowsIsCountedOnTheHost) {
  constexpr int64_t kSeed = -0x123456789abcdef, kStep = 0x7edcba9876543210;
  const std::vector<int64_t> rows = {0, -1, 5, 0x7fffffffffffffff};
  std::vector<int64_t> low;
  for (const int64_t row : rows) {
    low.push_back(static_cast<int64_t>(
        formula::sample_random(static_cast<uint64_t>(kSeed), static_cast<uint64_t>(row), kStep) & 0xffffffffu));
  }
  const auto drawn = [&](auto d, const Inputs& in) {
    return sample_random_of(integer(*d.recorder, kSeed), in[0], integer(*d.recorder, kStep)).low;
  };
  expect_same<int64_t>(Call<int64_t>{{rows}, {4, 1}}, {4, 1}, drawn, low);
}

TEST(ComposedIntegers, SharesAreUpperHalvesOfProducts) {
  constexpr size_t kCount = 4000;
  std::vector<int64_t> weights = integers(kCount, 63), numbers = integers(kCount, 64), whole, rest;
  constexpr int64_t kMost = INT64_MAX - (int64_t{1} << 40);  // of 2^23 weights but one
  for (int64_t& weight : weights) weight = std::min(weight, kMost);
  weights[0] = kMost, numbers[0] = -1;
  weights[1] = 0x7fffffff80000000 - (int64_t{1} << 40), numbers[1] = -1;
  weights[2] = kMost, numbers[2] = 0;
  weights[3] = int64_t{1} << 40, numbers[3] = int64_t{1} << 40;
  weights[4] = int64_t{1} << 40, numbers[4] = int64_t{1} << 24;
  for (size_t i = 0; i < kCount; ++i) {
    uint64_t low = 0;
    whole.push_back(static_cast<int64_t>(
        formula::multiply_high(static_cast<uint64_t>(numbers[i]), static_cast<uint64_t>(weights[i]), &low)));
    rest.push_back(low != 0 ? 1 : 0);
  }
  const Call<int64_t> call{{numbers, weights}, {kCount, 1}};
  const auto share = [](const Inputs& in) { return Share(words_of(in[0]), in[1]); };
  expect_same<int64_t>(
      call, call.dims, [&](auto, const Inputs& in) { return share(in).whole; }, whole);
  const auto has_rest = [&](auto d, const Inputs& in) {
    return IfThenElse(share(in).has_rest, integer(*d.recorder, 1), integer(*d.recorder, 0));
  };
  expect_same<int64_t>(call, call.dims, has_rest, rest);
}

TEST(ComposedIntegers, SharesOfFp32AreWordsOfThem) {
  std::vector<float> shares = {0.0F, 0.5F, 0x1p-64F, 0x1p-65F, 1e-40F, 0x1.fffffep-1F, 0.1F};
  for (int i = 0; i < 1000; ++i)
    shares.push_back(std::ldexp(static_cast<float>(dice()() >> 40), -24 - static_cast<int>(dice()() % 50)));
  std::vector<int64_t> high, low;
  for (const float share : shares) {
    high.push_back(static_cast<int64_t>(formula::fixed_point(share) >> 32));
    low.push_back(static_cast<int64_t>(formula::fixed_point(share) & 0xffffffffu));
  }
  const auto rows = static_cast<int64_t>(shares.size());
  const Call<float> call{{shares}, {rows, 1}};
  expect_same<int64_t>(
      call, call.dims, [](auto, const Inputs& in) { return fixed_point_of(in[0]).high; }, high);
  expect_same<int64_t>(
      call, call.dims, [](auto, const Inputs& in) { return fixed_point_of(in[0]).low; }, low);
}

TEST(ComposedIntegers, APlaceIsFoundByItsSum) {
  constexpr int64_t kRows = 7;
  for (const int64_t columns : {1, 2, 3, 5, 38, 64, 1031}) {
    std::vector<int64_t> weights = integers(static_cast<size_t>(kRows * columns), 41), limits(weights.size());
    for (size_t i = 0; i < weights.size(); ++i) weights[i] = i % 3 == 1 ? 0 : weights[i];
    std::vector<float> expected;
    for (int64_t row = 0; row < kRows; ++row) {
      const int64_t* first = weights.data() + row * columns;
      const int64_t limit = row < 2 ? row : std::accumulate(first, first + columns, int64_t{0}) / kRows * row + 1;
      limits[static_cast<size_t>(row * columns)] = limit;
      int64_t below = 0;
      for (int64_t i = 0, sum = 0; i < columns; ++i) below += (sum += first[i]) < limit ? 1 : 0;
      expected.push_back(static_cast<float>(std::min(below, columns - 1)));
    }
    const auto place = [](auto d, const Inputs& in) { return place_of_sum(d, in[0], column_of(in[1], 0)); };
    expect_same<float>(Call<int64_t>{{weights, limits}, {kRows, columns}}, {kRows, 1}, place, expected);
  }
}

}  // namespace
