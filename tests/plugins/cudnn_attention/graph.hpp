// Attention as a graph of cuDNN's operations, which cuDNN recognises and runs as one fused kernel.
#pragma once

#include "cudnn.hpp"

#include <array>
#include <limits>
#include <memory>
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

struct Shape {
  cudnnDataType_t type = CUDNN_DATA_BFLOAT16;
  int64_t batch = 0, queries = 0, keys = 0, q_heads = 0, kv_heads = 0, head_size = 0;
  Dims q_strides{}, k_strides{}, v_strides{}, out_strides{};  // of (batch, head, token, element)
  bool causal = false;                                        // query i sees keys 0 .. i
  float scale = 1;
};

class AttentionGraph {
public:
  // With the context current. Throws RLK_UNSUPPORTED when no engine of cuDNN takes the shape.
  AttentionGraph(cudnnHandle_t handle, const Shape& shape);

  uint64_t workspace_bytes() const noexcept { return workspace_bytes_; }
  void execute(cudnnHandle_t handle, const void* q, const void* k, const void* v, void* out, void* workspace);

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
  static bool is_deterministic(cudnnBackendDescriptor_t configuration);
  void choose_engine(cudnnHandle_t handle);

  const Shape shape_;
  int64_t next_id_ = 100;
  float scale_;
  float hidden_ = std::numeric_limits<float>::lowest();  // the score of a key that a query does not see
  std::vector<std::unique_ptr<Descriptor>> descriptors_;
  std::vector<cudnnBackendDescriptor_t> operations_;
  Descriptor* plan_ = nullptr;
  uint64_t workspace_bytes_ = 0;
};

}  // namespace cudnn_attention
