// Products of matrices over batches, and the gradients: the declarations' formulas, fp64.
#include <rlk/sdk/ops/gemm.hpp>
#include <rlk/sdk/ops/matmul.hpp>
#include <rlk/sdk/ops/matmul_backward.hpp>

#include "core/golden/operator.hpp"
#include "core/golden/products.hpp"

namespace rlk::golden {
namespace {

// Calls use(of_a, of_b, of_y) with the number of the matrix of each, for every matrix of y.
template <class Call, class Use>
void each_product(const Call& call, const Use& use) {
  const int64_t y0 = call.A0 == 1 ? call.B0 : call.A0, y1 = call.A1 == 1 ? call.B1 : call.A1;
  for (int64_t p = 0; p < y0; ++p) {
    for (int64_t q = 0; q < y1; ++q) {
      const int64_t of_a = (call.A0 == 1 ? 0 : p) * call.A1 + (call.A1 == 1 ? 0 : q);
      const int64_t of_b = (call.B0 == 1 ? 0 : p) * call.B1 + (call.B1 == 1 ? 0 : q);
      use(of_a, of_b, p * y1 + q);
    }
  }
}

// Sums of which every product of a batch adds some.
struct Sums {
  std::vector<Sum> sums;
  std::vector<double> magnitudes;

  explicit Sums(int64_t count) : sums(static_cast<size_t>(count)), magnitudes(static_cast<size_t>(count)) {}
  void add(int64_t i, Numbers a, Numbers b, int64_t count) {
    add_products(a, b, count, sums[static_cast<size_t>(i)], magnitudes[static_cast<size_t>(i)]);
  }
  void put_to(Output& output) const {
    for (size_t i = 0; i < sums.size(); ++i) put(output, Tracked(sums[i].value(), magnitudes[i]));
  }
};

}  // namespace

DataError matmul(CallOf<sdk::ops::Matmul>& call) {
  const std::vector<double> a = numbers_of(call.a), b = numbers_of(call.b);
  const int64_t M = call.M, K = call.K, N = call.N;
  each_product(call, [&](int64_t of_a, int64_t of_b, int64_t) {
    for (int64_t m = 0; m < M; ++m) {
      for (int64_t n = 0; n < N; ++n) put(call.y, dot({a, (of_a * M + m) * K, 1}, {b, of_b * K * N + n, N}, K));
    }
  });
  return {};
}

DataError matmul_backward(CallOf<sdk::ops::MatmulBackward>& call) {
  const std::vector<double> grad_y = numbers_of(call.grad_y), a = numbers_of(call.a), b = numbers_of(call.b);
  const int64_t M = call.M, K = call.K, N = call.N;
  Sums grad_a(call.A0 * call.A1 * M * K), grad_b(call.B0 * call.B1 * K * N);
  each_product(call, [&](int64_t of_a, int64_t of_b, int64_t of_y) {
    for (int64_t k = 0; k < K; ++k) {
      for (int64_t m = 0; m < M; ++m) {
        grad_a.add((of_a * M + m) * K + k, {grad_y, (of_y * M + m) * N, 1}, {b, (of_b * K + k) * N, 1}, N);
      }
      for (int64_t n = 0; n < N; ++n) {
        grad_b.add((of_b * K + k) * N + n, {a, of_a * M * K + k, K}, {grad_y, of_y * M * N + n, N}, M);
      }
    }
  });
  grad_a.put_to(call.grad_a);
  grad_b.put_to(call.grad_b);
  return {};
}

DataError gemm(CallOf<sdk::ops::Gemm>& call) {
  using sdk::ops::gemm::Transpose;
  const std::vector<double> a = numbers_of(call.a), b = numbers_of(call.b);
  const int64_t M = call.M, K = call.K, N = call.N;
  const bool a_turned = call.params.transpose == Transpose::a || call.params.transpose == Transpose::both;
  const bool b_turned = call.params.transpose == Transpose::b || call.params.transpose == Transpose::both;
  for (int64_t g = 0; g < call.G; ++g) {
    for (int64_t m = 0; m < M; ++m) {
      for (int64_t n = 0; n < N; ++n) {
        const Numbers row = a_turned ? Numbers{a, g * M * K + m, M} : Numbers{a, (g * M + m) * K, 1};
        const Numbers column = b_turned ? Numbers{b, (g * N + n) * K, 1} : Numbers{b, g * K * N + n, N};
        Tracked y = dot(row, column, K);
        if (call.params.alpha != 1) y = Tracked(call.params.alpha) * y;
        if (call.c.present() && call.params.beta != 0)
          y = y + Tracked(call.params.beta) * Tracked(call.c.load(g, m, n));
        put(call.y, y);
      }
    }
  }
  return {};
}

}  // namespace rlk::golden
