// The formulas of activations on vectors, and which of gelu's a call asks for.
#if defined(RLK_CPU_GATES_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef RLK_CPU_GATES_INL
#undef RLK_CPU_GATES_INL
#else
#define RLK_CPU_GATES_INL
#endif

#include "core/cpu/simd/formulas-inl.hpp"
#include "core/cpu/simd/skeleton-inl.hpp"

// After the words that they are written in.
#include <rlk/formula/activation.hpp>

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

// Calls function(distribution) with the one that the call asks for: normal_distribution, or its approximation.
template <class Call, class F>
HWY_INLINE void with_distribution(const Call& call, const F& function) {
  if (call.params.approximate == std::decay_t<decltype(call.params.approximate)>::tanh) {
    function([](auto d, auto x) HWY_ATTR { return tanh_distribution(d, x); });
  } else {
    function([](auto d, auto x) HWY_ATTR { return normal_distribution(d, x); });
  }
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
