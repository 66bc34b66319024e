// Does the canary notice a kernel that is wrong under the instruction set in use? Each kernel of the CPU plugin is
// spoiled where vectors are filled, and each must be refused.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <string>

#include "conformance/simple/target.hpp"
#include "conformance/spoiled/spoiled.hpp"
#include "core/declaration/declaration.hpp"
#include "loader/host/services.hpp"

extern "C" const rlk_plugin* rlk_cpu_entry_v1(const rlk_host*, rlk_error*);

namespace rlk::core {
namespace {

std::vector<UnitResult> canary_of(const rlk_plugin& plugin, const char* op = "") {
  const simple::OpenTarget target(&plugin, loader::host_services());
  ConformanceOptions options;
  options.canary = true;
  if (*op != 0) options.ops = {op};
  return run_conformance(target.target(), options);
}

TEST(Canary, RefusesEachKernelThatIsWrongWhereVectorsAreFilled) {
  const spoiled::Plugin plugin(*rlk_cpu_entry_v1(loader::host_services(), nullptr));
  std::map<std::string, bool> refused;  // by operator, implementation, dtype and variant
  for (const UnitResult& unit : canary_of(plugin.api())) {
    refused[unit.op + " " + unit.implementation + " " + unit.dtype + " " + unit.variant] |=
        unit.verdict == UnitResult::Verdict::failed;
  }
  EXPECT_GE(refused.size(), 2 * declarations().size());
  for (const auto& [what, is_refused] : refused) EXPECT_TRUE(is_refused) << what << " is spoiled, and passes";
  std::printf("%zu spoiled kernels refused\n", refused.size());
}

TEST(Canary, SaysWhatWasTriedAndWhatWasNot) {
  const std::vector<UnitResult> units = canary_of(*rlk_cpu_entry_v1(loader::host_services(), nullptr), "logp");
  ASSERT_FALSE(units.empty());
  for (const UnitResult& unit : units) {
    EXPECT_EQ(unit.verdict, UnitResult::Verdict::verified) << unit.reason;
    EXPECT_EQ(unit.reason_code, kCanary);
    if (unit.feature.empty()) {
      EXPECT_EQ(unit.cases, 1);
      EXPECT_NE(unit.reason.find("1 call was tried on this machine, the rest when rlk was built"), std::string::npos)
          << unit.reason;
    } else {
      EXPECT_EQ(unit.cases, 0);
      EXPECT_NE(unit.reason.find("tried when rlk was built"), std::string::npos) << unit.reason;
    }
  }
}

}  // namespace
}  // namespace rlk::core
