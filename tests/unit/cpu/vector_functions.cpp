// Loops over whole vectors, compiled for every instruction set.
#include "unit/cpu/vector_functions.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "unit/cpu/vector_functions.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/cpu/simd/convert-inl.hpp"
#include "core/cpu/simd/functions-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

// count is a multiple of the lanes.
template <typename T, typename Function>
HWY_INLINE void map(const T* from, T* to, int64_t count, Function&& function) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < count; i += lanes) hn::StoreU(function(d, hn::LoadU(d, from + i)), d, to + i);
}

void exp2_f32(const float* from, float* to, int64_t count) {
  map(from, to, count, [](auto d, auto v) HWY_ATTR { return exp2_bounded(d, v); });
}
void exp2_f64(const double* from, double* to, int64_t count) {
  map(from, to, count, [](auto d, auto v) HWY_ATTR { return exp2_bounded(d, v); });
}
void exp_f32(const float* from, float* to, int64_t count) {
  map(from, to, count, [](auto d, auto v) HWY_ATTR { return exp(d, v); });
}
void exp_f64(const double* from, double* to, int64_t count) {
  map(from, to, count, [](auto d, auto v) HWY_ATTR { return exp(d, v); });
}
template <typename T>
HWY_INLINE void map_tanh(const T* from, T* to, int64_t count) {
  map(from, to, count, [](auto d, auto v) HWY_ATTR {
    auto derivative = v;
    return tanh_scaled(d, v, static_cast<T>(2 * 1.4426950408889634), derivative);
  });
}
void tanh_f32(const float* from, float* to, int64_t count) {
  map_tanh(from, to, count);
}
void tanh_f64(const double* from, double* to, int64_t count) {
  map_tanh(from, to, count);
}

void load_any(Dtype dtype, const uint16_t* from, float* to, int64_t count) {
  widen(from, dtype, 1, count, to);
}
void store_any(Dtype dtype, const float* from, uint16_t* to, int64_t count) {
  narrow(from, count, to, dtype, 1);
}

void load_strided(Dtype dtype, const void* from, int64_t stride, double* to, int64_t count) {
  widen(from, dtype, stride, count, to);
}
void load_strided_f32(Dtype dtype, const void* from, int64_t stride, float* to, int64_t count) {
  widen(from, dtype, stride, count, to);
}
void store_strided(Dtype dtype, const double* from, void* to, int64_t stride, int64_t count) {
  narrow(from, count, to, dtype, stride);
}
void store_strided_f32(Dtype dtype, const float* from, void* to, int64_t stride, int64_t count) {
  narrow(from, count, to, dtype, stride);
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlk::cpu {
HWY_EXPORT(exp2_f32);
HWY_EXPORT(exp2_f64);
HWY_EXPORT(exp_f32);
HWY_EXPORT(exp_f64);
HWY_EXPORT(tanh_f32);
HWY_EXPORT(tanh_f64);
HWY_EXPORT(load_any);
HWY_EXPORT(store_any);
HWY_EXPORT(load_strided);
HWY_EXPORT(load_strided_f32);
HWY_EXPORT(store_strided);
HWY_EXPORT(store_strided_f32);
}  // namespace rlk::cpu

namespace rlk::test {
using namespace rlk::cpu;  // where the exported tables are

void exp2_array(const float* from, float* to, int64_t count) {
  HWY_DYNAMIC_DISPATCH(exp2_f32)(from, to, count);
}
void exp2_array(const double* from, double* to, int64_t count) {
  HWY_DYNAMIC_DISPATCH(exp2_f64)(from, to, count);
}
void exp_array(const float* from, float* to, int64_t count) {
  HWY_DYNAMIC_DISPATCH(exp_f32)(from, to, count);
}
void exp_array(const double* from, double* to, int64_t count) {
  HWY_DYNAMIC_DISPATCH(exp_f64)(from, to, count);
}
void tanh_array(const float* from, float* to, int64_t count) {
  HWY_DYNAMIC_DISPATCH(tanh_f32)(from, to, count);
}
void tanh_array(const double* from, double* to, int64_t count) {
  HWY_DYNAMIC_DISPATCH(tanh_f64)(from, to, count);
}
void load_16bit(cpu::Dtype dtype, const uint16_t* from, float* to, int64_t count) {
  HWY_DYNAMIC_DISPATCH(load_any)(dtype, from, to, count);
}
void store_16bit(cpu::Dtype dtype, const float* from, uint16_t* to, int64_t count) {
  HWY_DYNAMIC_DISPATCH(store_any)(dtype, from, to, count);
}
void load_elements(cpu::Dtype dtype, const void* from, int64_t stride, double* to, int64_t count) {
  HWY_DYNAMIC_DISPATCH(load_strided)(dtype, from, stride, to, count);
}
void load_elements(cpu::Dtype dtype, const void* from, int64_t stride, float* to, int64_t count) {
  HWY_DYNAMIC_DISPATCH(load_strided_f32)(dtype, from, stride, to, count);
}
void store_elements(cpu::Dtype dtype, const double* from, void* to, int64_t stride, int64_t count) {
  HWY_DYNAMIC_DISPATCH(store_strided)(dtype, from, to, stride, count);
}
void store_elements(cpu::Dtype dtype, const float* from, void* to, int64_t stride, int64_t count) {
  HWY_DYNAMIC_DISPATCH(store_strided_f32)(dtype, from, to, stride, count);
}

}  // namespace rlk::test
#endif  // HWY_ONCE
