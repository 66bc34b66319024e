// What happens around the numbers of an operator on Ascend: phases, data errors, failures, refusals? (The numbers are
// the conformance suite's.)
#include <rlk/ops/add.h>
#include <rlk/ops/attention.h>
#include <rlk/ops/linear.h>
#include <rlk/ops/logp.h>
#include <rlk/ops/sample.h>

#include <cmath>
#include <cstdlib>

#include "fixture.hpp"

namespace {

using namespace ascend_plugin;

class OperatorTest : public Fixture {
protected:
  // Plans, prepares and enqueues; the workspace lives as long as the test.
  rlk_status launch(Call& call, uint32_t tag = 1, rlk_plugin_stream* on = nullptr) {
    rlk_error error = no_error();
    uint64_t bytes = 0;
    if (const rlk_status status = call.prepare(&bytes, &error, tag); status != RLK_OK) return status;
    return call.enqueue(on != nullptr ? on : stream, bytes > 0 ? allocate(bytes) : nullptr, bytes, &error);
  }

  // logp of [N, 4] with logits of 0, so that every log-probability is -log 4.
  std::unique_ptr<Call> logp_of(const std::vector<int64_t>& ids, Tensor** out) {
    const auto n = static_cast<int64_t>(ids.size());
    *out = tensor(kF32, {n});
    auto call =
        std::make_unique<Call>(plugin, device, "logp", &logp_params_,
                               std::vector<Tensor*>{tensor(kF32, {n, 4}, std::vector<float>(ids.size() * 4, 0.0F)),
                                                    tensor(kI64, {n}, ids), nullptr, nullptr, nullptr},
                               std::vector<Tensor*>{*out, nullptr, nullptr}, std::vector<int64_t>{n, n, 4});
    rlk_error error = no_error();
    EXPECT_EQ(call->plan(&error), RLK_OK) << error.text;
    return call;
  }

  const rlk_logp_params logp_params_ = RLK_LOGP_PARAMS_INIT;
  const rlk_add_params add_params_ = RLK_ADD_PARAMS_INIT;
};

TEST_F(OperatorTest, same_sizes_again_cost_no_phase_1) {
  Tensor* out = tensor(kF32, {3});
  Call call(plugin, device, "add", &add_params_, {tensor<float>(kF32, {3}, {1, 2, 3}), tensor<float>(kF32, {1}, {10})},
            {out}, {});
  rlk_error error = no_error();
  ASSERT_EQ(call.plan(&error), RLK_OK) << error.text;
  ASSERT_EQ(launch(call), RLK_OK);
  const uint64_t phase1 = fakeAscendCallCount("phase1 aclnnAdd");
  const uint64_t phase2 = fakeAscendCallCount("phase2 aclnnAdd");
  ASSERT_EQ(launch(call), RLK_OK);
  ASSERT_EQ(synchronize(), RLK_OK);
  EXPECT_EQ(fakeAscendCallCount("phase1 aclnnAdd"), phase1);
  EXPECT_EQ(fakeAscendCallCount("phase2 aclnnAdd"), phase2 + 1);
  EXPECT_EQ(read<float>(out), (std::vector<float>{11, 12, 13}));
}

TEST_F(OperatorTest, an_operator_that_refuses_to_repeat_runs_all_the_same) {
  setenv("RLK_FAKE_ASCEND_FAIL", "repeatable aclnnAdd", 1);
  Tensor* out = tensor(kF32, {3});
  Call call(plugin, device, "add", &add_params_, {tensor<float>(kF32, {3}, {1, 2, 3}), tensor<float>(kF32, {1}, {10})},
            {out}, {});
  ASSERT_EQ(call.plan(nullptr), RLK_OK);
  const uint64_t phase1 = fakeAscendCallCount("phase1 aclnnAdd");
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(launch(call), RLK_OK);
    ASSERT_EQ(synchronize(), RLK_OK);
    EXPECT_EQ(read<float>(out), (std::vector<float>{11, 12, 13}));
  }
  // The addresses are known in prepare, so its phase 1 serves the enqueue.
  EXPECT_EQ(fakeAscendCallCount("phase1 aclnnAdd"), phase1 + 2);
  unsetenv("RLK_FAKE_ASCEND_FAIL");
}

// A phase 1 for other addresses may ask for more: prepare then says so, and phase 2 is told of no byte that is not
// there.
TEST_F(OperatorTest, a_phase_1_that_asks_for_more_the_second_time_gets_it) {
  setenv("RLK_FAKE_ASCEND_FAIL", "repeatable aclnnAdd", 1);
  Tensor* out = tensor(kF32, {3});
  Call call(plugin, device, "add", &add_params_, {tensor<float>(kF32, {3}, {1, 2, 3}), tensor<float>(kF32, {1}, {10})},
            {out}, {});
  ASSERT_EQ(call.plan(nullptr), RLK_OK);
  ASSERT_EQ(launch(call), RLK_OK);
  rlk_error error = no_error();
  uint64_t before = 0, after = 0;
  ASSERT_EQ(call.prepare(&before, &error), RLK_OK) << error.text;
  ASSERT_EQ(call.enqueue(stream, allocate(before), before, &error), RLK_OK) << error.text;
  setenv("RLK_FAKE_ASCEND_MORE_WORKSPACE", "4096", 1);
  EXPECT_EQ(call.prepare(&after, &error), RLK_OK) << error.text;
  unsetenv("RLK_FAKE_ASCEND_MORE_WORKSPACE");
  unsetenv("RLK_FAKE_ASCEND_FAIL");
  EXPECT_EQ(after, before + 4096);
  EXPECT_EQ(call.enqueue(stream, allocate(before), before, &error), RLK_INVALID_ARGUMENT);
  EXPECT_EQ(call.enqueue(stream, allocate(after), after, &error), RLK_OK) << error.text;
  ASSERT_EQ(synchronize(), RLK_OK);
  EXPECT_EQ(read<float>(out), (std::vector<float>{11, 12, 13}));
}

TEST_F(OperatorTest, sixteen_bit_sums_are_rounded_once) {
  // -3 + 3 * 1.0078125 = 0.0234375; the product alone would become 3.03125, and the sum 0.03125.
  rlk_add_params params = RLK_ADD_PARAMS_INIT;
  params.alpha = 3;
  Tensor* out = tensor(kBf16, {1});
  Call call(plugin, device, "add", &params,
            {tensor<uint16_t>(kBf16, {1}, {0xc040}), tensor<uint16_t>(kBf16, {1}, {0x3f81})}, {out}, {});
  ASSERT_EQ(call.plan(nullptr), RLK_OK);
  ASSERT_EQ(launch(call), RLK_OK);
  ASSERT_EQ(synchronize(), RLK_OK);
  EXPECT_EQ(read<uint16_t>(out)[0], 0x3cc0);
}

TEST_F(OperatorTest, factors_beyond_fp32_are_declined_but_of_fp64) {
  rlk_add_params params = RLK_ADD_PARAMS_INIT;
  const auto code_of = [&](rlk_dtype dtype, double alpha) {
    params.alpha = alpha;
    Tensor* x = tensor(dtype, {1});
    return std::string(Call(plugin, device, "add", &params, {x, x}, {x}, {}).query().reason_code);
  };
  for (const rlk_dtype dtype : {kF32, kBf16}) {
    for (const double fine : {0.0, 1.0, -0x1p100, 0x1p-100}) EXPECT_EQ(code_of(dtype, fine), "") << fine;
    for (const double beyond : {1e39, -1e60, 1e-46}) EXPECT_EQ(code_of(dtype, beyond), "ALPHA") << beyond;
  }
  EXPECT_EQ(code_of(rlk_dtype{RLK_DTYPE_FLOAT, 64, 1}, 1e39), "");
}

TEST_F(OperatorTest, enqueue_wants_what_prepare_asked_for) {
  Tensor* out = nullptr;
  const auto call = logp_of({0, 1}, &out);
  rlk_error error = no_error();
  EXPECT_EQ(call->enqueue(stream, nullptr, 0, &error), RLK_INVALID_ARGUMENT);
  EXPECT_NE(std::string(error.text).find("plan_prepare"), std::string::npos);
  uint64_t bytes = 0;
  ASSERT_EQ(call->prepare(&bytes, &error), RLK_OK);
  EXPECT_EQ(call->enqueue(stream, allocate(bytes), bytes - 1, &error), RLK_INVALID_ARGUMENT);
  EXPECT_NE(std::string(error.text).find("workspace"), std::string::npos);
}

TEST_F(OperatorTest, the_first_data_error_is_told_once) {
  Tensor* out = nullptr;
  Tensor* other_out = nullptr;
  const auto first = logp_of({0, -100, 7, 9}, &out);  // -100 is ignored
  const auto second = logp_of({5}, &other_out);
  ASSERT_EQ(launch(*first, 41), RLK_OK);
  ASSERT_EQ(launch(*second, 42), RLK_OK);
  rlk_data_error told{};
  told.struct_size = sizeof(told);
  EXPECT_EQ(synchronize(&told), RLK_DATA_ERROR);
  EXPECT_EQ(told.kind, RLK_DATA_ID_OUT_OF_RANGE);
  EXPECT_EQ(told.tag, 41u);
  EXPECT_EQ(told.row, 2);
  EXPECT_EQ(told.value, 7);
  EXPECT_EQ(synchronize(&told), RLK_OK);
  const auto values = read<float>(out);
  EXPECT_FLOAT_EQ(values[0], -std::log(4.0F));
  EXPECT_EQ(values[1], 0.0F);
  EXPECT_TRUE(std::isnan(values[2]) && std::isnan(values[3]));
  EXPECT_TRUE(std::isnan(read<float>(other_out)[0]));
  ASSERT_EQ(launch(*second, 4294967295u), RLK_OK);
  EXPECT_EQ(synchronize(&told), RLK_DATA_ERROR);
  EXPECT_EQ(told.tag, 4294967295u);
}

TEST_F(OperatorTest, a_wrapped_stream_may_leave_before_its_work) {
  ASSERT_EQ(aclrtSetDevice(0), ACL_SUCCESS);
  setenv("RLK_FAKE_ASCEND_DELAY_US", "1000", 1);
  aclrtStream native = nullptr;
  ASSERT_EQ(aclrtCreateStream(&native), ACL_SUCCESS);
  unsetenv("RLK_FAKE_ASCEND_DELAY_US");
  Tensor* out = nullptr;
  const auto call = logp_of({9}, &out);
  for (int i = 0; i < 3; ++i) {  // a record still in use is not given to the next stream
    rlk_plugin_stream* wrapped = nullptr;
    ASSERT_EQ(plugin.api->stream->wrap(device, native, &wrapped, nullptr), RLK_OK);
    ASSERT_EQ(launch(*call, 1, wrapped), RLK_OK);
    EXPECT_EQ(plugin.api->stream->destroy(wrapped, nullptr), RLK_OK);
  }
  EXPECT_EQ(aclrtSynchronizeStream(native), ACL_SUCCESS);
  rlk_plugin_stream* next = nullptr;
  ASSERT_EQ(plugin.api->stream->wrap(device, native, &next, nullptr), RLK_OK);
  EXPECT_EQ(plugin.api->stream->synchronize(next, UINT64_MAX, nullptr, nullptr), RLK_OK);
  EXPECT_EQ(plugin.api->stream->destroy(next, nullptr), RLK_OK);
  EXPECT_EQ(aclrtDestroyStream(native), ACL_SUCCESS);
}

TEST_F(OperatorTest, a_failure_on_the_device_reaches_the_host) {
  Tensor* out = nullptr;
  const auto call = logp_of({0}, &out);
  rlk_plugin_stream* broken = nullptr;
  ASSERT_EQ(plugin.api->stream->create(device, 0, &broken, nullptr), RLK_OK);
  setenv("RLK_FAKE_ASCEND_ASYNC_FAIL", "aclnnExp:0:507015", 1);
  ASSERT_EQ(launch(*call, 1, broken), RLK_OK);
  rlk_error error = no_error();
  EXPECT_EQ(plugin.api->stream->synchronize(broken, UINT64_MAX, nullptr, &error), RLK_BACKEND_ERROR);
  unsetenv("RLK_FAKE_ASCEND_ASYNC_FAIL");
  EXPECT_EQ(error.native_code, 507015);
  EXPECT_NE(std::string(error.text).find("an AI core raised an exception"), std::string::npos);
  EXPECT_EQ(plugin.api->stream->destroy(broken, nullptr), RLK_OK);
}

TEST_F(OperatorTest, a_failing_phase_1_is_an_error_with_the_vendors_text) {
  Tensor* out = nullptr;
  const auto call = logp_of({0}, &out);
  setenv("RLK_FAKE_ASCEND_FAIL", "phase1 aclnnExp:0:561003", 1);
  rlk_error error = no_error();
  uint64_t bytes = 0;
  EXPECT_EQ(call->prepare(&bytes, &error), RLK_BACKEND_ERROR);
  unsetenv("RLK_FAKE_ASCEND_FAIL");
  EXPECT_EQ(error.native_code, 561003);
  EXPECT_STREQ(error.domain, "aclnn");
  EXPECT_NE(std::string(error.text).find("aclnnExp failed with 561003 (the operator has no kernel"), std::string::npos);
  ASSERT_EQ(launch(*call), RLK_OK);  // and nothing is broken by it
  EXPECT_EQ(synchronize(), RLK_OK);
}

class AttentionTest : public OperatorTest {
protected:
  // One sequence of `length` queries and keys, all zeros: lse is the logarithm of the number of visible keys.
  std::unique_ptr<Call> packed(rlk_dtype dtype, int64_t head_size, int64_t length = 2) {
    params_.layout = RLK_ATTENTION_LAYOUT_PACKED;
    out_ = tensor(dtype, {length, 1, head_size});
    lse_ = tensor(kF32, {length, 1});
    const std::vector<uint16_t> zeros(static_cast<size_t>(length * head_size), 0);
    const auto half = [&] { return tensor(dtype, {length, 1, head_size}, zeros); };
    auto call = std::make_unique<Call>(
        plugin, device, "attention", &params_,
        std::vector<Tensor*>{half(), half(), half(), tensor(kI32, {2}), tensor(kI32, {2})},
        std::vector<Tensor*>{out_, lse_}, std::vector<int64_t>{1, -1, -1, length, length, 1, 1, head_size});
    call->host_input(RLK_ATTENTION_IN_CU_SEQLENS_Q, q_starts_);
    call->host_input(RLK_ATTENTION_IN_CU_SEQLENS_K, k_starts_);
    return call;
  }

  rlk_attention_params params_ = RLK_ATTENTION_PARAMS_INIT;
  Tensor* out_ = nullptr;
  Tensor* lse_ = nullptr;
  int32_t q_starts_[2] = {0, 2};
  int32_t k_starts_[2] = {0, 2};
};

TEST_F(AttentionTest, lengths_come_from_the_host_in_one_phase_1_per_call) {
  const auto call = packed(kF16, 16);
  const rlk_support support = call->query();
  EXPECT_EQ(support.level, RLK_SUPPORT_PREFERRED);
  EXPECT_EQ(support.host_inputs, 0b11000u);
  ASSERT_EQ(call->plan(nullptr), RLK_OK);
  for (int i = 1; i <= 2; ++i) {
    const uint64_t phase1 = fakeAscendCallCount("phase1 aclnnFusedInferAttentionScoreV3");
    ASSERT_EQ(launch(*call), RLK_OK);
    ASSERT_EQ(synchronize(), RLK_OK);
    EXPECT_EQ(fakeAscendCallCount("phase1 aclnnFusedInferAttentionScoreV3"), phase1 + 1);
    EXPECT_FLOAT_EQ(read<float>(lse_)[0], std::log(2.0F));
  }
}

TEST_F(AttentionTest, bad_seqlens_are_a_data_error_and_the_output_is_nan) {
  k_starts_[1] = 1;
  const auto call = packed(kF16, 16);
  ASSERT_EQ(call->plan(nullptr), RLK_OK);
  ASSERT_EQ(launch(*call, 5), RLK_OK);
  rlk_data_error told{};
  told.struct_size = sizeof(told);
  EXPECT_EQ(synchronize(&told), RLK_DATA_ERROR);
  EXPECT_EQ(told.kind, RLK_DATA_BAD_SECOND_SEQLENS);
  EXPECT_EQ(told.tag, 5u);
  EXPECT_EQ(told.row, 1);
  EXPECT_EQ(told.value, 1);
  EXPECT_TRUE(std::isnan(read<float>(lse_)[1]));
  EXPECT_EQ(read<uint16_t>(out_)[31] & 0x7c00, 0x7c00);
}

TEST_F(AttentionTest, windows_that_hide_one_key_only) {
  q_starts_[1] = k_starts_[1] = 3;
  const auto visible_keys = [&] {
    const auto call = packed(kF16, 16, 3);
    EXPECT_EQ(call->plan(nullptr), RLK_OK);
    EXPECT_EQ(launch(*call), RLK_OK);
    EXPECT_EQ(synchronize(), RLK_OK);
    std::vector<int> counts;
    for (const float value : read<float>(lse_)) counts.push_back(static_cast<int>(std::lround(std::exp(value))));
    return counts;
  };
  EXPECT_EQ(visible_keys(), (std::vector<int>{3, 3, 3}));
  params_.window_left = 1;
  EXPECT_EQ(visible_keys(), (std::vector<int>{3, 3, 2}));
  params_.window_left = -1;
  params_.window_right = 1;
  EXPECT_EQ(visible_keys(), (std::vector<int>{2, 3, 3}));
  params_.window_left = 0;
  params_.causal = RLK_ATTENTION_CAUSAL_ON;
  EXPECT_EQ(visible_keys(), (std::vector<int>{1, 1, 1}));
}

TEST_F(AttentionTest, a_mask_that_cannot_be_filled_leaves_no_memory_behind) {
  const auto copies = [] { return fakeAscendCallCount("aclrtMemcpy"); };
  auto call = packed(kF16, 16);
  uint64_t constants = copies();
  ASSERT_EQ(call->plan(nullptr), RLK_OK);
  constants = copies() - constants;
  call->destroy();
  params_.window_left = 1;
  call = packed(kF16, 16);
  uint64_t free_before = 0, free_after = 0, total = 0;
  ASSERT_EQ(plugin.api->device->memory_info(device, &free_before, &total, nullptr), RLK_OK);
  const std::string masks_copy = "aclrtMemcpy:" + std::to_string(copies() + constants + 1) + ":507899";
  setenv("RLK_FAKE_ASCEND_FAIL", masks_copy.c_str(), 1);
  rlk_error error = no_error();
  EXPECT_EQ(call->plan(&error), RLK_BACKEND_ERROR);
  unsetenv("RLK_FAKE_ASCEND_FAIL");
  EXPECT_EQ(error.native_code, 507899);
  ASSERT_EQ(plugin.api->device->memory_info(device, &free_after, &total, nullptr), RLK_OK);
  EXPECT_EQ(free_after, free_before);
  ASSERT_EQ(call->plan(nullptr), RLK_OK);
  EXPECT_EQ(launch(*call), RLK_OK);
  EXPECT_EQ(synchronize(), RLK_OK);
}

TEST_F(AttentionTest, missing_host_values_are_an_error) {
  const auto call = packed(kF16, 16);
  call->host_input(RLK_ATTENTION_IN_CU_SEQLENS_Q, nullptr);
  ASSERT_EQ(call->plan(nullptr), RLK_OK);
  uint64_t bytes = 0;
  rlk_error error = no_error();
  EXPECT_EQ(call->prepare(&bytes, &error), RLK_INVALID_ARGUMENT);
}

TEST_F(AttentionTest, what_the_vendor_cannot_do_is_declined_with_a_reason) {
  EXPECT_STREQ(packed(kF32, 16)->query().reason_code, "DTYPE");
  const rlk_support support = packed(kF16, 40)->query();
  EXPECT_EQ(support.level, RLK_SUPPORT_NO);
  EXPECT_STREQ(support.reason_code, "SIZE");
  EXPECT_STREQ(support.reason, "head size 40; the fused attention takes multiples of 16");
  params_.softcap = 1.5;
  EXPECT_STREQ(packed(kF16, 16)->query().reason_code, "SOFTCAP");
  params_.softcap = 0;
  params_.scale = 1e20;
  EXPECT_STREQ(packed(kF16, 16)->query().reason_code, "SCALE");
  params_.scale = 0;
  params_.causal_alignment = RLK_ATTENTION_CAUSAL_ALIGNMENT_TOP_LEFT;
  EXPECT_EQ(packed(kF16, 16)->query().level, RLK_SUPPORT_PREFERRED) << "nothing to align";
  params_.window_right = 0;
  EXPECT_STREQ(packed(kF16, 16)->query().reason_code, "CAUSAL_ALIGNMENT");
  rlk_attention_params dense = RLK_ATTENTION_PARAMS_INIT;
  Tensor* half = tensor(kF16, {1, 2, 1, 16});
  Call masked(plugin, device, "attention", &dense, {half, half, half, nullptr, nullptr, tensor(kU8, {1, 2})},
              {half, nullptr}, {1, 2, 2, -1, -1, 1, 1, 16});
  EXPECT_STREQ(masked.query().reason_code, "KEY_MASK");
}

// In a process of its own, which has another chip: "" of what serves, else the reason code.
void expect_codes(const char* soc, const std::string& attention, const std::string& linear, const std::string& sample) {
  setenv("RLK_FAKE_ASCEND_SOC", soc, 1);
  const auto run = [&] {
    Loaded plugin;
    rlk_plugin_device* device = nullptr;
    plugin.api->device_open(plugin.instance, 0, &device, nullptr);
    const auto described = [](rlk_dtype dtype, std::vector<int64_t> shape, std::vector<int64_t> strides) {
      auto made = std::make_unique<Tensor>();
      made->shape = std::move(shape);
      made->strides = std::move(strides);
      made->described = {sizeof(rlk_tensor),
                         256,
                         nullptr,
                         0,
                         made->shape.data(),
                         made->strides.data(),
                         static_cast<int32_t>(made->shape.size()),
                         dtype};
      return made;
    };
    const auto q = described(kF16, {2, 1, 16}, {16, 16, 1});
    rlk_attention_params params = RLK_ATTENTION_PARAMS_INIT;
    Call of_attention(plugin, device, "attention", &params, {q.get(), q.get(), q.get(), nullptr, nullptr},
                      {q.get(), nullptr}, {1, -1, -1, 2, 2, 1, 1, 16});
    const auto x = described(kBf16, {16, 16}, {16, 1});
    rlk_linear_params of_linear = RLK_LINEAR_PARAMS_INIT;
    Call linear_call(plugin, device, "linear", &of_linear, {x.get(), x.get(), nullptr}, {x.get()}, {16, 16, 16});
    const auto logits = described(kF32, {2, 16}, {16, 1}), ids = described(kI64, {2}, {1});
    rlk_sample_params of_sample = RLK_SAMPLE_PARAMS_INIT;
    std::vector<Tensor*> inputs(15, nullptr), outputs(6, nullptr);
    inputs[0] = logits.get();
    inputs[1] = outputs[0] = ids.get();
    Call sample_call(plugin, device, "sample", &of_sample, inputs, outputs, {2, 16, -1});
    fprintf(stderr, "[%s] [%s] [%s]", of_attention.query().reason_code, linear_call.query().reason_code,
            sample_call.query().reason_code);
    _exit(0);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(0), "\\[" + attention + "\\] \\[" + linear + "\\] \\[" + sample + "\\]")
      << soc;
  unsetenv("RLK_FAKE_ASCEND_SOC");
}

TEST(ChipsTest, what_a_chip_takes_follows_its_family) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const char* soc : {"Ascend910B1", "Ascend910B2C", "Ascend910B4-1", "Ascend910_9391"})
    expect_codes(soc, "", "", "");
  // Ascend910B without a digit is a training device.
  for (const char* soc : {"Ascend910A", "Ascend910B", "Ascend910ProB"}) expect_codes(soc, "DEVICE", "PRIMITIVE", "");
  expect_codes("Ascend310P3", "DEVICE", "PRIMITIVE", "PRIMITIVE");
  expect_codes("Ascend950DT", "DEVICE", "", "");
}

}  // namespace
