// When has an implementation the bits that a declaration specifies?
#include <gtest/gtest.h>
#include <rlk/ops/sample.h>

#include "core/conformance/compare.hpp"
#include "core/conformance/data.hpp"
#include "core/conformance/elements.hpp"

namespace rlk::core::conformance {
namespace {

class Portable : public ::testing::Test {
protected:
  // sample with two integer outputs and one floating output, golden's answer, and an outcome that is that answer
  // rounded.
  void SetUp() override {
    Case c;
    c.decl = find_declaration("sample");
    Variation optional;
    optional.present = (uint64_t{1} << (32 + RLK_SAMPLE_OUT_LOGP)) | (uint64_t{1} << (32 + RLK_SAMPLE_OUT_KEEP_MASK));
    c.variations = {optional};
    ASSERT_TRUE(resolve(c, call_));
    fill_inputs(c, 1, call_);
    answer_ = golden_answer(call_);
    for (size_t i = 0; i < call_.outputs.size(); ++i) {
      Argument rounded = call_.outputs[i];
      if (rounded.present) rounded.bytes.resize(static_cast<size_t>(rounded.byte_count()));
      for (int64_t k = 0; rounded.present && k < rounded.count(); ++k) {
        set(rounded, k, answer_.outputs[i].value[static_cast<size_t>(k)]);
      }
      outcome_.outputs.push_back(rounded.bytes);
    }
  }

  ConcreteCall call_;
  Answer answer_;
  Outcome outcome_;
};

TEST_F(Portable, IsGoldensAnswerRounded) {
  EXPECT_FALSE(check_portable(call_, answer_, outcome_).has_value());
}

TEST_F(Portable, IsNotAFloatingNumberOneUlpAway) {
  outcome_.outputs[RLK_SAMPLE_OUT_LOGP][8] ^= std::byte{1};
  Quality quality;
  EXPECT_FALSE(check(call_, answer_, outcome_, 0xff, quality).has_value());  // well inside the tolerance
  const std::optional<Failure> failure = check_portable(call_, answer_, outcome_);
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->code, "NOT_PORTABLE");
  EXPECT_NE(failure->text.find("logp[2]"), std::string::npos) << failure->text;
}

TEST_F(Portable, IsNotAnotherInteger) {
  outcome_.outputs[RLK_SAMPLE_OUT_KEEP_MASK].back() ^= std::byte{1};
  const std::optional<Failure> failure = check_portable(call_, answer_, outcome_);
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->code, "NOT_PORTABLE");
  EXPECT_NE(failure->text.find("keep_mask[4, 37]"), std::string::npos) << failure->text;
}

}  // namespace
}  // namespace rlk::core::conformance
