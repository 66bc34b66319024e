// Every instruction set in turn: what the kernels were compiled for and this machine has.
#pragma once

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <string_view>

#include "core/cpu/simd/amx.hpp"
#include "core/cpu/simd/target.hpp"

namespace rlk::test {

// Runs body(target) under each, the best one first, with a trace of its name. Includers are compiled with the
// definitions of the kernels, so that HWY_TARGETS is what these were compiled for.
template <typename Body>
void for_each_instruction_set(const Body& body) {
  hwy::SetSupportedTargetsForTest(0);
  // The baseline has another name where another compiler built Highway itself, but it always runs.
  const int64_t targets = (hwy::SupportedTargets() | HWY_STATIC_TARGET) & HWY_TARGETS;
  for (int64_t rest = targets; rest != 0; rest &= rest - 1) {
    const int64_t target = rest & -rest;
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    EXPECT_STREQ(cpu::target_name(), hwy::TargetName(target));
    body(target);
    if (cpu::variant_name() == std::string_view(cpu::target_name())) continue;
    SCOPED_TRACE("without tiles");
    cpu::allow_amx(false);
    body(target);
    cpu::allow_amx(true);
  }
  hwy::SetSupportedTargetsForTest(0);
}

}  // namespace rlk::test
