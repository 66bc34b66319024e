// gemm, matmul and linear: one product each.
#include "operators.hpp"
#include "plan.hpp"

namespace rlk::products {

using namespace simt::host;

namespace {

std::vector<Product> gemm_products(const sdk::Arguments<sdk::ops::Gemm>& call) {
  using sdk::ops::gemm::Transpose;
  const auto turned = [&](Transpose one) {
    return call.params.transpose == one || call.params.transpose == Transpose::both;
  };
  Product product;
  product.a = turned(Transpose::a) ? matrix_of(*call.a).transposed() : matrix_of(*call.a);
  product.b = turned(Transpose::b) ? matrix_of(*call.b).transposed() : matrix_of(*call.b);
  product.y = matrix_of(*call.y);
  product.has_c = call.c != nullptr && call.params.beta != 0;
  if (product.has_c) product.c = matrix_of(*call.c);
  product.batch[1] = call.G;
  product.alpha = call.params.alpha;
  product.beta = call.params.beta;
  return {product};
}

std::vector<Product> matmul_products(const sdk::Arguments<sdk::ops::Matmul>& call) {
  Product product;
  product.a = matrix_of(*call.a);
  product.b = matrix_of(*call.b);
  product.y = matrix_of(*call.y);
  product.batch[0] = call.A0 == 1 ? call.B0 : call.A0;
  product.batch[1] = call.A1 == 1 ? call.B1 : call.A1;
  return {product};
}

std::vector<Product> linear_products(const sdk::Arguments<sdk::ops::Linear>& call) {
  Product product;
  product.a = matrix_of(*call.x);
  product.b = matrix_of(*call.weight).transposed();
  product.y = matrix_of(*call.y);
  product.bias = bias_of(call.bias);
  return {product};
}

// Which also is how a bias is added to 16-bit results: a variant of its own, so that both are verified.
const char* linear_variant(const Product& product) {
  return sdk::bytes_of(product.y.dtype) == 2 && is_wide(product) ? "wide" : kVariant;
}

using GemmPlan = ProductsPlan<sdk::ops::Gemm, gemm_products>;
using MatmulPlan = ProductsPlan<sdk::ops::Matmul, matmul_products>;
using LinearPlan = ProductsPlan<sdk::ops::Linear, linear_products>;

}  // namespace

sdk::Support query(Device& device, const sdk::Call<sdk::ops::Gemm>& call) {
  if (auto refused = refuse_library(device)) return *refused;
  const auto arguments = sdk::arguments_of(call);
  if (auto refused = refuse_dtype(arguments.a, "a")) return *refused;
  // Libraries skip the product of a factor 0, and with it a NaN that belongs into the result.
  if (arguments.params.alpha == 0) return sdk::Support::no("ALPHA", "alpha is 0; the library would not read a and b");
  if (sdk::dtype_of(*arguments.a) != sdk::Dtype::f64) {
    if (auto refused = sdk::refuse_beyond_fp32(arguments.params.alpha, "ALPHA", "alpha")) return *refused;
    if (auto refused = sdk::refuse_beyond_fp32(arguments.params.beta, "BETA", "beta")) return *refused;
  }
  const Product product = gemm_products(arguments).front();
  if (auto refused = refuse_layout(product, "a", "b", "c", "y")) return *refused;
  return supported(product_us(device, product), kWorkspaceLimit + apart_bytes(product));
}
std::unique_ptr<sdk::Plan> plan(Device& device, const sdk::Call<sdk::ops::Gemm>& call) {
  return std::make_unique<GemmPlan>(device, call, &sdk::Arguments<sdk::ops::Gemm>::M);
}

sdk::Support query(Device& device, const sdk::Call<sdk::ops::Matmul>& call) {
  if (auto refused = refuse_library(device)) return *refused;
  const auto arguments = sdk::arguments_of(call);
  if (auto refused = refuse_dtype(arguments.a, "a")) return *refused;
  const Product product = matmul_products(arguments).front();
  if (auto refused = refuse_layout(product, "a", "b", "", "y")) return *refused;
  return supported(product_us(device, product), kWorkspaceLimit);
}
std::unique_ptr<sdk::Plan> plan(Device& device, const sdk::Call<sdk::ops::Matmul>& call) {
  return std::make_unique<MatmulPlan>(device, call, &sdk::Arguments<sdk::ops::Matmul>::M);
}

sdk::Support query(Device& device, const sdk::Call<sdk::ops::Linear>& call) {
  if (auto refused = refuse_library(device)) return *refused;
  const auto arguments = sdk::arguments_of(call);
  if (auto refused = refuse_dtype(arguments.x, "x")) return *refused;
  if (auto refused = sdk::refuse_gaps(arguments.bias, "bias")) return *refused;
  const Product product = linear_products(arguments).front();
  if (auto refused = refuse_layout(product, "x", "weight", "", "y")) return *refused;
  sdk::Support answer = supported(product_us(device, product), kWorkspaceLimit + apart_bytes(product));
  answer.variant = linear_variant(product);
  return answer;
}
std::unique_ptr<sdk::Plan> plan(Device& device, const sdk::Call<sdk::ops::Linear>& call) {
  return std::make_unique<LinearPlan>(device, call, &sdk::Arguments<sdk::ops::Linear>::N);
}

}  // namespace rlk::products
