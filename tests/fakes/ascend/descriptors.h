// Which descriptors and executors are live? Tables private to libnnopbase.so.
#pragma once

#include "handles.h"
#include "nnopbase.h"

namespace fake_ascend {

struct IntArray {
  std::vector<int64_t> values;
};
struct FloatArray {
  std::vector<float> values;
};
struct BoolArray {
  std::vector<bool> values;
};
struct TensorList {
  std::vector<const aclTensor*> members;
};

HandleTable<Tensor>& tensors();
HandleTable<Scalar>& scalars();
HandleTable<IntArray>& int_arrays();
HandleTable<FloatArray>& float_arrays();
HandleTable<BoolArray>& bool_arrays();
HandleTable<TensorList>& tensor_lists();

uint64_t live_descriptor_count();

}  // namespace fake_ascend
