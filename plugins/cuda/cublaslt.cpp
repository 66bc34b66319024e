// NVIDIA's part of the adapter in ../products: the exports of cuBLASLt, which 12 and 13 share, and its numbers. What is
// multiplied is never rounded to TF32: CUBLAS_COMPUTE_32F does not, unless the environment overrides it.
#include "cublaslt.hpp"

#include "../products/library.hpp"

#include <cstdlib>

namespace rlk::cuda {
namespace {

constexpr products::Numbers kNumbers = [] {
  products::Numbers at;
  at.f32 = 0;  // CUDA_R_*
  at.f64 = 1;
  at.f16 = 2;
  at.bf16 = 14;
  at.compute_f32 = 68;  // CUBLAS_COMPUTE_32F
  at.compute_f64 = 70;  // CUBLAS_COMPUTE_64F
  at.factors_at = 2;    // CUBLASLT_MATMUL_DESC_*
  at.transpose_a = 3;
  at.transpose_b = 4;
  at.epilogue = 7;
  at.bias_pointer = 8;
  at.transposed = 1;         // CUBLAS_OP_T
  at.epilogue_bias = 4;      // CUBLASLT_EPILOGUE_BIAS
  at.factors_on_device = 1;  // CUBLASLT_POINTER_MODE_DEVICE
  at.batch_count = 5;        // CUBLASLT_MATRIX_LAYOUT_*
  at.batch_stride = 6;
  at.workspace_limit = 1;  // CUBLASLT_MATMUL_PREF_*
  at.reductions = 3;
  at.alignment_a = 5;
  at.alignment_b = 6;
  at.alignment_c = 7;
  at.alignment_d = 8;
  // COMPUTE_TYPE, and the undivided sum, which is always allowed. INPLACE and OUTPUT_TYPE would round parts of 16-bit
  // sums.
  at.allowed_reductions = 2;
  at.out_of_memory = 3;     // CUBLAS_STATUS_ALLOC_FAILED
  at.not_supported = 15;    // CUBLAS_STATUS_NOT_SUPPORTED
  at.algorithm_bytes = 64;  // cublasLtMatmulAlgo_t
  return at;
}();

// Where a toolkit puts the library, for processes whose loader does not know.
std::vector<std::string> folders() {
  std::vector<std::string> all;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const char* root = std::getenv(variable)) all.push_back(std::string(root) + "/lib64");
  }
  all.emplace_back("/usr/local/cuda/lib64");
  return all;
}

// The device's estimate is the rate of mma.sync instructions, 317 TFLOP/s of an H200. There products of bf16 reach 750
// (scores in fp32, parts of 1024 rows) to 840, of fp32 50, which is a 16th.
double work_on(const std::string& arch) {
  return arch == "sm_90" ? 0.42 : 1;
}

products::Library open_cublaslt() {
  products::Library table;
  table.work_on = work_on;
  table.name = "cuBLASLt";
  table.domain = "cublas";
  table.numbers = kNumbers;
  void* library = table.symbols.require_library({"libcublasLt.so.13", "libcublasLt.so.12"}, folders());
#define RLK_CUBLASLT_NEED(member, symbol) table.symbols.require(library, symbol, table.member);
  RLK_PRODUCTS_EXPORTS(RLK_CUBLASLT_NEED, "cublas")
#undef RLK_CUBLASLT_NEED
  table.symbols.find(library, "cublasLtGetStatusName", table.status_name);
  return table;
}

}  // namespace
}  // namespace rlk::cuda

const rlk::products::Library& rlk::products::library() {
  static const Library table = cuda::open_cublaslt();
  return table;
}
