// A test of the simulated Ascend runtime: initialises it, selects device 0, owns a stream, and makes device tensors in
// one line. Each rule's violation is seeded in a child process (death test).
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <vector>

#include "aclnn_api.h"

namespace ascend_fake {

inline int32_t acl_dtype(float) {
  return ACL_FLOAT;
}
inline int32_t acl_dtype(double) {
  return ACL_DOUBLE;
}
inline int32_t acl_dtype(int32_t) {
  return ACL_INT32;
}
inline int32_t acl_dtype(int64_t) {
  return ACL_INT64;
}
inline int32_t acl_dtype(uint8_t) {
  return ACL_UINT8;
}

class Fixture : public ::testing::Test {
protected:
  static void SetUpTestSuite() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  void SetUp() override {
    const int code = aclInit(nullptr);
    ASSERT_TRUE(code == ACL_SUCCESS || code == ACL_ERROR_REPEAT_INITIALIZE);
    ASSERT_EQ(aclrtSetDevice(0), ACL_SUCCESS);
    ASSERT_EQ(aclrtCreateStream(&stream), ACL_SUCCESS);
  }

  // What a test leaves behind is the next test's business only where a rule says so, so everything is given back.
  void TearDown() override {
    EXPECT_EQ(aclrtSynchronizeStream(stream), ACL_SUCCESS);
    EXPECT_EQ(aclrtDestroyStream(stream), ACL_SUCCESS);
    for (const aclTensor* tensor : tensors_) aclDestroyTensor(tensor);
    for (const aclScalar* scalar : scalars_) aclDestroyScalar(scalar);
    for (const aclIntArray* array : arrays_) aclDestroyIntArray(array);
    for (void* memory : memory_) aclrtFree(memory);
  }

  void* allocate(size_t bytes) {
    void* memory = nullptr;
    EXPECT_EQ(aclrtMalloc(&memory, bytes, 0), ACL_SUCCESS);
    memory_.push_back(memory);
    return memory;
  }

  aclTensor* describe(void* data, int32_t dtype, const std::vector<int64_t>& dims) {
    aclTensor* tensor =
        aclCreateTensor(dims.data(), dims.size(), dtype, nullptr, 0, ACL_FORMAT_ND, dims.data(), dims.size(), data);
    tensors_.push_back(tensor);
    return tensor;
  }

  aclTensor* view(void* data, int32_t dtype, const std::vector<int64_t>& dims, const std::vector<int64_t>& strides,
                  int64_t offset, int64_t storage) {
    aclTensor* tensor =
        aclCreateTensor(dims.data(), dims.size(), dtype, strides.data(), offset, ACL_FORMAT_ND, &storage, 1, data);
    tensors_.push_back(tensor);
    return tensor;
  }

  // A contiguous tensor with these values; `memory` receives its address.
  template <typename T>
  aclTensor* tensor(const std::vector<int64_t>& dims, const std::vector<T>& values, void** memory = nullptr,
                    int32_t dtype = acl_dtype(T{})) {
    void* data = allocate(values.size() * sizeof(T));
    EXPECT_EQ(aclrtMemcpy(data, values.size() * sizeof(T), values.data(), values.size() * sizeof(T),
                          ACL_MEMCPY_HOST_TO_DEVICE),
              ACL_SUCCESS);
    if (memory != nullptr) *memory = data;
    return describe(data, dtype, dims);
  }

  template <typename T>
  aclTensor* empty_like(const std::vector<int64_t>& dims, void** memory, int32_t dtype = acl_dtype(T{})) {
    const int64_t count = std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
    *memory = allocate(static_cast<size_t>(count) * sizeof(T));
    return describe(*memory, dtype, dims);
  }

  template <typename T>
  aclScalar* scalar(T value) {
    aclScalar* created = aclCreateScalar(&value, acl_dtype(T{}));
    scalars_.push_back(created);
    return created;
  }

  aclIntArray* ints(const std::vector<int64_t>& values) {
    aclIntArray* created = aclCreateIntArray(values.data(), values.size());
    arrays_.push_back(created);
    return created;
  }

  // Both phases and the wait.
  template <typename Phase1, typename Phase2, typename... Arguments>
  aclnnStatus call(Phase1 phase1, Phase2 phase2, Arguments... arguments) {
    uint64_t bytes = 0;
    aclOpExecutor* executor = nullptr;
    if (const aclnnStatus status = phase1(arguments..., &bytes, &executor); status != ACL_SUCCESS) return status;
    if (const aclnnStatus status = phase2(allocate(bytes), bytes, executor, stream); status != ACL_SUCCESS) {
      return status;
    }
    return aclrtSynchronizeStream(stream);
  }

  template <typename T>
  std::vector<T> read(const void* memory, size_t count) {
    std::vector<T> values(count);
    EXPECT_EQ(aclrtMemcpy(values.data(), count * sizeof(T), memory, count * sizeof(T), ACL_MEMCPY_DEVICE_TO_HOST),
              ACL_SUCCESS);
    return values;
  }

  aclrtStream stream = nullptr;

private:
  std::vector<void*> memory_;
  std::vector<const aclTensor*> tensors_;
  std::vector<const aclScalar*> scalars_;
  std::vector<const aclIntArray*> arrays_;
};

}  // namespace ascend_fake
