// Are arguments found by their names, and does a plan answer what its query named?
#include <gtest/gtest.h>
#include <rlk/sdk.hpp>
#include <rlk/sdk/borrowed.hpp>
#include <rlk/sdk/ops/logp_backward.hpp>

namespace {

using rlk::sdk::bits_of;
using rlk::sdk::index_of;
using Op = rlk::sdk::ops::LogpBackward;
using Named = rlk::sdk::Arguments<Op>;

TEST(Arguments, AreFoundAmongInputsOutputsAndSymbols) {
  EXPECT_EQ(index_of(&Named::logits), uint32_t{RLK_LOGP_BACKWARD_IN_LOGITS});
  EXPECT_EQ(index_of(&Named::keep_mask), uint32_t{RLK_LOGP_BACKWARD_IN_KEEP_MASK});
  EXPECT_EQ(index_of(&Named::grad_logits), uint32_t{RLK_LOGP_BACKWARD_OUT_GRAD_LOGITS});
  EXPECT_EQ(index_of(&Named::grad_bias), uint32_t{RLK_LOGP_BACKWARD_OUT_GRAD_BIAS});
  EXPECT_EQ(index_of(&Named::V), uint32_t{RLK_LOGP_BACKWARD_SYM_V});
  EXPECT_EQ(bits_of(&Named::N, &Named::V), 1u << RLK_LOGP_BACKWARD_SYM_N | 1u << RLK_LOGP_BACKWARD_SYM_V);
  EXPECT_EQ(bits_of(&Named::ids, &Named::mask), 1u << RLK_LOGP_BACKWARD_IN_IDS | 1u << RLK_LOGP_BACKWARD_IN_MASK);
}

class Device : public rlk::sdk::BorrowedDevice {};

struct Rows {
  class Plan : public rlk::sdk::Plan {
    void enqueue(rlk::sdk::Stream&, const rlk::sdk::Run&) override {}
  };
  using Op = ::Op;
  static constexpr const char* kName = "rows";
  static rlk::sdk::Support query(Device&, const rlk::sdk::Call<Op>&) {
    return rlk::sdk::Support::yes("serial", RLK_NUMERICS_DETERMINISTIC);
  }
  static std::unique_ptr<rlk::sdk::Plan> plan(Device&, const rlk::sdk::Call<Op>&) { return std::make_unique<Plan>(); }
};

// Another variant than was asked about, with less numerics.
struct Tuned : Rows {
  static std::unique_ptr<rlk::sdk::Plan> plan(Device& device, const rlk::sdk::Call<Op>& call) {
    auto plan = Rows::plan(device, call);
    plan->variant = "tuned";
    plan->numerics = RLK_NUMERICS_TOLERANCE;
    return plan;
  }
};

template <class T>
rlk_plan_info info_of_plan() {
  const rlk_implementation& row = rlk::sdk::detail::ImplementationThunks<T, Device>::kRow;
  Device device;
  rlk_logp_backward_params params = RLK_LOGP_BACKWARD_PARAMS_INIT;
  rlk_call_desc call{};
  call.struct_size = sizeof(call);
  call.params = &params;
  rlk_plugin_plan* plan = nullptr;
  rlk_plan_info info{};
  info.struct_size = sizeof(info);
  rlk_error error{};
  error.struct_size = sizeof(error);
  auto* const opened = reinterpret_cast<rlk_plugin_device*>(static_cast<rlk::sdk::Device*>(&device));
  EXPECT_EQ(row.plan_create(&row, opened, &call, &plan, &info, &error), RLK_OK) << error.text;
  EXPECT_EQ(row.plan_destroy(plan, &error), RLK_OK) << error.text;
  return info;
}

TEST(Plan, OfNoOtherVariantIsWhatQueryNamed) {
  const rlk_plan_info info = info_of_plan<Rows>();
  EXPECT_STREQ(info.variant, "serial");
  EXPECT_EQ(info.numerics, RLK_NUMERICS_DETERMINISTIC | RLK_NUMERICS_TOLERANCE);
}

TEST(Plan, OfAnotherVariantSaysSoAndHowExactItIs) {
  const rlk_plan_info info = info_of_plan<Tuned>();
  EXPECT_STREQ(info.variant, "tuned");
  EXPECT_EQ(info.numerics, uint32_t{RLK_NUMERICS_TOLERANCE});
}

TEST(Borrowed, DeviceAndStreamReferToTheirOwner) {
  Device device;
  EXPECT_THROW(device.allocate(RLK_MEMORY_DEVICE, 1), rlk::sdk::Error);
  int native = 0;
  const auto stream = device.wrap_stream(&native);
  EXPECT_EQ(stream->native(), &native);
  rlk_data_error none{};
  EXPECT_THROW(stream->query(none), rlk::sdk::Error);
}

}  // namespace
