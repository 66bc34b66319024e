// A simulated library of matrix products of cuBLASLt's shape: strict about what such a library asks for: descriptions
// that fit, an algorithm of this very product, the workspace and the alignment that were promised to it. Written from
// the documented contracts of cuBLASLt and hipBLASLt; what it does not simulate it refuses (not_supported). A vendor's
// library is its numbers (Vendor) and the exported functions over them (functions.inc), beside the vendor's simulated
// runtime, on whose streams the products are computed. Variables: RLK_FAKE_..._BLAS_NO_BIAS (set: no epilogue adds a
// bias), and those of the runtime.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "tests/fakes/runtime/bridge.hpp"

namespace fake_products {

constexpr int kNone = -1;  // the library has no such number
constexpr int kSuccess = 0;
constexpr int kF32 = 0, kF64 = 1, kF16 = 2, kBf16 = 14;  // the same of CUDA and HIP
constexpr uint32_t kEpilogueDefault = 1, kEpilogueBias = 4;
constexpr int32_t kFactorsOnHost = 0;

// Defined by each vendor's library.
struct Vendor {
  const char* no_bias;  // the variable
  int invalid_value, not_supported, alloc_failed, execution_failed;
  int compute32, compute64;
  int compute32_unrounded;  // 0, or compute32 rounds fp32 operands to TF32 and this does not
  int32_t as_stored, transposed;
  int transpose_a, transpose_b, epilogue, bias_pointer, factors_at;  // attributes of a product
  int32_t factors_on_device;                                         // alpha and beta are in the device's memory
  int32_t alphas_on_device;                      // only alpha is, and is one for each row of the result
  int batch_count, batch_stride;                 // of a layout
  int workspace_limit, reductions, alignment_a;  // preferences; those of b, c and d follow that of a
  size_t algorithm_bytes;                        // at the front of a result
};
const Vendor& vendor();

// The numbers of cuBLASLt, without preferences of reductions and alignments.
constexpr Vendor cublaslt_numbers() {
  Vendor at{};
  at.invalid_value = 7;
  at.not_supported = 15;
  at.alloc_failed = 3;
  at.execution_failed = 13;
  at.compute32 = 68;
  at.compute64 = 70;
  at.as_stored = 0;
  at.transposed = 1;
  at.factors_at = 2;
  at.transpose_a = 3;
  at.transpose_b = 4;
  at.epilogue = 7;
  at.bias_pointer = 8;
  at.factors_on_device = 1;
  at.alphas_on_device = kNone;
  at.batch_count = 5;
  at.batch_stride = 6;
  at.workspace_limit = 1;
  at.algorithm_bytes = 64;
  at.reductions = kNone;
  at.alignment_a = kNone;
  return at;
}

struct Context {
  int device;
};
struct Description {
  int compute, scale;
  int32_t transpose_a = vendor().as_stored, transpose_b = vendor().as_stored;
  int32_t factors_at = kFactorsOnHost;
  uint32_t epilogue = kEpilogueDefault;
  const void* bias = nullptr;
};
struct Layout {
  int dtype;
  uint64_t rows, columns;
  int64_t leading;
  int32_t count = 1;
  int64_t stride = 0;
  // Elements from the first to behind the last.
  int64_t span() const {
    return static_cast<int64_t>(rows) + (static_cast<int64_t>(columns) - 1) * leading + (count - 1) * stride;
  }
};
struct Preference {
  uint64_t workspace = 0;
  uint32_t reductions = 7;
  uint32_t alignment[4];  // 0: that of an element
  Preference();
};
// What an algorithm remembers of the product that it was chosen for. A library without preferences of alignment keeps
// only what stands before it.
struct Algorithm {
  uint64_t product;
  uint64_t workspace;
  uint32_t alignment[4];
};

inline size_t bytes_of(int dtype) {
  return dtype == kF64 ? 8 : dtype == kF32 ? 4 : 2;
}

struct Problem {
  Description description;
  Layout a, b, c, d;
  bool turns_a() const { return description.transpose_a == vendor().transposed; }
  bool turns_b() const { return description.transpose_b == vendor().transposed; }
  uint64_t m() const { return d.rows; }
  uint64_t n() const { return d.columns; }
  uint64_t k() const { return turns_a() ? a.rows : a.columns; }
};
// What the library says of a description that it does not take.
int problem_of(const Description& description, const Layout& a, const Layout& b, const Layout& c, const Layout& d,
               Problem* out);
// Of everything but addresses.
uint64_t fingerprint(const Problem& p);

// A product that waits in a stream.
struct Work {
  Problem problem;
  double alpha = 1, beta = 0;                          // the host's
  const void *alpha_at = nullptr, *beta_at = nullptr;  // on the device, where they are read when the work runs
  const void *a = nullptr, *b = nullptr, *c = nullptr;
  void *d = nullptr, *workspace = nullptr;
  uint64_t workspace_bytes = 0;

  int run() const;
};

// The functions of a library, but for its names; `call` is the one that was called.
int set_product(Description& of, int attribute, const void* value, size_t bytes);
int set_layout(Layout& of, int attribute, const void* value, size_t bytes);
int set_preference(Preference& of, int attribute, const void* value, size_t bytes);
int choose(const Problem& problem, const Preference& wish, const char* call, void* results, int* count);
// The addresses of a, b, c and d, as they were passed; the workspace is the caller's.
int multiply(std::shared_ptr<Work> work, const void* alpha, const void* beta, const void* algorithm, const char* call,
             void* stream);

}  // namespace fake_products
