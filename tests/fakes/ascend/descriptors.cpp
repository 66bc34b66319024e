// How are tensors, scalars and arrays described to aclnn? Creation checks what a descriptor can be checked for alone.
#include "descriptors.h"

#include <cstring>

namespace fake_ascend {

int64_t element_bytes(int32_t dtype) {
  switch (dtype) {
    case ACL_FLOAT:
    case ACL_INT32:
      return 4;
    case ACL_FLOAT16:
    case ACL_BF16:
      return 2;
    case ACL_INT64:
    case ACL_DOUBLE:
      return 8;
    case ACL_INT8:
    case ACL_UINT8:
    case ACL_BOOL:
      return 1;
    default:
      return 0;
  }
}

const char* dtype_name(int32_t dtype) {
  switch (dtype) {
    case ACL_FLOAT:
      return "FLOAT";
    case ACL_FLOAT16:
      return "FLOAT16";
    case ACL_BF16:
      return "BF16";
    case ACL_DOUBLE:
      return "DOUBLE";
    case ACL_INT8:
      return "INT8";
    case ACL_INT32:
      return "INT32";
    case ACL_INT64:
      return "INT64";
    case ACL_UINT8:
      return "UINT8";
    case ACL_BOOL:
      return "BOOL";
    default:
      return "unknown";
  }
}

int64_t element_count(const std::vector<int64_t>& dims) {
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  return count;
}

bool is_contiguous(const Tensor& tensor) {
  int64_t expected = 1;
  for (size_t i = tensor.dims.size(); i-- > 0;) {
    if (tensor.dims[i] != 1 && tensor.strides[i] != expected) return false;
    expected *= tensor.dims[i];
  }
  return true;
}

std::string shape_text(const std::vector<int64_t>& dims) {
  std::string text = "[";
  for (const int64_t dim : dims) text += (text.size() > 1 ? ", " : "") + std::to_string(dim);
  return text + "]";
}

HandleTable<Tensor>& tensors() {
  static auto* const table = new HandleTable<Tensor>(16, "aclTensor");
  return *table;
}
HandleTable<Scalar>& scalars() {
  static auto* const table = new HandleTable<Scalar>(17, "aclScalar");
  return *table;
}
HandleTable<IntArray>& int_arrays() {
  static auto* const table = new HandleTable<IntArray>(18, "aclIntArray");
  return *table;
}
HandleTable<FloatArray>& float_arrays() {
  static auto* const table = new HandleTable<FloatArray>(19, "aclFloatArray");
  return *table;
}
HandleTable<BoolArray>& bool_arrays() {
  static auto* const table = new HandleTable<BoolArray>(20, "aclBoolArray");
  return *table;
}
HandleTable<TensorList>& tensor_lists() {
  static auto* const table = new HandleTable<TensorList>(21, "aclTensorList");
  return *table;
}

uint64_t live_descriptor_count() {
  return tensors().size() + scalars().size() + int_arrays().size() + float_arrays().size() + bool_arrays().size() +
         tensor_lists().size();
}

namespace {

template <typename T>
aclnnStatus destroy(HandleTable<T>& table, const void* handle, const char* call) {
  if (const int code = begin(call, Needs::kNothing)) return code;
  if (table.get(handle, call) == nullptr) return ACLNN_ERR_PARAM_INVALID;
  table.remove(handle);
  return ACL_SUCCESS;
}

aclnnStatus destroy_tensor(const aclTensor* tensor, const char* call) {
  const auto found = tensors().get(tensor, call);
  if (found == nullptr) return ACLNN_ERR_PARAM_INVALID;
  if (found->held > 0) {
    if (const int code = violation("DESCRIPTOR_IN_USE", std::string(call) + ": a repeatable executor holds the tensor "
                                                                            "and destroys it with itself")) {
      return code;
    }
  }
  tensors().remove(tensor);
  return ACL_SUCCESS;
}

}  // namespace
}  // namespace fake_ascend

using namespace fake_ascend;

aclTensor* aclCreateTensor(const int64_t* view_dims, uint64_t view_dims_num, int32_t dtype, const int64_t* strides,
                           int64_t offset, int32_t format, const int64_t* storage_dims, uint64_t storage_dims_num,
                           void* data) {
  if (begin(__func__, Needs::kNothing) != 0) return nullptr;
  if ((view_dims == nullptr && view_dims_num > 0) || (storage_dims == nullptr && storage_dims_num > 0) ||
      element_bytes(dtype) == 0 || format != ACL_FORMAT_ND || view_dims_num > 8) {
    fail(ACLNN_ERR_PARAM_INVALID, "aclCreateTensor: null shape, unknown dtype, format other than ND or over 8 dims");
    return nullptr;
  }
  auto tensor = std::make_shared<Tensor>();
  tensor->dtype = dtype;
  tensor->dims.assign(view_dims, view_dims + view_dims_num);
  if (strides != nullptr)
    tensor->strides.assign(strides, strides + view_dims_num);
  else {
    tensor->strides.resize(view_dims_num);
    int64_t stride = 1;
    for (size_t i = view_dims_num; i-- > 0; stride *= view_dims[i]) tensor->strides[i] = stride;
  }
  tensor->offset = offset;
  tensor->storage_elements = element_count({storage_dims, storage_dims + storage_dims_num});
  tensor->data = data;
  int64_t last = offset;
  for (size_t i = 0; i < view_dims_num; ++i) {
    if (tensor->dims[i] < 0 || tensor->strides[i] < 0) {
      fail(ACLNN_ERR_PARAM_INVALID, "aclCreateTensor: negative size or stride");
      return nullptr;
    }
    last += (tensor->dims[i] - 1) * tensor->strides[i];
  }
  if (element_count(tensor->dims) > 0 && (offset < 0 || last >= tensor->storage_elements)) {
    violation("OUT_OF_BOUNDS", "aclCreateTensor: the view " + shape_text(tensor->dims) + " at offset " +
                                   std::to_string(offset) + " reaches element " + std::to_string(last) +
                                   " of a storage of " + std::to_string(tensor->storage_elements));
    return nullptr;
  }
  return static_cast<aclTensor*>(tensors().add(tensor));
}

aclScalar* aclCreateScalar(void* value, int32_t dtype) {
  if (begin(__func__, Needs::kNothing) != 0) return nullptr;
  auto scalar = std::make_shared<Scalar>();
  scalar->dtype = dtype;
  const auto read = [&](auto typed) {
    std::memcpy(&typed, value, sizeof typed);
    scalar->real = static_cast<double>(typed);
    scalar->integer = static_cast<int64_t>(typed);
  };
  if (dtype == ACL_FLOAT || dtype == ACL_DOUBLE) {
    // Only the floating value is meant: NaN and infinities have no integer one.
    float single = 0;
    double number = 0;
    if (dtype == ACL_FLOAT)
      std::memcpy(&single, value, sizeof single);
    else
      std::memcpy(&number, value, sizeof number);
    scalar->real = dtype == ACL_FLOAT ? static_cast<double>(single) : number;
  } else if (dtype == ACL_INT32)
    read(int32_t{});
  else if (dtype == ACL_INT64)
    read(int64_t{});
  else if (dtype == ACL_UINT8 || dtype == ACL_BOOL)
    read(uint8_t{});
  else {
    fail(ACLNN_ERR_PARAM_INVALID, "aclCreateScalar: this simulator takes FLOAT, DOUBLE, INT32, INT64, UINT8, BOOL");
    return nullptr;
  }
  return static_cast<aclScalar*>(scalars().add(scalar));
}

aclIntArray* aclCreateIntArray(const int64_t* values, uint64_t size) {
  if (begin(__func__, Needs::kNothing) != 0) return nullptr;
  return static_cast<aclIntArray*>(
      int_arrays().add(std::make_shared<IntArray>(IntArray{std::vector<int64_t>(values, values + size)})));
}

aclFloatArray* aclCreateFloatArray(const float* values, uint64_t size) {
  if (begin(__func__, Needs::kNothing) != 0) return nullptr;
  return static_cast<aclFloatArray*>(
      float_arrays().add(std::make_shared<FloatArray>(FloatArray{std::vector<float>(values, values + size)})));
}

aclBoolArray* aclCreateBoolArray(const bool* values, uint64_t size) {
  if (begin(__func__, Needs::kNothing) != 0) return nullptr;
  return static_cast<aclBoolArray*>(
      bool_arrays().add(std::make_shared<BoolArray>(BoolArray{std::vector<bool>(values, values + size)})));
}

aclTensorList* aclCreateTensorList(const aclTensor* const* members, uint64_t size) {
  if (begin(__func__, Needs::kNothing) != 0) return nullptr;
  auto list = std::make_shared<TensorList>();
  for (uint64_t i = 0; i < size; ++i) {
    if (tensors().get(members[i], __func__) == nullptr) return nullptr;
    list->members.push_back(members[i]);
  }
  return static_cast<aclTensorList*>(tensor_lists().add(list));
}

aclnnStatus aclDestroyTensor(const aclTensor* tensor) {
  FAKE_ASCEND_ENTER(kNothing);
  return destroy_tensor(tensor, __func__);
}

aclnnStatus aclDestroyScalar(const aclScalar* scalar) {
  return destroy(scalars(), scalar, __func__);
}
aclnnStatus aclDestroyIntArray(const aclIntArray* array) {
  return destroy(int_arrays(), array, __func__);
}
aclnnStatus aclDestroyFloatArray(const aclFloatArray* array) {
  return destroy(float_arrays(), array, __func__);
}
aclnnStatus aclDestroyBoolArray(const aclBoolArray* array) {
  return destroy(bool_arrays(), array, __func__);
}

aclnnStatus aclDestroyTensorList(const aclTensorList* list) {
  FAKE_ASCEND_ENTER(kNothing);
  const auto found = tensor_lists().get(list, __func__);
  if (found == nullptr) return ACLNN_ERR_PARAM_INVALID;
  for (const aclTensor* member : found->members) {
    if (const int code = destroy_tensor(member, __func__)) return code;
  }
  tensor_lists().remove(list);
  return ACL_SUCCESS;
}

aclnnStatus aclSetRawTensorAddr(aclTensor* tensor, void* address) {
  FAKE_ASCEND_ENTER(kNothing);
  const auto found = tensors().get(tensor, __func__);
  if (found == nullptr) return ACLNN_ERR_PARAM_INVALID;
  found->data = address;
  return ACL_SUCCESS;
}
