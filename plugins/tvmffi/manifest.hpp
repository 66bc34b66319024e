// The manifest: which function of which library is which operator, and for which calls (README.md has an example).
#pragma once

#include <rlk/sdk/dtype.hpp>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "operators.hpp"
#include "plugins/tvmffi/abi.hpp"

namespace rlk::tvmffi {

// Where an argument of the function comes from.
struct Slot {
  enum class Kind { input, output, parameter, symbol, constant, list, workspace, data_error_record, data_error_tag };
  Kind kind;
  uint32_t index;          // in the operator's list of that kind
  Any constant;            // Kind::constant
  std::string text;        // of a constant that is a text
  std::vector<Any> items;  // Kind::list
};

// What a size must be.
struct SizeRule {
  int64_t min = 0, max = INT64_MAX, multiple = 1;
  int64_t of = -1, times = 1;  // the symbol that it must be so many times of; -1: of none
};

// What a parameter may be: one of the values or, where there are none, a number between the limits.
struct ParameterRule {
  std::vector<double> values;
  double min = -HUGE_VAL, max = HUGE_VAL;
};

struct Kernel {
  const Operator* op = nullptr;
  std::string name, library, symbol;
  std::vector<Slot> slots;
  // One of these: the dtype of each tensor argument, by its slot; of those that are no tensor `other`.
  std::vector<std::vector<sdk::Dtype>> dtypes;
  std::map<uint32_t, SizeRule> sizes;                        // by symbol
  std::map<uint32_t, ParameterRule> settings;                // by parameter
  std::map<uint32_t, uint32_t> in_place;                     // outputs, each with the input that it is written over
  std::vector<bool> takes_input, takes_output, needs_input;  // needs: an optional input that must be there
  uint32_t numerics = 0;
  int32_t level = 0;
  uint64_t workspace_bytes = 0;
  uint32_t alignment = 16;  // bytes, of every tensor's address
  bool is_contiguous = true, is_capturable = false;
  bool is_never_in_place = false;  // no output may have the memory of an input
  bool takes_objects = false;      // tensors that count their users, instead of DLTensor*
  std::string problem;             // why the library is not loaded although the manifest names it: its pack was changed
};

struct Manifest {
  std::string name, version;  // of a pack; "" where the manifest has none
  std::string runtime;        // libtvm_ffi.so, "" where it is loaded already or the kernels bring it
  std::vector<Kernel> kernels;
};

// The kernels of one backend. Throws sdk::Error with the place and what was expected there.
Manifest read_manifest(const std::string& path, const std::string& backend);

// The file without symbolic links: what is to be opened, since a user who may write a link's folder can point it
// elsewhere at any time. Throws when a user other than root and this one could replace the file.
std::string trusted_path(const std::string& path);

}  // namespace rlk::tvmffi
