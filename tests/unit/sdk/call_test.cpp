// Does a plugin read its own private parameters, of its own version and of an older caller?
#include <gtest/gtest.h>
#include <rlk/sdk.hpp>
#include <rlk/sdk/ops/add.hpp>

namespace {

using Op = rlk::sdk::ops::Add;

// The plugin's own struct as it was, and after a field was appended.
struct Older {
  int32_t tile;
  int32_t stages;
};
struct Newer {
  int32_t tile;
  int32_t stages;
  double threshold;
};

class PrivateParams : public testing::Test {
protected:
  template <class T>
  Newer read(const T& sent) {
    const rlk_private_params own = {sizeof(own), RLK_EXT_PRIVATE_PARAMS | RLK_EXT_REQUIRED, nullptr, "acme", &sent,
                                    sizeof(sent)};
    const rlk_ext unknown = {sizeof(unknown), 77, reinterpret_cast<const rlk_ext*>(&own)};
    return read(&unknown);
  }
  Newer read(const rlk_ext* next) {
    desc_.next = next;
    return rlk::sdk::Call<Op>(desc_).private_params(Newer{16, 2, 0.5});
  }
  PrivateParams() {
    desc_.struct_size = sizeof(desc_);
    desc_.params = &params_;
  }
  rlk_add_params params_ = RLK_ADD_PARAMS_INIT;
  rlk_call_desc desc_{};
};

TEST_F(PrivateParams, AreDefaultsWhenNothingWasSent) {
  const Newer got = read(static_cast<const rlk_ext*>(nullptr));
  EXPECT_EQ(got.tile, 16);
  EXPECT_EQ(got.threshold, 0.5);
}

TEST_F(PrivateParams, AreFoundBehindExtensionsOfOthers) {
  const Newer got = read(Newer{32, 3, 0.25});
  EXPECT_EQ(got.tile, 32);
  EXPECT_EQ(got.stages, 3);
  EXPECT_EQ(got.threshold, 0.25);
}

TEST_F(PrivateParams, OfAnOlderCallerKeepTheDefaultsOfWhatIsNew) {
  const Newer got = read(Older{64, 4});
  EXPECT_EQ(got.tile, 64);
  EXPECT_EQ(got.stages, 4);
  EXPECT_EQ(got.threshold, 0.5);
}

TEST_F(PrivateParams, OfANewerCallerAreRefused) {
  struct {
    Newer known;
    double appended;
  } const sent = {{1, 1, 1.0}, 1.0};
  try {
    read(sent);
    FAIL() << "taken";
  } catch (const rlk::sdk::Error& error) {
    EXPECT_EQ(error.status(), RLK_INVALID_ARGUMENT);
    EXPECT_STREQ(error.what(), "24 bytes of private parameters; this version of the plugin knows 16");
  }
}

// Undefined where signed numbers are multiplied: the sanitizers' build tells.
TEST(ElementCount, OfAnEmptyTensorIs0WhateverItsOtherSizes) {
  const int64_t shape[] = {int64_t{1} << 40, int64_t{1} << 40, 0}, strides[] = {0, 0, 1};
  rlk_tensor tensor = rlk_tensor();
  tensor.shape = shape;
  tensor.strides = strides;
  tensor.ndim = 3;
  EXPECT_EQ(rlk::sdk::element_count(tensor), 0);
  EXPECT_TRUE(rlk::sdk::is_contiguous(tensor));
}

}  // namespace
