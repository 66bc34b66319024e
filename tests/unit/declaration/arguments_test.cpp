// In-out arguments, computed sizes, integers alone, 8-bit numbers: what is valid, what is refused and with which text,
// what is inferred.
#include <gtest/gtest.h>
#include <rlk/ops/block_dequantize.h>
#include <rlk/ops/cache_append.h>
#include <rlk/ops/prefix_count.h>
#include <rlk/ops/shift_left.h>
#include <rlk/ops/window_max.h>

#include <cmath>

#include "core/declaration/overlap.hpp"
#include "core/dispatch/device/runs.hpp"
#include "core/golden/golden.hpp"
#include "framework/op_call.hpp"

namespace rlk::test {
namespace {

using core::BoundCall;

const OpDecl& op(const char* name) {
  return *core::find_declaration(name);
}

std::string refusal(OpCall& call, bool check_memory = true) {
  rlk_error error;
  BoundCall bound;
  return call.validate(error, bound, check_memory) == RLK_OK ? "" : error.text;
}

void expect_refused(OpCall& call, const std::string& seen, const std::string& expected) {
  const std::string text = refusal(call);
  EXPECT_NE(text.find(seen), std::string::npos) << text;
  EXPECT_NE(text.find(expected), std::string::npos) << text;
}

// ---- in place

TEST(InOut, OneTensorInBothPlacesIsValidAndIsItsOwnAlias) {
  OpCall call(op("cache_append"));
  rlk_error error;
  BoundCall bound;
  ASSERT_EQ(call.validate(error, bound), RLK_OK) << error.text;
  EXPECT_EQ(bound.output_alias[RLK_CACHE_APPEND_OUT_CACHE], RLK_CACHE_APPEND_IN_CACHE);
  EXPECT_EQ(bound.output_alias[RLK_CACHE_APPEND_OUT_COUNTS], -1);  // absent
  EXPECT_TRUE(core::features_of(bound, call.input_pointers, call.output_pointers).empty());
  for (Argument* a : {&call.inputs[RLK_CACHE_APPEND_IN_CACHE], &call.outputs[RLK_CACHE_APPEND_OUT_CACHE]}) {
    a->data = nullptr;  // a description has no memory
  }
  call.refresh();
  ASSERT_EQ(call.validate(error, bound, /*check_memory=*/false), RLK_OK) << error.text;
  EXPECT_EQ(bound.output_alias[RLK_CACHE_APPEND_OUT_CACHE], RLK_CACHE_APPEND_IN_CACHE);
}

TEST(InOut, StridesAreKeptWhereBothPlacesHaveThem) {
  OpCall call(op("cache_append"));
  for (Argument* a : {&call.inputs[RLK_CACHE_APPEND_IN_CACHE], &call.outputs[RLK_CACHE_APPEND_OUT_CACHE]}) {
    a->strides = {7, 1};
  }
  call.refresh();
  EXPECT_EQ(refusal(call), "");
  call.outputs[RLK_CACHE_APPEND_OUT_CACHE].strides = {4, 1};
  call.refresh();
  expect_refused(call, "output 'cache' (0x", "expected the same memory and layout");
  EXPECT_NE(refusal(call, /*check_memory=*/false).find("strides [4, 1]) is not input 'cache'"), std::string::npos)
      << refusal(call, false);
}

TEST(InOut, MemoryOfItsOwnIsRefused) {
  OpCall call(op("cache_append"));
  call.outputs[RLK_CACHE_APPEND_OUT_CACHE].data = call.allocate(4096);
  call.refresh();
  expect_refused(call, "is not input 'cache'", "Pass one tensor in both places");
}

TEST(InOut, AnotherInputInItsMemoryIsRefused) {
  OpCall call(op("cache_append"));
  call.inputs[RLK_CACHE_APPEND_IN_ROWS].data = call.inputs[RLK_CACHE_APPEND_IN_CACHE].data;
  call.refresh();
  expect_refused(call, "output 'cache' (0x", "overlaps input 'rows'");
}

TEST(InOut, ElementsThatOverlapAreRefused) {
  OpCall call(op("cache_append"));
  for (Argument* a : {&call.inputs[RLK_CACHE_APPEND_IN_CACHE], &call.outputs[RLK_CACHE_APPEND_OUT_CACHE]}) {
    a->strides = {0, 1};
  }
  call.refresh();
  expect_refused(call, "output 'cache' has shape [11, 4] and strides [0, 1]", "memory of its own");
}

TEST(InOut, AnOptionalOneIsPassedTwiceOrNotAtAll) {
  OpCall call(op("cache_append"));
  call.inputs[RLK_CACHE_APPEND_IN_COUNTS].given = true;
  call.outputs[RLK_CACHE_APPEND_OUT_COUNTS].given = true;
  call.rebuild();
  EXPECT_EQ(refusal(call), "");
  call.outputs[RLK_CACHE_APPEND_OUT_COUNTS].given = false;
  call.refresh();
  expect_refused(call, "output 'counts' is missing and input 'counts' is given", "expected both or neither");
  call.outputs[RLK_CACHE_APPEND_OUT_COUNTS].given = true;
  call.inputs[RLK_CACHE_APPEND_IN_COUNTS].given = false;
  call.refresh();
  expect_refused(call, "output 'counts' is given and input 'counts' is missing", "expected both or neither");
}

TEST(InOut, AnEmptyOneNeedsNoMemory) {
  OpCall call(op("shift_left"));
  call.symbols[RLK_SHIFT_LEFT_SYM_R] = 0;
  call.rebuild();
  call.inputs[0].data = call.outputs[0].data = nullptr;
  call.refresh();
  rlk_error error;
  BoundCall bound;
  ASSERT_EQ(call.validate(error, bound), RLK_OK) << error.text;
  EXPECT_EQ(bound.output_alias[0], 0);
}

TEST(MustAlias, AResultOfAnotherNameInTheMemoryOfItsInput) {
  OpCall call(op("shift_left"));
  EXPECT_EQ(refusal(call), "");
  call.outputs[RLK_SHIFT_LEFT_OUT_OUT].data = call.allocate(4096);
  call.refresh();
  expect_refused(call, "output 'out' (0x", ") is not input 'x' (0x");
}

TEST(InOut, ShapesAndDtypesAreInferred) {
  OpCall call(op("cache_append"));
  std::vector<core::InferredTensor> out;
  rlk_error error{sizeof(rlk_error), 0, 0, {}, {}};
  ASSERT_EQ(core::infer_outputs(*call.decl, nullptr, call.input_pointers, 0, out, &error), RLK_OK) << error.text;
  EXPECT_EQ(out[RLK_CACHE_APPEND_OUT_CACHE].shape, (std::vector<int64_t>{11, 4}));
  EXPECT_EQ(out[RLK_CACHE_APPEND_OUT_COUNTS].dtype, Dtype::i32);
}

// ---- computed sizes

TEST(ComputedSize, FollowsFromSymbolsAndParameters) {
  for (const auto& [columns, block, blocks] : std::vector<std::array<int64_t, 3>>{
           {20, 8, 3}, {16, 8, 2}, {17, 8, 3}, {1, 8, 1}, {0, 8, 0}, {20, 1, 20}, {20, 100, 1}}) {
    OpCall call(op("block_dequantize"));
    call.symbols[RLK_BLOCK_DEQUANTIZE_SYM_K] = columns;
    call.set_i64(0, block);
    call.outputs[RLK_BLOCK_DEQUANTIZE_OUT_AMAX].given = true;
    call.rebuild();
    EXPECT_EQ(call.inputs[RLK_BLOCK_DEQUANTIZE_IN_SCALES].shape[1], blocks);
    EXPECT_EQ(refusal(call), "");
    std::vector<core::InferredTensor> out;
    rlk_error error{sizeof(rlk_error), 0, 0, {}, {}};
    ASSERT_EQ(core::infer_outputs(*call.decl, call.params.data(), call.input_pointers, 2, out, &error), RLK_OK);
    EXPECT_EQ(out[RLK_BLOCK_DEQUANTIZE_OUT_AMAX].shape, (std::vector<int64_t>{3, blocks}));
    EXPECT_TRUE(out[RLK_BLOCK_DEQUANTIZE_OUT_AMAX].present);
    ASSERT_EQ(core::infer_outputs(*call.decl, call.params.data(), call.input_pointers, 0, out, &error), RLK_OK);
    EXPECT_FALSE(out[RLK_BLOCK_DEQUANTIZE_OUT_AMAX].present);
  }
}

TEST(ComputedSize, AnotherSizeIsRefusedWithWhatItIsComputedFrom) {
  OpCall call(op("block_dequantize"));
  call.inputs[RLK_BLOCK_DEQUANTIZE_IN_SCALES].shape[1] = 2;
  call.refresh();
  expect_refused(call, "input 'scales' has shape [3, 2]",
                 "expected [N, ceil(K / block)] with ceil(K / block) = 3, from K = 20, block = 8");
}

TEST(ComputedSize, OfAConvolution) {
  for (const auto& [w, width, stride, pad, windows] : std::vector<std::array<int64_t, 5>>{
           {9, 3, 1, 0, 7}, {9, 3, 2, 0, 4}, {9, 3, 2, 1, 5}, {3, 3, 1, 0, 1}, {10, 4, 3, 0, 3}}) {
    OpCall call(op("window_max"));
    call.symbols[RLK_WINDOW_MAX_SYM_W] = w;
    call.set_i64(0, width);
    call.set_i64(1, stride);
    call.set_i64(2, pad);
    call.rebuild();
    EXPECT_EQ(call.outputs[0].shape, (std::vector<int64_t>{3, windows}));
    EXPECT_EQ(refusal(call), "");
  }
}

TEST(ComputedSize, WhatIsNoSizeIsRefusedWithItsReason) {
  OpCall call(op("window_max"));
  std::vector<core::InferredTensor> out;
  rlk_error error{sizeof(rlk_error), 0, 0, {}, {}};
  // Computed without overflow, whatever the parameters are.
  for (const int64_t pad : {std::numeric_limits<int64_t>::max() / 2 - 10, std::numeric_limits<int64_t>::max() / 4}) {
    call.set_i64(2, pad);
    EXPECT_EQ(core::infer_outputs(*call.decl, call.params.data(), call.input_pointers, 0, out, &error), RLK_OK)
        << error.text;
    EXPECT_EQ(out[0].shape[1], 9 + 2 * pad - 2);
  }
  call.set_i64(2, 0);
  call.set_i64(0, 12);  // wider than the row
  const std::string text = refusal(call);
  EXPECT_NE(text.find("which is no size, for W = 9, pad = 0, width = 12, stride = 1"), std::string::npos) << text;
  ASSERT_EQ(core::infer_outputs(*call.decl, call.params.data(), call.input_pointers, 0, out, &error),
            RLK_INVALID_ARGUMENT);
  EXPECT_NE(std::string(error.text).find("a window must fit into the padded row"), std::string::npos) << error.text;
}

// ---- dtypes

TEST(Dtypes, AnUnknownOneIsNamedAsDlpackDoes) {
  OpCall call(op("block_dequantize"));
  rlk_tensor x = *call.input_pointers[0];
  call.input_pointers[0] = &x;
  const auto seen = [&](rlk_dtype dtype) {
    x.dtype = dtype;
    return refusal(call);
  };
  for (const auto& [code, bits, name] : std::vector<std::tuple<int, int, std::string>>{{6, 8, "bool"},
                                                                                       {5, 64, "complex64"},
                                                                                       {7, 8, "f8_e3m4"},
                                                                                       {11, 8, "f8_e4m3fnuz"},
                                                                                       {14, 8, "f8_e8m0fnu"},
                                                                                       {15, 6, "f6_e2m3fn"},
                                                                                       {1, 4, "u4"},
                                                                                       {0, 8, "i8"},
                                                                                       {1, 64, "u64"},
                                                                                       {2, 32, "f32"}}) {
    const std::string text = seen({static_cast<uint8_t>(code), static_cast<uint8_t>(bits), 1});
    EXPECT_NE(text.find("input 'x' has dtype " + name + "; expected f8_e4m3fn, f8_e5m2 or f4_e2m1fn"),
              std::string::npos)
        << text;
  }
  EXPECT_NE(seen({99, 8, 1}).find("unknown (DLPack code 99, 8 bits, 1 lanes)"), std::string::npos);
  EXPECT_NE(seen({10, 8, 2}).find("unknown (DLPack code 10, 8 bits, 2 lanes)"), std::string::npos);
  EXPECT_EQ(seen({10, 8, 1}), "");
}

TEST(Dtypes, AnOperatorWithoutVariablesHasOneUnitDtypeWithoutAName) {
  EXPECT_EQ(core::unit_dtype_count(op("prefix_count")), 1u);
  EXPECT_STREQ(core::unit_dtype_name(op("prefix_count"), 0), "");
  EXPECT_EQ(core::unit_dtype_count(op("shift_left")), 4u);
  EXPECT_STREQ(core::unit_dtype_name(op("shift_left"), 2), "i8");
  OpCall call(op("prefix_count"));
  EXPECT_EQ(refusal(call), "");
}

TEST(Dtypes, EveryNameAndCodeComesBack) {
  for (int i = 0; i <= static_cast<int>(Dtype::f4_e2m1fn); ++i) {
    const auto dtype = static_cast<Dtype>(i);
    Dtype back = Dtype::f32;
    EXPECT_TRUE(core::dtype_from(core::abi_of(dtype), back) && back == dtype) << core::name_of(dtype);
    EXPECT_TRUE(core::dtype_from(core::name_of(dtype), back) && back == dtype) << core::name_of(dtype);
  }
}

// Values that the formats' specifications give: OCP 8-bit floating point, tables 1 and 2.
TEST(Dtypes, EightBitNumbersAreDecodedAndRoundedAsSpecified) {
  const auto load = [](golden::Dtype dtype, uint8_t bits) {
    const uint64_t element = bits;  // as wide as any dtype: compilers do not know which one is read
    golden::View view;
    view.data = &element;
    view.dtype = dtype;
    return view.load_at(0);
  };
  const auto store = [](golden::Dtype dtype, double value) {
    uint8_t bits = 0;
    golden::store(&bits, dtype, value);
    return static_cast<int>(bits);
  };
  constexpr auto kE4 = golden::Dtype::f8_e4m3fn, kE5 = golden::Dtype::f8_e5m2;
  EXPECT_EQ(load(kE4, 0x7e), 448.0);
  EXPECT_EQ(load(kE4, 0x08), 0x1p-6);
  EXPECT_EQ(load(kE4, 0x01), 0x1p-9);
  EXPECT_EQ(load(kE4, 0x81), -0x1p-9);
  EXPECT_TRUE(std::isnan(load(kE4, 0x7f)) && std::isnan(load(kE4, 0xff)));
  EXPECT_EQ(load(kE5, 0x7b), 57344.0);
  EXPECT_EQ(load(kE5, 0x01), 0x1p-16);
  EXPECT_TRUE(std::isinf(load(kE5, 0x7c)) && load(kE5, 0xfc) < 0);
  EXPECT_TRUE(std::isnan(load(kE5, 0x7d)) && std::isnan(load(kE5, 0x7f)));
  for (int bits = 0; bits < 256; ++bits) {
    for (const golden::Dtype dtype : {kE4, kE5}) {
      const double value = load(dtype, static_cast<uint8_t>(bits));
      if (std::isnan(value)) continue;
      EXPECT_EQ(store(dtype, value), bits);
    }
  }
  EXPECT_EQ(store(kE4, 464.0), 0x7e);  // halfway to the next, and 448 is even
  EXPECT_EQ(store(kE4, 465.0), 0x7f);  // there is no infinity
  EXPECT_EQ(store(kE4, -1e9), 0xff);
  EXPECT_EQ(store(kE5, 61439.0), 0x7b);
  EXPECT_EQ(store(kE5, 61440.0), 0x7c);
  EXPECT_EQ(store(kE4, 0x1p-10), 0x00);  // halfway between 0 and the smallest
  EXPECT_EQ(store(kE4, 0x1.8p-10), 0x01);
}

TEST(Dtypes, FourBitNumbersAreDecodedAndRoundedAsSpecified) {
  const double magnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (int bits = 0; bits < 16; ++bits) {
    uint8_t own = static_cast<uint8_t>(bits);
    golden::View view;
    view.data = &own;
    view.dtype = golden::Dtype::f4_e2m1fn;
    const double value = (bits < 8 ? 1 : -1) * magnitudes[bits % 8];
    EXPECT_EQ(view.load_at(0), value);
    golden::store(&own, golden::Dtype::f4_e2m1fn, value);
    EXPECT_EQ(own, value == 0 && bits == 8 ? 8 : bits);
    golden::store(&own, golden::Dtype::f4_e2m1fn, 100.0);
    EXPECT_EQ(own, 7);  // neither infinity nor NaN: the largest
  }
}

// ---- elements of less than a byte

TEST(SubByte, RowsBeginAtWholeBytes) {
  OpCall call(op("block_dequantize"));
  call.dtypes[0] = Dtype::f4_e2m1fn;
  call.rebuild();
  EXPECT_EQ(refusal(call), "");  // 20 elements in a row
  call.symbols[RLK_BLOCK_DEQUANTIZE_SYM_K] = 33;
  call.rebuild();
  expect_refused(call, "input 'x' has 4-bit elements and strides [33, 1]", "whole bytes in every other");
  Argument& x = call.inputs[RLK_BLOCK_DEQUANTIZE_IN_X];
  x.strides = {34, 1};
  call.refresh();
  EXPECT_EQ(refusal(call), "");
  x.strides = {68, 2};
  call.refresh();
  expect_refused(call, "strides [68, 2]", "stride 1 in the last dimension");
}

TEST(SubByte, BytesAreThoseOfWholeRows) {
  char memory[256] = {};
  const int64_t shape[] = {3, 33}, strides[] = {34, 1};
  rlk_tensor t = {sizeof(rlk_tensor), 1, memory, 0, shape, strides, 2, core::abi_of(Dtype::f4_e2m1fn)};
  EXPECT_EQ(core::byte_range_of(t).low, 0);
  EXPECT_EQ(core::byte_range_of(t).high, 51);  // three rows of 17 bytes, the last half byte of which is unused
  const auto runs_of = [](const rlk_tensor& tensor) {
    std::vector<std::pair<int64_t, uint64_t>> runs;
    core::for_each_run(tensor, [&](int64_t offset, uint64_t bytes) {
      runs.emplace_back(offset, bytes);
      return RLK_OK;
    });
    return runs;
  };
  using Runs = std::vector<std::pair<int64_t, uint64_t>>;
  EXPECT_EQ(runs_of(t), (Runs{{0, 17}, {17, 17}, {34, 17}}));
  rlk_tensor behind = t;
  behind.byte_offset = 51;
  EXPECT_FALSE(core::may_overlap(t, behind));
  behind.byte_offset = 50;
  EXPECT_TRUE(core::may_overlap(t, behind));
  const int64_t even[] = {3, 34};
  t.shape = even;
  EXPECT_EQ(runs_of(t), (Runs{{0, 51}}));  // rows that follow each other
  const int64_t backwards[] = {-34, 1};
  t.strides = backwards;
  EXPECT_EQ(core::byte_range_of(t).low, -34);
  EXPECT_EQ(core::byte_range_of(t).high, 17);
  // Two halves of a buffer's columns share no byte.
  const int64_t half[] = {3, 16}, wide[] = {64, 1};
  rlk_tensor left = {sizeof(rlk_tensor), 1, memory, 0, half, wide, 2, core::abi_of(Dtype::f4_e2m1fn)}, right = left;
  right.byte_offset = 8;
  EXPECT_FALSE(core::may_overlap(left, right));
  right.byte_offset = 7;
  EXPECT_TRUE(core::may_overlap(left, right));
}

}  // namespace
}  // namespace rlk::test
