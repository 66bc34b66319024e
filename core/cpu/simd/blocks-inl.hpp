// Lines of any dtype and stride as blocks of numbers that formulas read and write: where they are, or in a buffer in
// L1.
#if defined(RLK_CPU_BLOCKS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef RLK_CPU_BLOCKS_INL
#undef RLK_CPU_BLOCKS_INL
#else
#define RLK_CPU_BLOCKS_INL
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <utility>

#include "core/cpu/simd/convert-inl.hpp"
#include "core/cpu/simd/past_caches-inl.hpp"
#include "core/cpu/simd/walk.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// How far ahead lines are asked for: several misses of memory's, and less than a core's nearest cache has room for.
constexpr int64_t kLineAhead = 2048;

// Whole vectors of count contiguous elements as TC; returns how many elements that were.
template <class TC, typename T>
HWY_INLINE int64_t read_vectors(const T* from, int64_t count, TC* to) {
  const hn::ScalableTag<TC> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    if (i * static_cast<int64_t>(sizeof(T)) % kCacheLine == 0) prefetch_ahead(from + i, 1, kLineAhead);
    if constexpr (sizeof(T) == sizeof(TC) || sizeof(TC) == 4) {
      hn::StoreU(load(d, from + i), d, to + i);
    } else {
      const hn::Rebind<float, decltype(d)> half;
      hn::StoreU(hn::PromoteTo(d, load(half, from + i)), d, to + i);
    }
  }
  return i;
}

template <class TC>
HWY_NOINLINE void read_line(const Line& line, int64_t count, TC* to) {
  if (line.stride == 0) {
    std::fill(to, to + count, static_cast<TC>(load_element(line.data, line.dtype, 0)));
    return;
  }
  if (line.dtype == Dtype::u8) {  // masks
    const auto* const bytes = static_cast<const uint8_t*>(line.data);
    if (line.stride == 1) prefetch_ahead(bytes, count, kLineAhead);
    for (int64_t i = 0; line.stride == 1 && i < count; ++i) to[i] = static_cast<TC>(bytes[i]);
    for (int64_t i = 0; line.stride != 1 && i < count; ++i) to[i] = static_cast<TC>(bytes[i * line.stride]);
  } else if (has_element(line.dtype)) {
    with_element(line.dtype, [&](auto tag) HWY_ATTR {
      using T = decltype(tag);
      const T* const from = static_cast<const T*>(line.data);
      int64_t i = 0;
      if constexpr (sizeof(T) <= sizeof(TC)) {
        if (line.stride == 1) i = read_vectors(from, count, to);
      }
      read_strided(from + i * line.stride, line.stride, count - i, to + i);
    });
  } else {
    for (int64_t i = 0; i < count; ++i) {
      to[i] = static_cast<TC>(load_element(line.data, line.dtype, i * line.stride));
    }
  }
}

// The double v as fp32 that a second rounding to 16 bits makes what one rounding of v would be: truncated, and odd
// where something was cut off.
template <class D>
HWY_INLINE hn::VFromD<hn::Rebind<float, D>> to_odd_float(D d, hn::VFromD<D> v) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, v);
  const auto cut = hn::And(bits, hn::Set(du, (uint64_t{1} << 29) - 1));
  const auto kept = hn::Xor(bits, cut);
  const auto odd = hn::Or(kept, hn::Set(du, uint64_t{1} << 29));
  auto chosen = hn::BitCast(d, hn::IfThenElse(hn::Eq(cut, hn::Zero(du)), kept, odd));
  // Below fp32's normal numbers more is cut off: the whole number of its smallest steps is what must be odd.
  const auto size = hn::Abs(v);
  const auto is_tiny = hn::And(hn::Lt(size, hn::Set(d, 0x1p-126)), hn::Gt(size, hn::Zero(d)));
  if (!hn::AllFalse(d, is_tiny)) {
    const auto steps = hn::Mul(size, hn::Set(d, 0x1p149)), whole = hn::Trunc(steps);
    const auto half = hn::Mul(whole, hn::Set(d, 0.5));
    const auto is_odd = hn::Or(hn::Eq(whole, steps), hn::Ne(hn::Trunc(half), half));  // or exact
    const auto made = hn::IfThenElse(is_odd, whole, hn::Add(whole, hn::Set(d, 1.0)));
    chosen = hn::IfThenElse(is_tiny, hn::CopySign(hn::Mul(made, hn::Set(d, 0x1p-149)), v), chosen);
  }
  return hn::DemoteTo(hn::Rebind<float, D>(), chosen);
}

#if HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR
constexpr bool kNarrows = true;
#else
constexpr bool kNarrows = false;  // these targets make the largest number of an infinity
#endif

// Whole vectors of count elements; returns how many elements that were.
template <class TC, typename T>
HWY_INLINE int64_t write_vectors(const TC* from, int64_t count, T* to) {
  const hn::ScalableTag<TC> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  if constexpr (sizeof(T) == sizeof(TC) || sizeof(TC) == 4) {
    for (; i + lanes <= count; i += lanes) store(d, hn::LoadU(d, from + i), to + i);
  } else if constexpr (kNarrows) {
    const hn::Rebind<float, decltype(d)> half;
    for (; i + lanes <= count; i += lanes) {
      const auto v = hn::LoadU(d, from + i);
      if constexpr (sizeof(T) == 4) {
        store(half, hn::DemoteTo(half, v), to + i);
      } else {
        store(half, to_odd_float(d, v), to + i);
      }
    }
  }
  return i;
}

template <class TC>
HWY_NOINLINE void write_line(const TC* from, int64_t count, const Line& line) {
  if (!has_element(line.dtype)) {
    for (int64_t i = 0; i < count; ++i) {
      store_element(line.data, line.dtype, i * line.stride, static_cast<double>(from[i]));
    }
    return;
  }
  with_element(line.dtype, [&](auto tag) HWY_ATTR {
    using T = decltype(tag);
    T* const to = static_cast<T*>(line.data);
    int64_t i = 0;
    if constexpr (sizeof(T) <= sizeof(TC)) {
      if (line.stride == 1) i = write_vectors(from, count, to);
    }
    write_strided(from + i, count - i, to + i * line.stride, line.stride);
  });
}

template <class TC>
HWY_INLINE bool is_direct(const Line& line) {
  return line.stride == 1 && line.dtype == (sizeof(TC) == 8 ? Dtype::f64 : Dtype::f32);
}

// Whether every number of a dtype is an fp32.
inline bool fits_float(Dtype dtype) {
  return dtype == Dtype::f32 || dtype == Dtype::bf16 || dtype == Dtype::f16 || dtype == Dtype::u8;
}

// Numbers of inputs that stand in memory as T, and become D's in registers.
template <class T, size_t kIn>
struct LineBlock {
  const T* at[kIn];
  bool in_place[kIn];  // at[k] is the operand's memory

  // Asks for what stands kLineAhead after elements [i, i + count).
  HWY_INLINE void fetch(size_t k, int64_t i, int64_t count) const {
    if (in_place[k]) prefetch_ahead(at[k] + i, count, kLineAhead);
  }
  HWY_INLINE void fetch(int64_t i, int64_t count) const {
    for (size_t k = 0; k < kIn; ++k) fetch(k, i, count);
  }

  template <class D>
  HWY_INLINE hn::VFromD<D> number(D d, size_t k, int64_t i) const {
    if constexpr (sizeof(T) == sizeof(hn::TFromD<D>)) {
      return hn::LoadU(d, at[k] + i);
    } else {
      return hn::PromoteTo(d, hn::LoadU(hn::Rebind<T, D>(), at[k] + i));
    }
  }
  template <class D, class F, class... Results>
  HWY_INLINE auto apply(D d, const F& f, int64_t i, Results&... results) const {
    return apply_to(d, f, i, std::make_index_sequence<kIn>(), results...);
  }

private:
  template <class D, class F, size_t... k, class... Results>
  HWY_INLINE auto apply_to(D d, const F& f, int64_t i, std::index_sequence<k...>, Results&... results) const {
    return f(d, number(d, k, i)..., results...);
  }
};

// The same where either T may be what stands there, as float or double: for code that is too much for two instances.
template <size_t kIn>
struct MixedLineBlock {
  bool widens;
  const void* at[kIn];
  bool in_place[kIn];

  HWY_INLINE void fetch(size_t k, int64_t i, int64_t count) const {
    if (!in_place[k]) return;
    if (!widens) return prefetch_ahead(static_cast<const double*>(at[k]) + i, count, kLineAhead);
    prefetch_ahead(static_cast<const float*>(at[k]) + i, count, kLineAhead);
  }
  template <class D>
  HWY_INLINE hn::VFromD<D> number(D d, size_t k, int64_t i) const {
    if (!widens) return hn::LoadU(d, static_cast<const double*>(at[k]) + i);
    return hn::PromoteTo(d, hn::LoadU(hn::Rebind<float, D>(), static_cast<const float*>(at[k]) + i));
  }
};

// The inputs of a stretch, block by block: TC of which whole vectors can be read, 0 (or what is repeated) behind the
// count. Where TC is double and every line fits fp32 they point to fp32, which becomes fp64 in registers: fp32 in
// memory, what tensors of tokens mostly are, is read where it is.
template <class TC, size_t kIn>
class Inputs {
public:
  // Of lines of so many elements.
  Inputs(const std::array<Line, kIn>& lines, int64_t count) : lines_(lines) {
    widens_ = sizeof(TC) == 8;
    for (const Line& line : lines_) widens_ = widens_ && fits_float(line.dtype);
    widens_ ? repeat_numbers<float>(count) : repeat_numbers<TC>(count);
  }
  // Calls function(block) with elements [begin, begin + count): where they are only when that is whole vectors.
  template <class Function>
  HWY_INLINE void with_block(int64_t begin, int64_t count, const Function& function) {
    if constexpr (sizeof(TC) == 8) {
      if (widens_) return function(block<float>(begin, count));
    }
    function(block<TC>(begin, count));
  }
  // Elements [begin, begin + count) as such a block: T is float where every line fits it, else TC.
  template <class T>
  HWY_INLINE LineBlock<T, kIn> block(int64_t begin, int64_t count) {
    LineBlock<T, kIn> made;
    const auto lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<TC>()));
    const int64_t padded = (count + lanes - 1) / lanes * lanes;
    for (size_t k = 0; k < kIn; ++k) {
      const Line& line = lines_[k];
      made.at[k] = static_cast<const T*>(at_[k]);
      made.in_place[k] = padded == count && is_direct<T>(line);
      if (line.stride == 0) continue;
      if (made.in_place[k]) {
        made.at[k] = static_cast<const T*>(line.data) + begin;
        continue;
      }
      T* const own = buffer<T>(k);
      read_line(line.from(begin), count, own);
      std::fill(own + count, own + padded, T{});
    }
    return made;
  }
  HWY_INLINE MixedLineBlock<kIn> mixed_block(int64_t begin, int64_t count) {
    MixedLineBlock<kIn> mixed{widens_, {}, {}};
    const auto keep = [&](const auto& made) {
      std::copy_n(made.at, kIn, mixed.at);
      std::copy_n(made.in_place, kIn, mixed.in_place);
    };
    widens_ ? keep(block<float>(begin, count)) : keep(block<TC>(begin, count));
    return mixed;
  }

private:
  // Once is enough, and numbers in place of absent operands are there already.
  template <class T>
  HWY_INLINE void repeat_numbers(int64_t count) {
    for (size_t k = 0; k < kIn; ++k) {
      at_[k] = buffer_[k];
      if (count == 0 || lines_[k].stride != 0) continue;
      if (const T* const known = repeated_block<T>(lines_[k].data)) {
        at_[k] = known;
      } else {
        read_line(lines_[k], kLineBlock, buffer<T>(k));
      }
    }
  }
  template <class T>
  T* buffer(size_t k) {
    return reinterpret_cast<T*>(buffer_[k]);
  }

  const std::array<Line, kIn>& lines_;
  bool widens_;
  const void* at_[kIn];  // of numbers that are repeated, or that must be made
  HWY_ALIGN unsigned char buffer_[kIn][kLineBlock * sizeof(TC)];
};

// The outputs of a stretch, block by block: where they are when a block is whole vectors of theirs. Where TC is double
// and every line is of contiguous fp32 they are made fp32 in registers. What exceeds the caches is written past them,
// unless it is also an input, which is in them already.
template <class TC, size_t kOut>
class Outputs {
public:
  template <size_t kIn>
  Outputs(const std::array<Line, kOut>& lines, const std::array<Line, kIn>& inputs) : lines_(lines) {
    narrows_ = sizeof(TC) == 8 && kNarrows;
    for (const Line& line : lines_) narrows_ = narrows_ && is_direct<float>(line);
    for (size_t k = 0; k < kOut; ++k) {
      past_caches_[k] = lines[k].exceeds_caches && lines[k].stride == 1;
      for (const Line& input : inputs) past_caches_[k] = past_caches_[k] && input.data != lines[k].data;
    }
  }
  ~Outputs() {
    if (std::any_of(past_caches_, past_caches_ + kOut, [](bool past) { return past; })) hwy::FlushStream();
  }
  Outputs(const Outputs&) = delete;
  Outputs& operator=(const Outputs&) = delete;
  HWY_INLINE void begin(int64_t begin, int64_t count) {
    const auto lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<TC>()));
    for (size_t k = 0; k < kOut; ++k) {
      const bool in_place = count % lanes == 0 && !past_caches_[k] && (narrows_ || is_direct<TC>(lines_[k]));
      at_[k] = in_place ? lines_[k].from(begin).data : buffer_[k];
    }
  }
  template <class D, class... V>
  HWY_INLINE void put(D d, int64_t i, const V&... numbers) const {
    size_t k = 0;
    if constexpr (sizeof(TC) == 8) {
      if (narrows_) {
        const hn::Rebind<float, D> half;
        (hn::StoreU(hn::DemoteTo(half, numbers), half, static_cast<float*>(at_[k++]) + i), ...);
        return;
      }
    }
    (hn::StoreU(numbers, d, static_cast<TC*>(at_[k++]) + i), ...);
  }
  HWY_INLINE void end(int64_t begin, int64_t count) const {
    for (size_t k = 0; k < kOut; ++k) {
      if (at_[k] != buffer_[k]) continue;
      const Line line = lines_[k].from(begin);
      if (past_caches_[k]) {
        write_past_caches(at_[k], count, line);
      } else {
        write(at_[k], count, line);
      }
    }
  }

private:
  HWY_INLINE void write(const void* numbers, int64_t count, const Line& line) const {
    narrows_ ? write_line(static_cast<const float*>(numbers), count, line)
             : write_line(static_cast<const TC*>(numbers), count, line);
  }
  HWY_INLINE void write_past_caches(const void* numbers, int64_t count, const Line& line) const {
    HWY_ALIGN unsigned char made[kLineBlock * sizeof(double)];
    if (!narrows_ && !is_direct<TC>(line)) {
      write(numbers, count, {made, line.dtype, 1});
      numbers = made;
    }
    copy_past_caches(numbers, count * size_of(line.dtype), line.data);
  }

  const std::array<Line, kOut>& lines_;
  bool narrows_;
  bool past_caches_[kOut];
  void* at_[kOut];
  HWY_ALIGN unsigned char buffer_[kOut][kLineBlock * sizeof(TC)];
};

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
