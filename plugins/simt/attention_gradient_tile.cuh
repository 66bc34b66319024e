// A tile of the gradients of attention, what streams past it, and their products; see attention_gradients.cuh.
//
// With q and grad_out on one side, k and v on the other, a tile of rows and one of keys are the same products:
//   scores = first[streamed] first[own], dp = second[streamed] second[own],
//   gradient of first[own] += ds^T first[streamed], and of a key's second += p^T second[streamed].
#pragma once

#include "attention_gradient_sides.cuh"

namespace rlk::simt {

constexpr int kGradientSide = 16;   // threads along each side of a tile
constexpr int kGradientInner = 32;  // of what a product sums over, in shared memory at a time
static_assert(kGradientSide * kGradientSide == kGradientThreads);

template <class A>
struct GradientShape {
  static constexpr int kTile = gradient_tile(sizeof(A));
  static constexpr int kColumns = gradient_columns(sizeof(A));
  static constexpr int kEach = kTile / kGradientSide;  // of a tile's side, per thread, next to each other
  static constexpr int kPadded = kTile + kEach;        // aligned for 16 bytes, and off the same banks
};

template <class T>
struct GradientShared : GradientSides<T, GradientShape<Accumulator<T>>::kTile> {
  using A = Accumulator<T>;
  using Shape = GradientShape<A>;
  union {
    alignas(16) A sides[2][kGradientInner][Shape::kPadded];  // of the product that makes scores
    A values[kGradientInner][Shape::kColumns];               // of the one that makes gradients
  };
  alignas(16) A weights[Shape::kTile][Shape::kPadded];  // [streamed][own]
};

// The tile of a block and what streams past, in shared memory.
template <class T>
struct GradientTile {
  using A = Accumulator<T>;
  using Shape = GradientShape<A>;
  static constexpr int kTile = Shape::kTile, kEach = Shape::kEach, kColumns = Shape::kColumns;

  const AttentionGradientArgs& args;
  GradientShared<T>& shared;
  const int me, x, y;

  __device__ __forceinline__ GradientTile(const AttentionGradientArgs& arguments, GradientShared<T>& memory)
      : args(arguments),
        shared(memory),
        me(static_cast<int>(threadIdx.x)),
        x(me % kGradientSide),
        y(me / kGradientSide) {}

  // How many rows or keys there are of what streams past and of the block's own: sums of no others are of use. Short
  // samples fill a small part of their tiles.
  struct Counts {
    int streamed, own;
  };
  static __device__ __forceinline__ int count_of(int64_t count) {
    return static_cast<int>(count < kTile ? count : kTile);
  }
  // Whether the thread has any of the weights.
  __device__ __forceinline__ bool has_weights(const Counts& counts) const {
    return y * kEach < counts.streamed && x * kEach < counts.own;
  }

  // sum[i][j] += streamed row y * kEach + i times own row x * kEach + j. What is in shared memory is there for all
  // after the first barrier.
  __device__ __forceinline__ void add_products(const T* const (&left)[kTile], const T* const (&right)[kTile],
                                               const Counts& counts, A (&sum)[kEach][kEach]) {
    const int most = counts.streamed > counts.own ? counts.streamed : counts.own;
    const int filled = (most + kEach - 1) / kEach * kEach * kGradientInner;  // with what threads at the end read
    for (int first = 0; first < args.head_size; first += kGradientInner) {
      const int width = args.head_size - first < kGradientInner ? args.head_size - first : kGradientInner;
      __syncthreads();
#pragma unroll 4
      for (int i = me; i < filled; i += kGradientThreads) {
        const int d = i % kGradientInner, at = i / kGradientInner;
        const T *const l = left[at], *const r = right[at];
        shared.sides[0][d][at] = l != nullptr && d < width ? A(widen(l[first + d])) : A(0);
        shared.sides[1][d][at] = r != nullptr && d < width ? A(widen(r[first + d])) : A(0);
      }
      __syncthreads();
      if (!has_weights(counts)) continue;
#pragma unroll 4
      for (int d = 0; d < width; ++d) {
        A l[kEach], r[kEach];
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
          l[i] = shared.sides[0][d][y * kEach + i];
          r[i] = shared.sides[1][d][x * kEach + i];
        }
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
#pragma unroll
          for (int j = 0; j < kEach; ++j) sum[i][j] = fma(l[i], r[j], sum[i][j]);
        }
      }
    }
  }

  // Of columns, a thread has kEach next to each other in each half.
  static __device__ __forceinline__ int column_of(int x, int j) {
    return j / kEach * (kGradientSide * kEach) + x * kEach + j % kEach;
  }

  // total[i][j] += sum over what streams past s of weights[s][y * kEach + i] values[s][column j]. Each tile's sum
  // begins at zero: long sums of similar terms would gather the rounding of each.
  __device__ __forceinline__ void add_weighted(const T* const (&values)[kTile], const Counts& counts, int column,
                                               A (&total)[kEach][2 * kEach]) {
    const int width = args.head_size - column < kColumns ? args.head_size - column : kColumns, count = counts.streamed;
    const bool has_sums = y * kEach < counts.own && x * kEach < width;
    A sum[kEach][2 * kEach] = {};
    for (int first = 0; first < count; first += kGradientInner) {
      __syncthreads();
#pragma unroll 4
      for (int i = me; i < kGradientInner * kColumns; i += kGradientThreads) {
        const int c = i % kColumns, s = i / kColumns;
        if (first + s >= count) break;
        const T* const value = values[first + s];
        shared.values[s][c] = value != nullptr && c < width ? A(widen(value[column + c])) : A(0);
      }
      __syncthreads();
      if (!has_sums) continue;
      const int end = count - first < kGradientInner ? count - first : kGradientInner;
#pragma unroll 2
      for (int s = 0; s < end; ++s) {
        A w[kEach];
#pragma unroll
        for (int i = 0; i < kEach; ++i) w[i] = shared.weights[first + s][y * kEach + i];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          if (half * kGradientSide * kEach >= width) break;
#pragma unroll
          for (int j = half * kEach; j < (half + 1) * kEach; ++j) {
            const A v = shared.values[s][column_of(x, j)];
#pragma unroll
            for (int i = 0; i < kEach; ++i) sum[i][j] = fma(w[i], v, sum[i][j]);
          }
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
#pragma unroll
      for (int j = 0; j < 2 * kEach; ++j) total[i][j] += sum[i][j];
    }
  }

  __device__ __forceinline__ void set_weights(const A (&weight)[kEach][kEach], const Counts& counts) {
    if (!has_weights(counts)) return;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
#pragma unroll
      for (int j = 0; j < kEach; ++j) shared.weights[y * kEach + i][x * kEach + j] = weight[i][j];
    }
  }

  // Scores become weights p, dp becomes ds times the softcap's slope: both 0 where a row does not see a key.
  template <bool kStreamsRows>
  __device__ __forceinline__ void weigh(int64_t first_key, const Counts& counts, A (&score)[kEach][kEach],
                                        A (&dp)[kEach][kEach]) const {
    if (!has_weights(counts)) return;
    const GradientScores<A> scores(args);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        const int row = (kStreamsRows ? y : x) * kEach + (kStreamsRows ? i : j);
        const int key = (kStreamsRows ? x : y) * kEach + (kStreamsRows ? j : i);
        scores.weigh(shared.terms[row], score[i][j], dp[i][j]);
        const bool sees = shared.sees(row, first_key, key);
        score[i][j] = sees ? score[i][j] : A(0);
        dp[i][j] = sees ? dp[i][j] : A(0);
      }
    }
  }

  template <class To>
  static __device__ __forceinline__ To narrow_to(const To*, A number) {
    return Narrow<To>::of(number);
  }

  // A hidden key has no gradient, also where a weight of 0 has met a NaN.
  __device__ __forceinline__ void clear_hidden(A (&total)[kEach][2 * kEach]) const {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (shared.keys[0][y * kEach + i] != nullptr) continue;
#pragma unroll
      for (int j = 0; j < 2 * kEach; ++j) total[i][j] = A(0);
    }
  }

  // Row or key y * kEach + i of the tile, if it is one: to(i) is where its head begins, of any dtype.
  template <class To>
  __device__ __forceinline__ void store(const A (&total)[kEach][2 * kEach], A factor, int column, const To& to) const {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      auto* const row = to(y * kEach + i);
      if (row == nullptr) continue;
#pragma unroll
      for (int j = 0; j < 2 * kEach; ++j) {
        const int at = column + column_of(x, j);
        if (at < args.head_size) row[at] = narrow_to(row, A(total[i][j] * factor));
      }
    }
  }
};

}  // namespace rlk::simt
