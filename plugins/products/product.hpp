// One product of matrices as operators describe it, and what the library makes of it.
#pragma once

#include "../simt/host/operator.hpp"
#include "library.hpp"

#include <array>
#include <map>
#include <memory>
#include <mutex>

namespace rlk::products {

using simt::host::Device;

// [batch 0, batch 1, rows, columns], strides in elements. Of a call's description the data is absent.
struct Matrix {
  void* data = nullptr;
  sdk::Dtype dtype = sdk::Dtype::other;
  int64_t rows = 0, columns = 0;
  int64_t row_stride = 0, column_stride = 0;
  int64_t batch_stride[2] = {0, 0};
  uint64_t alignment = 16;  // of the data, where it is absent

  Matrix transposed() const {
    Matrix other = *this;
    std::swap(other.rows, other.columns);
    std::swap(other.row_stride, other.column_stride);
    return other;
  }
  void* from(int64_t elements) const;  // the address behind so many elements
  Matrix rows_from(int64_t first, int64_t count) const;
  Matrix columns_from(int64_t first, int64_t count) const { return transposed().rows_from(first, count).transposed(); }
};
// The last two dimensions of a tensor; those before them, up to two, are batches. repeated[i]: batch i has one matrix,
// which stands for all.
Matrix matrix_of(const rlk_tensor& tensor);
// Memory of a workspace, row after row.
Matrix dense(void* data, sdk::Dtype dtype, int64_t rows, int64_t columns);

// [columns of y], of y's dtype, dense.
struct Bias {
  bool present = false;
  const void* data = nullptr;
  uint64_t alignment = 16;  // of the data, where it is absent
};
Bias bias_of(const rlk_tensor* tensor);

// An alpha in the device's memory that the host does not know. Both are absent in a call's description.
struct DeviceFactors {
  bool present = false;
  const float* data = nullptr;    // {alpha, 0, 1}: the two others are beta
  const float* alphas = nullptr;  // for a library that takes a vector: alpha for as many rows as y or its transpose has
};

// y = alpha a b + beta c + bias for every matrix of the batch. Sums are fp32, of fp64 matrices fp64.
struct Product {
  Matrix a, b, y;
  Matrix c;  // of y's shape; data and strides of y: in place. Not read with beta 0
  bool has_c = false;
  int64_t batch[2] = {1, 1};
  Bias bias;
  double alpha = 1, beta = 0;
  DeviceFactors factors;  // instead of alpha; without a bias, not of fp64, and beta is 0 or 1

  bool is_empty() const { return y.rows == 0 || y.columns == 0 || batch[0] == 0 || batch[1] == 0; }
};

// "STRIDES": which matrix the library cannot read or write as it lies.
sdk::Refusal refuse_layout(const Product& product, const char* a, const char* b, const char* c, const char* y);
// What every operator asks: a device and a library.
sdk::Refusal refuse_library(const Device& device);

// Whether 16-byte accesses reach every element.
bool is_wide(const Matrix& matrix);
bool is_wide(const Product& product);
// Whether the library adds the bias to each sum before it rounds it.
bool fuses_bias(const Product& product);
// Of the copy of what is added to 16-bit results, which never lies in their memory; 0 where nothing is.
uint64_t apart_bytes(const Product& product);

double product_us(const Device& device, const Product& product);

constexpr uint64_t kWorkspaceLimit = 32 << 20;  // what algorithms may ask for

// y = factor x + bias, element by element: conversions, and products that the library does not make.
struct Elements {
  Matrix x;  // not read with factor 0
  Matrix y;
  int64_t batch[2] = {1, 1};
  const void* bias = nullptr;  // [columns], of y's dtype
  double factor = 1;
  const float* scale = nullptr;  // on the device, multiplies the factor
};
class ElementMap {
public:
  ElementMap(Device& device, sdk::Dtype from, sdk::Dtype to);
  void run(const Elements& elements, simt::host::StreamHandle stream) const;

private:
  simt::host::FunctionHandle function_;
};

// Runs products for one plan. What the library recommends for a product is asked once, for each size and alignment.
class Multiplier {
public:
  explicit Multiplier(Device& device);
  // Bytes that run() needs for this product. [thread-safe]
  uint64_t workspace_of(const Product& product);
  // With the device current. [thread-safe]
  void run(const Product& product, simt::host::StreamHandle stream, void* workspace);

private:
  struct Choice {
    std::array<uint64_t, kResultBytes / 8> result{};
    uint64_t workspace = 0;
    bool adds_bias = false;  // in the library's epilogue
  };
  using Key = std::array<int64_t, 24>;
  struct Problem;
  void multiply(const Product& product, simt::host::StreamHandle stream, void* workspace);
  Choice choice_of(const Problem& problem);
  Choice ask(const Problem& problem) const;

  Device& device_;
  std::shared_ptr<void> handle_;
  const ElementMap fills_[4];  // of the dtypes of results, by sdk::Dtype
  std::mutex mutex_;
  std::map<Key, Choice> choices_;
};

}  // namespace rlk::products
