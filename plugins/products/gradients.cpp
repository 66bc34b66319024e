// linear_backward and matmul_backward: products of the gradient with what the other factor was.
#include "columns.hpp"
#include "operators.hpp"
#include "plan.hpp"

namespace rlk::products {

using namespace simt::host;

namespace {

// --- linear ----------------------------------------------------------------------------------------------------------

using LinearArguments = sdk::Arguments<sdk::ops::LinearBackward>;

std::vector<Product> linear_gradients(const LinearArguments& call) {
  const Matrix grad_y = matrix_of(*call.grad_y);
  Product x;
  x.a = grad_y;
  x.b = matrix_of(*call.weight);
  x.y = matrix_of(*call.grad_x);
  if (call.grad_weight == nullptr) return {x};
  Product weight;
  weight.a = grad_y.transposed();
  weight.b = matrix_of(*call.x);
  weight.y = matrix_of(*call.grad_weight);
  return {x, weight};
}

class LinearBackwardPlan final : public OperatorPlan<sdk::ops::LinearBackward> {
public:
  LinearBackwardPlan(Device& device, const sdk::Call<sdk::ops::LinearBackward>& call)
      : OperatorPlan(device, call), multiplier_(device), sums_(device, sdk::dtype_of(*sdk::arguments_of(call).grad_y)) {
    dynamic_symbols = sdk::bits_of(&LinearArguments::N);
    workspace_bound = UINT64_MAX;
    workspace_of(sdk::arguments_of(call));
  }
  uint64_t prepare(const sdk::Run& run) override { return workspace_of(arguments_of(run)); }
  void enqueue(sdk::Stream& stream, const sdk::Run& run) override {
    const LinearArguments call = arguments_of(run);
    const StreamHandle handle = own(stream).handle();
    const PlaceScope scope(place_);
    for (const Product& product : linear_gradients(call)) multiplier_.run(product, handle, run.workspace());
    if (call.grad_bias == nullptr) return;
    sums_.run(matrix_of(*call.grad_y), sdk::data_of(call.grad_bias), handle, run.workspace());
  }

private:
  uint64_t workspace_of(const LinearArguments& call) {
    uint64_t bytes = 0;
    for (const Product& product : linear_gradients(call)) bytes = std::max(bytes, multiplier_.workspace_of(product));
    if (call.grad_bias == nullptr) return bytes;
    return std::max(bytes, ColumnSums::workspace_of(call.N, call.M, sdk::dtype_of(*call.grad_y)));
  }

  Multiplier multiplier_;
  ColumnSums sums_;
};

// --- matmul ----------------------------------------------------------------------------------------------------------

using MatmulArguments = sdk::Arguments<sdk::ops::MatmulBackward>;

// A gradient that is a sum over those dimensions of the batch in which its matrix is repeated.
struct Gradient {
  Product product;             // its batch is what is not summed over
  int64_t summed[2] = {1, 1};  // sizes of the others
  int64_t terms() const { return summed[0] * summed[1]; }
};

Gradient gradient_of(Matrix left, Matrix right, const rlk_tensor& out, const int64_t (&batch)[2]) {
  Gradient gradient;
  for (int d = 0; d < 2; ++d) {
    const bool is_summed = out.shape[d] == 1;
    gradient.summed[d] = is_summed ? batch[d] : 1;
    gradient.product.batch[d] = is_summed ? 1 : batch[d];
  }
  // Where both go on evenly, more of the batch is a longer product.
  for (const int d : {1, 0}) {
    if (gradient.summed[d] < 2 || left.columns == 0) continue;
    const bool goes_on = left.batch_stride[d] == left.columns * left.column_stride &&
                         right.batch_stride[d] == right.rows * right.row_stride;
    if (!goes_on) break;
    left.columns *= gradient.summed[d];
    right.rows *= gradient.summed[d];
    gradient.summed[d] = 1;
  }
  if (gradient.terms() == 0) left.columns = right.rows = 0;
  gradient.product.a = left;
  gradient.product.b = right;
  gradient.product.y = matrix_of(out);
  return gradient;
}

// Sums of 16-bit results are made in fp32 first.
bool needs_sum(const Gradient& gradient) {
  return gradient.terms() > 1 && !gradient.product.is_empty() && sdk::bytes_of(gradient.product.y.dtype) == 2;
}
uint64_t sum_bytes(const Gradient& gradient) {
  const Product& product = gradient.product;
  if (!needs_sum(gradient)) return 0;
  return static_cast<uint64_t>(product.batch[0] * product.batch[1] * product.y.rows * product.y.columns) *
         sizeof(float);
}
Matrix sum_of(const Gradient& gradient, void* data) {
  const Product& product = gradient.product;
  Matrix sum = dense(data, sdk::Dtype::f32, product.y.rows, product.y.columns);
  sum.batch_stride[1] = sum.rows * sum.columns;
  sum.batch_stride[0] = sum.batch_stride[1] * product.batch[1];
  return sum;
}

std::vector<Gradient> matmul_gradients(const MatmulArguments& call) {
  const int64_t batch[2] = {call.A0 == 1 ? call.B0 : call.A0, call.A1 == 1 ? call.B1 : call.A1};
  const Matrix grad_y = matrix_of(*call.grad_y);
  std::vector<Gradient> gradients = {gradient_of(grad_y, matrix_of(*call.b).transposed(), *call.grad_a, batch)};
  if (call.grad_b != nullptr) {
    gradients.push_back(gradient_of(matrix_of(*call.a).transposed(), grad_y, *call.grad_b, batch));
  }
  return gradients;
}

class MatmulBackwardPlan final : public OperatorPlan<sdk::ops::MatmulBackward> {
public:
  MatmulBackwardPlan(Device& device, const sdk::Call<sdk::ops::MatmulBackward>& call)
      : OperatorPlan(device, call),
        multiplier_(device),
        narrow_(device, sdk::bytes_of(dtype_of(call)) == 2 ? sdk::Dtype::f32 : dtype_of(call), dtype_of(call)) {
    dynamic_symbols = sdk::bits_of(&MatmulArguments::M);
    workspace_bound = UINT64_MAX;
    workspace_of(sdk::arguments_of(call));
  }
  uint64_t prepare(const sdk::Run& run) override { return workspace_of(arguments_of(run)); }
  void enqueue(sdk::Stream& stream, const sdk::Run& run) override {
    const PlaceScope scope(place_);
    for (const Gradient& gradient : matmul_gradients(arguments_of(run))) {
      make(gradient, own(stream).handle(), run.workspace());
    }
  }

private:
  static sdk::Dtype dtype_of(const sdk::Call<sdk::ops::MatmulBackward>& call) {
    return sdk::dtype_of(*sdk::arguments_of(call).grad_y);
  }
  uint64_t algorithm_bytes(const Gradient& gradient) {
    Product product = gradient.product;
    if (needs_sum(gradient)) product.y = sum_of(gradient, nullptr);
    uint64_t bytes = 0;
    for (const Product& term : terms_of(gradient, product)) bytes = std::max(bytes, multiplier_.workspace_of(term));
    return align_256(bytes);
  }
  // The products whose sum the gradient is, each added to those before it.
  static std::vector<Product> terms_of(const Gradient& gradient, const Product& product) {
    if (gradient.terms() < 2) return {product};
    std::vector<Product> terms;
    for (int64_t p = 0; p < gradient.summed[0]; ++p) {
      for (int64_t q = 0; q < gradient.summed[1]; ++q) {
        Product term = product;
        for (Matrix* one : {&term.a, &term.b}) {
          const int64_t at = (p * one->batch_stride[0] + q * one->batch_stride[1]) * sdk::bytes_of(one->dtype);
          if (one->data != nullptr) one->data = static_cast<char*>(one->data) + at;
        }
        term.has_c = !terms.empty();
        term.c = term.y;
        term.beta = term.has_c ? 1 : 0;
        terms.push_back(term);
      }
    }
    return terms;
  }
  uint64_t workspace_of(const MatmulArguments& call) {
    uint64_t bytes = 0;
    for (const Gradient& gradient : matmul_gradients(call)) {
      bytes = std::max(bytes, algorithm_bytes(gradient) + sum_bytes(gradient));
    }
    return bytes;
  }
  void make(const Gradient& gradient, StreamHandle stream, void* workspace) {
    Product product = gradient.product;
    if (needs_sum(gradient)) product.y = sum_of(gradient, static_cast<char*>(workspace) + algorithm_bytes(gradient));
    for (const Product& term : terms_of(gradient, product)) multiplier_.run(term, stream, workspace);
    if (!needs_sum(gradient)) return;
    Elements elements;
    elements.x = product.y;
    elements.y = gradient.product.y;
    elements.batch[0] = product.batch[0];
    elements.batch[1] = product.batch[1];
    narrow_.run(elements, stream);
  }

  Multiplier multiplier_;
  ElementMap narrow_;
};

}  // namespace

sdk::Support query(Device& device, const sdk::Call<sdk::ops::LinearBackward>& call) {
  if (auto refused = refuse_library(device)) return *refused;
  const LinearArguments arguments = sdk::arguments_of(call);
  if (auto refused = refuse_dtype(arguments.grad_y, "grad_y")) return *refused;
  if (auto refused = sdk::refuse_gaps(arguments.grad_bias, "grad_bias")) return *refused;
  const std::vector<Product> products = linear_gradients(arguments);
  if (auto refused = refuse_layout(products[0], "grad_y", "weight", "", "grad_x")) return *refused;
  double cost = product_us(device, products[0]);
  if (products.size() > 1) {
    if (auto refused = refuse_layout(products[1], "grad_y", "x", "", "grad_weight")) return *refused;
    cost += product_us(device, products[1]);
  }
  const uint64_t sums = arguments.grad_bias == nullptr
                            ? 0
                            : ColumnSums::workspace_of(arguments.N, arguments.M, sdk::dtype_of(*arguments.grad_y));
  return supported(cost, std::max(kWorkspaceLimit, sums));
}
std::unique_ptr<sdk::Plan> plan(Device& device, const sdk::Call<sdk::ops::LinearBackward>& call) {
  return std::make_unique<LinearBackwardPlan>(device, call);
}

sdk::Support query(Device& device, const sdk::Call<sdk::ops::MatmulBackward>& call) {
  if (auto refused = refuse_library(device)) return *refused;
  const MatmulArguments arguments = sdk::arguments_of(call);
  if (auto refused = refuse_dtype(arguments.grad_y, "grad_y")) return *refused;
  uint64_t sums = 0;
  double cost = 0;
  bool is_first = true;
  for (const Gradient& gradient : matmul_gradients(arguments)) {
    Product product = gradient.product;
    const auto refused = is_first ? refuse_layout(product, "grad_y", "b", "", "grad_a")
                                  : refuse_layout(product, "a", "grad_y", "", "grad_b");
    if (refused) return *refused;
    is_first = false;
    sums = std::max(sums, sum_bytes(gradient));
    cost += product_us(device, product) * static_cast<double>(std::max<int64_t>(gradient.terms(), 1));
  }
  return supported(cost, kWorkspaceLimit + sums);
}
std::unique_ptr<sdk::Plan> plan(Device& device, const sdk::Call<sdk::ops::MatmulBackward>& call) {
  return std::make_unique<MatmulBackwardPlan>(device, call);
}

}  // namespace rlk::products
