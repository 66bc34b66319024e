// add: out = a + alpha b. Contiguous tensors (or one scalar operand) go in 16-byte packs; everything else element by
// element with up to 8 merged dimensions. Cost: the bytes of a, b and out.
#pragma once

#include "element.cuh"

namespace rlk::simt {

template <class A>
__device__ __forceinline__ A add_scaled(A a, A b, A alpha) {
  return fma(alpha, b, a);
}

// kAScalar / kBScalar: the operand is one element, repeated. All three pointers start on 16-byte boundaries.
template <class T, bool kAScalar, bool kBScalar>
__device__ __forceinline__ void add_contiguous(const AddArgs& args) {
  using A = Accumulator<T>;
  constexpr int kSize = Pack<T>::kSize;
  constexpr int64_t kTile = static_cast<int64_t>(kAddThreads) * kAddLoads * kSize;
  const T* a = static_cast<const T*>(args.a);
  const T* b = static_cast<const T*>(args.b);
  T* out = static_cast<T*>(args.out);
  const A alpha = A(args.alpha);
  const A a0 = kAScalar ? widen(a[0]) : A(0), b0 = kBScalar ? widen(b[0]) : A(0);
  for (int64_t tile = blockIdx.x * kTile; tile < args.elements; tile += gridDim.x * kTile) {
    const int64_t first = tile + static_cast<int64_t>(threadIdx.x) * kSize;
    Pack<T> pa[kAddLoads], pb[kAddLoads];
#pragma unroll
    for (int u = 0; u < kAddLoads; ++u) {
      const int64_t at = first + u * kAddThreads * kSize;
      if (at + kSize <= args.elements) {
        if constexpr (!kAScalar) pa[u].bits = load_stream(a + at);
        if constexpr (!kBScalar) pb[u].bits = load_stream(b + at);
      } else if (at < args.elements) {
        if constexpr (!kAScalar) pa[u] = load_pack(a, at, args.elements, T());
        if constexpr (!kBScalar) pb[u] = load_pack(b, at, args.elements, T());
      }
    }
#pragma unroll
    for (int u = 0; u < kAddLoads; ++u) {
      const int64_t at = first + u * kAddThreads * kSize;
      if (at >= args.elements) continue;
      A x[kSize], y[kSize];
      if constexpr (!kAScalar) pa[u].unpack(x);
      if constexpr (!kBScalar) pb[u].unpack(y);
#pragma unroll
      for (int i = 0; i < kSize; ++i) x[i] = add_scaled(kAScalar ? a0 : x[i], kBScalar ? b0 : y[i], alpha);
      Pack<T> sum;
      sum.pack(x);
      if (at + kSize <= args.elements) {
        store_stream(out + at, sum.bits);
      } else {
        store_pack(out + at, args.elements - at, sum);
      }
    }
  }
}

template <class T>
__device__ __forceinline__ void load_or_repeat(const T* from, bool pack, Accumulator<T> (&out)[Pack<T>::kSize]) {
  if (pack) {
    Pack<T> loaded;
    loaded.bits = *reinterpret_cast<const uint4*>(from);  // cached: a broadcast operand is read again
    loaded.unpack(out);
    return;
  }
  const Accumulator<T> one = widen(*from);
#pragma unroll
  for (int i = 0; i < Pack<T>::kSize; ++i) out[i] = one;
}

// One element (kPacked: one pack along the innermost dimension) per thread. Packed: elements and the innermost size
// count packs, the innermost strides are 1 or 0 (a repeated element), all other strides are multiples of a pack.
template <class T, bool kPacked>
__device__ __forceinline__ void add_strided(const AddArgs& args) {
  using A = Accumulator<T>;
  constexpr int kSize = kPacked ? Pack<T>::kSize : 1;
  const A alpha = A(args.alpha);
  const int inner = args.dims - 1;
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < args.elements;
       i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    int64_t rest = i, at_a = 0, at_b = 0, at_out = 0;
    for (int d = inner; d >= 0; --d) {
      const int64_t size = args.shape[d];
      // 64-bit division is a long sequence of instructions; most sizes fit 32 bits.
      const int64_t next = (rest | size) >> 32 == 0
                               ? static_cast<int64_t>(static_cast<uint32_t>(rest) / static_cast<uint32_t>(size))
                               : rest / size;
      const int64_t at = (rest - next * size) * (d == inner ? kSize : 1);
      rest = next;
      at_a += at * args.a_stride[d];
      at_b += at * args.b_stride[d];
      at_out += at * args.out_stride[d];
    }
    const T* a = static_cast<const T*>(args.a) + at_a;
    const T* b = static_cast<const T*>(args.b) + at_b;
    T* out = static_cast<T*>(args.out) + at_out;
    if constexpr (kPacked) {
      A x[kSize], y[kSize];
      load_or_repeat(a, args.a_stride[inner] != 0, x);
      load_or_repeat(b, args.b_stride[inner] != 0, y);
#pragma unroll
      for (int k = 0; k < kSize; ++k) x[k] = add_scaled(x[k], y[k], alpha);
      Pack<T> sum;
      sum.pack(x);
      store_stream(out, sum.bits);
    } else {
      *out = Narrow<T>::of(add_scaled(A(widen(*a)), A(widen(*b)), alpha));
    }
  }
}

}  // namespace rlk::simt
