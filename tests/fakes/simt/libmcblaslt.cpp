// A libmcblasLt.so without MetaX: mcBLASLt's names, cuBLASLt's numbers, and as published code found on its devices, a
// compute type of fp32 that rounds fp32 operands to TF32 beside a pedantic one that does not.
#define P(name) mcblasLt##name
#include "tests/fakes/products/functions.inc"

const Vendor& fake_products::vendor() {
  static constexpr Vendor only = [] {
    Vendor at{};
    at.no_bias = "RLK_FAKE_MACA_BLAS_NO_BIAS";
    at.invalid_value = 7;
    at.not_supported = 15;
    at.alloc_failed = 3;
    at.execution_failed = 13;
    at.compute32 = 68;
    at.compute64 = 70;
    at.compute32_unrounded = 69;
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
    at.reductions = kNone;
    at.alignment_a = kNone;
    at.algorithm_bytes = 64;
    return at;
  }();
  return only;
}
