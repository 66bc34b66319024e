// Attention as a graph of cuDNN's operations, which cuDNN recognises and runs as one fused kernel.
#pragma once

#include "cudnn.hpp"

#include <array>
#include <memory>
#include <string>
#include <vector>

namespace cudnn_attention {

// A cuDNN descriptor; destroyed after everything that refers to it.
class Descriptor {
public:
  explicit Descriptor(cudnnBackendDescriptorType_t type);
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  cudnnBackendDescriptor_t get() const noexcept { return handle_; }

  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count, const void* values);
  template <class T>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T& value) {
    set(name, type, 1, &value);
  }
  void set(cudnnBackendAttributeName_t name, const Descriptor& other);
  void finalize(const char* what);

private:
  cudnnBackendDescriptor_t handle_ = nullptr;
};

using Dims = std::array<int64_t, 4>;  // batch, head, row, column

// What a kernel is compiled for; the scale is an argument of each execution.
struct Shape {
  cudnnDataType_t type = CUDNN_DATA_BFLOAT16;
  int64_t batch = 0, queries = 0, keys = 0, q_heads = 0, kv_heads = 0, head_size = 0;
  Dims q_strides{}, k_strides{}, v_strides{}, out_strides{};  // of (batch, head, token, element)
  bool causal = false;                                        // query i sees keys 0 .. i
};
bool operator<(const Shape& a, const Shape& b);

// The device of a handle, or one that is only described (a finalized CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR). One is null,
// the other outlives what is made for it.
struct Target {
  cudnnHandle_t handle = nullptr;
  const Descriptor* properties = nullptr;
};

struct Arguments {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  void* out = nullptr;
  void* workspace = nullptr;
  float scale = 1;
};

class AttentionGraph {
public:
  // Asks cuDNN which engines take the shape, in milliseconds. Throws RLK_UNSUPPORTED with cuDNN's reason when none
  // does. All functions with the target's context current.
  AttentionGraph(const Target& target, const Shape& shape);

  // Makes the first engine's kernel, in about a second. Before execute; nothing when it is already there.
  void compile();
  uint64_t workspace_bytes() const noexcept { return workspace_bytes_; }  // of the compiled kernel
  void execute(cudnnHandle_t handle, const Arguments& arguments);

private:
  Descriptor& make(cudnnBackendDescriptorType_t type);
  Descriptor& tensor(int64_t id, cudnnDataType_t type, const Dims& dims, const Dims& strides, bool is_virtual,
                     bool is_by_value = false);
  // Intermediates: the scores of all queries and keys, or one number per query.
  Descriptor& scores(cudnnDataType_t type);
  Descriptor& rows();
  Descriptor& scalar(int64_t id);
  void multiply(const Descriptor& a, const Descriptor& b, const Descriptor& product);
  void pointwise(cudnnPointwiseMode_t mode, cudnnDataType_t precision, const Descriptor& x, const Descriptor* b,
                 const Descriptor& y, const Descriptor* condition = nullptr, int64_t axis = -1);
  void reduce(cudnnReduceTensorOp_t mode, const Descriptor& x, const Descriptor& y);
  void describe();
  static bool is_deterministic(cudnnBackendDescriptor_t configuration);
  void find_engines();
  [[noreturn]] void refuse(const char* what) const;

  const Target target_;
  const Shape shape_;
  int64_t next_id_ = 100;
  std::vector<std::unique_ptr<Descriptor>> descriptors_;
  std::vector<cudnnBackendDescriptor_t> operations_;
  std::vector<cudnnBackendDescriptor_t> configurations_;  // engines that take the shape, the best first
  Descriptor* plan_ = nullptr;
  uint64_t workspace_bytes_ = 0;
};

// Of what cuDNN told of all engines it tried, the line that says most; empty when it told nothing.
std::string first_reason(const std::string& told);

}  // namespace cudnn_attention
