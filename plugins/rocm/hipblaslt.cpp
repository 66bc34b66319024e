// AMD's part of the adapter in ../products: the exports of hipBLASLt and its numbers, which ROCm 6.1 to 7 share. Known
// from its public documentation; no AMD card has run it. What is multiplied is not rounded to shorter numbers:
// HIPBLAS_COMPUTE_32F does not.
#include "hipblaslt.hpp"

#include "../products/library.hpp"
#include "../simt/host/runtime_api.hpp"
#include "hip.hpp"

namespace rlk::rocm {
namespace {

// Before ROCm 6 the dtypes had other numbers, and 6.0 had another one for a vector of alphas.
constexpr int kOldestProducts = 60100000;

// There is no preference for alignments, and none for how the parts of a divided sum are added: an algorithm may use
// atomic additions, whose order changes from call to call. So no class of numerics is claimed (Numbers::reductions).
constexpr products::Numbers kNumbers = [] {
  products::Numbers at;
  at.f32 = 0;  // HIP_R_*
  at.f64 = 1;
  at.f16 = 2;
  at.bf16 = 14;
  at.compute_f32 = 2;  // HIPBLAS_COMPUTE_32F
  at.compute_f64 = 7;  // HIPBLAS_COMPUTE_64F
  at.transpose_a = 0;  // HIPBLASLT_MATMUL_DESC_*
  at.transpose_b = 1;
  at.epilogue = 2;
  at.bias_pointer = 3;
  at.factors_at = 13;
  at.transposed = 112;   // HIPBLAS_OP_T
  at.epilogue_bias = 4;  // HIPBLASLT_EPILOGUE_BIAS; the bias has the result's dtype
  // HIPBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_HOST. Not HIPBLASLT_POINTER_MODE_DEVICE, which the header names
  // too: the library's public sources take a product's alpha for a vector in every mode but the host's, and read beta
  // there.
  at.alphas_on_device = 4;
  at.batch_count = 0;  // HIPBLASLT_MATRIX_LAYOUT_*
  at.batch_stride = 1;
  at.workspace_limit = 1;   // HIPBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES
  at.out_of_memory = 2;     // HIPBLAS_STATUS_ALLOC_FAILED
  at.not_supported = 7;     // HIPBLAS_STATUS_NOT_SUPPORTED
  at.algorithm_bytes = 24;  // hipblasLtMatmulAlgo_t
  return at;
}();

products::Library open_hipblaslt() {
  products::Library table;
  table.name = "hipBLASLt";
  table.domain = "hipblas";
  table.numbers = kNumbers;
  int version = 0;
  if (simt::host::driver().driver_version(&version) != simt::host::kSuccess || version < kOldestProducts) {
    table.unfit = "hipBLASLt is of HIP " + version_text(version) +
                  "; 6.1 is the oldest whose numbers this plugin knows: install ROCm 6.1 or later";
    return table;
  }
  void* library =
      table.symbols.require_library({"libhipblaslt.so.1", "libhipblaslt.so.0", "libhipblaslt.so"}, folders());
#define RLK_HIPBLASLT_NEED(member, symbol) table.symbols.require(library, symbol, table.member);
  RLK_PRODUCTS_EXPORTS(RLK_HIPBLASLT_NEED, "hipblas")
#undef RLK_HIPBLASLT_NEED
  return table;
}

}  // namespace
}  // namespace rlk::rocm

const rlk::products::Library& rlk::products::library() {
  static const Library table = rocm::open_hipblaslt();
  return table;
}
