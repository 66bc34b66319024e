// A pack's library: functions with tvm-ffi's ABI as tvm-ffi's compilers export them. One is right, one forgets a case.
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

typedef struct {
  void* data;
  int32_t device_type, device_id, ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
} Tensor;
typedef struct {
  int32_t type_index;
  uint32_t small_length;
  union {
    int64_t i64;
    const Tensor* tensor;
  } value;
} Argument;

static int64_t count(const Tensor* tensor) {
  int64_t n = 1;
  for (int32_t i = 0; i < tensor->ndim; ++i) n *= tensor->shape[i];
  return n;
}

// relu(x, y)
EXPORT int __tvm_ffi_relu(void* self, const Argument* arguments, int32_t n_arguments, Argument* result) {
  const float* x = (const float*)arguments[0].value.tensor->data;
  float* y = (float*)arguments[1].value.tensor->data;
  const int64_t n = count(arguments[0].value.tensor);
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] < 0 ? 0 : x[i];
  (void)self, (void)n_arguments, (void)result;
  return 0;
}

EXPORT int __tvm_ffi_identity(void* self, const Argument* arguments, int32_t n_arguments, Argument* result) {
  const float* x = (const float*)arguments[0].value.tensor->data;
  float* y = (float*)arguments[1].value.tensor->data;
  const int64_t n = count(arguments[0].value.tensor);
  for (int64_t i = 0; i < n; ++i) y[i] = x[i];
  (void)self, (void)n_arguments, (void)result;
  return 0;
}
