// What plugins/tvmffi re-declares of tvm-ffi and DLPack, beside their headers.
#include <tvm/ffi/c_api.h>
#include <tvm/ffi/extra/c_env_api.h>

#include "plugins/tvmffi/abi.hpp"
#include "same.hpp"

using namespace rlk::tvmffi;

#define SAME_FIELD(Ours, ours, Theirs, theirs)                                          \
  static_assert(offsetof(Ours, ours) == offsetof(Theirs, theirs), #Theirs "." #theirs); \
  static_assert(sizeof(Ours::ours) == sizeof(Theirs::theirs), #Theirs "." #theirs)

static_assert(sizeof(DlDevice) == sizeof(DLDevice));
SAME_FIELD(DlDevice, type, DLDevice, device_type);
SAME_FIELD(DlDevice, id, DLDevice, device_id);
static_assert(sizeof(DlDtype) == sizeof(DLDataType));
SAME_FIELD(DlDtype, code, DLDataType, code);
SAME_FIELD(DlDtype, bits, DLDataType, bits);
SAME_FIELD(DlDtype, lanes, DLDataType, lanes);
static_assert(sizeof(DlTensor) == sizeof(DLTensor));
SAME_FIELD(DlTensor, data, DLTensor, data);
SAME_FIELD(DlTensor, device, DLTensor, device);
SAME_FIELD(DlTensor, ndim, DLTensor, ndim);
SAME_FIELD(DlTensor, dtype, DLTensor, dtype);
SAME_FIELD(DlTensor, shape, DLTensor, shape);
SAME_FIELD(DlTensor, strides, DLTensor, strides);
SAME_FIELD(DlTensor, byte_offset, DLTensor, byte_offset);
static_assert(sizeof(DlManagedTensor) == sizeof(DLManagedTensorVersioned));
SAME_FIELD(DlManagedTensor, version, DLManagedTensorVersioned, version);
SAME_FIELD(DlManagedTensor, context, DLManagedTensorVersioned, manager_ctx);
SAME_FIELD(DlManagedTensor, deleter, DLManagedTensorVersioned, deleter);
SAME_FIELD(DlManagedTensor, flags, DLManagedTensorVersioned, flags);
SAME_FIELD(DlManagedTensor, tensor, DLManagedTensorVersioned, dl_tensor);
static_assert(sizeof(Object) == sizeof(TVMFFIObject));
SAME_FIELD(Object, reference_counts, TVMFFIObject, combined_ref_count);
SAME_FIELD(Object, type_index, TVMFFIObject, type_index);
SAME_FIELD(Object, deleter, TVMFFIObject, deleter);
static_assert(sizeof(Any) == sizeof(TVMFFIAny));
SAME_FIELD(Any, type_index, TVMFFIAny, type_index);
SAME_FIELD(Any, small_length, TVMFFIAny, small_str_len);
SAME_FIELD(Any, i64, TVMFFIAny, v_int64);
SAME_FIELD(Any, f64, TVMFFIAny, v_float64);
SAME_FIELD(Any, pointer, TVMFFIAny, v_ptr);
SAME_FIELD(Any, text, TVMFFIAny, v_c_str);
SAME_FIELD(Any, object, TVMFFIAny, v_obj);
SAME_FIELD(Any, bytes, TVMFFIAny, v_bytes);
static_assert(sizeof(Bytes) == sizeof(TVMFFIByteArray));
SAME_FIELD(Bytes, data, TVMFFIByteArray, data);
SAME_FIELD(Bytes, size, TVMFFIByteArray, size);
static_assert(sizeof(ErrorCell) <= sizeof(TVMFFIErrorCell));
SAME_FIELD(ErrorCell, kind, TVMFFIErrorCell, kind);
SAME_FIELD(ErrorCell, message, TVMFFIErrorCell, message);

static_assert(kDlCpu == kDLCPU && kDlCuda == kDLCUDA && kDlCudaHost == kDLCUDAHost && kDlRocm == kDLROCM);
static_assert(kDlRocmHost == kDLROCMHost && kDlExtDev == kDLExtDev && kDlCudaManaged == kDLCUDAManaged);
static_assert(kDlUint == kDLUInt);
static_assert(kNone == kTVMFFINone && kInt == kTVMFFIInt && kBool == kTVMFFIBool && kFloat == kTVMFFIFloat);
static_assert(kDlTensorPtr == kTVMFFIDLTensorPtr && kRawStr == kTVMFFIRawStr && kSmallStr == kTVMFFISmallStr);
static_assert(kObjectBegin == kTVMFFIStaticObjectBegin && kStr == kTVMFFIStr && kError == kTVMFFIError);
static_assert(kOpaquePtr == kTVMFFIOpaquePtr && kTensor == kTVMFFITensor);

static_assert(rlk::headers::is_same_call<Function, TVMFFISafeCallType>);
static_assert(rlk::headers::is_same_call<Allocator, DLPackManagedTensorAllocator>);
#define SAME_CALL(member, symbol, ...) \
  static_assert(rlk::headers::is_same_call<decltype(Library::member), decltype(&symbol)>, #symbol);
RLK_TVMFFI_LIBRARY(SAME_CALL)
RLK_TVMFFI_OPTIONAL(SAME_CALL)
