// Handles, and what cuDNN has answered about shapes.
#include "device.hpp"

#include <cstdlib>
#include <cstring>

namespace rlk::cudnn {
namespace {

int arch_of(const rlk_device_properties& properties) {
  const bool is_nvidia = std::strncmp(properties.arch, "sm_", 3) == 0;
  return is_nvidia ? std::atoi(properties.arch + 3) : 0;
}

Handle new_handle() {
  Handle made = nullptr;
  check(library().create(&made), "opening cuDNN on the device");
  return made;
}

}  // namespace

Device::Device(const rlk_attach_info& info)
    : context_(info.native->context), arch_(arch_of(*info.properties)), units_(info.properties->compute_units) {
  const ContextScope scope(context_);
  describing_ = new_handle();
  // The first execution may be in a captured graph, where nothing is allocated.
  idle_.push_back(new_handle());
}

Device::~Device() {
  try {
    const ContextScope scope(context_);
    graphs_.clear();
    for (Handle handle : idle_) library().destroy(handle);
    library().destroy(describing_);
  } catch (...) {
    // A lost device has lost the handles too.
  }
}

Handle Device::take() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!idle_.empty()) {
      const Handle taken = idle_.back();
      idle_.pop_back();
      return taken;
    }
  }
  return new_handle();
}

void Device::put_back(Handle handle) {
  const std::lock_guard<std::mutex> lock(mutex_);
  idle_.push_back(handle);
}

std::shared_ptr<AttentionGraph> Device::graph(const Shape& shape) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto known = graphs_.find(shape);
  if (known != graphs_.end()) {
    if (known->second.graph == nullptr) throw sdk::Error(RLK_UNSUPPORTED, known->second.refusal);
    return known->second.graph;
  }
  if (graphs_.size() >= kMostGraphs) graphs_.clear();  // plans keep theirs
  try {
    auto made = std::make_shared<AttentionGraph>(Target{describing_, nullptr}, shape);
    graphs_.emplace(shape, Known{made, {}});
    return made;
  } catch (const sdk::Error& error) {
    if (error.status() == RLK_UNSUPPORTED) graphs_.emplace(shape, Known{nullptr, error.what()});
    throw;
  }
}

}  // namespace rlk::cudnn
