// The kernels' vector building blocks applied to arrays, on the current Highway target, so that tests can reach them.
#pragma once

#include <cstdint>

#include "core/cpu/simd/kernel.hpp"

namespace rlk::test {

void exp2_array(const float* from, float* to, int64_t count);
void exp2_array(const double* from, double* to, int64_t count);
void exp_array(const float* from, float* to, int64_t count);
void exp_array(const double* from, double* to, int64_t count);
void tanh_array(const float* from, float* to, int64_t count);
void tanh_array(const double* from, double* to, int64_t count);
void load_16bit(cpu::Dtype dtype, const uint16_t* from, float* to, int64_t count);
void store_16bit(cpu::Dtype dtype, const float* from, uint16_t* to, int64_t count);
// count elements at a stride, and back.
void load_elements(cpu::Dtype dtype, const void* from, int64_t stride, double* to, int64_t count);
void load_elements(cpu::Dtype dtype, const void* from, int64_t stride, float* to, int64_t count);
void store_elements(cpu::Dtype dtype, const double* from, void* to, int64_t stride, int64_t count);
void store_elements(cpu::Dtype dtype, const float* from, void* to, int64_t stride, int64_t count);

}  // namespace rlk::test
