// Loading any floating dtype as compute vectors and storing them back, for every Highway target.
//
// Included once per target (no include guard in the usual sense). Rounding is to nearest even everywhere and NaN stays
// NaN: Highway 1.0.3 truncates fp32 to bf16, and its emulated fp16 has no infinities, hence the arithmetic here.
#if defined(RLK_CPU_CONVERT_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef RLK_CPU_CONVERT_INL
#undef RLK_CPU_CONVERT_INL
#else
#define RLK_CPU_CONVERT_INL
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <bit>
#include <cstring>

#include "core/cpu/simd/element.hpp"
#include "core/cpu/simd/past_caches.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Bf16 = hwy::bfloat16_t;
using F16 = hwy::float16_t;

#undef RLK_CPU_NATIVE_F16
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_NEON
#define RLK_CPU_NATIVE_F16 1
#else
#define RLK_CPU_NATIVE_F16 0
#endif

// Asks for what a stream will read `ahead` bytes later: hardware alone does not keep a core's arithmetic fed. An
// address past the end is harmless.
template <typename T>
HWY_INLINE void prefetch_ahead(const T* p, int64_t count, int64_t ahead) {
  const auto* first = reinterpret_cast<const char*>(p) + ahead;
  for (int64_t byte = 0; byte < count * static_cast<int64_t>(sizeof(T)); byte += kCacheLine)
    hwy::Prefetch(first + byte);
}

// The zero-extended 16-bit elements at p.
template <class D>
HWY_INLINE auto load_u16(D /*d*/, const void* p) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::RebindToUnsigned<D> du;
  return hn::PromoteTo(du, hn::LoadU(d16, static_cast<const uint16_t*>(p)));
}

template <class D>
HWY_INLINE hn::VFromD<D> load(D d, const hn::TFromD<D>* p) {
  return hn::LoadU(d, p);
}

template <class D>
HWY_INLINE hn::VFromD<D> load(D d, const Bf16* p) {
  return hn::BitCast(d, hn::ShiftLeft<16>(load_u16(d, p)));
}

template <class D>
HWY_INLINE hn::VFromD<D> load(D d, const F16* p) {
#if RLK_CPU_NATIVE_F16
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<F16, D>(), p));
#else
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const auto half = load_u16(d, p);
  const auto sign = hn::ShiftLeft<16>(hn::And(half, hn::Set(du, 0x8000u)));
  const auto magnitude = hn::And(half, hn::Set(du, 0x7FFFu));
  const auto rebiased = hn::Add(hn::ShiftLeft<13>(magnitude), hn::Set(du, (127u - 15u) << 23));
  // Infinity and NaN keep an all-ones exponent; subnormals are their mantissa times 2^-24.
  const auto special = hn::Or(hn::ShiftLeft<13>(magnitude), hn::Set(du, 0x7F800000u));
  const auto subnormal =
      hn::BitCast(du, hn::Mul(hn::ConvertTo(d, hn::BitCast(di, magnitude)), hn::Set(d, 1.0f / 16777216.0f)));
  const auto is_special = hn::Gt(hn::BitCast(di, magnitude), hn::Set(di, 0x7BFF));
  const auto is_subnormal = hn::Lt(hn::BitCast(di, magnitude), hn::Set(di, 0x0400));
  auto bits = hn::IfThenElse(hn::RebindMask(du, is_special), special, rebiased);
  bits = hn::IfThenElse(hn::RebindMask(du, is_subnormal), subnormal, bits);
  return hn::BitCast(d, hn::Or(bits, sign));
#endif
}

template <class D>
HWY_INLINE void store(D d, hn::VFromD<D> v, hn::TFromD<D>* p) {
  hn::StoreU(v, d, p);
}

template <class D>
HWY_INLINE void store(D /*d*/, hn::VFromD<D> v, Bf16* p) {
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<uint16_t, D> d16;
  const auto bits = hn::BitCast(du, v);
  const auto is_odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::Add(hn::Add(bits, hn::Set(du, 0x7FFFu)), is_odd);
  const auto quiet = hn::Or(bits, hn::Set(du, 0x00400000u));
  const auto chosen = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), quiet, rounded);
  hn::StoreU(hn::TruncateTo(d16, hn::ShiftRight<16>(chosen)), d16, reinterpret_cast<uint16_t*>(p));
}

template <class D>
HWY_INLINE void store([[maybe_unused]] D d, hn::VFromD<D> v, F16* p) {
#if RLK_CPU_NATIVE_F16
  const hn::Rebind<F16, D> d16;
  hn::StoreU(hn::DemoteTo(d16, v), d16, p);
#else
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const hn::Rebind<uint16_t, D> d16;
  const auto bits = hn::BitCast(du, v);
  const auto magnitude = hn::And(bits, hn::Set(du, 0x7FFFFFFFu));
  const auto sign = hn::ShiftRight<16>(hn::Xor(bits, magnitude));
  const auto signed_magnitude = hn::BitCast(di, magnitude);
  // Normal: rebias and round to the 13th bit. Subnormal: the last bit of 0.5 + x is 2^-24, so the addition rounds.
  const auto is_odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1u));
  const auto rebias = hn::Set(du, 0xFFFu - ((127u - 15u) << 23));
  const auto normal = hn::ShiftRight<13>(hn::Add(hn::Add(magnitude, rebias), is_odd));
  const auto half = hn::Set(d, 0.5f);
  const auto subnormal = hn::Sub(hn::BitCast(du, hn::Add(hn::BitCast(d, magnitude), half)), hn::BitCast(du, half));
  const auto is_nan = hn::Gt(signed_magnitude, hn::Set(di, 0x7F800000));
  const auto special = hn::IfThenElse(is_nan, hn::Set(di, 0x7E00), hn::Set(di, 0x7C00));
  auto result = hn::IfThenElse(hn::Lt(signed_magnitude, hn::Set(di, 0x38800000)), hn::BitCast(di, subnormal),
                               hn::BitCast(di, normal));
  result = hn::IfThenElse(hn::Gt(signed_magnitude, hn::Set(di, 0x477FFFFF)), special, result);
  const auto all = hn::Or(hn::BitCast(du, result), sign);
  hn::StoreU(hn::TruncateTo(d16, all), d16, reinterpret_cast<uint16_t*>(p));
#endif
}

// Two vectors of neighbours in any order, for reductions. bf16 pairs come from one load, even and odd elements.
template <class D, typename T>
HWY_INLINE void load_two(D d, const T* p, hn::VFromD<D>& first, hn::VFromD<D>& second) {
  first = load(d, p);
  second = load(d, p + hn::Lanes(d));
}
template <class D>
HWY_INLINE void load_two(D d, const Bf16* p, hn::VFromD<D>& first, hn::VFromD<D>& second) {
  const hn::RebindToUnsigned<D> du;
  const auto pairs = hn::LoadU(du, reinterpret_cast<const uint32_t*>(p));
  first = hn::BitCast(d, hn::ShiftLeft<16>(pairs));
  second = hn::BitCast(d, hn::And(pairs, hn::Set(du, 0xFFFF0000u)));
}

// Whether with_element knows the dtype's elements: f32, bf16, f16 and f64. The others are integers to kernels.
constexpr bool has_element(Dtype dtype) {
  return dtype == Dtype::f32 || dtype == Dtype::bf16 || dtype == Dtype::f16 || dtype == Dtype::f64;
}

// Calls function with the element type of a floating dtype.
template <typename Function>
HWY_INLINE void with_element(Dtype dtype, Function&& function) {
  switch (dtype) {
    case Dtype::f32:
      return function(float{});
    case Dtype::bf16:
      return function(Bf16{});
    case Dtype::f16:
      return function(F16{});
    default:
      return function(double{});
  }
}

// One element, as load_element and store_element have it of a dtype.
HWY_INLINE float number_of(const float* p) {
  return *p;
}
HWY_INLINE double number_of(const double* p) {
  return *p;
}
HWY_INLINE float number_of(const Bf16* p) {
  uint16_t bits;
  std::memcpy(&bits, p, sizeof bits);
  return std::bit_cast<float>(uint32_t{bits} << 16);
}
HWY_INLINE double number_of(const F16* p) {
  uint16_t bits;
  std::memcpy(&bits, p, sizeof bits);
  return from_f16(bits);
}
template <typename TC>
HWY_INLINE void put_number(TC number, float* p) {
  *p = static_cast<float>(number);
}
template <typename TC>
HWY_INLINE void put_number(TC number, double* p) {
  *p = static_cast<double>(number);
}
template <typename TC>
HWY_INLINE void put_number(TC number, Bf16* p) {
  const uint16_t bits = to_bf16(static_cast<double>(number));
  std::memcpy(p, &bits, sizeof bits);
}
template <typename TC>
HWY_INLINE void put_number(TC number, F16* p) {
  const uint16_t bits = to_f16(static_cast<double>(number));
  std::memcpy(p, &bits, sizeof bits);
}

// 16-bit numbers at a stride are converted by the instructions of vectors. One at a time where they are read: gathered
// first, a wide load would wait for the narrow stores before it. What vectors have made is written number by number.
constexpr int64_t kMovedAtOnce = 64;
template <typename TC, typename T>
constexpr bool kIsMoved = sizeof(T) == 2 && sizeof(TC) == 4;

// count elements, exactly, one at a time.
template <typename TC, typename T>
HWY_INLINE void read_strided(const T* from, int64_t stride, int64_t count, TC* to) {
  for (int64_t i = 0; i < count; ++i) {
    if constexpr (kIsMoved<TC, T>) {
      to[i] = hn::GetLane(load(hn::CappedTag<TC, 1>(), from + i * stride));
    } else {
      to[i] = static_cast<TC>(number_of(from + i * stride));
    }
  }
}

// The way back, each number rounded once.
template <typename TC, typename T>
HWY_INLINE void write_strided(const TC* from, int64_t count, T* to, int64_t stride) {
  int64_t i = 0;
  if constexpr (kIsMoved<TC, T>) {
    const hn::ScalableTag<TC> d;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    T moved[kMovedAtOnce];
    for (int64_t whole = count / lanes * lanes; i < whole;) {
      const int64_t here = whole - i < kMovedAtOnce ? whole - i : kMovedAtOnce;
      for (int64_t k = 0; k < here; k += lanes) store(d, hn::LoadU(d, from + i + k), moved + k);
      for (int64_t k = 0; k < here; ++k) to[(i + k) * stride] = moved[k];
      i += here;
    }
  }
  for (; i < count; ++i) put_number(from[i], to + i * stride);
}

// Whether a conversion within vectors of TC is all that there is to do.
template <typename TC, typename T>
constexpr bool kInVectors = sizeof(T) == sizeof(TC) || kIsMoved<TC, T>;

// count elements at a stride, exactly, to contiguous compute type.
template <typename TC>
HWY_NOINLINE void widen(const void* from, Dtype dtype, int64_t stride, int64_t count, TC* to) {
  if (!has_element(dtype)) {
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<TC>(load_element(from, dtype, i * stride));
    return;
  }
  with_element(dtype, [&](auto tag) HWY_ATTR {
    using T = decltype(tag);
    const T* const elements = static_cast<const T*>(from);
    int64_t i = 0;
    if constexpr (kInVectors<TC, T>) {
      const hn::ScalableTag<TC> d;
      const auto lanes = static_cast<int64_t>(hn::Lanes(d));
      for (; stride == 1 && i + lanes <= count; i += lanes) hn::StoreU(load(d, elements + i), d, to + i);
    }
    read_strided(elements + i * stride, stride, count - i, to + i);
  });
}

// The way back: count contiguous compute elements to a stride, rounded once.
template <typename TC>
HWY_NOINLINE void narrow(const TC* from, int64_t count, void* to, Dtype dtype, int64_t stride) {
  if (!has_element(dtype)) {
    for (int64_t i = 0; i < count; ++i) store_element(to, dtype, i * stride, static_cast<double>(from[i]));
    return;
  }
  with_element(dtype, [&](auto tag) HWY_ATTR {
    using T = decltype(tag);
    T* const elements = static_cast<T*>(to);
    int64_t i = 0;
    if constexpr (kInVectors<TC, T>) {
      const hn::ScalableTag<TC> d;
      const auto lanes = static_cast<int64_t>(hn::Lanes(d));
      for (; stride == 1 && i + lanes <= count; i += lanes) store(d, hn::LoadU(d, from + i), elements + i);
    }
    write_strided(from + i, count - i, elements + i * stride, stride);
  });
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
