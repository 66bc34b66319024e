// Declining a call, in the same words everywhere: an empty answer means no objection.
//
//   if (auto no = refuse_dtype(call.logits, "logits", {Dtype::f32, Dtype::bf16})) return *no;
#pragma once

#include <rlk/sdk/params.h>
#include <rlk/sdk/call.hpp>

#include <initializer_list>
#include <optional>
#include <string>

namespace rlk::sdk {

using Refusal = std::optional<Support>;

// Elements follow each other along the last dimension (a size below 2 has no stride to obey).
inline bool has_dense_rows(const rlk_tensor& tensor) noexcept {
  const int32_t last = tensor.ndim - 1;
  return last < 0 || tensor.shape[last] < 2 || tensor.strides[last] == 1 || element_count(tensor) == 0;
}

// "STRIDES": which must be `expected`. The host may make the tensor contiguous and ask again.
inline Support refuse_strides(const std::string& which, const std::string& expected) {
  return Support::no("STRIDES", which + " must be " + expected, RLK_SUPPORT_IF_CONTIGUOUS);
}
// Absent arguments are fine.
inline Refusal refuse_gaps(const rlk_tensor* tensor, const char* which) {
  if (tensor == nullptr || is_contiguous(*tensor)) return std::nullopt;
  return refuse_strides(which, "contiguous");
}
inline Refusal refuse_strided_rows(const rlk_tensor* tensor, const char* which, const char* along) {
  if (tensor == nullptr || has_dense_rows(*tensor)) return std::nullopt;
  return refuse_strides(which, std::string("contiguous along the ") + along);
}

// "DTYPE": which is something else than the supported ones.
inline Refusal refuse_dtype(const rlk_tensor* tensor, const char* which, std::initializer_list<Dtype> supported) {
  if (tensor == nullptr) return std::nullopt;
  const Dtype seen = dtype_of(*tensor);
  std::string names;
  for (const Dtype dtype : supported) {
    if (dtype == seen) return std::nullopt;
    names += (names.empty() ? "" : ", ") + std::string(name_of(dtype));
  }
  return Support::no("DTYPE", std::string(which) + " is " + name_of(seen) + "; supported: " + names);
}

// With `code`: a factor whose products in fp32 would be infinite, and NaN with every 0, or nothing. 0 is fine.
inline Refusal refuse_beyond_fp32(double factor, const char* code, const char* which) {
  const double size = factor < 0 ? -factor : factor;
  const bool is_beyond = size != 0 && (size < 0x1p-100 || size > 0x1p100);
  if (!is_beyond) return std::nullopt;
  return Support::no(code, std::string(which) + " is used in fp32; it must be 0, or between 2^-100 and 2^100 in size");
}

// "INPUT", "OUTPUT": an optional argument that this implementation does not have.
inline Refusal refuse_input(const rlk_tensor* tensor, const char* which) {
  if (tensor == nullptr) return std::nullopt;
  return Support::no("INPUT", std::string(which) + " is not supported");
}
inline Refusal refuse_output(const rlk_tensor* tensor, const char* which) {
  if (tensor == nullptr) return std::nullopt;
  return Support::no("OUTPUT", std::string(which) + " is not supported");
}

// "PARAMETER": one that is not among those that this implementation has, and not at its default. All others at once:
//
//   using P = rlk_policy_loss_params;
//   if (auto no = refuse_other_params(call, &P::clip_low, &P::clip_high, &P::beta)) return *no;
template <class Op, class... Members>
Refusal refuse_other_params(const Call<Op>& call, Members... known) {
  static constexpr typename Op::Params kDefaults = Op::defaults();
  const auto* const begin = reinterpret_cast<const char*>(&kDefaults);
  const size_t offsets[] = {static_cast<size_t>(reinterpret_cast<const char*>(&(kDefaults.*known)) - begin)..., 0};
  const uint32_t other = rlk_other_param(&call.params(), &kDefaults, offsets, sizeof...(known));
  if (other == 0) return std::nullopt;
  return Support::no("PARAMETER", std::string(Op::kParamNames[other / 8 - 1]) +
                                      " is not at its default, and this implementation does not have it");
}

// "NUMERICS": the caller demands classes that `offered` lacks.
inline Refusal refuse_numerics(uint32_t demanded, uint32_t offered) {
  const uint32_t lacking = demanded & ~(offered | RLK_NUMERICS_TOLERANCE);
  if (lacking == 0) return std::nullopt;
  std::string names;
  const struct {
    uint32_t bit;
    const char* name;
  } classes[] = {{RLK_NUMERICS_ACCURATE, "accurate"},
                 {RLK_NUMERICS_DETERMINISTIC, "deterministic"},
                 {RLK_NUMERICS_BATCH_INVARIANT, "batch_invariant"},
                 {RLK_NUMERICS_PORTABLE, "portable"}};
  for (const auto& one : classes) {
    if ((lacking & one.bit) != 0) names += (names.empty() ? "" : ", ") + std::string(one.name);
  }
  return Support::no("NUMERICS", "demanded and not offered: " + names);
}

}  // namespace rlk::sdk
