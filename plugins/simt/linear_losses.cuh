// What the losses over chunks of scores do of all rows: sums in an order that the number of rows alone decides.
#pragma once

#include "element.cuh"

#if !defined(RLK_FORMULA)
#define RLK_FORMULA __device__ __forceinline__
#endif
#include <rlk/formula/cross_entropy.hpp>

#include "linear_losses.h"
#include "tokens.cuh"

namespace rlk::simt {

__device__ __forceinline__ formula::CrossEntropyTerms terms_of(const LinearLossArgs& args) {
  formula::CrossEntropyTerms terms;
  static_assert(sizeof(terms) <= sizeof(args.terms), "kLinearLossTerms");
  __builtin_memcpy(&terms, args.terms, sizeof(terms));
  return terms;
}

// of(n, term): what row n adds to each of the sums. Every thread has the result.
template <int kSums, class Of>
__device__ __forceinline__ void sum_rows(int64_t rows, double (&sums)[kSums], const Of& of) {
  __shared__ double part[kSums][kLinearLossThreads];
  const int me = static_cast<int>(threadIdx.x);
  for (int i = 0; i < kSums; ++i) sums[i] = 0;
  for (int64_t n = me; n < rows; n += kLinearLossThreads) {
    double term[kSums];
    of(n, term);
    for (int i = 0; i < kSums; ++i) sums[i] += term[i];
  }
  for (int i = 0; i < kSums; ++i) part[i][me] = sums[i];
  __syncthreads();
  for (int half = kLinearLossThreads / 2; half > 0; half /= 2) {
    if (me < half) {
      for (int i = 0; i < kSums; ++i) part[i][me] += part[i][me + half];
    }
    __syncthreads();
  }
  for (int i = 0; i < kSums; ++i) sums[i] = part[i][0];
}

// Whether the row counts, and its class weight.
template <class A>
__device__ __forceinline__ void active_terms(const LinearLossArgs& args, int64_t ignore_index, int64_t n,
                                             double& counts, double& weight) {
  const int64_t target = read_index(args.ids, n, args.ids_are_i64 != 0);
  const bool is_active = target != ignore_index && (args.mask == nullptr || args.mask[n] != 0);
  counts = is_active ? 1 : 0;
  weight = 0;
  if (!is_active || target < 0 || target >= args.vocab) return;
  weight = args.class_weight != nullptr ? double(static_cast<const A*>(args.class_weight)[target]) : 1.0;
}

template <class A>
__device__ __forceinline__ void linear_losses_reduce(const LinearLossArgs& args) {
  const formula::CrossEntropyTerms terms = terms_of(args);
  const double scale = terms.square_scale;
  double sums[4];
  sum_rows(args.rows, sums, [&](int64_t n, double(&term)[4]) {
    const double lse = static_cast<const A*>(args.lse)[n];
    term[0] = static_cast<const A*>(args.entropy)[n];
    term[1] = scale > 0 ? scale * lse * lse : 0;
    active_terms<A>(args, terms.ignore_index, n, term[2], term[3]);
    if (args.token_loss != nullptr) static_cast<A*>(args.token_loss)[n] = A(term[0] + term[1]);
  });
  if (threadIdx.x != 0) return;
  const auto share = formula::cross_entropy_shares(terms, sums[3], sums[2]);
  const double of_squares = formula::reduced(terms, sums[1], share.square);
  static_cast<A*>(args.loss)[0] = A(formula::reduced(terms, sums[0], share.entropy) + of_squares);
  if (args.z_loss != nullptr) static_cast<A*>(args.z_loss)[0] = A(of_squares);
}

// What reaches each row's loss: the host has seen to it that both parts of it have one share.
template <class A>
__device__ __forceinline__ void linear_losses_shares(const LinearLossArgs& args) {
  const formula::CrossEntropyTerms terms = terms_of(args);
  double sums[2] = {0, 0};
  if (formula::counts_rows(terms)) {
    sum_rows(args.rows, sums,
             [&](int64_t n, double(&term)[2]) { active_terms<A>(args, terms.ignore_index, n, term[0], term[1]); });
  }
  const double share = formula::cross_entropy_shares(terms, sums[1], sums[0]).entropy;
  const double of_loss = args.grad_loss != nullptr ? double(static_cast<const A*>(args.grad_loss)[0]) : 1.0;
  const double of_all = share == 0 ? 0 : share * of_loss;
  for (int64_t n = threadIdx.x; n < args.rows; n += kLinearLossThreads) {
    const double own = args.grad_token_loss != nullptr ? double(static_cast<const A*>(args.grad_token_loss)[n]) : 0.0;
    static_cast<A*>(args.token_loss)[n] = A(of_all + own);
  }
}

}  // namespace rlk::simt
