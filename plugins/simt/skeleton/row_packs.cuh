// How a row of each matrix is read and written: in packs of 16 bytes that a thread takes in turn, the first of them
// kept in its registers. A part of rows.cuh, whose passes go over them.
#pragma once

#include "../element.cuh"

#if !defined(RLK_FORMULA)
#define RLK_FORMULA __device__ __forceinline__
#endif
#include <rlk/formula/vocabulary.hpp>

#include "each.h"
#include "row_parts.cuh"

namespace rlk::simt {

// T: of the matrices. kPacks: all of them are in packs, and a row is of whole ones. kVectors: so are the vectors that
// are there, which are of T too and kept as the matrices are.
template <class Op, class T, bool kPacks, bool kVectors, RowShape kShape>
class RowPacks {
public:
  using A = Accumulator<T>;
  // Several vectors take more registers than a block's rows have, and are near: of those a pack is ahead of its use.
  static constexpr bool kVectorsAhead =
      kVectors && kShape == RowShape::block && Op::kSums == 0 && row_vectors<Op>() > 1;
  static constexpr bool kHoldsVectors = kVectors && !kVectorsAhead;
  static constexpr int kSize = Pack<T>::kSize;
  static constexpr int kTensors = Op::kTensors, kHeld = row_held_of<Op>(static_cast<int>(sizeof(T)));
  __device__ __forceinline__ explicit RowPacks(const RowArgs& args)
      : args_(args), packs_((args.columns + kSize - 1) / kSize), seen_packs_(packs_), seen_(args.columns) {}

  __device__ __forceinline__ void begin(int64_t n) {
    seek(n);
    if constexpr (!Op::kHoldsItself) hold();
  }
  // What is kept in registers is loaded: the row first, which comes from farther away than vectors do.
  __device__ __forceinline__ void hold() {
    if constexpr (kPacks) {
#pragma unroll
      for (int i = 0; i < kTensors; ++i) {
        if (Op::kind(i) == RowKind::in) load_first(i, held_[i]);
      }
#pragma unroll
      for (int i = 0; i < kTensors; ++i) {
        if (kHoldsVectors && is_vector(Op::kind(i))) load_first(i, held_[i]);
      }
    }
  }
  // And what is the same for all rows, in the accumulator.
  __device__ __forceinline__ void hold_all() {
    hold();
#pragma unroll
    for (int i = 0; i < kTensors; ++i) {
      if (Op::kind(i) != RowKind::or_one) continue;
#pragma unroll
      for (int p = 0; p < kHeld; ++p) {
        unpack(held_[i][p], ones_[i][p]);
#pragma unroll
        for (int e = 0; e < kSize; e += 4) {  // else it is made anew in each pass
          uint4 bits;
          __builtin_memcpy(&bits, ones_[i][p] + e, sizeof(bits));
          bits = opaque(bits);
          __builtin_memcpy(ones_[i][p] + e, &bits, sizeof(bits));
        }
      }
    }
  }
  // A matrix of which each row has its own.
  static constexpr __device__ bool is_own(int i) {
    return Op::kind(i) == RowKind::in || (kVectors && Op::kind(i) == RowKind::or_zero);
  }
  // What the threads will keep of the row so many rows later is on its way into the cache. There must be one.
  __device__ __forceinline__ void fetch_later(int64_t rows) const {
    constexpr int kLinePacks = 8;
    static_assert(kHeld <= kLinePacks, "a thread fetches one line of each matrix");
    if (own_ + rows >= args_.inner || place_ * kLinePacks >= packs_) return;
#pragma unroll
    for (int i = 0; i < kTensors; ++i) {
      const RowTensor& tensor = args_.tensor[i];
      if (!is_own(i) || tensor.data == nullptr) continue;
      prefetch(static_cast<const T*>(tensor.data) + at(i) + rows * tensor.row + place_ * (kLinePacks * kSize));
    }
  }
  // A row beyond the last is of no packs, and is nothing but company for the other rows of its wave.
  __device__ __forceinline__ void seek(int64_t n) {
    n_ = n;
    if constexpr (kShape == RowShape::block) {
      own_ = n;
      place_ = static_cast<int>(threadIdx.x);
      left_ = static_cast<int>(packs_) - place_;
      return;
    }
    place_ = n < args_.rows ? static_cast<int>(threadIdx.x) & (args_.group - 1) : kNoPlace;
    if (n >= args_.rows) n = args_.rows - 1;  // for what is read of it besides
    block_ = n < args_.inner ? 0 : n / args_.inner;
    own_ = n - block_ * args_.inner;
    if constexpr (Op::kCausal) {
      seen_ = args_.columns - args_.inner + own_ + 1;
      seen_packs_ = (seen_ + kSize - 1) / kSize;
    }
    const int64_t left = seen_packs_ - place_, most = static_cast<int64_t>(kHeld) * args_.group;
    left_ = static_cast<int>(left < most ? left : most);
  }
  // Where the row of a tensor begins.
  __device__ __forceinline__ int64_t at(int i) const {
    const int64_t own = own_ * args_.tensor[i].row;
    return kShape == RowShape::block ? own : block_ * args_.tensor[i].outer + own;
  }
  __device__ __forceinline__ int64_t columns() const {
    return args_.columns;
  }

  // For sums over rows: what the matrices have of a pack, and the row's kept numbers.
  template <class V>
  __device__ __forceinline__ void read_all(int64_t pack, V (&out)[kTensors][kSize], double (&kept)[kTensors]) const {
#pragma unroll
    for (int i = 0; i < kTensors; ++i) {
      if (Op::kind(i) == RowKind::in) read_as<V, T>(i, pack, out[i]);
      if (Op::kind(i) == RowKind::kept) kept[i] = static_cast<const double*>(args_.tensor[i].data)[at(i)];
    }
  }
  __device__ __forceinline__ int64_t packs() const {
    return packs_;
  }
  static constexpr bool kLong = sizeof(T) == 8, kHalf = sizeof(T) == 2;

  // What passes are made of, those of other files too.
  using Element = T;
  static constexpr bool kInPacks = kPacks;
  __device__ __forceinline__ int place() const {
    return place_;
  }
  __device__ __forceinline__ int group() const {
    return args_.group;
  }
  // A matrix's own row.
  struct Source {
    const T* data;
    int64_t column;
  };
  template <int i>
  __device__ __forceinline__ Source source(RowName<i>) const {
    return {static_cast<const T*>(args_.tensor[i].data) + at(i), args_.tensor[i].column};
  }
  template <bool of>
  struct Is {
    static constexpr bool value = of;
  };
  template <int of>
  struct Place {
    static constexpr int value = of;
  };

  static __device__ __forceinline__ int count_to(int64_t end, int64_t pack) {
    const int64_t left = end - pack * kSize;
    return left >= kSize ? kSize : static_cast<int>(left);
  }
  // Numbers of a pack that are seen.
  __device__ __forceinline__ int count_of(int64_t pack) const {
    return kPacks && !Op::kCausal ? kSize : count_to(seen_, pack);
  }

  // The first kHeld packs of this thread, from registers or memory.
  template <class V, int... in, class Visit>
  __device__ __forceinline__ void first(RowNames<in...>, const Visit& visit) {
    if constexpr (kVectorsAhead) {
      if (left_ > 0) (load_ahead<in>(0), ...);
    }
    // Unrolled where they are registers.
#pragma unroll(kPacks ? kHeld : 1)
    for (int p = 0; p < kHeld; ++p) {
      if (p * args_.group >= left_) break;
      const int64_t pack = pack_of(p);
      const int count = count_of(pack);
      V x[kTensors][kSize];
      if constexpr (kVectorsAhead) {
        if (p + 1 < kHeld && (p + 1) * args_.group < left_) (load_ahead<in>(p + 1), ...);
      }
      (read<V, in>(Is<kPacks>(), p, pack, x[in]), ...);
      visit(Is<true>(), pack, count, x);
    }
  }
  template <class D, int... in, class Visit>
  __device__ __forceinline__ void each(RowNames<in...> names, const Visit& visit) {
    using V = formula::TFromD<D>;
    constexpr bool kRare = kIsRare<D>;
    if constexpr (!kRare) first<V>(names, visit);
    if constexpr (!kRare && kPacks && Op::kHoldsItself && row_matrices<Op>() == 1) {
      beyond<V>(names, visit);
    } else if constexpr (kRare || kShape == RowShape::any) {
#pragma unroll 1
      for (int64_t pack = place_ + (kRare ? 0 : kHeld * args_.group); pack < seen_packs_; pack += args_.group) {
        const int count = count_of(pack);
        V x[kTensors][kSize];
        (read<V, in>(Is<false>(), 0, pack, x[in]), ...);
        visit(Is<false>(), pack, count, x);
      }
    }
  }

  // The packs that are not held, some of them under way while one is computed with.
  template <class V, int... in, class Visit>
  __device__ __forceinline__ void beyond(RowNames<in...>, const Visit& visit) {
    constexpr int kAhead = 4;
    Pack<T> ahead[kTensors][kAhead];
    const auto load_ahead = [&](int64_t pack, int a) {
#pragma unroll
      for (int i = 0; i < kTensors; ++i) {
        if (Op::kind(i) == RowKind::in && pack < packs_) ahead[i][a] = load<T>(i, pack);
      }
    };
    int64_t pack = place_ + static_cast<int64_t>(kHeld) * args_.group;
#pragma unroll
    for (int a = 0; a < kAhead; ++a) load_ahead(pack + static_cast<int64_t>(a) * args_.group, a);
#pragma unroll 1
    for (; pack < packs_; pack += args_.group) {
      V x[kTensors][kSize];
      const auto take = [&](auto of, auto& wide) {
        constexpr int i = decltype(of)::value;
        if constexpr (Op::kind(i) == RowKind::in) {
          A own[kSize];
          unpack(ahead[i][0], own);
#pragma unroll
          for (int e = 0; e < kSize; ++e) wide[e] = static_cast<V>(own[e]);
        } else {
          read<V, i>(Is<false>(), 0, pack, wide);
        }
      };
      (take(Place<in>(), x[in]), ...);
#pragma unroll
      for (int i = 0; i < kTensors; ++i) {
        if (Op::kind(i) != RowKind::in) continue;
#pragma unroll
        for (int a = 1; a < kAhead; ++a) ahead[i][a - 1] = ahead[i][a];
      }
      load_ahead(pack + static_cast<int64_t>(kAhead) * args_.group, kAhead - 1);
      visit(Is<false>(), pack, kSize, x);
    }
  }

  // What is beyond the row is one of its numbers.
  template <class U>
  __device__ __forceinline__ Pack<U> load(int i, int64_t pack, int part = 0) const {
    const RowTensor& tensor = args_.tensor[i];
    const int64_t column = pack * kSize + part * Pack<U>::kSize, left = seen_ - column;
    Pack<U> out;
    if (kPacks && (is_read(Op::kind(i)) || kVectors || tensor.in_packs != 0)) {
      out.bits = *reinterpret_cast<const uint4*>(static_cast<const U*>(tensor.data) + at(i) + column);
      return out;
    }
    const U* const row = static_cast<const U*>(tensor.data) + at(i);
    U element[Pack<U>::kSize];
#pragma unroll
    for (int e = 0; e < Pack<U>::kSize; ++e) element[e] = row[(e < left ? column + e : 0) * tensor.column];
    __builtin_memcpy(&out.bits, element, sizeof(out.bits));
    return out;
  }
  template <class V, class U>
  __device__ __forceinline__ void read_as(int i, int64_t pack, V (&out)[kSize]) const {
#pragma unroll
    for (int part = 0; part < kSize / Pack<U>::kSize; ++part) {
      Accumulator<U> wide[Pack<U>::kSize];
      unpack(load<U>(i, pack, part), wide);
#pragma unroll
      for (int e = 0; e < Pack<U>::kSize; ++e) out[part * Pack<U>::kSize + e] = static_cast<V>(wide[e]);
    }
  }
  template <class V, int i, bool kFromHeld>
  __device__ __forceinline__ void read(Is<kFromHeld>, int p, int64_t pack, V (&out)[kSize]) const {
    if constexpr (kFromHeld && kHoldsOnes && Op::kind(i) == RowKind::or_one) {
#pragma unroll
      for (int e = 0; e < kSize; ++e) out[e] = static_cast<V>(ones_[i][p][e]);
    } else if constexpr (kFromHeld && kVectorsAhead && is_vector(Op::kind(i))) {
      A wide[kSize];
      unpack(ahead_[i][p % 2], wide);
#pragma unroll
      for (int e = 0; e < kSize; ++e) out[e] = static_cast<V>(wide[e]);
    } else if constexpr (kFromHeld && (Op::kind(i) == RowKind::in || (kHoldsVectors && is_vector(Op::kind(i))))) {
      A wide[kSize];
      unpack(Pack<T>{opaque(held_[i][p].bits)}, wide);  // else what is made of it for one pass stays for the next
#pragma unroll
      for (int e = 0; e < kSize; ++e) out[e] = static_cast<V>(wide[e]);
    } else if constexpr (is_read(Op::kind(i))) {
      read_as<V, T>(i, pack, out);
    } else {
      const RowTensor& tensor = args_.tensor[i];
      if (tensor.data == nullptr) {
#pragma unroll
        for (int e = 0; e < kSize; ++e) out[e] = V(Op::kind(i) == RowKind::or_one ? 1 : 0);
      } else if (!kVectors && sizeof(T) < sizeof(A) && tensor.dtype != args_.dtype) {
        read_as<V, A>(i, pack, out);
      } else {
        read_as<V, T>(i, pack, out);
      }
    }
  }
  template <class V>
  __device__ __forceinline__ void store(int i, int64_t pack, int count, const V (&in)[kSize]) const {
    const RowTensor& tensor = args_.tensor[i];
    if (kShape != RowShape::block && tensor.data == nullptr) return;
    if (Op::kind(i) == RowKind::wide_out && sizeof(T) < sizeof(A)) return store_as<A>(tensor, at(i), pack, count, in);
    if constexpr (row_narrows<Op>() && sizeof(T) == 4) {
      if (Op::kind(i) == RowKind::narrow_out && tensor.dtype == kMapBf16) {
        return store_as<bf16>(tensor, at(i), pack, count, in);
      }
    }
    store_as<T>(tensor, at(i), pack, count, in);
  }
  template <class U, class V>
  __device__ __forceinline__ void store_as(const RowTensor& tensor, int64_t at, int64_t pack, int count,
                                           const V (&in)[kSize]) const {
    V seen[kSize];
    U element[kSize];
#pragma unroll
    for (int e = 0; e < kSize; ++e) seen[e] = Op::kCausal && e >= count ? V(0) : in[e];
    narrow(seen, element);
    if constexpr (Op::kCausal) count = count_to(args_.columns, pack);
    U* const row = static_cast<U*>(tensor.data) + at;
    if constexpr (kPacks && sizeof(U) < sizeof(T)) {  // half a pack
      static_assert(sizeof(element) == sizeof(uint64_t), "fp32 as 16 bits");
      uint64_t bits;
      __builtin_memcpy(&bits, element, sizeof(bits));
      *reinterpret_cast<uint64_t*>(row + pack * kSize) = bits;
    } else if constexpr (kPacks) {
#pragma unroll
      for (int part = 0; part < kSize / Pack<U>::kSize; ++part) {
        uint4 bits;
        __builtin_memcpy(&bits, element + part * Pack<U>::kSize, sizeof(bits));
        store_stream(row + pack * kSize + part * Pack<U>::kSize, bits);
      }
    } else {
#pragma unroll
      for (int e = 0; e < kSize; ++e) {
        if (e < count) row[(pack * kSize + e) * tensor.column] = element[e];
      }
    }
  }

protected:
  const RowArgs& args_;
  int place_ = 0;
  const int64_t packs_;
  int64_t seen_packs_, seen_;  // the packs and the columns of the row that are read
  int64_t n_ = 0;
  int64_t block_ = 0, own_ = 0;  // the row's block of rows, and its place there
  int left_ = 0;                 // from this thread's first pack to the end of those that are held

  // The p-th pack of this thread.
  __device__ __forceinline__ int64_t pack_of(int p) const {
    if constexpr (kShape == RowShape::block)
      return static_cast<uint32_t>(place_) + p * static_cast<uint32_t>(args_.group);
    return place_ + p * args_.group;
  }
  template <int i>
  __device__ __forceinline__ void load_ahead(int p) {
    if constexpr (is_vector(Op::kind(i))) {
      const RowTensor& tensor = args_.tensor[i];
      if (tensor.data != nullptr) {
        ahead_[i][p % 2] = load<T>(i, pack_of(p));
        return;
      }
      A number[kSize];
#pragma unroll
      for (int e = 0; e < kSize; ++e) number[e] = Op::kind(i) == RowKind::or_one ? 1 : 0;
      ahead_[i][p % 2].pack(number);
    }
  }
  // The first kHeld packs of this thread.
  __device__ __forceinline__ void load_first(int i, Pack<T> (&to)[kHeld]) const {
    if constexpr (kShape == RowShape::block) {
      // No pass reads a pack beyond the row.
      if (!is_vector(Op::kind(i)) || args_.tensor[i].data != nullptr) {
        const uint4* const row = reinterpret_cast<const uint4*>(static_cast<const T*>(args_.tensor[i].data) + at(i));
#pragma unroll
        for (int p = 0; p < kHeld; ++p) {
          if (p * args_.group < left_) to[p].bits = row[pack_of(p)];
        }
        return;
      }
    }
    A number[kSize];
#pragma unroll
    for (int e = 0; e < kSize; ++e) number[e] = Op::kind(i) == RowKind::or_one ? 1 : 0;
    Pack<T> absent;
    absent.pack(number);
    const T* const data = static_cast<const T*>(args_.tensor[i].data);
    const int left = is_vector(Op::kind(i)) && data == nullptr ? 0 : left_;
    const uint4* const own = reinterpret_cast<const uint4*>(data + at(i)) + place_;
#pragma unroll
    for (int p = 0; p < kHeld; ++p) {
      to[p] = absent;
      if (p * args_.group < left) to[p].bits = own[p * args_.group];
    }
  }

  Pack<T> held_[kTensors][kHeld];
  Pack<T> ahead_[kVectorsAhead ? kTensors : 1][2];
  static constexpr bool kHoldsOnes = kShape == RowShape::block && Op::kSums > 0;
  A ones_[kHoldsOnes ? kTensors : 1][kHeld][kSize];

private:
  static constexpr int kNoPlace = 1 << 30;
};

}  // namespace rlk::simt
