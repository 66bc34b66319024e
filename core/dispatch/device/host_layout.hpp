// A device's tensor in host memory, for a call that the CPU serves: what lies far apart there lies side by side here.
#pragma once

#include <rlk/abi.h>

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/declaration/validate.hpp"

namespace rlk::core {

// Stretches of memory that are copied whole, and where they lie among each other. Dimensions of size 1 and of stride 0
// keep their strides.
class HostLayout {
public:
  // Copies of an input may take gaps along: chosen is what costs least, bytes and copies counted.
  static HostLayout of_input(const rlk_tensor& tensor);
  // Gaps between the elements of an output are not the call's: other data may lie there.
  static HostLayout of_output(const rlk_tensor& tensor);
  // What an output that is written over an input has in that input's layout.
  static HostLayout of_output(const rlk_tensor& tensor, const HostLayout& input);

  const int64_t* strides() const { return strides_.data(); }  // in elements
  uint64_t copies() const { return copies_; }
  uint64_t bytes() const { return copies_ * stretch_; }

  // Calls visit(byte offset on the device, on the host, bytes), each from the first element, for every stretch until
  // one answer is not RLK_OK; returns the last answer.
  template <class Visit>
  rlk_status for_each(Visit&& visit) const {
    std::array<int64_t, RLK_MAX_NDIM> index{};
    int64_t device = low_, host = low_;
    for (uint64_t i = 0; i < copies_; ++i) {
      if (const rlk_status status = visit(device, host, stretch_); status != RLK_OK) return status;
      for (size_t k = level_; k < axes_; ++k) {
        const Axis& axis = axis_[k];
        device += axis.step, host += axis.host_step;
        if (++index[k] < axis.size) break;
        device -= axis.step * axis.size, host -= axis.host_step * axis.size;
        index[k] = 0;
      }
    }
    return RLK_OK;
  }

  // A copy that is enqueued costs as much as so many bytes: some microseconds at the speed of a bus.
  static constexpr uint64_t kCopyCostBytes = uint64_t{64} << 10;

private:
  struct Axis {
    int32_t dimension = 0;
    int64_t size = 0, step = 0, host_step = 0;  // steps in bytes
  };
  explicit HostLayout(const rlk_tensor& tensor);
  // What is copied in one piece: the elements of so many axes, beginning with those that lie closest.
  void cut_at(size_t level);
  uint64_t span(size_t level) const;  // bytes
  bool is_dense(size_t level) const;
  void pack(int32_t bits);

  std::array<Axis, RLK_MAX_NDIM> axis_{};  // by the size of the step
  size_t axes_ = 0, level_ = 0;
  uint64_t unit_ = 0;  // bytes of an element, or of a row whose elements have less than a byte
  uint64_t stretch_ = 0, copies_ = 0;
  int64_t low_ = 0;  // of a stretch, from its first element
  std::array<int64_t, RLK_MAX_NDIM> strides_{};
};

// The tensors of a call in host memory: without addresses, which are set later. The plan of a staged call sees them.
class HostTensors {
public:
  HostTensors(const BoundCall& call, std::span<const rlk_tensor* const> inputs,
              std::span<const rlk_tensor* const> outputs);
  HostTensors(const HostTensors&) = delete;
  HostTensors& operator=(const HostTensors&) = delete;

  // As many as declared, nullptr where absent.
  std::span<const rlk_tensor* const> inputs() const { return {pointers_.data(), n_inputs_}; }
  std::span<const rlk_tensor* const> outputs() const { return std::span(pointers_).subspan(n_inputs_); }
  // By number, outputs after inputs; only where the tensor is there.
  rlk_tensor& tensor(size_t at) { return tensors_[at]; }
  size_t size() const { return tensors_.size(); }
  bool has(size_t at) const { return at_[at] >= 0; }
  const HostLayout& layout(size_t at) const { return layouts_[static_cast<size_t>(at_[at])]; }

private:
  size_t n_inputs_;
  std::vector<rlk_tensor> tensors_;
  std::vector<HostLayout> layouts_;
  std::vector<int64_t> shapes_;
  std::vector<int> at_;  // of the layouts; -1: absent
  std::vector<const rlk_tensor*> pointers_;
};

}  // namespace rlk::core
