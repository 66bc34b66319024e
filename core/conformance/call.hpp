// What is one call before it has memory: parameters, the values of its inputs, the shapes of its outputs, and how each
// tensor is to lie in memory.
#pragma once

#include <rlk/abi.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/declaration/declaration.hpp"
#include "core/declaration/validate.hpp"

namespace rlk::core::conformance {

enum class Layout : uint8_t {
  contiguous,
  padded,      // rows (the last dimension) have a gap behind them
  stepped,     // every second element
  reversed,    // the first dimension runs backwards
  transposed,  // the first dimension is the fastest
  expanded,    // the first dimension has stride 0; inputs only, whose values repeat
  mirrored,    // every dimension runs backwards
  turned,      // the last two dimensions are exchanged, as of a transposed matrix in a batch
  exchanged,   // the two before the last are: heads before tokens
};
const char* name_of(Layout layout);

// Where the elements of a tensor lie inside a block of memory, in elements.
struct Placement {
  std::vector<int64_t> strides;
  int64_t first = 0;   // of the element with index 0, 0, ...
  int64_t extent = 0;  // of the whole block, gaps included
};
// `group`: how many elements share a byte; rows begin at multiples of it.
Placement place(Layout layout, std::span<const int64_t> shape, int64_t group = 1);

struct Argument {
  bool present = false;
  Dtype dtype = Dtype::f32;
  std::vector<int64_t> shape;
  Layout layout = Layout::contiguous;
  int64_t shift = 0;  // elements that it starts past its memory
  // Inputs: the values, row-major without gaps. Elements of less than a byte have one each.
  std::vector<std::byte> bytes;

  int64_t group() const { return std::max(8 / bits_of(dtype), 1); }
  Placement placement() const { return place(layout, shape, group()); }
  int64_t count() const;
  int64_t byte_count() const { return count() * size_of(dtype); }
};

// A data error that a call contains on purpose; the fields of rlk_data_error.
struct Fault {
  int32_t kind = 0;
  int64_t row = 0;
  int64_t value = 0;
};

struct ConcreteCall {
  const OpDecl* decl = nullptr;
  int form = 0;
  uint64_t present = 0;  // as in Values
  std::array<int64_t, kMaxSymbols> symbols{};
  std::array<Dtype, kMaxDtypeVariables> dtypes{};
  std::array<int32_t, kMaxArguments> output_alias{};  // input index or -1
  std::vector<std::byte> params;                      // rlk_<op>_params
  std::vector<Argument> inputs, outputs;              // one per declared argument
  std::vector<Fault> faults;                          // the stream may report any one of them
  bool has_more_faults = false;                       // of the same kind other rows may have some, too

  // What the call computes in: its first floating dtype variable, or f32.
  Dtype arithmetic() const {
    for (size_t i = 0; i < decl->dtypes.size(); ++i) {
      if (is_floating(dtypes[i])) return dtypes[i];
    }
    return Dtype::f32;
  }

  Values values() const { return {symbols.data(), params.data(), present}; }
  int64_t i64(int param) const { return values().i64(decl->params[static_cast<size_t>(param)].offset); }
};

// The index of the named parameter, input or symbol, or -1.
int param_index(const OpDecl& decl, std::string_view name);
int input_index(const OpDecl& decl, std::string_view name);
int symbol_index(const OpDecl& decl, std::string_view name);

// A call's tensors as the ABI wants them. Keeps what the descriptors point to; not copyable.
class Descriptors {
public:
  // Without memory, as query and plan_create see the call.
  explicit Descriptors(const ConcreteCall& call) : Descriptors(call, {}, {}) {}
  // With the address of each argument's block (nullptr for absent and for empty ones).
  Descriptors(const ConcreteCall& call, std::span<void* const> input_blocks, std::span<void* const> output_blocks);
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;

  std::span<const rlk_tensor* const> inputs() const { return inputs_; }
  std::span<const rlk_tensor* const> outputs() const { return outputs_; }

private:
  const rlk_tensor* add(const Argument& argument, void* block);

  std::vector<rlk_tensor> tensors_;
  std::vector<Placement> placements_;
  std::vector<const rlk_tensor*> inputs_, outputs_;
};

// The words of the verification units that the call belongs to, sorted.
std::vector<std::string> features(const ConcreteCall& call);

}  // namespace rlk::core::conformance
