// Matches the arguments of a call with the declaration, step by step: parameters, presence, dtypes, shapes, rules.
// Validation runs every step over inputs and outputs; shape inference runs them over the inputs alone.
#pragma once

#include <rlk/abi.h>

#include <span>
#include <string>
#include <string_view>

#include "core/declaration/validate.hpp"

namespace rlk::core {

using Tensors = std::span<const rlk_tensor* const>;

class Binder {
public:
  // Results go to `call`. With infer, outputs are not read: their presence is the argument of `bind_presence`.
  Binder(const OpDecl& decl, Tensors inputs, Tensors outputs, bool infer, BoundCall& call, rlk_error* error)
      : decl_(decl), inputs_(inputs), outputs_(outputs), infer_(infer), call_(call), error_(error) {
    call_.decl = &decl;
  }

  // The steps, in this order. Each returns RLK_OK or RLK_INVALID_ARGUMENT with a text, and allocates only to fail.
  rlk_status bind_params(const void* params, std::span<std::byte> storage);
  rlk_status bind_presence(uint64_t wanted_outputs);
  rlk_status bind_dtypes();
  rlk_status bind_shapes();
  rlk_status check_rules();

  // "input 'ids'", for texts.
  static std::string name_of_argument(const ArgDecl& arg, bool output);
  rlk_status refuse(const std::string& text) const;
  // "N = 3, causal = on, bias absent": what the names in the text of an expression stand for in this call.
  std::string seen_in(std::string_view text) const;

private:
  const rlk_tensor* tensor(bool output, size_t i) const {
    const Tensors& list = output ? outputs_ : inputs_;
    return i < list.size() ? list[i] : nullptr;
  }
  template <class Visit>
  rlk_status for_each_given(Visit&& visit);
  rlk_status check_param(const ParamDecl& param) const;
  rlk_status bind_presence_of(std::span<const ArgDecl> args, Tensors given, bool output);
  rlk_status check_well_formed(const ArgDecl& arg, const rlk_tensor& tensor, bool output) const;
  rlk_status bind_variable(const ArgDecl& arg, const rlk_tensor& tensor, bool output);
  rlk_status check_presence_in_place() const;
  rlk_status check_choices();
  rlk_status check_dtype(const ArgDecl& arg, const rlk_tensor& tensor, bool output) const;
  bool bind_symbol(int symbol, int64_t value, const ArgDecl& from);
  rlk_status bind_dims(const ArgDecl& arg, const ShapeDecl& shape, const rlk_tensor& tensor, bool output);
  rlk_status check_symbols() const;
  rlk_status check_computed_dims(const ArgDecl& arg, const ShapeDecl& shape, const rlk_tensor& tensor,
                                 bool output) const;
  rlk_status check_broadcast();
  rlk_status check_same_shapes();
  std::string expected_dtypes(const ArgDecl& arg) const;

  const OpDecl& decl_;
  Tensors inputs_;
  Tensors outputs_;
  bool infer_;
  BoundCall& call_;
  rlk_error* error_;
  uint32_t bound_variables_ = 0;
  uint32_t bound_symbols_ = 0;
  bool has_computed_dims_ = false;
  const ArgDecl* variable_from_[kMaxDtypeVariables] = {};
  const ArgDecl* symbol_from_[kMaxSymbols] = {};
};

// The dtype that an expression has once the variables it names are known.
Dtype resolve(const DtypeExpr& dtype, const BoundCall& call);
// The common shape of all inputs of kind any. False when they do not fit together. shape holds RLK_MAX_NDIM values.
bool broadcast_shape(const OpDecl& decl, int form, Tensors inputs, int64_t* shape, int32_t* ndim);

// For texts: "[2, 3]", "f16" or "code 5, 8 bits".
std::string text_of_shape(const int64_t* shape, int32_t ndim);
std::string text_of_dtype(rlk_dtype dtype);
std::string text_of_number(double value);

}  // namespace rlk::core
