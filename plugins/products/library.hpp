// What the adapter asks of a vendor's library of matrix products: a table of its functions, found by name at run time,
// and the numbers that go with them. The shape is cuBLASLt's, which hipBLASLt has too; where a library lacks something
// the number is kNone, and what needs it is not asked for. Building needs no vendor's headers, loading no library.
#pragma once

#include <rlk/sdk/dtype.hpp>
#include <rlk/sdk/symbols.hpp>

#include <cstdint>
#include <string>

namespace rlk::products {

using Status = int;
// Opaque things of the library's own.
using Handle = struct HandleTag*;
using Description = struct DescriptionTag*;
using Layout = struct LayoutTag*;
using Preference = struct PreferenceTag*;
using Stream = struct LibraryStreamTag*;

constexpr int kNone = -1;

// result, member, parameters
#define RLK_PRODUCTS_FUNCTIONS(X)                                                                              \
  X(Status, create, (Handle * handle))                                                                         \
  X(Status, destroy, (Handle handle))                                                                          \
  X(Status, description_create, (Description * out, int compute_type, int scale_type))                         \
  X(Status, description_destroy, (Description description))                                                    \
  X(Status, description_set, (Description description, int attribute, const void* value, size_t bytes))        \
  X(Status, layout_create, (Layout * out, int dtype, uint64_t rows, uint64_t columns, int64_t leading))        \
  X(Status, layout_destroy, (Layout layout))                                                                   \
  X(Status, layout_set, (Layout layout, int attribute, const void* value, size_t bytes))                       \
  X(Status, preference_create, (Preference * out))                                                             \
  X(Status, preference_destroy, (Preference preference))                                                       \
  X(Status, preference_set, (Preference preference, int attribute, const void* value, size_t bytes))           \
  X(Status, choose,                                                                                            \
    (Handle handle, Description description, Layout a, Layout b, Layout c, Layout d, Preference preference,    \
     int requested, void* results, int* count))                                                                \
  X(Status, multiply,                                                                                          \
    (Handle handle, Description description, const void* alpha, const void* a, Layout a_layout, const void* b, \
     Layout b_layout, const void* beta, const void* c, Layout c_layout, void* d, Layout d_layout,              \
     const void* algorithm, void* workspace, size_t workspace_bytes, Stream stream))

// X(member, export): what each vendor's library calls them, behind its own prefix ("cublas").
#define RLK_PRODUCTS_EXPORTS(X, prefix)                      \
  X(create, prefix "LtCreate")                               \
  X(destroy, prefix "LtDestroy")                             \
  X(description_create, prefix "LtMatmulDescCreate")         \
  X(description_destroy, prefix "LtMatmulDescDestroy")       \
  X(description_set, prefix "LtMatmulDescSetAttribute")      \
  X(layout_create, prefix "LtMatrixLayoutCreate")            \
  X(layout_destroy, prefix "LtMatrixLayoutDestroy")          \
  X(layout_set, prefix "LtMatrixLayoutSetAttribute")         \
  X(preference_create, prefix "LtMatmulPreferenceCreate")    \
  X(preference_destroy, prefix "LtMatmulPreferenceDestroy")  \
  X(preference_set, prefix "LtMatmulPreferenceSetAttribute") \
  X(choose, prefix "LtMatmulAlgoGetHeuristic")               \
  X(multiply, prefix "LtMatmul")

// The library's numbers.
struct Numbers {
  // Of elements, by sdk::Dtype: f32, bf16, f16, f64.
  int f32 = kNone, bf16 = kNone, f16 = kNone, f64 = kNone;
  int compute_f32 = kNone, compute_f64 = kNone;  // sums in plain fp32 (no shorter operands) and in fp64
  int compute_f32_unrounded = kNone;             // of fp32 operands, where compute_f32 rounds them to shorter ones
  int transpose_a = kNone, transpose_b = kNone, transposed = kNone;
  int epilogue = kNone, bias_pointer = kNone, epilogue_bias = kNone;
  // Where alpha and beta are; the default is the host. On the device are both, or alpha alone, as a vector of one for
  // each row of the result as the library sees it.
  int factors_at = kNone, factors_on_device = kNone, alphas_on_device = kNone;
  bool takes_alphas() const { return factors_on_device == kNone && alphas_on_device != kNone; }
  int batch_count = kNone, batch_stride = kNone;
  int workspace_limit = kNone, reductions = kNone;
  // Which ways to add the parts of a divided sum are allowed: those that give the same bits every time, and round no
  // part to fewer digits than fp32's. Without `reductions` the library promises neither, and no operator does.
  uint32_t allowed_reductions = 0;
  int alignment_a = kNone, alignment_b = kNone, alignment_c = kNone, alignment_d = kNone;
  int out_of_memory = kNone, not_supported = kNone;  // codes
  uint32_t algorithm_bytes = 0;                      // of a result of `choose`: first the algorithm, then the workspace
                                                     // it needs as a size_t, then a status
};
constexpr size_t kResultBytes = 256;  // no library's result is larger

struct Library {
#define RLK_PRODUCTS_MEMBER(result, member, parameters) result(*member) parameters = nullptr;
  RLK_PRODUCTS_FUNCTIONS(RLK_PRODUCTS_MEMBER)
#undef RLK_PRODUCTS_MEMBER

  const char* name = "";    // in texts: "cuBLASLt"
  const char* domain = "";  // of error codes: "cublas"
  Numbers numbers;
  sdk::Symbols symbols;
  std::string unfit;  // why a library is not used although it may be there, empty when it is
  const char* (*status_name)(Status status) = nullptr;  // optional
  // Time of a large product of 16-bit numbers over the device's estimate for it; optional: 1.
  double (*work_on)(const std::string& arch) = nullptr;

  bool usable() const noexcept {
    return symbols.complete() && unfit.empty();
  }
  int number_of(sdk::Dtype dtype) const {
    switch (dtype) {
      case sdk::Dtype::f32:
        return numbers.f32;
      case sdk::Dtype::bf16:
        return numbers.bf16;
      case sdk::Dtype::f16:
        return numbers.f16;
      case sdk::Dtype::f64:
        return numbers.f64;
      default:
        return kNone;
    }
  }
};

// Defined by each vendor's plugin: opens the library once per process, when an operator first asks; it stays open. The
// table is unusable, never absent.
const Library& library();

// Throws for anything but success (0): what was attempted and the library's own words.
void check(Status status, const char* attempt);

}  // namespace rlk::products
