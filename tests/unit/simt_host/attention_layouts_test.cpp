// Which layouts do the implementations of attention take? What a kernel reads 16 bytes at a time, or through a tensor
// map, must be declined where numbers do not lie side by side; what is repeated by strides of 0 need not be.
#include <gtest/gtest.h>

#include "plugins/cuda/attention_gradients_mma.hpp"
#include "plugins/cuda/attention_gradients_wgmma.hpp"
#include "plugins/cuda/attention_mma.hpp"
#include "plugins/cuda/attention_parts_mma.hpp"
#include "plugins/cuda/attention_wgmma.hpp"
#include "plugins/cuda/paged_attention_mma.hpp"
#include "plugins/cuda/prefix_attention_wgmma.hpp"
#include "plugins/simt/host/operators.hpp"
#include "tests/unit/simt_host/operator_calls.hpp"

namespace rlk::simt::host {
namespace {

constexpr int64_t kBatch = 2, kSamples = 3, kQueries = 200, kKeys = 200, kPrefix = 64, kHeads = 4, kKeyHeads = 2,
                  kHead = 64;

// A tensor of a call that a test gives other strides.
struct Which {
  const char* name;
  uint32_t index;
  bool is_output = false;
};
template <class Op>
struct Calls {
  std::function<Arranged<Op>()> make;
  std::vector<Which> tensors;
};
template <class Op>
Tensor& tensor_of(Arranged<Op>& call, const Which& which) {
  return which.is_output ? call.output(which.index) : call.input(which.index);
}

Calls<sdk::ops::Attention> attention() {
  const auto make = [] {
    Arranged<sdk::ops::Attention> call(RLK_ATTENTION_PARAMS_INIT,
                                       {kBatch, kQueries, kKeys, -1, -1, kHeads, kKeyHeads, kHead});
    call.input(RLK_ATTENTION_IN_Q, kBf16, {kBatch, kQueries, kHeads, kHead});
    call.input(RLK_ATTENTION_IN_K, kBf16, {kBatch, kKeys, kKeyHeads, kHead});
    call.input(RLK_ATTENTION_IN_V, kBf16, {kBatch, kKeys, kKeyHeads, kHead});
    call.output(RLK_ATTENTION_OUT_OUT, kBf16, {kBatch, kQueries, kHeads, kHead});
    return call;
  };
  return {make,
          {{"q", RLK_ATTENTION_IN_Q},
           {"k", RLK_ATTENTION_IN_K},
           {"v", RLK_ATTENTION_IN_V},
           {"out", RLK_ATTENTION_OUT_OUT, true}}};
}

Calls<sdk::ops::AttentionBackward> attention_backward() {
  const auto make = [] {
    Arranged<sdk::ops::AttentionBackward> call(RLK_ATTENTION_BACKWARD_PARAMS_INIT,
                                               {kBatch, kQueries, kKeys, -1, -1, kHeads, kKeyHeads, kHead});
    const std::vector<int64_t> rows = {kBatch, kQueries, kHeads, kHead}, keys = {kBatch, kKeys, kKeyHeads, kHead};
    call.input(RLK_ATTENTION_BACKWARD_IN_Q, kBf16, rows);
    call.input(RLK_ATTENTION_BACKWARD_IN_K, kBf16, keys);
    call.input(RLK_ATTENTION_BACKWARD_IN_V, kBf16, keys);
    call.input(RLK_ATTENTION_BACKWARD_IN_OUT, kBf16, rows);
    call.input(RLK_ATTENTION_BACKWARD_IN_LSE, kF32, {kBatch, kQueries, kHeads});
    call.input(RLK_ATTENTION_BACKWARD_IN_GRAD_OUT, kBf16, rows);
    call.output(RLK_ATTENTION_BACKWARD_OUT_GRAD_Q, kBf16, rows);
    call.output(RLK_ATTENTION_BACKWARD_OUT_GRAD_K, kBf16, keys);
    call.output(RLK_ATTENTION_BACKWARD_OUT_GRAD_V, kBf16, keys);
    return call;
  };
  return {make,
          {{"q", RLK_ATTENTION_BACKWARD_IN_Q},
           {"k", RLK_ATTENTION_BACKWARD_IN_K},
           {"v", RLK_ATTENTION_BACKWARD_IN_V},
           {"grad_out", RLK_ATTENTION_BACKWARD_IN_GRAD_OUT},
           {"grad_q", RLK_ATTENTION_BACKWARD_OUT_GRAD_Q, true},
           {"grad_k", RLK_ATTENTION_BACKWARD_OUT_GRAD_K, true},
           {"grad_v", RLK_ATTENTION_BACKWARD_OUT_GRAD_V, true}}};
}

Calls<sdk::ops::PrefixSharedAttention> prefix_shared() {
  const auto make = [] {
    Arranged<sdk::ops::PrefixSharedAttention> call(
        RLK_PREFIX_SHARED_ATTENTION_PARAMS_INIT,
        {kBatch, kSamples, kQueries, kPrefix, kKeys, kHeads, kKeyHeads, kHead});
    call.input(RLK_PREFIX_SHARED_ATTENTION_IN_Q, kBf16, {kBatch, kSamples, kQueries, kHeads, kHead});
    call.input(RLK_PREFIX_SHARED_ATTENTION_IN_PREFIX_K, kBf16, {kBatch, kPrefix, kKeyHeads, kHead});
    call.input(RLK_PREFIX_SHARED_ATTENTION_IN_PREFIX_V, kBf16, {kBatch, kPrefix, kKeyHeads, kHead});
    call.input(RLK_PREFIX_SHARED_ATTENTION_IN_K, kBf16, {kBatch, kSamples, kKeys, kKeyHeads, kHead});
    call.input(RLK_PREFIX_SHARED_ATTENTION_IN_V, kBf16, {kBatch, kSamples, kKeys, kKeyHeads, kHead});
    call.output(RLK_PREFIX_SHARED_ATTENTION_OUT_OUT, kBf16, {kBatch, kSamples, kQueries, kHeads, kHead});
    return call;
  };
  return {make,
          {{"q", RLK_PREFIX_SHARED_ATTENTION_IN_Q},
           {"prefix_k", RLK_PREFIX_SHARED_ATTENTION_IN_PREFIX_K},
           {"prefix_v", RLK_PREFIX_SHARED_ATTENTION_IN_PREFIX_V},
           {"k", RLK_PREFIX_SHARED_ATTENTION_IN_K},
           {"v", RLK_PREFIX_SHARED_ATTENTION_IN_V},
           {"out", RLK_PREFIX_SHARED_ATTENTION_OUT_OUT, true}}};
}

Calls<sdk::ops::PrefixSharedAttentionBackward> prefix_backward() {
  const auto make = [] {
    Arranged<sdk::ops::PrefixSharedAttentionBackward> call(
        RLK_PREFIX_SHARED_ATTENTION_BACKWARD_PARAMS_INIT,
        {kBatch, kSamples, kQueries, kPrefix, kKeys, kHeads, kKeyHeads, kHead});
    const std::vector<int64_t> rows = {kBatch, kSamples, kQueries, kHeads, kHead},
                               keys = {kBatch, kSamples, kKeys, kKeyHeads, kHead},
                               prefix = {kBatch, kPrefix, kKeyHeads, kHead};
    call.input(RLK_PREFIX_SHARED_ATTENTION_BACKWARD_IN_Q, kBf16, rows);
    call.input(RLK_PREFIX_SHARED_ATTENTION_BACKWARD_IN_PREFIX_K, kBf16, prefix);
    call.input(RLK_PREFIX_SHARED_ATTENTION_BACKWARD_IN_PREFIX_V, kBf16, prefix);
    call.input(RLK_PREFIX_SHARED_ATTENTION_BACKWARD_IN_K, kBf16, keys);
    call.input(RLK_PREFIX_SHARED_ATTENTION_BACKWARD_IN_V, kBf16, keys);
    call.input(RLK_PREFIX_SHARED_ATTENTION_BACKWARD_IN_OUT, kBf16, rows);
    call.input(RLK_PREFIX_SHARED_ATTENTION_BACKWARD_IN_LSE, kF32, {kBatch, kSamples, kQueries, kHeads});
    call.input(RLK_PREFIX_SHARED_ATTENTION_BACKWARD_IN_GRAD_OUT, kBf16, rows);
    call.output(RLK_PREFIX_SHARED_ATTENTION_BACKWARD_OUT_GRAD_Q, kBf16, rows);
    call.output(RLK_PREFIX_SHARED_ATTENTION_BACKWARD_OUT_GRAD_PREFIX_K, kBf16, prefix);
    call.output(RLK_PREFIX_SHARED_ATTENTION_BACKWARD_OUT_GRAD_PREFIX_V, kBf16, prefix);
    call.output(RLK_PREFIX_SHARED_ATTENTION_BACKWARD_OUT_GRAD_K, kBf16, keys);
    call.output(RLK_PREFIX_SHARED_ATTENTION_BACKWARD_OUT_GRAD_V, kBf16, keys);
    return call;
  };
  return {make,
          {{"q", RLK_PREFIX_SHARED_ATTENTION_BACKWARD_IN_Q},
           {"prefix_k", RLK_PREFIX_SHARED_ATTENTION_BACKWARD_IN_PREFIX_K},
           {"prefix_v", RLK_PREFIX_SHARED_ATTENTION_BACKWARD_IN_PREFIX_V},
           {"k", RLK_PREFIX_SHARED_ATTENTION_BACKWARD_IN_K},
           {"v", RLK_PREFIX_SHARED_ATTENTION_BACKWARD_IN_V},
           {"grad_out", RLK_PREFIX_SHARED_ATTENTION_BACKWARD_IN_GRAD_OUT},
           {"grad_q", RLK_PREFIX_SHARED_ATTENTION_BACKWARD_OUT_GRAD_Q, true},
           {"grad_prefix_k", RLK_PREFIX_SHARED_ATTENTION_BACKWARD_OUT_GRAD_PREFIX_K, true},
           {"grad_k", RLK_PREFIX_SHARED_ATTENTION_BACKWARD_OUT_GRAD_K, true}}};
}

Calls<sdk::ops::PagedAttention> paged(bool is_head_major) {
  const auto make = [is_head_major] {
    constexpr int64_t kBlocks = 8, kBlock = 16, kTable = 4, kTogether = 8;
    rlk_paged_attention_params params = RLK_PAGED_ATTENTION_PARAMS_INIT;
    params.layout = is_head_major ? RLK_PAGED_ATTENTION_LAYOUT_HEAD_MAJOR : RLK_PAGED_ATTENTION_LAYOUT_TOKEN_MAJOR;
    Arranged<sdk::ops::PagedAttention> call(
        params, {kBatch, kBatch, kHeads, kKeyHeads, kHead, kBlocks, kTable, kBlock, is_head_major ? kTogether : -1});
    call.input(RLK_PAGED_ATTENTION_IN_Q, kBf16, {kBatch, kHeads, kHead});
    if (is_head_major) {
      call.input(RLK_PAGED_ATTENTION_IN_KEY_CACHE, kBf16, {kBlocks, kKeyHeads, kHead / kTogether, kBlock, kTogether});
      call.input(RLK_PAGED_ATTENTION_IN_VALUE_CACHE, kBf16, {kBlocks, kKeyHeads, kHead, kBlock});
    } else {
      call.input(RLK_PAGED_ATTENTION_IN_KEY_CACHE, kBf16, {kBlocks, kBlock, kKeyHeads, kHead});
      call.input(RLK_PAGED_ATTENTION_IN_VALUE_CACHE, kBf16, {kBlocks, kBlock, kKeyHeads, kHead});
    }
    call.input(RLK_PAGED_ATTENTION_IN_BLOCK_TABLE, kI64, {kBatch, kTable});
    call.input(RLK_PAGED_ATTENTION_IN_CONTEXT_LENS, kI64, {kBatch});
    call.output(RLK_PAGED_ATTENTION_OUT_OUT, kBf16, {kBatch, kHeads, kHead});
    return call;
  };
  return {make,
          {{"q", RLK_PAGED_ATTENTION_IN_Q},
           {"key_cache", RLK_PAGED_ATTENTION_IN_KEY_CACHE},
           {"value_cache", RLK_PAGED_ATTENTION_IN_VALUE_CACHE},
           {"out", RLK_PAGED_ATTENTION_OUT_OUT, true}}};
}

class AttentionLayoutsTest : public OperatorTest {
protected:
  void SetUp() override {
    OperatorTest::SetUp();
    device_arch = "sm_90";
  }
  void TearDown() override {
    device_arch.clear();
    OperatorTest::TearDown();
  }

  // Whether a call is taken in which change(tensor) has been done to one tensor.
  template <class Implementation, class Op, class Change>
  bool takes(const Calls<Op>& calls, const Which& which, const Change& change) {
    Device device(0);
    Arranged<Op> call = calls.make();
    change(tensor_of(call, which));
    return call.template query<Implementation>(device).level != RLK_SUPPORT_NO;
  }

  // Numbers that do not lie side by side are never taken. wants_16: neither are rows and tensors that begin elsewhere
  // than at multiples of 16 bytes. takes_gaps(tensor): whether other strides of its first dimension are taken.
  template <class Implementation, class Op, class TakesGaps>
  void expect_layouts(const Calls<Op>& calls, bool wants_16, const TakesGaps& takes_gaps) {
    for (const Which& which : calls.tensors) {
      SCOPED_TRACE(std::string(Implementation::kName) + " " + which.name);
      const auto is_taken = [&](const auto& change) { return takes<Implementation>(calls, which, change); };
      EXPECT_TRUE(is_taken([](Tensor&) {}));
      EXPECT_FALSE(is_taken([](Tensor& tensor) {
        for (int64_t& stride : tensor.strides) stride *= 2;
      })) << "gaps between numbers and between rows";
      EXPECT_FALSE(is_taken([](Tensor& tensor) { tensor.strides.back() = 2; })) << "gaps between numbers";
      EXPECT_FALSE(is_taken([](Tensor& tensor) { tensor.strides.back() = 0; })) << "one number, repeated";
      EXPECT_FALSE(is_taken([](Tensor& tensor) { std::swap(tensor.strides.back(), tensor.strides.front()); }));
      EXPECT_EQ(is_taken([](Tensor& tensor) { tensor.strides[0] += 4; }), !wants_16 && takes_gaps(which));
      EXPECT_EQ(is_taken([](Tensor& tensor) { tensor.strides[0] += 64; }), takes_gaps(which)) << "gaps between rows";
      EXPECT_EQ(is_taken([](Tensor& tensor) { tensor.tensor.alignment = 8; }), !wants_16);
      if (which.is_output) continue;
      EXPECT_EQ(is_taken([](Tensor& tensor) { tensor.strides[0] = 0; }), takes_gaps(which)) << "repeated";
    }
  }
  template <class Implementation, class Op>
  void expect_layouts(const Calls<Op>& calls, bool wants_16) {
    expect_layouts<Implementation>(calls, wants_16, [](const Which&) { return true; });
  }
};

TEST_F(AttentionLayoutsTest, OfTensorCores) {
  expect_layouts<cuda::AttentionMma>(attention(), true);
  expect_layouts<cuda::AttentionMmaAccurate>(attention(), true);
  expect_layouts<cuda::AttentionSplit>(attention(), true);
  expect_layouts<cuda::AttentionBackwardMma>(attention_backward(), true);
  expect_layouts<cuda::PrefixSharedAttentionMma>(prefix_shared(), true);
  expect_layouts<cuda::PrefixSharedAttentionMmaAccurate>(prefix_shared(), true);
  expect_layouts<cuda::PrefixSharedAttentionBackwardMma>(prefix_backward(), true);
}

TEST_F(AttentionLayoutsTest, OfTensorMaps) {
  expect_layouts<cuda::AttentionWgmma>(attention(), true);
  expect_layouts<cuda::AttentionBackwardWgmma>(attention_backward(), true);
  expect_layouts<cuda::PrefixSharedAttentionWgmma>(
      prefix_shared(), true, [](const Which& which) { return std::string(which.name).rfind("prefix", 0) == 0; });
}

TEST_F(AttentionLayoutsTest, OfPagedCaches) {
  for (const bool is_head_major : {false, true}) {
    expect_layouts<cuda::PagedAttentionMmaSplit>(paged(is_head_major), true);
    expect_layouts<cuda::PagedAttentionMmaFixed>(paged(is_head_major), true);
  }
}

TEST_F(AttentionLayoutsTest, WithoutMatrixUnits) {
  expect_layouts<AttentionSimt>(attention(), false);
  expect_layouts<AttentionBackwardSimt>(attention_backward(), false);
  expect_layouts<PrefixSharedAttentionSimt>(prefix_shared(), false);
  expect_layouts<PrefixSharedAttentionBackwardSimt>(prefix_backward(), false);
}

}  // namespace
}  // namespace rlk::simt::host
