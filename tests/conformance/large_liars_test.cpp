// Calls beyond the sizes of all cases: code that is wrong only from some element or row on is caught, if memory goes
// so far; where it does not, the suite says so.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "conformance/liars.hpp"
#include "conformance/spoiler.hpp"

namespace rlk::core {
namespace {

constexpr int64_t kLarge = int64_t{1} << 22;

// The large calls of the operator alone, on a device that says it has so much memory.
UnitResult tried(const OpDecl& decl, const rlk_implementation& row, int64_t most, uint64_t memory) {
  static uint64_t free_memory = 0;
  free_memory = memory;
  rlk_plugin plugin = liars::cpu_plugin();
  rlk_device_api device = *plugin.device;
  device.memory_info = [](rlk_plugin_device* of, uint64_t* available, uint64_t* total, rlk_error* error) -> rlk_status {
    const rlk_status status = liars::cpu_plugin().device->memory_info(of, available, total, error);
    *available = free_memory;
    return status;
  };
  plugin.device = &device;
  const rlk_implementation* const rows[] = {&row};
  plugin.implementations = rows;
  plugin.n_implementations = 1;
  const simple::OpenTarget target(&plugin, loader::host_services());
  ConformanceOptions options;
  options.ops = {decl.name};
  if (liars::has_dtype(decl, Dtype::f32)) options.dtype = "f32";
  options.large_elements = most;
  // One small case, and the large ones.
  bool is_first = true;
  options.picks = [&](const rlk_implementation&, const std::string& title) {
    return std::exchange(is_first, false) || title.ends_with(" large");
  };
  for (const UnitResult& unit : run_conformance(target.target(), options)) {
    if (unit.feature.empty()) return unit;
  }
  return {};
}

constexpr uint64_t kEnough = uint64_t{2} << 30;

class LargeLiars : public ::testing::TestWithParam<const char*> {};

TEST_P(LargeLiars, AreCaughtInTheLastRows) {
  const OpDecl& decl = *find_declaration(GetParam());
  const rlk_implementation& honest = liars::honest_implementation(decl);
  EXPECT_EQ(tried(decl, honest, kLarge, kEnough).verdict, UnitResult::Verdict::verified);
  liars::Spoiler liar(honest, "large", "liar");
  liar.lies = [](liars::PlanMemory&, const liars::Execution& e) {
    return e.run.outputs[0]->ndim > 0 && e.run.outputs[0]->shape[0] > 50000;
  };
  const UnitResult unit = tried(decl, liar.row(), kLarge, kEnough);
  EXPECT_EQ(unit.verdict, UnitResult::Verdict::failed);
  EXPECT_EQ(unit.reason_code, "WRONG_RESULT") << unit.reason;
  EXPECT_NE(unit.reason.find("the first index counts from"), std::string::npos) << unit.reason;
}

INSTANTIATE_TEST_SUITE_P(Operators, LargeLiars,
                         ::testing::Values("add", "gelu", "adamw_step", "logp", "rms_norm", "softmax", "linear"),
                         [](const auto& test) { return std::string(test.param); });

TEST(LargeCalls, AreToldWhereMemoryDoesNotGoSoFar) {
  const OpDecl& decl = *find_declaration("add");
  const UnitResult unit = tried(decl, liars::honest_implementation(decl), int64_t{1} << 32, uint64_t{200} << 20);
  EXPECT_EQ(unit.verdict, UnitResult::Verdict::verified);
  EXPECT_NE(unit.reason.find("tried with 4194304 elements and not beyond 2^31: 33554432 elements take 4"),
            std::string::npos)
      << unit.reason;
}

}  // namespace
}  // namespace rlk::core
