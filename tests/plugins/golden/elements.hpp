// How the elements of a tensor become numbers, and back: every dtype, any strides.
#pragma once

#include <rlk/sdk.hpp>

#include <cmath>
#include <cstdint>
#include <cstring>

namespace golden_plugin {

// A tensor to be read and written as double or int64_t; false when the argument is absent.
class Elements {
public:
  Elements(const rlk_tensor* tensor)  // not explicit: an argument of a run is one
      : tensor_(tensor),
        data_(rlk::sdk::data_of<char>(tensor)),
        dtype_(tensor != nullptr ? rlk::sdk::dtype_of(*tensor) : rlk::sdk::Dtype::other) {}

  explicit operator bool() const { return tensor_ != nullptr; }
  int64_t size(int axis) const { return tensor_->shape[axis]; }
  int64_t stride(int axis) const { return tensor_->strides[axis]; }
  int ndim() const { return tensor_->ndim; }

  template <class... Index>
  double real(Index... index) const {
    return real_at(offset(index...));
  }
  template <class... Index>
  int64_t integer(Index... index) const {
    return integer_at(offset(index...));
  }
  template <class... Index>
  void set(double value, Index... index) const {
    set_at(value, offset(index...));
  }

  // offset is in elements from the first one.
  double real_at(int64_t offset) const;
  int64_t integer_at(int64_t offset) const;
  void set_at(double value, int64_t offset) const;

private:
  template <class... Index>
  int64_t offset(Index... index) const {
    const int64_t indices[] = {index...};
    int64_t sum = 0;
    for (size_t axis = 0; axis < sizeof...(index); ++axis) sum += indices[axis] * tensor_->strides[axis];
    return sum;
  }

  const rlk_tensor* tensor_;
  char* data_;
  rlk::sdk::Dtype dtype_;
};

// A compensated sum (Neumaier): its error does not grow with the number of terms.
class Sum {
public:
  void add(double term) {
    const double sum = sum_ + term;
    lost_ += std::fabs(sum_) >= std::fabs(term) ? sum_ - sum + term : term - sum + sum_;
    sum_ = sum;
  }
  double value() const { return std::isfinite(sum_) ? sum_ + lost_ : sum_; }

private:
  double sum_ = 0;
  double lost_ = 0;
};

}  // namespace golden_plugin
