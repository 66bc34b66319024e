// Highway's choice, by the same dispatch as the kernels'.
#include "core/cpu/simd/target.hpp"

#include <rlk/sdk/immortal.hpp>

#include <string>
#include <string_view>

#include "core/cpu/simd/amx.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/simd/target.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

const char* name_of_target() {
  return hwy::TargetName(HWY_TARGET);
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlk::cpu {

HWY_EXPORT(name_of_target);

const char* target_name() {
  return HWY_DYNAMIC_DISPATCH(name_of_target)();
}

bool runs_here() {
  return (hwy::SupportedTargets() & HWY_TARGETS) != 0;
}

const char* variant_name() {
  static const sdk::Immortal<std::string> kBest(hwy::TargetName(HWY_AVX3));
  static const sdk::Immortal<std::string> kWithTiles(*kBest + "_AMX");
  const char* const name = target_name();
  return name == std::string_view(*kBest) && has_amx() ? kWithTiles->c_str() : name;
}

}  // namespace rlk::cpu
#endif  // HWY_ONCE
