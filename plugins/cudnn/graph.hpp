// A graph of cuDNN's operations under construction, the engines that cuDNN has for it, and the kernel of one of them.
#pragma once

#include "descriptor.hpp"

#include <array>
#include <memory>
#include <string>
#include <vector>

namespace rlk::cudnn {

using Dims = std::array<int64_t, 4>;  // batch, head, row, column

Dims packed(const Dims& dims);

// The device of a handle, or one that is only described (a finalized DEVICEPROP descriptor). One is null, the other
// outlives what is made for it.
struct Target {
  Handle handle = nullptr;
  const Descriptor* properties = nullptr;
};

class Graph {
public:
  explicit Graph(const Target& target) : target_(target) {}

  // Tensors in memory, intermediates, and single values that the host passes.
  Descriptor& tensor(int64_t id, int type, const Dims& dims, const Dims& strides);
  Descriptor& intermediate(int type, const Dims& dims) { return intermediate(type, dims, packed(dims)); }
  Descriptor& intermediate(int type, const Dims& dims, const Dims& strides);
  Descriptor& value(int64_t id, int type);

  void multiply(const Descriptor& a, const Descriptor& b, const Descriptor& product);
  void pointwise(int mode, int precision, const Descriptor& x, const Descriptor* b, const Descriptor& y,
                 const Descriptor* condition = nullptr, int64_t axis = -1);
  void reduce(int mode, const Descriptor& x, const Descriptor& y);
  void reshape(const Descriptor& x, const Descriptor& y);

  // Asks which engines take the graph, in milliseconds. Throws RLK_UNSUPPORTED with cuDNN's reason when none does.
  void find_engines(bool deterministic_only);
  // Makes the first engine's kernel, in about a second. Nothing when it is already there.
  void compile();
  uint64_t workspace_bytes() const noexcept { return workspace_bytes_; }  // of the compiled kernel
  // pointers: by the tensors' numbers, device memory or the host address of a value.
  void execute(Handle handle, const void* const* pointers, void* workspace) const;

private:
  Descriptor& make(int type);
  Descriptor& tensor(int64_t id, int type, const Dims& dims, const Dims& strides, bool is_virtual, bool is_by_value);
  static bool is_deterministic(RawDescriptor configuration);
  [[noreturn]] void refuse(const char* what) const;

  const Target target_;
  int64_t next_id_ = 1000;
  std::vector<std::unique_ptr<Descriptor>> descriptors_;
  std::vector<RawDescriptor> operations_;
  std::vector<int64_t> ids_;                   // of the tensors that executions pass
  std::vector<RawDescriptor> configurations_;  // engines that take the graph, the best first
  Descriptor* plan_ = nullptr;
  uint64_t workspace_bytes_ = 0;
};

// Of what cuDNN told of all engines it tried, the line that says most; empty when it told nothing.
std::string first_reason(const std::string& told);

}  // namespace rlk::cudnn
