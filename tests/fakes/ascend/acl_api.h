/* What does the simulated Ascend runtime export? The types, numbers and prototypes of AscendCL and of the aclnn base
 * library, written from the public documentation (CANN 8.1; entries of 9.x are marked). Return values: 0 is success.
 * The operators are in opapi/aclnn_api.h. */
#ifndef RLK_TESTS_FAKES_ASCEND_ACL_API_H
#define RLK_TESTS_FAKES_ASCEND_ACL_API_H

#include <stddef.h>
#include <stdint.h>

#define FAKE_ASCEND_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

typedef int aclError;
typedef int32_t aclnnStatus;
typedef void* aclrtContext;
typedef void* aclrtStream;
typedef void* aclrtEvent;
typedef void* aclmdlRI;
typedef struct aclTensor aclTensor;
typedef struct aclScalar aclScalar;
typedef struct aclIntArray aclIntArray;
typedef struct aclFloatArray aclFloatArray;
typedef struct aclBoolArray aclBoolArray;
typedef struct aclTensorList aclTensorList;
typedef struct aclOpExecutor aclOpExecutor;
typedef void (*aclrtCallback)(void* user_data);

enum {
  ACL_SUCCESS = 0,
  ACL_ERROR_INVALID_PARAM = 100000,
  ACL_ERROR_UNINITIALIZE = 100001,
  ACL_ERROR_REPEAT_INITIALIZE = 100002,
  ACL_ERROR_REPEAT_FINALIZE = 100037,
  ACL_ERROR_API_NOT_SUPPORT = 200001,
  ACL_ERROR_RT_PARAM_INVALID = 107000,
  ACL_ERROR_RT_INVALID_DEVICEID = 107001,
  ACL_ERROR_RT_CONTEXT_NULL = 107002,
  ACL_ERROR_RT_STREAM_CONTEXT = 107003,
  ACL_ERROR_RT_INVALID_HANDLE = 107017,
  ACL_ERROR_RT_CAPTURE_DEPENDENCY = 107024,
  ACL_ERROR_RT_STREAM_UNJOINED = 107025,
  ACL_ERROR_RT_MODEL_CAPTURED = 107026,
  ACL_ERROR_RT_STREAM_CAPTURED = 107027,
  ACL_ERROR_RT_EVENT_CAPTURED = 107028,
  ACL_ERROR_RT_STREAM_NOT_CAPTURED = 107029,
  ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT = 107030,
  ACL_ERROR_RT_STREAM_CAPTURE_IMPLICIT = 107031,
  ACL_ERROR_STREAM_CAPTURE_CONFLICT = 107032,
  ACL_ERROR_RT_STREAM_CAPTURE_UNMATCHED = 107036,
  ACL_ERROR_RT_MODEL_RUNNING = 107037,
  ACL_ERROR_RT_STREAM_CAPTURE_WRONG_THREAD = 107038,
  ACL_ERROR_RT_FEATURE_NOT_SUPPORT = 207000,
  ACL_ERROR_RT_MEMORY_ALLOCATION = 207001,
  ACL_ERROR_RT_NO_DEVICE = 207004,
  ACL_ERROR_RT_REPORT_TIMEOUT = 107020,
  ACL_ERROR_RT_LOST_HEARTBEAT = 507010,
  ACL_ERROR_RT_AICORE_EXCEPTION = 507015,
  ACL_ERROR_RT_STREAM_SYNC_TIMEOUT = 507046,
  ACL_ERROR_RT_EVENT_SYNC_TIMEOUT = 507047,
  ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED = 507903,
  ACLNN_ERR_PARAM_NULLPTR = 161001,
  ACLNN_ERR_PARAM_INVALID = 161002,
  ACLNN_ERR_RUNTIME_ERROR = 361001,
  ACLNN_ERR_INNER_FIND_KERNEL_ERROR = 561003
};

enum { ACL_MEMCPY_HOST_TO_HOST, ACL_MEMCPY_HOST_TO_DEVICE, ACL_MEMCPY_DEVICE_TO_HOST, ACL_MEMCPY_DEVICE_TO_DEVICE };
enum { ACL_DDR_MEM = 0, ACL_HBM_MEM = 1 };
enum { ACL_STREAM_STATUS_COMPLETE = 0, ACL_STREAM_STATUS_NOT_READY = 1 };
enum { ACL_EVENT_RECORDED_STATUS_NOT_READY = 0, ACL_EVENT_RECORDED_STATUS_COMPLETE = 1 };
enum { ACL_EVENT_SYNC = 1, ACL_EVENT_CAPTURE_STREAM_PROGRESS = 2, ACL_EVENT_TIME_LINE = 8 };
enum {
  ACL_MODEL_RI_CAPTURE_MODE_GLOBAL = 0,
  ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL = 1,
  ACL_MODEL_RI_CAPTURE_MODE_RELAXED = 2
};
enum {
  ACL_MODEL_RI_CAPTURE_STATUS_NONE = 0,
  ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE = 1,
  ACL_MODEL_RI_CAPTURE_STATUS_INVALIDATED = 2
};
enum { ACL_CALLBACK_NO_BLOCK = 0, ACL_CALLBACK_BLOCK = 1 };
enum { ACL_DEVICE = 0, ACL_HOST = 1 };
enum { ACL_FORMAT_ND = 2 };
enum {
  ACL_FLOAT = 0,
  ACL_FLOAT16 = 1,
  ACL_INT8 = 2,
  ACL_INT32 = 3,
  ACL_UINT8 = 4,
  ACL_INT64 = 9,
  ACL_DOUBLE = 11,
  ACL_BOOL = 12,
  ACL_BF16 = 27
};

/* --- libascendcl.so: process, device, context --------------------------------------------------------------------- */
FAKE_ASCEND_API aclError aclInit(const char* config_path);
FAKE_ASCEND_API aclError aclFinalize(void);
FAKE_ASCEND_API aclError aclrtGetVersion(int32_t* major, int32_t* minor, int32_t* patch);
FAKE_ASCEND_API const char* aclrtGetSocName(void);
FAKE_ASCEND_API const char* aclGetRecentErrMsg(void);
FAKE_ASCEND_API aclError aclrtGetDeviceCount(uint32_t* count);
FAKE_ASCEND_API aclError aclrtSetDevice(int32_t device);
FAKE_ASCEND_API aclError aclrtResetDevice(int32_t device);
FAKE_ASCEND_API aclError aclrtGetDevice(int32_t* device);
FAKE_ASCEND_API aclError aclrtSynchronizeDevice(void);
FAKE_ASCEND_API aclError aclrtGetRunMode(int32_t* run_mode);
FAKE_ASCEND_API aclError aclGetDeviceCapability(uint32_t device, int32_t info, int64_t* value);
FAKE_ASCEND_API aclError aclrtDeviceCanAccessPeer(int32_t* can_access, int32_t device, int32_t peer);
FAKE_ASCEND_API aclError aclrtCreateContext(aclrtContext* context, int32_t device);
FAKE_ASCEND_API aclError aclrtDestroyContext(aclrtContext context);
FAKE_ASCEND_API aclError aclrtSetCurrentContext(aclrtContext context);
FAKE_ASCEND_API aclError aclrtGetCurrentContext(aclrtContext* context);

/* --- memory ------------------------------------------------------------------------------------------------------- */
FAKE_ASCEND_API aclError aclrtMalloc(void** pointer, size_t size, int32_t policy);
FAKE_ASCEND_API aclError aclrtFree(void* pointer);
FAKE_ASCEND_API aclError aclrtMallocHost(void** pointer, size_t size);
FAKE_ASCEND_API aclError aclrtFreeHost(void* pointer);
FAKE_ASCEND_API aclError aclrtMemcpy(void* dst, size_t dest_max, const void* src, size_t count, int32_t kind);
FAKE_ASCEND_API aclError aclrtMemcpyAsync(void* dst, size_t dest_max, const void* src, size_t count, int32_t kind,
                                          aclrtStream stream);
FAKE_ASCEND_API aclError aclrtMemset(void* pointer, size_t max_count, int32_t value, size_t count);
FAKE_ASCEND_API aclError aclrtMemsetAsync(void* pointer, size_t max_count, int32_t value, size_t count,
                                          aclrtStream stream);
FAKE_ASCEND_API aclError aclrtGetMemInfo(int32_t attribute, size_t* free, size_t* total);

/* --- streams, events, callbacks ----------------------------------------------------------------------------------- */
FAKE_ASCEND_API aclError aclrtCreateStream(aclrtStream* stream);
FAKE_ASCEND_API aclError aclrtCreateStreamWithConfig(aclrtStream* stream, uint32_t priority, uint32_t flag);
FAKE_ASCEND_API aclError aclrtDestroyStream(aclrtStream stream);
FAKE_ASCEND_API aclError aclrtDestroyStreamForce(aclrtStream stream);
FAKE_ASCEND_API aclError aclrtSynchronizeStream(aclrtStream stream);
FAKE_ASCEND_API aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t timeout_ms);
FAKE_ASCEND_API aclError aclrtStreamQuery(aclrtStream stream, int32_t* status);
FAKE_ASCEND_API aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event);
FAKE_ASCEND_API aclError aclrtCreateEvent(aclrtEvent* event);
FAKE_ASCEND_API aclError aclrtCreateEventWithFlag(aclrtEvent* event, uint32_t flag);
FAKE_ASCEND_API aclError aclrtCreateEventExWithFlag(aclrtEvent* event, uint32_t flag);
FAKE_ASCEND_API aclError aclrtDestroyEvent(aclrtEvent event);
FAKE_ASCEND_API aclError aclrtRecordEvent(aclrtEvent event, aclrtStream stream);
FAKE_ASCEND_API aclError aclrtQueryEventStatus(aclrtEvent event, int32_t* status);
FAKE_ASCEND_API aclError aclrtSynchronizeEvent(aclrtEvent event);
FAKE_ASCEND_API aclError aclrtSynchronizeEventWithTimeout(aclrtEvent event, int32_t timeout_ms);
FAKE_ASCEND_API aclError aclrtEventElapsedTime(float* ms, aclrtEvent start, aclrtEvent end);
FAKE_ASCEND_API aclError aclrtSubscribeReport(uint64_t thread_id, aclrtStream stream);
FAKE_ASCEND_API aclError aclrtUnSubscribeReport(uint64_t thread_id, aclrtStream stream);
FAKE_ASCEND_API aclError aclrtLaunchCallback(aclrtCallback fn, void* user_data, int32_t block_type, aclrtStream stream);
FAKE_ASCEND_API aclError aclrtProcessReport(int32_t timeout_ms);
/* 9.x only: dlsym finds it when RLK_FAKE_ASCEND_VERSION begins with 9, and finds nothing otherwise. */
typedef aclError (*aclrtGetDeviceInfoType)(uint32_t device, int32_t attribute, int64_t* value);
typedef aclError (*aclrtLaunchHostFuncType)(aclrtStream stream, void (*fn)(void*), void* user_data);

/* --- captures: dlsym finds nothing of them when RLK_FAKE_ASCEND_VERSION begins with 8.0 --------------------------- */
FAKE_ASCEND_API aclError aclmdlRICaptureBegin(aclrtStream stream, int32_t mode);
FAKE_ASCEND_API aclError aclmdlRICaptureGetInfo(aclrtStream stream, int32_t* status, aclmdlRI* model);
FAKE_ASCEND_API aclError aclmdlRICaptureEnd(aclrtStream stream, aclmdlRI* model);
FAKE_ASCEND_API aclError aclmdlRICaptureThreadExchangeMode(int32_t* mode);
FAKE_ASCEND_API aclError aclmdlRIExecuteAsync(aclmdlRI model, aclrtStream stream);
FAKE_ASCEND_API aclError aclmdlRIDestroy(aclmdlRI model);
/* 9.x only; of a function once per model */
FAKE_ASCEND_API aclError aclmdlRIDestroyRegisterCallback(aclmdlRI model, aclrtCallback fn, void* user_data);

/* --- libnnopbase.so: descriptors and executors -------------------------------------------------------------------- */
FAKE_ASCEND_API aclTensor* aclCreateTensor(const int64_t* view_dims, uint64_t view_dims_num, int32_t dtype,
                                           const int64_t* strides, int64_t offset, int32_t format,
                                           const int64_t* storage_dims, uint64_t storage_dims_num, void* data);
FAKE_ASCEND_API aclScalar* aclCreateScalar(void* value, int32_t dtype);
FAKE_ASCEND_API aclIntArray* aclCreateIntArray(const int64_t* values, uint64_t size);
FAKE_ASCEND_API aclFloatArray* aclCreateFloatArray(const float* values, uint64_t size);
FAKE_ASCEND_API aclBoolArray* aclCreateBoolArray(const bool* values, uint64_t size);
FAKE_ASCEND_API aclTensorList* aclCreateTensorList(const aclTensor* const* tensors, uint64_t size);
FAKE_ASCEND_API aclnnStatus aclDestroyTensor(const aclTensor* tensor);
FAKE_ASCEND_API aclnnStatus aclDestroyScalar(const aclScalar* scalar);
FAKE_ASCEND_API aclnnStatus aclDestroyIntArray(const aclIntArray* array);
FAKE_ASCEND_API aclnnStatus aclDestroyFloatArray(const aclFloatArray* array);
FAKE_ASCEND_API aclnnStatus aclDestroyBoolArray(const aclBoolArray* array);
/* Destroys the member tensors too. */
FAKE_ASCEND_API aclnnStatus aclDestroyTensorList(const aclTensorList* list);
FAKE_ASCEND_API aclnnStatus aclSetAclOpExecutorRepeatable(aclOpExecutor* executor);
/* Also destroys the tensors a repeatable executor holds. */
FAKE_ASCEND_API aclnnStatus aclDestroyAclOpExecutor(aclOpExecutor* executor);
/* index counts tensor parameters of that direction in the order of the operator's arguments, absent ones included; a
 * tensor list counts once. aclSetTensorAddr counts inputs, then outputs. */
FAKE_ASCEND_API aclnnStatus aclSetInputTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor,
                                                  void* address);
FAKE_ASCEND_API aclnnStatus aclSetOutputTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor,
                                                   void* address);
FAKE_ASCEND_API aclnnStatus aclSetDynamicInputTensorAddr(aclOpExecutor* executor, size_t ir_index,
                                                         const size_t relative_index, aclTensorList* list,
                                                         void* address);
FAKE_ASCEND_API aclnnStatus aclSetTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor,
                                             void* address);
FAKE_ASCEND_API aclnnStatus aclSetRawTensorAddr(aclTensor* tensor, void* address);

/* --- control, of the simulator alone ------------------------------------------------------------------------------ */
/* Violations so far (RLK_FAKE_ASCEND_ON_VIOLATION=report) and the text of the last one, "RULE: text". */
FAKE_ASCEND_API uint64_t fakeAscendViolationCount(void);
FAKE_ASCEND_API const char* fakeAscendLastViolation(void);
/* How often a log line ("aclInit", "phase1 aclnnAdd", "phase2 aclnnAdd", ...) would have been written. */
FAKE_ASCEND_API uint64_t fakeAscendCallCount(const char* call);
/* Live descriptors (tensors, scalars, arrays, lists) and executors. */
FAKE_ASCEND_API uint64_t fakeAscendLiveDescriptors(void);
FAKE_ASCEND_API uint64_t fakeAscendLiveExecutors(void);

#ifdef __cplusplus
}
#endif
#endif
