// The Ascend plugin's declarations of AscendCL against its headers.
#include <acl/acl.h>
#include <acl/acl_rt.h>

#include "plugins/ascend/runtime.hpp"
#include "same.hpp"

#define RLK_SAME(name, result, arguments) \
  static_assert(rlk::headers::is_same_call<decltype(rlk::ascend::Runtime::name), decltype(&::name)>, #name);
RLK_ASCEND_ACL_REQUIRED(RLK_SAME)
RLK_ASCEND_ACL_CAPTURE(RLK_SAME)
RLK_SAME(aclrtGetVersion, , )
RLK_SAME(aclGetDeviceCapability, , )
RLK_SAME(aclrtGetDeviceInfo, , )
RLK_SAME(aclrtDeviceCanAccessPeer, , )
RLK_SAME(aclrtCreateEventExWithFlag, , )
RLK_SAME(aclrtLaunchHostFunc, , )
RLK_SAME(aclmdlRIDestroyRegisterCallback, , )

using namespace rlk::ascend;
static_assert(ACL_FLOAT == static_cast<int>(kAclFloat) && ACL_FLOAT16 == static_cast<int>(kAclFloat16));
static_assert(ACL_INT32 == static_cast<int>(kAclInt32) && ACL_INT64 == static_cast<int>(kAclInt64));
static_assert(ACL_UINT8 == static_cast<int>(kAclUint8) && ACL_BOOL == static_cast<int>(kAclBool));
static_assert(ACL_DOUBLE == static_cast<int>(kAclDouble) && ACL_BF16 == static_cast<int>(kAclBf16));
static_assert(ACL_FORMAT_ND == kAclFormatNd && ACL_HBM_MEM == kAclHbm);
static_assert(ACL_ERROR_REPEAT_INITIALIZE == kAclRepeatInitialize);
static_assert(ACL_ERROR_RT_STREAM_SYNC_TIMEOUT == kAclStreamSyncTimeout);
static_assert(ACL_ERROR_RT_EVENT_SYNC_TIMEOUT == kAclEventSyncTimeout);
static_assert(ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL == static_cast<int>(kAclCaptureThreadLocal));
static_assert(ACL_MODEL_RI_CAPTURE_MODE_RELAXED == static_cast<int>(kAclCaptureRelaxed));
static_assert(ACL_MODEL_RI_CAPTURE_STATUS_NONE == static_cast<int>(kAclCaptureNone));
static_assert(ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE == static_cast<int>(kAclCaptureActive));
