// Memory of a stream's device, for the examples.
#pragma once

#include <rlk/rlk.hpp>

#include <algorithm>
#include <vector>

// Numbers in memory of the stream's device.
template <class T>
class DeviceArray {
public:
  DeviceArray(const rlk::Stream& stream, int64_t count)
      : stream_(stream), count_(static_cast<size_t>(count)), data_(stream.allocate(std::max<size_t>(bytes(), 1))) {}
  DeviceArray(const rlk::Stream& stream, const std::vector<T>& values)
      : DeviceArray(stream, static_cast<int64_t>(values.size())) {
    if (count_ != 0) stream_.copy(data_, values.data(), bytes(), RLK_COPY_HOST_TO_DEVICE);
  }
  ~DeviceArray() { rlk_deallocate(stream_.get(), data_, nullptr); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  // Waits for the stream; what went wrong with the data of a call (an id out of range) is thrown here.
  std::vector<T> host() const {
    stream_.synchronize();
    std::vector<T> values(count_);
    if (count_ != 0) stream_.copy(values.data(), data_, bytes(), RLK_COPY_DEVICE_TO_HOST);
    return values;
  }
  rlk::Tensor as(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides = {}) const {
    return rlk::Tensor(data_, kDtype, shape, strides);
  }

private:
  static constexpr rlk_dtype kDtype = sizeof(T) == 8 ? rlk::kI64 : sizeof(T) == 1 ? rlk::kU8 : rlk::kF32;
  uint64_t bytes() const { return count_ * sizeof(T); }
  const rlk::Stream& stream_;
  size_t count_;
  void* data_;
};
