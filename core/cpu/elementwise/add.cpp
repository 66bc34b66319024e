// Broadcast addition: dimensions that all operands walk alike are merged, then lines along the last dimension are
// added.
//
// Memory-bound: contiguous and repeated operands are read where they are, other strides through a buffer in L1.
#include <rlk/sdk/ops/add.hpp>

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/elementwise/add.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/cpu/simd/convert-inl.hpp"
#include "core/cpu/simd/registration.hpp"

#ifndef RLK_CPU_ADD_LINE
#define RLK_CPU_ADD_LINE
namespace rlk::cpu {

// A stretch along the last dimension.
struct AddLine {
  Dtype dtype;
  const void *a, *b;
  void* out;
  int64_t a_stride, b_stride, out_stride, count;
  double alpha;
};

}  // namespace rlk::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

constexpr int64_t kBuffer = 1024;  // elements

// b_repeated: b is one element. In place is fine: each vector is read before it is written.
template <bool b_repeated, class D, typename T>
HWY_INLINE void add_contiguous(D d, const T* a, const T* b, T* out, int64_t count, double alpha_value) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto alpha = hn::Set(d, static_cast<hn::TFromD<D>>(alpha_value));
  T repeated[hn::MaxLanes(D())];
  for (int64_t i = 0; i < lanes; ++i) repeated[i] = *b;
  const auto b_value = load(d, static_cast<const T*>(repeated));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    store(d, hn::MulAdd(alpha, b_repeated ? b_value : load(d, b + i), load(d, a + i)), out + i);
  }
  if (i == count) return;
  const auto rest = static_cast<size_t>(count - i);
  T a_rest[hn::MaxLanes(D())] = {};
  T b_rest[hn::MaxLanes(D())] = {};
  std::memcpy(a_rest, a + i, rest * sizeof(T));
  if (!b_repeated) std::memcpy(b_rest, b + i, rest * sizeof(T));
  const auto sum = hn::MulAdd(alpha, b_repeated ? b_value : load(d, static_cast<const T*>(b_rest)),
                              load(d, static_cast<const T*>(a_rest)));
  store(d, sum, static_cast<T*>(a_rest));
  std::memcpy(out + i, a_rest, rest * sizeof(T));
}

template <typename TC>
HWY_NOINLINE void add_buffered(const AddLine& line) {
  TC a[kBuffer], b[kBuffer];
  const hn::ScalableTag<TC> d;
  for (int64_t i = 0; i < line.count; i += kBuffer) {
    const int64_t count = std::min(kBuffer, line.count - i);
    widen(element(line.a, i * line.a_stride, line.dtype), line.dtype, line.a_stride, count, static_cast<TC*>(a));
    widen(element(line.b, i * line.b_stride, line.dtype), line.dtype, line.b_stride, count, static_cast<TC*>(b));
    add_contiguous<false>(d, static_cast<const TC*>(a), static_cast<const TC*>(b), static_cast<TC*>(a), count,
                          line.alpha);
    narrow(static_cast<const TC*>(a), count, element(line.out, i * line.out_stride, line.dtype), line.dtype,
           line.out_stride);
  }
}

void add_line(const AddLine& line) {
  // fp32 cannot hold every alpha; then fp64 does.
  const double magnitude = std::fabs(line.alpha);
  const bool fits_f32 = magnitude == 0 || (magnitude > 0x1p-100 && magnitude < 0x1p100);
  if (line.dtype != Dtype::f64 && !fits_f32) return add_buffered<double>(line);
  const bool as_it_is = line.a_stride == 1 && line.out_stride == 1 && (line.b_stride == 1 || line.b_stride == 0);
  if (!as_it_is) return line.dtype == Dtype::f64 ? add_buffered<double>(line) : add_buffered<float>(line);
  with_element(line.dtype, [&](auto tag) HWY_ATTR {
    using T = decltype(tag);
    using TC = std::conditional_t<sizeof(T) == 8, double, float>;
    const hn::ScalableTag<TC> d;
    const auto *a = static_cast<const T*>(line.a), *b = static_cast<const T*>(line.b);
    auto* out = static_cast<T*>(line.out);
    if (line.b_stride == 1) {
      add_contiguous<false>(d, a, b, out, line.count, line.alpha);
    } else {
      add_contiguous<true>(d, a, b, out, line.count, line.alpha);
    }
  });
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlk::cpu {

HWY_EXPORT(add_line);

namespace {

using Call = CallOf<sdk::ops::Add>;

constexpr int64_t kPiece = 32768;  // elements per task: several microseconds of work

// Dimensions of the output, outermost first, and what a step along each is in every operand: 0 where it is repeated.
struct Walk {
  int ndim = 0;
  int64_t shape[RLK_MAX_NDIM], a[RLK_MAX_NDIM], b[RLK_MAX_NDIM], out[RLK_MAX_NDIM];
};

int64_t stride_along(const Array& operand, int ndim, int axis) {
  const int own = axis - (ndim - operand.ndim);
  return own < 0 || operand.shape[own] == 1 ? 0 : operand.strides[own];
}

// Drops dimensions of size 1 and merges neighbours that every operand walks as one. At least one dimension remains.
Walk walk_of(const Call& call) {
  Walk walk;
  const auto keep = [&walk](int64_t size, int64_t a, int64_t b, int64_t out) {
    const int i = walk.ndim++;
    walk.shape[i] = size;
    walk.a[i] = a;
    walk.b[i] = b;
    walk.out[i] = out;
  };
  const int ndim = call.out.ndim;
  for (int axis = 0; axis < ndim; ++axis) {
    const int64_t size = call.out.shape[axis];
    if (size == 1) continue;
    const int64_t a = stride_along(call.a, ndim, axis), b = stride_along(call.b, ndim, axis);
    const int64_t out = call.out.strides[axis];
    const int last = walk.ndim - 1;
    if (last >= 0 && walk.a[last] == a * size && walk.b[last] == b * size && walk.out[last] == out * size) {
      const int64_t together = walk.shape[last] * size;
      --walk.ndim;
      keep(together, a, b, out);
    } else {
      keep(size, a, b, out);
    }
  }
  if (walk.ndim == 0) keep(1, 1, 1, 1);
  return walk;
}

int64_t elements(const Array& array) {
  int64_t count = 1;
  for (int axis = 0; axis < array.ndim; ++axis) count *= array.shape[axis];
  return count;
}

double operations(const Call& call) {
  return static_cast<double>(elements(call.out));
}

DataError add(const Call& call, const Context& context) {
  if (elements(call.out) == 0) return {};
  const Walk walk = walk_of(call);
  const Dtype dtype = call.out.dtype;
  const int inner = walk.ndim - 1;
  const int64_t length = walk.shape[inner];
  const int64_t pieces = (length + kPiece - 1) / kPiece;  // of one line
  int64_t lines = 1;
  for (int axis = 0; axis < inner; ++axis) lines *= walk.shape[axis];
  const int64_t grain = std::max<int64_t>(1, kPiece / length);
  parallel_for(context.parallel, lines * pieces, grain, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t first = item % pieces * kPiece;
      int64_t rest = item / pieces;
      int64_t a = first * walk.a[inner], b = first * walk.b[inner], out = first * walk.out[inner];
      for (int axis = inner - 1; axis >= 0; --axis) {
        const int64_t index = rest % walk.shape[axis];
        rest /= walk.shape[axis];
        a += index * walk.a[axis];
        b += index * walk.b[axis];
        out += index * walk.out[axis];
      }
      HWY_DYNAMIC_DISPATCH(add_line)
      ({dtype, element(call.a.data, a, dtype), element(call.b.data, b, dtype), element(call.out.data, out, dtype),
        walk.a[inner], walk.b[inner], walk.out[inner], std::min(kPiece, length - first), call.params.alpha});
    }
  });
  return {};
}

}  // namespace

RLK_CPU_KERNEL(Add, .run = add, .operations = operations);

}  // namespace rlk::cpu
#endif  // HWY_ONCE
