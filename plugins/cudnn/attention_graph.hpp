// Attention and its gradients as graphs of cuDNN's operations. cuDNN has no engine for "attention": its engines
// recognise these lists of operations and run each as fused kernels; one operation more or less has no engine.
#pragma once

#include "graph.hpp"

#include <compare>
#include <mutex>

namespace rlk::cudnn {

// Tensors of the caller, in an order that both directions share. The numbers of the graphs' tensors too.
enum Tensor : int64_t { kQ, kK, kV, kOut, kLse, kGradOut, kGradQ, kGradK, kGradV, kTensors };

enum class Direction { forward, backward, backward_deterministic };

constexpr int64_t kUnbounded = -1;

// What a kernel is compiled for; the scale is an argument of each execution.
struct Shape {
  Direction direction = Direction::forward;
  int type = data::kBfloat16;
  int64_t batch = 0, queries = 0, keys = 0, q_heads = 0, kv_heads = 0, head_size = 0;
  std::array<Dims, kTensors> strides{};  // of (batch, head, token, element)
  bool has_lse = false;                  // as an output of the forward direction
  // Query i stands at key i, or at i + keys - queries; it sees so many keys before and after.
  bool is_bottom_right = false;
  int64_t left = kUnbounded, right = kUnbounded;

  auto operator<=>(const Shape&) const = default;  // NOLINT(modernize-use-nullptr): what the compiler writes for it
};

class AttentionGraph {
public:
  // Asks cuDNN which engines take the shape. Throws RLK_UNSUPPORTED with cuDNN's reason when none does. All functions
  // with the target's context current.
  AttentionGraph(const Target& target, const Shape& shape);

  void compile();  // before the next two
  uint64_t workspace_bytes() const;
  // tensors: kTensors pointers to device memory, null where there is none. [thread-safe]
  void execute(Handle handle, void* const* tensors, float scale, void* workspace) const;

private:
  const Shape shape_;
  Graph graph_;
  mutable std::mutex mutex_;
};

}  // namespace rlk::cudnn
