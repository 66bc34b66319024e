// A call of an operator put together from words: parameters by name, dtypes, sizes of symbols, optional arguments.
#pragma once

#include <rlk/abi/tensor.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/declaration/declaration.hpp"
#include "core/declaration/validate.hpp"
#include "loader/cli/verb.hpp"

namespace rlk::cli {

// Throws UsageError with the names that exist.
const core::OpDecl& find_op(const std::string& name);
int find_input(const core::OpDecl& decl, const std::string& name);   // -1: none
int find_output(const core::OpDecl& decl, const std::string& name);  // -1: none
std::vector<std::string> argument_names(const core::OpDecl& decl, bool inputs, bool outputs);

struct Assignment {
  std::string name, value;
};
// "K=V". Throws UsageError that names `what` when there is no '='.
Assignment split_assignment(const std::string& word, const char* what);

// rlk_<op>_params with its defaults, then with each "K=V" of `words` applied: numbers, or an enumeration's value by its
// name. Ranges and rules are validate()'s business.
std::vector<std::byte> parse_params(const core::OpDecl& decl, const std::vector<std::string>& words);
int form_of(const core::OpDecl& decl, const std::vector<std::byte>& params);

// "RLK_NUMERICS_*" bits of "deterministic,batch_invariant". Throws UsageError.
uint32_t parse_numerics(const std::string& words);

// A dense row-major tensor with or without memory.
struct TensorSpec {
  core::Dtype dtype = core::Dtype::f32;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;
  void* data = nullptr;
  TensorSpec() = default;
  TensorSpec(core::Dtype type, std::vector<int64_t> sizes, void* memory = nullptr);
  uint64_t bytes() const;
};
using TensorSpecs = std::vector<std::optional<TensorSpec>>;  // in the order of the declaration, empty where absent

// The arrays of pointers that the API takes. Borrows the specs.
class TensorPointers {
public:
  explicit TensorPointers(const TensorSpecs& specs);
  TensorPointers(const TensorPointers&) = delete;
  TensorPointers& operator=(const TensorPointers&) = delete;
  std::span<const rlk_tensor* const> span() const { return pointers_; }
  const rlk_tensor* const* data() const { return pointers_.data(); }
  uint32_t size() const { return static_cast<uint32_t>(pointers_.size()); }

private:
  std::vector<rlk_tensor> tensors_;
  std::vector<const rlk_tensor*> pointers_;
};

struct OpCall {
  const core::OpDecl* decl = nullptr;
  std::vector<std::byte> params;
  TensorSpecs inputs, outputs;
  std::vector<int64_t> symbols;  // -1 where the form has none
  uint64_t present = 0;          // as in core::Values
  core::Values values() const { return {symbols.data(), params.data(), present}; }
};

// Fills `outputs` of a call whose inputs are set: dtype and shape follow from the inputs; `wanted` has a bit per
// output.
void infer(OpCall* call, uint64_t wanted);

// The call that --param, --dtype, --shape and --with describe; what they leave open is the declaration's first choice.
OpCall describe_call(const core::OpDecl& decl, const Arguments& arguments);
// Those options, for the verbs that take them.
std::vector<Option> call_options();

}  // namespace rlk::cli
