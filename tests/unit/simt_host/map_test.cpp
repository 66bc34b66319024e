// Does a map give the right numbers for any shapes that broadcast, any strides and any mixture of dtypes, whichever
// form its kernel takes, and do its indices hold where 32 bits do not? On fibers; the kernels are those of
// ../operators.
#include <gtest/gtest.h>

#include "tests/unit/simt_host/map_tensor.hpp"

extern "C" {
void arithmetic_map_Sub_f32(rlk::simt::MapArgs);
void arithmetic_map_Sub_f64(rlk::simt::MapArgs);
void arithmetic_map_Sub_f32_line(rlk::simt::MapLineArgs);
void arithmetic_map_Sub_half_line(rlk::simt::MapLineArgs);
void arithmetic_map_Sub_f64_line(rlk::simt::MapLineArgs);
void gelu_map_GeluBackward_half_line(rlk::simt::MapLineArgs);
void swiglu_map_SwigluBackward_f32(rlk::simt::MapArgs);
void swiglu_map_SwigluBackward_f64(rlk::simt::MapArgs);
void swiglu_map_SwigluBackward_f32_line(rlk::simt::MapLineArgs);
void swiglu_map_SwigluBackward_half_line(rlk::simt::MapLineArgs);
void swiglu_map_SwigluBackward_f64_line(rlk::simt::MapLineArgs);
}

namespace rlk::simt::host {

const Driver& driver() {
  static const Driver none;
  return none;
}

namespace {

constexpr MapFunctions kSub = {&arithmetic_map_Sub_f32, &arithmetic_map_Sub_f64, &arithmetic_map_Sub_f32_line,
                               &arithmetic_map_Sub_half_line, &arithmetic_map_Sub_f64_line};
constexpr MapFunctions kSwigluBackward = {&swiglu_map_SwigluBackward_f32, &swiglu_map_SwigluBackward_f64,
                                          &swiglu_map_SwigluBackward_f32_line, &swiglu_map_SwigluBackward_half_line,
                                          &swiglu_map_SwigluBackward_f64_line};

// out = a - 2 b: the right numbers, and nothing else is written.
void expect_difference(Tensor& out, const Tensor& a, const Tensor& b, int32_t form, unsigned blocks = 3) {
  const MapCall call({&out.abi}, {&a.abi, &b.abi}, {"out", "a", "b"}, {2});
  if (std::find(out.shape.begin(), out.shape.end(), 0) == out.shape.end()) {
    EXPECT_EQ(arguments_of_map(call).form, form);
  }
  run(kSub, call, blocks);
  std::vector<char> expected = out.before;
  for_each_index(out.shape, [&](const Sizes& index) {
    const double due = element(a.at(index), a.dtype) - 2 * element(b.at(index), b.dtype);
    put(expected.data() + (out.at(index) - out.memory.data()), out.dtype, due);
  });
  EXPECT_TRUE(expected == out.memory);
}

TEST(MapTest, ContiguousTensorsOfOneDtypeGoInPacksWithAnyTail) {
  for (const Dtype dtype : kEvery) {
    for (const int64_t n : {0, 1, 3, 7, 8, 9, 255, 2048, 2049, 6151}) {
      SCOPED_TRACE(std::string(sdk::name_of(dtype)) + " " + std::to_string(n));
      Tensor out(dtype, {n}), a(dtype, {n}), b(dtype, {n});
      expect_difference(out, a, b, n == 1 ? kMapAny : kMapOneDtype);
      Tensor rows(dtype, {n, 3}), c(dtype, {n, 3}), one(dtype, {});
      expect_difference(rows, c, one, kMapOneDtype, 1);
    }
  }
}

TEST(MapTest, EveryMixtureOfDtypesIsConvertedAtTheLoads) {
  for (const Dtype of_out : kEvery) {
    for (const Dtype of_a : kEvery) {
      for (const Dtype of_b : kEvery) {
        if (of_out == of_a && of_a == of_b) continue;
        for (const int64_t n : {1, 21, 2061}) {
          SCOPED_TRACE(sdk::format("%s = %s - %s, %d", sdk::name_of(of_out), sdk::name_of(of_a), sdk::name_of(of_b),
                                   static_cast<int>(n)));
          Tensor out(of_out, {n}), a(of_a, {n}), b(of_b, {n}), one(of_b, {1});
          expect_difference(out, a, b, n == 1 ? kMapAny : kMapMixed);
          Tensor again(of_out, {n});
          expect_difference(again, a, one, n == 1 ? kMapAny : kMapMixed);
        }
      }
    }
  }
}

TEST(MapTest, RowsOfWholePacksAreBroadcastInPacksAndOthersByElements) {
  for (const Dtype dtype : kEvery) {
    SCOPED_TRACE(sdk::name_of(dtype));
    Tensor out(dtype, {5, 3, 48}), a(dtype, {5, 3, 48}), row(dtype, {48}), column(dtype, {3, 1}),
        outer(dtype, {5, 1, 1});
    expect_difference(out, a, row, kMapOneDtype);
    Tensor second(dtype, {5, 3, 48}), third(dtype, {5, 3, 48}), fourth(dtype, {5, 3, 48});
    expect_difference(second, column, row, kMapOneDtype);
    expect_difference(third, outer, a, kMapOneDtype);
    expect_difference(fourth, outer, column, kMapOneDtype, 1);
    Tensor odd(dtype, {5, 3, 47}), b(dtype, {5, 3, 47}), odd_row(dtype, {47});
    expect_difference(odd, b, odd_row, kMapAny);
    Tensor narrow(dtype == Dtype::f32 ? Dtype::bf16 : Dtype::f32, {5, 3, 48});
    expect_difference(narrow, a, row, kMapMixed);
  }
}

TEST(MapTest, StridesOfAnySignAndAddressesOfAnyAlignmentAreTaken) {
  for (const Dtype dtype : kEvery) {
    SCOPED_TRACE(sdk::name_of(dtype));
    // Halves of rows, as gates are.
    Tensor half(dtype, {6, 16}, {32, 1}), whole(dtype, {6, 16}), back(dtype, {6, 16}, {-16, -1}),
        wide(dtype, {6, 16}, {96, 3});
    Tensor out(dtype, {6, 16}), strided(dtype, {6, 16}, {40, 2}), off(dtype, {6, 16}, {}, 1);
    expect_difference(out, half, whole, kMapOneDtype);
    expect_difference(strided, back, wide, kMapAny);
    expect_difference(off, half, whole, kMapAny);
    // What is transposed everywhere is contiguous.
    Tensor turned(dtype, {16, 6}, {1, 16}), a(dtype, {16, 6}, {1, 16}), b(dtype, {16, 6}, {1, 16}),
        other(dtype, {16, 6});
    expect_difference(turned, a, b, kMapOneDtype);
    Tensor mixed(dtype, {16, 6}, {1, 16});
    expect_difference(mixed, a, other, kMapAny);
    Tensor eight(dtype, {2, 1, 2, 1, 2, 1, 2, 4}), deep(dtype, {2, 3, 2, 1, 2, 1, 2, 4});
    const Tensor left(dtype, {2, 1, 2, 1, 2, 1, 2, 4}), right(dtype, {2, 1, 2, 4}), odd(dtype, {3, 1, 1, 2, 1, 2, 1});
    expect_difference(eight, left, right, kMapOneDtype);
    expect_difference(deep, left, odd, out.size < 4 ? kMapAny : kMapOneDtype);
  }
}

TEST(MapTest, AParameterBeyondFp32IsComputedWithInFp64) {
  Tensor out(Dtype::f32, {9}), a(Dtype::f32, {9}), b(Dtype::f32, {9});
  const auto call = [&](double alpha) { return MapCall({&out.abi}, {&a.abi, &b.abi}, {"out", "a", "b"}, {alpha}); };
  for (const double fine : {0.0, 1.0, -0.5}) EXPECT_FALSE(call(fine).computes_f64()) << fine;
  for (const double beyond : {1e-46, 1e39, -1e60}) EXPECT_TRUE(call(beyond).computes_f64()) << beyond;
  EXPECT_EQ(arguments_of_map(call(1e-46)).form, kMapMixed);
  run(kSub, call(-0x1p-120), 1);
  for (int64_t i = 0; i < 9; ++i) EXPECT_EQ(element(out.at({i}), Dtype::f32), element(a.at({i}), Dtype::f32));
}

TEST(MapTest, TwoResultsAreTheSameBitsInEveryForm) {
  const Sizes shape = {7, 24};
  for (const Dtype dtype : kEvery) {
    SCOPED_TRACE(sdk::name_of(dtype));
    const Tensor grad(dtype, shape), gate(dtype, shape), input(dtype, shape), spread(dtype, shape, {60, 2});
    std::vector<double> first;
    const auto expect_same = [&](const Tensor& of_gate, const Tensor& of_input, int32_t form) {
      const MapCall call({&of_gate.abi, &of_input.abi}, {&grad.abi, &gate.abi, &input.abi},
                         {"grad_gate", "grad_input", "grad", "gate", "input"}, {});
      EXPECT_EQ(arguments_of_map(call).form, form);
      run(kSwigluBackward, call, 2);
      std::vector<double> seen;
      for (const Tensor* tensor : {&of_gate, &of_input}) {
        for_each_index(shape, [&](const Sizes& index) { seen.push_back(element(tensor->at(index), dtype)); });
      }
      if (first.empty()) first = seen;
      EXPECT_EQ(seen, first);
    };
    expect_same(Tensor(dtype, shape), Tensor(dtype, shape), kMapOneDtype);
    expect_same(Tensor(dtype, shape, {48, 1}), Tensor(dtype, shape), kMapOneDtype);
    expect_same(Tensor(dtype, shape), Tensor(dtype, shape, {60, 2}), kMapAny);
    expect_same(Tensor(dtype, shape, {}, 1), Tensor(dtype, shape), kMapAny);
  }
}

// --- lines -----------------------------------------------------------------------------------------------------------

TEST(MapTest, LinesAreWholePacksWithNothingBetweenThemOrBetweenTheirRows) {
  for (const Dtype dtype : kEvery) {
    SCOPED_TRACE(sdk::name_of(dtype));
    Tensor out(dtype, {6, 16}), a(dtype, {6, 16}), half(dtype, {6, 16}, {32, 1}), row(dtype, {16}), one(dtype, {}),
        off(dtype, {6, 16}, {}, 1), odd(dtype, {6, 15}), b(dtype, {6, 15});
    const auto line = [](const Tensor& to, const Tensor& x, const Tensor& y) {
      return arguments_of_map(MapCall({&to.abi}, {&x.abi, &y.abi}, {"out", "a", "b"}, {2})).line;
    };
    EXPECT_EQ(line(out, a, a), kMapLine);
    EXPECT_EQ(line(out, half, a), kMapRows);
    EXPECT_EQ(line(out, a, row), kMapRows);
    EXPECT_EQ(line(half, row, half), kMapRows);
    EXPECT_EQ(line(out, a, one), kMapNoLine);
    EXPECT_EQ(line(off, a, a), kMapNoLine);
    EXPECT_EQ(line(off, half, a), kMapNoLine);
    EXPECT_EQ(line(odd, b, b), out.size == 8 ? kMapLine : kMapNoLine);  // 90 elements
    Tensor narrow(dtype == Dtype::f32 ? Dtype::bf16 : Dtype::f32, {6, 16});
    EXPECT_EQ(line(narrow, a, a), kMapNoLine);
    EXPECT_EQ(line(narrow, half, a), kMapNoLine);
  }
}

TEST(MapTest, ALongLineOfMuchWorkIsTakenTwoPacksAtATimeAndHasTheSameBits) {
  // Only what the call says of the tensors is looked at.
  Tensor small(Dtype::bf16, {1});
  Sizes shape = {8 * kMapManyPacks}, strides = {1};
  rlk_tensor large = small.abi;
  large.shape = shape.data();
  large.strides = strides.data();
  const auto line = [&](MapKind kind) {
    return arguments_of_map(MapCall({&large}, {&large, &large}, {"a", "b", "c"}, {0}, kind)).line;
  };
  EXPECT_EQ(line(MapKind::heavy), kMapPairs);
  EXPECT_EQ(line(MapKind::numbers), kMapLine);
  shape[0] -= 8;
  EXPECT_EQ(line(MapKind::heavy), kMapLine);

  for (const Dtype dtype : {Dtype::bf16, Dtype::f16}) {
    for (const int64_t n : {8, 2048, 4096, 4104, 20000}) {
      SCOPED_TRACE(std::string(sdk::name_of(dtype)) + " " + std::to_string(n));
      const Tensor grad(dtype, {n}), x(dtype, {n}), once(dtype, {n}), twice(dtype, {n});
      for (const Tensor* to : {&once, &twice}) {
        MapArgs args =
            arguments_of_map(MapCall({&to->abi}, {&grad.abi, &x.abi}, {"grad_x", "grad_y", "x"}, {0}, MapKind::heavy));
        ASSERT_EQ(args.line, kMapLine);
        if (to == &twice) args.line = kMapPairs;
        run_lines(&gelu_map_GeluBackward_half_line, args, 2);
      }
      EXPECT_TRUE(once.memory == twice.memory);
      EXPECT_FALSE(once.memory == once.before);
    }
  }
}

// --- indices ---------------------------------------------------------------------------------------------------------

TEST(MapTest, MultipliersDivideEveryIndex) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 2000; ++round) {
    const int64_t size = static_cast<int64_t>(random() >> (1 + random() % 62)) + 1;
    for (int k = 0; k < 40; ++k) {
      const int64_t n = k == 0   ? size - 1
                        : k == 1 ? size
                        : k == 2 ? 0x7fffffff
                        : k == 3 ? int64_t{1} << 31
                                 : static_cast<int64_t>(random() >> (1 + random() % 62));
      ASSERT_EQ(map_divide(n, size, map_multiplier(size), map_shift(size)), n / size) << n << " / " << size;
    }
  }
}

// Two tensors of 2^33 + 40 elements and a row: where do the last piece's elements lie?
TEST(MapTest, OffsetsHoldBeyondThirtyTwoBits) {
  constexpr int64_t kRows = (int64_t{1} << 28) + 1, kColumns = 40;
  Tensor small(Dtype::bf16, {8});
  Sizes shape = {kRows, kColumns}, strides = {kColumns, 1}, apart = {2 * kColumns, 1}, row_shape = {kColumns};
  rlk_tensor large = small.abi;
  large.ndim = 2;
  large.shape = shape.data();
  large.strides = strides.data();
  rlk_tensor half = large, row = large;
  half.strides = apart.data();
  row.ndim = 1;
  row.shape = row_shape.data();
  row.strides = strides.data() + 1;
  const auto offsets = [](const MapCall& call, int64_t piece, int size) {
    const MapArgs args = arguments_of_map(call);
    std::array<int64_t, 3> at{};
    int64_t raw[3];
    map_offsets(args, piece, size, raw);
    std::copy(raw, raw + 3, at.begin());
    return at;
  };
  using At = std::array<int64_t, 3>;
  const MapCall packs({&large}, {&half, &row}, {"out", "a", "b"}, {});
  EXPECT_EQ(arguments_of_map(packs).pieces, kRows * kColumns / 8);
  EXPECT_EQ(offsets(packs, kRows * kColumns / 8 - 1, 8),
            (At{kRows * kColumns - 8, (kRows - 1) * 2 * kColumns + 32, 32}));
  row_shape[0] = 1;
  row.strides = strides.data();
  const MapCall flat({&large}, {&large, &row}, {"out", "a", "b"}, {});
  EXPECT_EQ(arguments_of_map(flat).dims, 1);
  EXPECT_EQ(offsets(flat, kRows * kColumns / 8 - 1, 8), (At{kRows * kColumns - 8, kRows * kColumns - 8, 0}));
  apart[1] = 2;
  apart[0] = 2 * kColumns + 1;
  const MapCall any({&large}, {&half, &large}, {"out", "a", "b"}, {});
  EXPECT_EQ(arguments_of_map(any).form, kMapAny);
  EXPECT_EQ(offsets(any, kRows * kColumns - 2, 1),
            (At{kRows * kColumns - 2, (kRows - 1) * (2 * kColumns + 1) + 2 * (kColumns - 2), kRows * kColumns - 2}));
}

}  // namespace
}  // namespace rlk::simt::host
