// Does a call obey its operator's declaration, and what follows from it: form, symbols, dtypes, presence, aliasing.
#pragma once

#include <rlk/abi.h>

#include <array>
#include <span>
#include <string>
#include <vector>

#include "core/declaration/declaration.hpp"

namespace rlk::core {

// A validated call. Plain data: it is made on the hot path, without allocation.
struct BoundCall {
  const OpDecl* decl = nullptr;
  const void* params = nullptr;  // complete: rlk_<op>_params of this host (a copy is made when the caller's is shorter)
  int form = 0;
  uint64_t present = 0;                               // as in Values
  std::array<int64_t, kMaxSymbols> symbols{};         // -1 where the form has none
  std::array<Dtype, kMaxDtypeVariables> dtypes{};     // of each dtype variable
  std::array<int32_t, kMaxArguments> output_alias{};  // input index or -1; always set where must_alias says so
  Values values() const { return {symbols.data(), params, present}; }
};

// Checks everything that the declaration says and that is visible without reading tensor data: count and presence of
// arguments, dtypes, ranks, shapes and symbols, parameter ranges, finiteness and enumerations, rules, memory (data of
// non-empty tensors not null, aligned to the element), overlap (an output may be exactly an input of its may_alias
// list; any other overlap with an input or an output is refused; an output whose own elements overlap is refused). The
// text names the operator and the argument, what was seen, what was expected and what to do. An output that must lie in
// an input's memory (an in-out argument, a result in place) is passed in both arrays, with the same address, shape and
// strides; without check_memory the addresses are not compared. params may be NULL (all
// defaults) or a shorter, older struct: `storage` then receives the completed one. A longer one is accepted when the
// bytes beyond are unknown to this host only if they are zero. check_memory false: shapes only (query, explain).
// Returns RLK_OK, RLK_INVALID_ARGUMENT or RLK_UNSUPPORTED (dtype or rank that no declaration choice covers is
// INVALID_ARGUMENT). [thread-safe, no allocation on success]
rlk_status validate(const OpDecl& decl, const void* params, std::span<const rlk_tensor* const> inputs,
                    std::span<const rlk_tensor* const> outputs, bool check_memory, std::span<std::byte> storage,
                    BoundCall& out, rlk_error* error);

// Dtype and shape of every output, from the inputs alone. wanted: bit i for optional output i; where another one's
// shape needs an input that is not given, it is empty. Dtype variables that the inputs do not fix take their first
// choice.
struct InferredTensor {
  Dtype dtype;
  std::vector<int64_t> shape;
  bool present = false;  // the form has it, and it is required, wanted, or over an input that is given
};
rlk_status infer_outputs(const OpDecl& decl, const void* params, std::span<const rlk_tensor* const> inputs,
                         uint64_t wanted, std::vector<InferredTensor>& out, rlk_error* error);

// The non-default features of a call, in the words that verification units use, sorted: "causal=on",
// "softcap", "bias" (an optional argument that is present), "I=i32" (a dtype variable but the first at another choice
// than its first), "layout=packed", "strided" (a tensor that is not contiguous), "alias:out=a". Empty for a plain call.
std::vector<std::string> features_of(const BoundCall& call, std::span<const rlk_tensor* const> inputs,
                                     std::span<const rlk_tensor* const> outputs);

// The dtypes for which an operator is verified one by one: the choices of its first dtype variable, or, where it has no
// variable, one without a name.
size_t unit_dtype_count(const OpDecl& decl);
const char* unit_dtype_name(const OpDecl& decl, size_t choice);

using sdk::abi_of;
using sdk::bits_of;
using sdk::is_floating;
using sdk::name_of;
int64_t size_of(Dtype dtype);                // bytes of an element that stands alone
bool dtype_from(rlk_dtype abi, Dtype& out);  // false: not a dtype of any declaration
bool dtype_from(std::string_view name, Dtype& out);

}  // namespace rlk::core
