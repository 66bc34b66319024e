// Powers of e of a difference, in fp32: what is good to two units without fp64.
#pragma once

#include <rlk/formula/vocabulary.hpp>

namespace rlk::formula {

// a - b exactly: a number and what it has lost.
RLK_FORMULA Two<float> short_difference(float a, float b) {
  const float x = Sub(a, b), back = Sub(a, x);
  return {x, Add(Sub(a, Add(x, back)), Sub(back, b))};
}
// A power is (1 + part) scale, scale a power of two.
struct ShortPower {
  float part, scale;

  RLK_FORMULA float value() const { return MulAdd(part, scale, scale); }
};
// Of x + lost, |x| < 80.
RLK_FORMULA ShortPower short_power(float x, float lost) {
  const Lane<float> d;
  // 1.5 2^23 + 127: the sum's low bits are the exponent of a power of two.
  const float log2_e = 1.44269502f, log2_e_low = 1.92596303e-8f, to_exponent = 12583039.0f;
  const float shifted = MulAdd(x, log2_e, to_exponent), n = Sub(shifted, to_exponent);
  const float f = MulAdd(lost, log2_e, MulAdd(x, log2_e_low, MulAdd(x, log2_e, -n)));
  uint32_t bits = 0;
  ShortPower power{};
  __builtin_memcpy(&bits, &shifted, sizeof(bits));
  bits <<= 23;
  __builtin_memcpy(&power.scale, &bits, sizeof(bits));
  power.part = Mul(f, horner(d, f, 0.00015353361833551037, 0.0013398874441770924, 0.009618437358200147,
                             0.055503324710386034, 0.24022647913620948, 0.693147202855121));
  return power;
}

}  // namespace rlk::formula
