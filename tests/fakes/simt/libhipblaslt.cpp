// A libhipblaslt.so without AMD: hipBLASLt's names and numbers over the simulated library of products. It has no
// preference of alignments and none of reductions. Of the modes with factors on the device it has the one that the
// library's public sources carry out: a vector of alphas.
#define P(name) hipblasLt##name
#include "tests/fakes/products/functions.inc"

const Vendor& fake_products::vendor() {
  static constexpr Vendor only = [] {
    Vendor at{};
    at.no_bias = "RLK_FAKE_HIP_BLAS_NO_BIAS";
    at.invalid_value = 3;
    at.not_supported = 7;
    at.alloc_failed = 2;
    at.execution_failed = 5;
    at.compute32 = 2;
    at.compute64 = 7;
    at.as_stored = 111;
    at.transposed = 112;
    at.transpose_a = 0;
    at.transpose_b = 1;
    at.epilogue = 2;
    at.bias_pointer = 3;
    at.factors_at = 13;
    at.factors_on_device = kNone;
    at.alphas_on_device = 4;
    at.batch_count = 0;
    at.batch_stride = 1;
    at.workspace_limit = 1;
    at.reductions = kNone;
    at.alignment_a = kNone;
    at.algorithm_bytes = 24;
    return at;
  }();
  return only;
}
