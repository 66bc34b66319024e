// What does an operator of libopapi see of descriptors and executors? Owned by libnnopbase.so.
//
// Phase 1 collects the arguments in a Phase1, which checks them against the operator's documentation and makes an
// executor; phase 2 is the same for every operator.
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "state.h"

namespace fake_ascend {

struct Tensor {
  int32_t dtype = 0;
  std::vector<int64_t> dims;
  std::vector<int64_t> strides;  // elements
  int64_t offset = 0;            // elements, from the storage's start
  int64_t storage_elements = 0;
  void* data = nullptr;  // device address of the storage
  int held = 0;          // live repeatable executors that use it
};

struct Scalar {
  int32_t dtype = 0;
  double real = 0;
  int64_t integer = 0;
};

// A tensor argument while the command runs: `data` is where the simulator reads the first element.
struct View {
  bool present = false;
  int32_t dtype = 0;
  std::vector<int64_t> dims;
  std::vector<int64_t> strides;
  std::byte* data = nullptr;
};

struct Operands {
  std::vector<View> in;   // in the order of Phase1::in, lists flattened, absent ones not present
  std::vector<View> out;  // in the order of Phase1::out
};

using Kernel = std::function<int(const Operands&)>;  // on the stream's thread; not 0: the stream fails

FAKE_ASCEND_INTERNAL int64_t element_bytes(int32_t dtype);
FAKE_ASCEND_INTERNAL const char* dtype_name(int32_t dtype);
FAKE_ASCEND_INTERNAL int64_t element_count(const std::vector<int64_t>& dims);
FAKE_ASCEND_INTERNAL bool is_contiguous(const Tensor& tensor);
FAKE_ASCEND_INTERNAL std::string shape_text(const std::vector<int64_t>& dims);

using Dtypes = std::initializer_list<int32_t>;

class FAKE_ASCEND_INTERNAL Phase1 {
public:
  Phase1(const char* op, uint64_t* workspace_bytes, aclOpExecutor** executor);
  ~Phase1();
  Phase1(const Phase1&) = delete;
  Phase1& operator=(const Phase1&) = delete;

  // Required arguments; a null, destroyed or wrongly typed one ends the phase. Never null: a stand-in after a failure.
  const Tensor& in(const char* name, const aclTensor* tensor, Dtypes dtypes);
  const Tensor& in_list(const char* name, const aclTensorList* list, Dtypes dtypes);  // of exactly one tensor
  const Tensor& out(const char* name, const aclTensor* tensor, Dtypes dtypes);
  // The operator updates the tensor in place: one argument, an input of the executor.
  const Tensor& in_out(const char* name, const aclTensor* tensor, Dtypes dtypes);
  // Absent is null; still counts as an argument.
  const Tensor* optional_in(const char* name, const aclTensor* tensor, Dtypes dtypes);
  Scalar scalar(const char* name, const aclScalar* scalar);
  std::vector<int64_t> ints(const char* name, const aclIntArray* array);
  std::vector<int64_t> optional_ints(const aclIntArray* array);

  // A documented condition; when it does not hold the phase returns 161002.
  void require(bool holds, const char* text) {
    if (!holds) require(false, std::string(text));
  }
  void require(bool holds, const std::string& text);
  bool failed() const { return code_ != 0; }
  // Makes the executor unless something failed. The status to return.
  aclnnStatus finish(Kernel kernel);

private:
  struct Build;
  const Tensor& add(const char* name, const aclTensor* tensor, Dtypes dtypes, bool output);
  Build* build_;
  int code_ = 0;
};

FAKE_ASCEND_INTERNAL aclnnStatus phase2(const char* op, void* workspace, uint64_t workspace_bytes,
                                        aclOpExecutor* executor, aclrtStream stream);

}  // namespace fake_ascend
