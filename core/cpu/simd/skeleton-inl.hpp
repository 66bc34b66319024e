// The skeletons of kernels: an operator's author writes the formula, over vectors, and says what it is applied to.
//
//   void silu(const CallOf<sdk::ops::Silu>& call, const Context& context) {
//     map(context, to(call.y), from(call.x), [](auto d, auto x) HWY_ATTR { return hn::Mul(x, sigmoid(d, x)); });
//   }
//
//   map            out = f(in...) for every element, whatever the shapes that broadcast to the first output's
//   for_each_row   a function of each row, made of the sums, maxima and maps of lines (lines-inl.hpp)
//   for_each_chunk the same for stretches of all elements in their order, for sums over everything
//
// All run on the call's threads and give the same bits on any number of them. Formulas compute in fp32, or in fp64
// where a tensor is f64; `map<double>` computes in fp64 always. A kernel is registered by RLK_CPU_VECTOR_KERNEL, which
// chooses the instruction set when it is called. CONTRIBUTING.md has the whole of an operator.
#if defined(RLK_CPU_SKELETON_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef RLK_CPU_SKELETON_INL
#undef RLK_CPU_SKELETON_INL
#else
#define RLK_CPU_SKELETON_INL
#endif

#include "core/cpu/simd/elements.hpp"
#include "core/cpu/simd/functions-inl.hpp"
#include "core/cpu/simd/lines-inl.hpp"
#include "core/cpu/simd/registration.hpp"

#ifndef RLK_CPU_SKELETON_ONCE
#define RLK_CPU_SKELETON_ONCE
namespace rlk::cpu {

constexpr int64_t kTaskElements = 16384;  // some microseconds of work
constexpr int64_t kChunkElements = 2048;  // of for_each_chunk: its results are numbered by chunk

inline int64_t chunks_of(int64_t elements) {
  return (elements + kChunkElements - 1) / kChunkElements;
}

template <size_t kArrays>
bool any_f64(const std::array<Array, kArrays>& arrays) {
  return std::any_of(arrays.begin(), arrays.end(), [](const Array& a) { return a.dtype == Dtype::f64; });
}

// What a kernel says of a call; nothing of data errors where it cannot find one.
template <class Function, class Call>
DataError error_of(const Function& function, const Call& call, const Context& context) {
  if constexpr (std::is_void_v<decltype(function(call, context))>) {
    function(call, context);
    return {};
  } else {
    return function(call, context);
  }
}

template <size_t kOut, size_t kIn>
std::array<Array, kOut + kIn> joined(const std::array<Array, kOut>& out, const std::array<Array, kIn>& in) {
  std::array<Array, kOut + kIn> all;
  std::copy(out.begin(), out.end(), all.begin());
  std::copy(in.begin(), in.end(), all.begin() + kOut);
  return all;
}

}  // namespace rlk::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

// The number of an element that a mask, which arrives as numbers, keeps; 0 elsewhere, whatever stands there.
template <class D, class V = hn::VFromD<D>>
HWY_INLINE V if_kept(D d, V mask, V number) {
  return hn::IfThenElseZero(hn::Ne(mask, hn::Zero(d)), number);
}
template <class D, class V = hn::VFromD<D>>
HWY_INLINE V if_kept(D /*d*/, V number) {
  return number;
}

// Calls function(mask), or function() where there is none: a formula with `auto... mask`, which it gives to if_kept,
// reads nothing then.
template <class Function>
HWY_INLINE auto with_mask(const Array& mask, const Function& function) {
  return mask.present() ? function(mask) : function();
}

// Calls function(TC{}): with double where one of the arrays is f64.
template <size_t kArrays, class Function>
HWY_INLINE void with_compute_type(const std::array<Array, kArrays>& arrays, const Function& function) {
  if (any_f64(arrays)) return function(double{});
  function(float{});
}

template <class TC, size_t kOut, size_t kIn, class F>
void map(const Context& context, const std::array<Array, kOut>& out, const std::array<Array, kIn>& in, const F& f) {
  const Walk<kOut + kIn> walk(joined(out, in));
  parallel_for(context.parallel, walk.size(), kTaskElements, [&](int64_t begin, int64_t end) HWY_ATTR {
    walk.stretches(begin, end, [&](const std::array<Line, kOut + kIn>& lines, int64_t count) HWY_ATTR {
      std::array<Line, kOut> to;
      std::array<Line, kIn> from;
      std::copy(lines.begin(), lines.begin() + kOut, to.begin());
      std::copy(lines.begin() + kOut, lines.end(), from.begin());
      map_lines<TC>(to, from, count, f);
    });
  });
}
template <size_t kOut, size_t kIn, class F>
void map(const Context& context, const std::array<Array, kOut>& out, const std::array<Array, kIn>& in, const F& f) {
  with_compute_type(joined(out, in), [&](auto tc) HWY_ATTR { map<decltype(tc)>(context, out, in, f); });
}

// Calls function(row) for rows of so many columns each.
template <class Function>
HWY_INLINE void for_each_row(const Context& context, int64_t rows, int64_t columns, const Function& function) {
  const int64_t grain = std::max<int64_t>(1, kTaskElements / std::max<int64_t>(1, columns));
  parallel_for(context.parallel, rows, grain, [&](int64_t begin, int64_t end) HWY_ATTR {
    for (int64_t row = begin; row < end; ++row) function(row);
  });
}

// Calls function(chunk, lines, count) with a line of every array (broadcast to the first) for every kChunkElements
// elements: what is not one line is gathered as contiguous TC.
template <class TC, size_t kIn, class Function>
HWY_INLINE void for_each_chunk(const Context& context, const std::array<Array, kIn>& in, const Function& function) {
  const Walk<kIn> walk(in);
  parallel_for(context.parallel, chunks_of(walk.size()), kTaskElements / kChunkElements,
               [&](int64_t first, int64_t last) HWY_ATTR {
                 HWY_ALIGN TC buffer[kIn][kChunkElements];
                 for (int64_t chunk = first; chunk < last; ++chunk) {
                   const int64_t begin = chunk * kChunkElements;
                   const int64_t count = std::min(kChunkElements, walk.size() - begin);
                   std::array<Line, kIn> whole;
                   int64_t filled = 0;
                   walk.stretches(begin, begin + count, [&](const std::array<Line, kIn>& lines, int64_t n) HWY_ATTR {
                     for (size_t k = 0; k < kIn; ++k) {
                       if (n == count) {
                         whole[k] = lines[k];
                         continue;
                       }
                       read_line(lines[k], n, buffer[k] + filled);
                       whole[k] = {buffer[k], sizeof(TC) == 8 ? Dtype::f64 : Dtype::f32, 1};
                     }
                     filled += n;
                   });
                   function(chunk, whole, count);
                 }
               });
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

// Registers `function`, a kernel of HWY_NAMESPACE, which returns a DataError, or nothing where it cannot find one. In
// namespace rlk::cpu; the rest as in RLK_CPU_KERNEL.
#undef RLK_CPU_VECTOR_KERNEL
#if HWY_ONCE
#define RLK_CPU_VECTOR_KERNEL(OP, function, ...)                                              \
  HWY_EXPORT(function);                                                                       \
  static DataError run_##function(const CallOf<sdk::ops::OP>& call, const Context& context) { \
    return error_of(HWY_DYNAMIC_DISPATCH(function), call, context);                           \
  }                                                                                           \
  RLK_CPU_KERNEL(OP, .run = run_##function, __VA_ARGS__)
#else
#define RLK_CPU_VECTOR_KERNEL(OP, ...) static_assert(true, "registered once")
#endif

#endif  // per target
