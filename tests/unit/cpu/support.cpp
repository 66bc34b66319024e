// Strided storage, the error bound, and ways to run a body.
#include "unit/cpu/support.hpp"

#include <atomic>
#include <cmath>
#include <cstring>
#include <thread>

#include "framework/targets.hpp"

namespace rlk::test {
Tensor::Tensor(Dtype dtype, std::vector<int64_t> shape, Strides strides)
    : present_(true), dtype_(dtype), shape_(std::move(shape)), strides_(shape_.size()) {
  const int64_t gap = strides == Strides::contiguous ? 0 : 1;
  int64_t next = 1 + gap;
  for (size_t axis = shape_.size(); axis-- > 0;) {
    strides_[axis] = next;
    next = next * std::max<int64_t>(shape_[axis], 1) + 2 * gap;
  }
  if (strides == Strides::reversed) {
    for (size_t axis = 0; axis < shape_.size(); ++axis) {
      first_ += strides_[axis] * std::max<int64_t>(shape_[axis] - 1, 0);
      strides_[axis] = -strides_[axis];
    }
  }
  bytes_.assign(static_cast<size_t>(next * sdk::bytes_of(dtype)), 0xA5);
}

int64_t Tensor::size() const {
  int64_t count = 1;
  for (int64_t n : shape_) count *= n;
  return present_ ? count : 0;
}

void* Tensor::data() {
  return present_ ? bytes_.data() + first_ * sdk::bytes_of(dtype_) : nullptr;
}

golden::View Tensor::view() const {
  if (!present_) return {};
  const void* data = size() == 0 ? nullptr : bytes_.data() + first_ * sdk::bytes_of(dtype_);
  return {data, dtype_, static_cast<int>(shape_.size()), shape_.data(), strides_.data()};
}

int64_t Tensor::offset(int64_t flat) const {
  int64_t offset = first_;
  for (size_t axis = shape_.size(); axis-- > 0;) {
    offset += flat % shape_[axis] * strides_[axis];
    flat /= shape_[axis];
  }
  return offset;
}

double Tensor::get(int64_t flat) const {
  golden::View memory = view();
  memory.data = bytes_.data();
  return memory.load_at(offset(flat));
}

int64_t Tensor::get_int(int64_t flat) const {
  golden::View memory = view();
  memory.data = bytes_.data();
  return memory.load_int_at(offset(flat));
}

Tensor& Tensor::set(int64_t flat, double value) {
  golden::store(bytes_.data() + offset(flat) * sdk::bytes_of(dtype_), dtype_, value);
  return *this;
}

Tensor& Tensor::set_int(int64_t flat, int64_t value) {
  unsigned char* to = bytes_.data() + offset(flat) * sdk::bytes_of(dtype_);
  const auto narrow = static_cast<int32_t>(value);
  if (dtype_ == Dtype::i64) {
    std::memcpy(to, &value, sizeof(value));
  } else if (dtype_ == Dtype::i32) {
    std::memcpy(to, &narrow, sizeof(narrow));
  } else {
    *to = static_cast<unsigned char>(value);
  }
  return *this;
}

Tensor& Tensor::fill(const std::function<double(int64_t flat)>& value) {
  for (int64_t i = 0; i < size(); ++i) set(i, value(i));
  return *this;
}

std::vector<unsigned char> Tensor::bits(int64_t begin, int64_t end) const {
  std::vector<unsigned char> all;
  const int64_t size = sdk::bytes_of(dtype_);
  for (int64_t i = begin; i < end; ++i) {
    const auto* from = bytes_.data() + offset(i) * size;
    all.insert(all.end(), from, from + size);
  }
  return all;
}

Tensor random_tensor(Dtype dtype, std::vector<int64_t> shape, double scale, uint32_t seed, Strides strides) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal(0.0, scale);
  Tensor tensor(dtype, std::move(shape), strides);
  return tensor.fill([&](int64_t) { return normal(engine); });
}

std::string name(Dtype dtype) {
  return sdk::name_of(dtype);
}

double ulp(Dtype dtype, double value) {
  int mantissa = 52, lowest = -1022;
  if (dtype == Dtype::f32) mantissa = 23, lowest = -126;
  if (dtype == Dtype::bf16) mantissa = 7, lowest = -126;
  if (dtype == Dtype::f16) mantissa = 10, lowest = -14;
  const int exponent = value == 0 || !std::isfinite(value) ? lowest : std::max(std::ilogb(value), lowest);
  return std::ldexp(1.0, exponent - mantissa);
}

::testing::AssertionResult matches(const Tensor& got, const golden::Output& expected, Dtype computed_in,
                                   double* worst) {
  if (static_cast<int64_t>(expected.value.size()) != got.size()) {
    return ::testing::AssertionFailure() << "golden has " << expected.value.size() << " elements, got " << got.size();
  }
  const double eps = computed_in == Dtype::f64 ? 0x1p-52 : 0x1p-23;
  for (int64_t i = 0; i < got.size(); ++i) {
    const double want = expected.value[static_cast<size_t>(i)];
    const double cond = expected.cond[static_cast<size_t>(i)];
    const double have = got.get(i);
    const auto fail = [&] {
      return ::testing::AssertionFailure() << "element " << i << " of " << name(got.dtype()) << ": got " << have
                                           << ", golden " << want << ", condition " << cond;
    };
    if (std::isinf(cond)) continue;
    if (std::isnan(want) || std::isinf(want)) {
      if (std::isnan(want) ? !std::isnan(have) : have != want) return fail();
      continue;
    }
    // Beyond the largest number a right result is an infinity.
    golden::View view = got.view();
    unsigned char rounded[8];
    golden::store(rounded, got.dtype(), want);
    view.data = rounded;
    if (view.load_at(0) == have) continue;
    const double excess = std::fabs(have - want) - ulp(got.dtype(), want);
    if (!(excess <= golden::kConditionFactor * eps * cond)) return fail();
    if (worst != nullptr && cond > 0) *worst = std::max(*worst, excess / (eps * cond));
  }
  return ::testing::AssertionSuccess();
}

void for_each_target(const std::function<void()>& body) {
  for_each_instruction_set([&](int64_t) { body(); });
}

cpu::ParallelFor backwards_parallel() {
  const auto run = [](void*, int64_t n, int64_t grain, void (*body)(void*, int64_t, int64_t), void* user) {
    for (int64_t begin = (n - 1) / grain * grain; begin >= 0; begin -= grain) {
      body(user, begin, std::min(begin + grain, n));
    }
  };
  return {nullptr, run, 3};
}

cpu::ParallelFor threads_parallel(int64_t threads) {
  static const int64_t kCounts[] = {1, 2, 3, 4, 5, 6, 7, 8};
  const auto run = [](void* ctx, int64_t n, int64_t grain, void (*body)(void*, int64_t, int64_t), void* user) {
    std::atomic<int64_t> next{0};
    const auto work = [&] {
      for (int64_t begin = next.fetch_add(grain); begin < n; begin = next.fetch_add(grain)) {
        body(user, begin, std::min(begin + grain, n));
      }
    };
    std::vector<std::jthread> others;
    for (int64_t i = 1; i < *static_cast<const int64_t*>(ctx); ++i) others.emplace_back(work);
    work();
  };
  return {const_cast<int64_t*>(&kCounts[threads - 1]), run, threads};
}

}  // namespace rlk::test
