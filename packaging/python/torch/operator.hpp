// An operator as torch's dispatcher calls it.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "rlk_torch.h"
#include "shim.hpp"

namespace rlk::torch {

inline constexpr size_t kMaxArguments = 32;  // inputs, and outputs: librlk's own limit
inline constexpr size_t kMaxParams = 127;

struct Operator {
  const rlk_op* op = nullptr;
  size_t place = 0;  // among the registered ones
  std::string name;
  int n_inputs = 0, n_required = 0, n_outputs = 0;
  bool gives_list = true;
  uint64_t bytes_as_u8 = 0, changed = 0, required_outputs = 0;
  std::string param_kinds;
  std::vector<uint64_t> defaults;
  std::vector<int32_t> must_alias;
};

// As rlk_call takes them.
struct Params {
  uint32_t size = 0, reserved = 0;
  std::array<uint64_t, kMaxParams> values;
};

// One call from the dispatcher: takes what is on the stack over and puts the result there. Throws; the dispatcher makes
// a Python exception of it.
void run(const Operator& op, StableIValue* stack, uint64_t n_arguments, uint64_t n_results);

// What run threw last on this thread.
rlk_error& last_error();

}  // namespace rlk::torch
