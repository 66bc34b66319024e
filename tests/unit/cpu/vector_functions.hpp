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

}  // namespace rlk::test
