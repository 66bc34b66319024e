// What is a call of the simulated CNNL? Its handle and descriptors are live, its operands dense device memory of the
// right dtype, its workspace is what the query asked for; then it runs on the handle's queue.
#pragma once

#include <atomic>
#include <initializer_list>

#include "tests/fakes/runtime/bridge.hpp"

namespace fake_cnnl {

constexpr int kBadParam = 3, kInternal = 4, kExecutionFailed = 6, kNotSupported = 7;
constexpr int kHalf = 1, kFloat = 2, kInt16 = 4, kInt32 = 6, kUint8 = 7, kBool = 8;
constexpr size_t kWorkspace = 384;  // bytes that every operator with a query asks for

struct Context {
  int device = 0;
  bool has_queue = false;
  void* queue = nullptr;
  std::atomic<bool> busy{false};
};
struct Tensor {
  bool is_set = false;
  int dtype = 0;
  std::vector<int> dims, strides;
  bool dense = true;
};
struct OpTensor {
  int operation = -1;
};
struct Reduction {
  int axis = 0, operation = -1, nan = 0, indices = 0;
};
fake::Handles<Context>& contexts();
fake::Handles<Tensor>& tensors();
fake::Handles<OpTensor>& op_tensors();
fake::Handles<Reduction>& reductions();

int64_t count(const std::vector<int>& dims);

// An operand while the call runs.
struct View {
  std::shared_ptr<const Tensor> tensor;
  std::byte* data = nullptr;
  const void* address = nullptr;
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data);
  }
};

class Call {
public:
  Call(void* handle, const char* name);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // strides: gaps are fine here.
  const Tensor& in(void* desc, const void* data, std::initializer_list<int> dtypes, bool strides = false) {
    return add(desc, data, dtypes, strides, false);
  }
  const Tensor& out(void* desc, void* data, std::initializer_list<int> dtypes, bool strides = false) {
    return add(desc, data, dtypes, strides, true);
  }
  void workspace(void* data, size_t bytes);
  void require(bool holds) {
    if (!holds && status_ == 0) status_ = kBadParam;
  }
  // in_place: an output may be an input's very memory. The lambda gets the operands in the order they were added.
  int run(bool in_place, std::function<void(std::vector<View>&)> compute);
  int status() const { return status_; }

private:
  const Tensor& add(void* desc, const void* data, std::initializer_list<int> dtypes, bool strides, bool output);
  void check_overlap(bool in_place) const;

  const char* name_;
  const void* const handle_;
  int status_ = 0;
  std::shared_ptr<Context> context_;
  struct Operand {
    View view;
    fake::Range range;
    bool output;
  };
  std::vector<Operand> operands_;
  void* scratch_ = nullptr;
};

// A query of a workspace.
int answer(void* handle, const char* name, size_t* bytes, std::initializer_list<void*> descs);

}  // namespace fake_cnnl
