// Products of matrices over batches, and the gradients: many products at once (product.hpp). Where a matrix is repeated
// its gradient is a sum over the batch, term by term in fp64.
#include <rlk/sdk/ops/gemm.hpp>
#include <rlk/sdk/ops/matmul.hpp>
#include <rlk/sdk/ops/matmul_backward.hpp>

#include "core/cpu/linear/product.hpp"
#include "core/cpu/simd/registration.hpp"

namespace rlk::cpu {
namespace {

using Gemm = CallOf<sdk::ops::Gemm>;
using Matmul = CallOf<sdk::ops::Matmul>;
using Backward = CallOf<sdk::ops::MatmulBackward>;

// Matrix [p, q] of a tensor of four dimensions, or of one that is repeated.
Array matrix_of(const Array& array, int64_t p, int64_t q) {
  return matrix_at(array,
                   (array.shape[0] == 1 ? 0 : p) * array.strides[0] + (array.shape[1] == 1 ? 0 : q) * array.strides[1]);
}

DataError matmul(const Matmul& call, const Context& context) {
  const int64_t y1 = call.y.shape[1], count = call.y.shape[0] * y1;
  multiply(context.parallel, context.workspace, count, call.a.dtype, call.K, [&](int64_t i) {
    const int64_t p = i / y1, q = i % y1;
    return product_of(matrix_of(call.a, p, q), transposed(matrix_of(call.b, p, q)), matrix_of(call.y, p, q));
  });
  return {};
}

// The gradient of one side: grad[p, q] is the sum over what is repeated of left(p', q') right(p', q')^T. `sums` has
// room for a number of every element, where anything is repeated.
template <class Side>
void gradient(const Context& context, void* memory, double* sums, const Array& grad_y, const Array& grad,
              const Side& side) {
  const int64_t repeats0 = grad.shape[0] == 1 ? grad_y.shape[0] : 1,
                repeats1 = grad.shape[1] == 1 ? grad_y.shape[1] : 1;
  const int64_t terms = repeats0 * repeats1, grad1 = grad.shape[1], count = grad.shape[0] * grad1;
  const int64_t rows = grad.shape[2], columns = grad.shape[3];
  for (int64_t term = 0; term < terms; ++term) {
    const int64_t depth = side(0, 0).depth;
    multiply(context.parallel, memory, count, grad_y.dtype, depth, [&](int64_t i) {
      const int64_t p = i / grad1, q = i % grad1;
      Product product = side(repeats0 > 1 ? term / repeats1 : p, repeats1 > 1 ? term % repeats1 : q);
      Array sum = Array::of(sums + i * rows * columns);
      sum.strides[0] = columns;
      sum.strides[1] = 1;
      product.y = term + 1 < terms ? sum : matrix_of(grad, p, q);
      if (term > 0) product.c = sum;
      return product;
    });
  }
  for (int64_t i = 0; terms == 0 && i < count * rows * columns; ++i) {
    matrix_of(grad, i / (rows * columns) / grad1, i / (rows * columns) % grad1)
        .put(i / columns % rows, i % columns, 0.0);
  }
}

struct Workspace {
  void* products;
  double* sums;
  int64_t bytes;
};
Workspace carve(void* memory, const Backward& call) {
  const auto summed = [&](const Array& grad) {
    const bool repeated =
        (grad.shape[0] == 1 && call.grad_y.shape[0] > 1) || (grad.shape[1] == 1 && call.grad_y.shape[1] > 1);
    return repeated ? grad.shape[0] * grad.shape[1] * grad.shape[2] * grad.shape[3] : 0;
  };
  const int64_t of_a = call.A0 * call.A1, of_b = call.B0 * call.B1;
  Carve carve(memory);
  Workspace workspace{};
  workspace.products =
      carve.take_bytes(std::max(products_bytes({of_a, of_a * call.M, of_a * call.K, call.N}, call.a.dtype),
                                products_bytes({of_b, of_b * call.K, of_b * call.N, call.M}, call.a.dtype)));
  workspace.sums = carve.take<double>(std::max(summed(call.grad_a), call.grad_b.given() ? summed(call.grad_b) : 0));
  workspace.bytes = carve.bytes();
  return workspace;
}

DataError matmul_backward(const Backward& call, const Context& context) {
  const Workspace workspace = carve(context.workspace, call);
  gradient(context, workspace.products, workspace.sums, call.grad_y, call.grad_a,
           [&](int64_t p, int64_t q) { return product_of(matrix_of(call.grad_y, p, q), matrix_of(call.b, p, q), {}); });
  if (!call.grad_b.present()) return {};
  gradient(context, workspace.products, workspace.sums, call.grad_y, call.grad_b, [&](int64_t p, int64_t q) {
    return product_of(transposed(matrix_of(call.a, p, q)), transposed(matrix_of(call.grad_y, p, q)), {});
  });
  return {};
}

DataError gemm(const Gemm& call, const Context& context) {
  using sdk::ops::gemm::Transpose;
  const bool a_turned = call.params.transpose == Transpose::a || call.params.transpose == Transpose::both;
  const bool b_turned = call.params.transpose == Transpose::b || call.params.transpose == Transpose::both;
  multiply(context.parallel, context.workspace, call.G, call.a.dtype, call.K, [&](int64_t g) {
    const auto matrix = [&](const Array& array) { return matrix_at(array, g * array.strides[0]); };
    const Array a = matrix(call.a), b = matrix(call.b);
    Product product = product_of(a_turned ? transposed(a) : a, b_turned ? b : transposed(b), matrix(call.y));
    if (call.c.present()) product.c = matrix(call.c);
    product.alpha = call.params.alpha;
    product.beta = call.params.beta;
    return product;
  });
  return {};
}

int64_t matmul_bytes(const Matmul& call) {
  const int64_t count = call.y.shape[0] * call.y.shape[1];
  return products_bytes({count, count * call.M, count * call.N, call.K}, call.a.dtype);
}
int64_t backward_bytes(const Backward& call) {
  return carve(nullptr, call).bytes;
}
int64_t gemm_bytes(const Gemm& call) {
  return products_bytes({call.G, call.G * call.M, call.G * call.N, call.K}, call.a.dtype);
}

template <class Call>
double operations(const Call& call, int64_t matrices, double products) {
  return products * static_cast<double>(matrices) * operations_of_product(call.M, call.N, call.K);
}
double of_matmul(const Matmul& call) {
  return operations(call, call.y.shape[0] * call.y.shape[1], 1);
}
double of_backward(const Backward& call) {
  return operations(call, call.grad_y.shape[0] * call.grad_y.shape[1], call.grad_b.given() ? 2 : 1);
}
double of_gemm(const Gemm& call) {
  return operations(call, call.G, 1);
}

}  // namespace

RLK_CPU_KERNEL(Matmul, .run = matmul, .operations = of_matmul, .workspace_bytes = matmul_bytes,
               .switches = ProductSwitches<'M', 'N', 'K'>::kAll);
RLK_CPU_KERNEL(MatmulBackward, .run = matmul_backward, .operations = of_backward, .workspace_bytes = backward_bytes,
               .switches = ProductSwitches<'M', 'N', 'K'>::kAll);
RLK_CPU_KERNEL(Gemm, .run = gemm, .operations = of_gemm, .workspace_bytes = gemm_bytes,
               .switches = ProductSwitches<'M', 'N', 'K'>::kAll);

}  // namespace rlk::cpu
