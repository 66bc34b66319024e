// What CNNL's calls are given beside memory: handles that live for one call.
#pragma once

#include "program.hpp"

namespace rlk::cambricon {

// What create made, for one call.
class Owned {
public:
  Owned(int (*create)(void**), int (*destroy)(void*), const char* name) : destroy_(destroy) {
    check_cnnl(create(&handle_), name);
  }
  ~Owned() { destroy_(handle_); }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  operator void*() const { return handle_; }

private:
  void* handle_ = nullptr;
  int (*destroy_)(void*);
};

class Descriptor : public Owned {
public:
  explicit Descriptor(const Operand& operand)
      : Owned(runtime().cnnlCreateTensorDescriptor, runtime().cnnlDestroyTensorDescriptor,
              "cnnlCreateTensorDescriptor") {
    const auto dims = static_cast<int>(operand.dims.size());
    if (operand.strides.empty()) {
      check_cnnl(runtime().cnnlSetTensorDescriptor(*this, kArray, operand.dtype, dims, operand.dims.data()),
                 "cnnlSetTensorDescriptor");
    } else {
      check_cnnl(runtime().cnnlSetTensorDescriptorEx(*this, kArray, operand.dtype, dims, operand.dims.data(),
                                                     operand.strides.data()),
                 "cnnlSetTensorDescriptorEx");
    }
  }
};

}  // namespace rlk::cambricon
