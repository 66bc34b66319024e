// Memory of a stream's device, for the examples.
#pragma once

#include <rlk/rlk.hpp>

#include <algorithm>
#include <utility>
#include <vector>

// Numbers in memory of the stream's device, of a dtype that is known at run time.
class DeviceNumbers {
public:
  DeviceNumbers(const rlk::Stream& stream, rlk_dtype dtype, int64_t count)
      : stream_(&stream), dtype_(dtype), count_(count), data_(stream.allocate(std::max<uint64_t>(bytes(), 1))) {}
  DeviceNumbers(DeviceNumbers&& other) noexcept
      : stream_(other.stream_),
        dtype_(other.dtype_),
        count_(std::exchange(other.count_, 0)),
        data_(std::exchange(other.data_, nullptr)) {}
  ~DeviceNumbers() {
    if (data_ != nullptr) rlk_deallocate(stream_->get(), data_, nullptr);
  }
  DeviceNumbers& operator=(const DeviceNumbers&) = delete;

  // From number `first` on.
  rlk::Tensor as(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides = {}, int64_t first = 0) const {
    return rlk::Tensor(static_cast<char*>(data_) + first * dtype_.bits / 8, dtype_, shape, strides);
  }

protected:
  uint64_t bytes() const { return static_cast<uint64_t>(count_) * dtype_.bits / 8; }
  const rlk::Stream* stream_;
  rlk_dtype dtype_;
  int64_t count_;
  void* data_;
};

// Numbers that the host has, too.
template <class T>
class DeviceArray : public DeviceNumbers {
public:
  DeviceArray(const rlk::Stream& stream, int64_t count) : DeviceNumbers(stream, kDtype, count) {}
  DeviceArray(const rlk::Stream& stream, const std::vector<T>& values)
      : DeviceArray(stream, static_cast<int64_t>(values.size())) {
    set(values);
  }

  // As many numbers as there are.
  void set(const std::vector<T>& values) const {
    if (count_ != 0) stream_->copy(data_, values.data(), bytes(), RLK_COPY_HOST_TO_DEVICE);
  }
  // Waits for the stream; what went wrong with the data of a call (an id out of range) is thrown here.
  std::vector<T> host() const {
    stream_->synchronize();
    std::vector<T> values(static_cast<size_t>(count_));
    if (count_ != 0) stream_->copy(values.data(), data_, bytes(), RLK_COPY_DEVICE_TO_HOST);
    return values;
  }

private:
  static constexpr rlk_dtype kDtype = sizeof(T) == 8 ? rlk::kI64 : sizeof(T) == 1 ? rlk::kU8 : rlk::kF32;
};
