// A libcublasLt.so.13 without a device: cuBLASLt's names and numbers over the simulated library of products.
#define P(name) cublasLt##name
#include "tests/fakes/products/functions.inc"

const Vendor& fake_products::vendor() {
  static constexpr Vendor only = [] {
    Vendor at = cublaslt_numbers();
    at.no_bias = "RLK_FAKE_CUDA_BLAS_NO_BIAS";
    at.reductions = 3;
    at.alignment_a = 5;
    return at;
  }();
  return only;
}

FAKE_EXPORT const char* cublasLtGetStatusName(int code) {
  return code == vendor().invalid_value ? "CUBLAS_STATUS_INVALID_VALUE" : "CUBLAS_STATUS_EMULATED";
}
