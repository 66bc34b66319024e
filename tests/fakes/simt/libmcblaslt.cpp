// A libmcblasLt.so without MetaX: mcBLASLt's names, cuBLASLt's numbers, and as published code found on its devices, a
// compute type of fp32 that rounds fp32 operands to TF32 beside a pedantic one that does not.
#define P(name) mcblasLt##name
#include "tests/fakes/products/functions.inc"

const Vendor& fake_products::vendor() {
  static constexpr Vendor only = [] {
    Vendor at = cublaslt_numbers();
    at.no_bias = "RLK_FAKE_MACA_BLAS_NO_BIAS";
    at.compute32_unrounded = 69;
    return at;
  }();
  return only;
}
