// The tracer of this process.
#include "core/dispatch/trust/trace.hpp"

#include <atomic>
#include <utility>

namespace rlk::core {
namespace {

struct Node {
  std::function<Trace(const FirstUse&)> tracer;
  const Node* replaced;
};
std::atomic<const Node*> current{nullptr};

}  // namespace

void set_tracer(std::function<Trace(const FirstUse&)> tracer) {
  auto* node = new Node{std::move(tracer), current.load(std::memory_order_acquire)};
  while (!current.compare_exchange_weak(node->replaced, node, std::memory_order_acq_rel)) {
  }
}

Trace trace(const FirstUse& use) noexcept {
  const Node* node = current.load(std::memory_order_acquire);
  if (node == nullptr || !node->tracer) return nullptr;
  try {
    return node->tracer(use);
  } catch (...) {
    return nullptr;  // no memory: the call goes on without
  }
}

}  // namespace rlk::core
