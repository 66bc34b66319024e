// MetaX's part of the adapter in ../products: the exports of mcBLASLt and its numbers, each marked by how it is known
// (maca.hpp). Names, parameters and their order are cuBLASLt's with another prefix (site), and so are the numbers of
// dtypes and of the compute type (site); those of attributes are taken to be.
#include "mcblaslt.hpp"

#include "../products/library.hpp"
#include "maca.hpp"

// member of products::Library, export
#define RLK_MCBLASLT_REQUIRED(X)                                          \
  X(create, "mcblasLtCreate")                               /* site */    \
  X(destroy, "mcblasLtDestroy")                             /* site */    \
  X(description_create, "mcblasLtMatmulDescCreate")         /* site */    \
  X(description_destroy, "mcblasLtMatmulDescDestroy")       /* site */    \
  X(description_set, "mcblasLtMatmulDescSetAttribute")      /* site */    \
  X(layout_create, "mcblasLtMatrixLayoutCreate")            /* site */    \
  X(layout_destroy, "mcblasLtMatrixLayoutDestroy")          /* site */    \
  X(layout_set, "mcblasLtMatrixLayoutSetAttribute")         /* site */    \
  X(preference_create, "mcblasLtMatmulPreferenceCreate")    /* analogy */ \
  X(preference_destroy, "mcblasLtMatmulPreferenceDestroy")  /* analogy */ \
  X(preference_set, "mcblasLtMatmulPreferenceSetAttribute") /* site */    \
  X(choose, "mcblasLtMatmulAlgoGetHeuristic")               /* site */    \
  X(multiply, "mcblasLtMatmul")                             /* site */

namespace rlk::maca {
namespace {

// No preference of alignments and none of reductions is asked for: a number that means something else there would not
// be noticed by a comparison of results. So no class of numerics is claimed (Numbers::reductions).
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
  RLK_MCBLASLT_REQUIRED(RLK_MCBLASLT_NEED)
#undef RLK_MCBLASLT_NEED
  return table;
}

}  // namespace
}  // namespace rlk::maca

const rlk::products::Library& rlk::products::library() {
  static const Library table = maca::open_mcblaslt();
  return table;
}
