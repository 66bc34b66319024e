// The device of the cuda plugin as this one sees it: a context to work in, handles of cuDNN, and the graphs in use.
#pragma once

#include <rlk/sdk/borrowed.hpp>

#include "attention_graph.hpp"

#include <map>

namespace rlk::cudnn {

class Device final : public sdk::BorrowedDevice {
public:
  explicit Device(const rlk_attach_info& info);
  ~Device() override;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  void* context() const noexcept { return context_; }
  int arch() const noexcept { return arch_; }  // 90 for sm_90
  // In operations and bytes per microsecond.
  double matrix_rate() const noexcept { return 4.0e6 * units_; }
  double memory_rate() const noexcept { return 3.2e4 * units_; }

  // A handle has one stream and one user at a time: each is lent to a call. With the context current.
  class Lent {
  public:
    explicit Lent(Device& device) : device_(device), handle_(device.take()) {}
    ~Lent() { device_.put_back(handle_); }
    Lent(const Lent&) = delete;
    Lent& operator=(const Lent&) = delete;
    Handle get() const noexcept { return handle_; }

  private:
    Device& device_;
    const Handle handle_;
  };

  // With the context current. The same for query and plan of a shape: asking cuDNN takes milliseconds, and the kernel
  // that a plan compiles up to a second. Throws RLK_UNSUPPORTED with cuDNN's reason.
  std::shared_ptr<AttentionGraph> graph(const Shape& shape);

private:
  Handle take();
  void put_back(Handle handle);

  static constexpr size_t kMostGraphs = 1024;
  void* const context_;
  const int arch_;
  const double units_;
  std::mutex mutex_;             // guards what follows
  Handle describing_ = nullptr;  // graphs name it; executions use the others
  std::vector<Handle> idle_;
  struct Known {
    std::shared_ptr<AttentionGraph> graph;
    std::string refusal;  // when there is none
  };
  std::map<Shape, Known> graphs_;
};

}  // namespace rlk::cudnn
