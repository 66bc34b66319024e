// What the end of a process says of calls that the CPU served for a device.
#include "loader/api/counters.hpp"

#include <gtest/gtest.h>

#include <string>

namespace rlk::loader {
namespace {

core::Policy policy(const char* fallback) {
  core::Policy made;
  const auto find = [&](const char* name) { return std::string(name) == "RLK_FALLBACK" ? fallback : nullptr; };
  EXPECT_EQ(core::Policy::make(find, {}, {}, &made, nullptr), RLK_OK);
  return made;
}

void stage(core::Dispatcher& dispatcher, const char* op, const char* code, uint64_t calls, uint64_t bytes,
           uint64_t nanoseconds) {
  bool is_new = false;
  core::FallbackCounter* one =
      dispatcher.counters().fallback(*core::find_declaration(op), code, "nobody has it", &is_new);
  one->calls += calls;
  one->staged += calls;
  one->staged_cost.to_host_bytes += bytes;
  one->staged_cost.nanoseconds += nanoseconds;
}

TEST(StagedCalls, AreRankedByTheirTime) {
  core::Registry registry;
  core::Dispatcher dispatcher(registry, policy("warn")), other(registry, policy("warn"));
  EXPECT_EQ(Counts(dispatcher).staged(), "");
  stage(dispatcher, "logp", "NO_IMPLEMENTATION", 2, 3 << 20, 5'000'000);
  stage(dispatcher, "add", "NO_IMPLEMENTATION", 1, 100, 7'000'000);
  stage(other, "logp", "NO_IMPLEMENTATION", 1, 0, 4'000'000);
  Counts sum(dispatcher);
  sum.add(Counts(other));
  const std::string text = sum.staged();
  for (const char* part :
       {"4 calls of a device", "logp 3 calls (NO_IMPLEMENTATION): 3072 KiB to the host, 0 bytes back", "0.009 s",
        "add 1 call (NO_IMPLEMENTATION): 100 bytes to the host", "RLK_FALLBACK=strict"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " | " << text;
  }
  EXPECT_LT(text.find("logp 3 calls"), text.find("add 1 call")) << "the costliest first";
}

TEST(StagedCalls, AreNoNewsWhereThePolicyAllowsThemOrTheyWereAskedFor) {
  core::Registry registry;
  core::Dispatcher asked(registry, policy("warn"));
  stage(asked, "logp", core::kAskedFor, 2, 100, 5'000'000);
  EXPECT_EQ(Counts(asked).staged(), "");
  core::Dispatcher allowed(registry, policy("allow"));
  stage(allowed, "logp", "NO_IMPLEMENTATION", 2, 100, 5'000'000);
  EXPECT_EQ(Counts(allowed).staged(), "");
  EXPECT_NE(Counts(allowed).json().find("\"staged_ns\": 5000000"), std::string::npos);
}

}  // namespace
}  // namespace rlk::loader
