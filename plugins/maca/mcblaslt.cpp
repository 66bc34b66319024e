// MetaX's part of the adapter in ../products: mcBLASLt and its numbers, marked by how each is known (maca.hpp). Names,
// parameters and their order are cuBLASLt's with another prefix (site; those that make and destroy a preference by
// analogy), and so are the numbers of bf16 and of the compute type (site); those of attributes are taken to be.
#include "mcblaslt.hpp"

#include "../products/library.hpp"
#include "maca.hpp"

namespace rlk::maca {
namespace {

// The plugin asks for no preference of alignments or reductions: a comparison of results would not notice a number that
// means something else there. So it claims no class of numerics (Numbers::reductions).
constexpr products::Numbers kNumbers = [] {
  products::Numbers at;
  at.f32 = 0;  // MACA_R_*: analogy, but bf16, site
  at.f64 = 1;
  at.f16 = 2;
  at.bf16 = 14;
  at.compute_f32 = 68;            // MCBLAS_COMPUTE_32F (site); it rounds what is fp32 to TF32 (site)
  at.compute_f32_unrounded = 69;  // MCBLAS_COMPUTE_32F_PEDANTIC: the name is site, the number analogy
  at.compute_f64 = 70;            // from here on analogy
  at.factors_at = 2;              // MCBLASLT_MATMUL_DESC_*
  at.transpose_a = 3;
  at.transpose_b = 4;
  at.epilogue = 7;
  at.bias_pointer = 8;
  at.transposed = 1;         // MCBLAS_OP_T
  at.epilogue_bias = 4;      // MCBLASLT_EPILOGUE_BIAS
  at.factors_on_device = 1;  // MCBLASLT_POINTER_MODE_DEVICE
  at.batch_count = 5;        // MCBLASLT_MATRIX_LAYOUT_*
  at.batch_stride = 6;
  at.workspace_limit = 1;   // MCBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES
  at.out_of_memory = 3;     // MCBLAS_STATUS_ALLOC_FAILED
  at.not_supported = 15;    // MCBLAS_STATUS_NOT_SUPPORTED
  at.algorithm_bytes = 64;  // mcblasLtMatmulAlgo_t
  return at;
}();

products::Library open_mcblaslt() {
  products::Library table;
  table.name = "mcBLASLt";
  table.domain = "mcblas";
  table.numbers = kNumbers;
  void* library = table.symbols.require_library({"libmcblasLt.so"}, folders());
#define RLK_MCBLASLT_NEED(member, symbol) table.symbols.require(library, symbol, table.member);
  RLK_PRODUCTS_EXPORTS(RLK_MCBLASLT_NEED, "mcblas")
#undef RLK_MCBLASLT_NEED
  return table;
}

}  // namespace
}  // namespace rlk::maca

const rlk::products::Library& rlk::products::library() {
  static const Library table = maca::open_mcblaslt();
  return table;
}
