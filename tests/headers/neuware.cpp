// The cambricon plugin's declarations of CNRT, and of CNNL where it is there, against their headers.
#include <cnrt.h>
#if __has_include(<cnnl.h>)
#include <cnnl.h>
#endif

#include "plugins/cambricon/runtime.hpp"
#include "same.hpp"

#define RLK_SAME(name, arguments) \
  static_assert(rlk::headers::is_same_call<decltype(rlk::cambricon::Runtime::name), decltype(&::name)>, #name);
RLK_CNRT_REQUIRED(RLK_SAME)
RLK_CNRT_CAPTURE(RLK_SAME)
RLK_SAME(cnrtMemcpyAsync, )
RLK_SAME(cnrtGetLibVersion, )
RLK_SAME(cnrtDriverGetVersion, )
RLK_SAME(cnrtDeviceGetAttribute, )
RLK_SAME(cnrtDeviceGetPCIBusId, )
RLK_SAME(cnrtDeviceGetQueuePriorityRange, )
RLK_SAME(cnrtQueueCreateWithPriority, )
RLK_SAME(cnrtInvokeHostFunc, )
RLK_SAME(cnrtGetPeerAccessibility, )
RLK_SAME(cnrtMemcpyPeerAsync, )
#if __has_include(<cnnl.h>)
RLK_CNNL_REQUIRED(RLK_SAME)
RLK_CNNL_OPTIONAL(RLK_SAME)
static_assert(CNNL_OP_TENSOR_ADD == rlk::cambricon::kOpAdd && CNNL_OP_TENSOR_MUL == rlk::cambricon::kOpMultiply);
static_assert(CNNL_REDUCE_ADD == rlk::cambricon::kReduceSum && CNNL_REDUCE_MAX == rlk::cambricon::kReduceMax);
static_assert(CNNL_LOGIC_OP_EQ == rlk::cambricon::kEqual && CNNL_LOGIC_OP_OR == rlk::cambricon::kOr);
#endif

using namespace rlk::cambricon;
static_assert(cnrtErrorNotReady == kNotReady && cnrtErrorBusy == kBusy && cnrtErrorNoDevice == kNoDevice);
static_assert(cnrtErrorSysNoMem == kHostMemory && cnrtErrorNoMem == kDeviceMemory && cnrtErrorQueue == kQueueFailed);
static_assert(cnrtMemcpyHostToDev == kToDevice && cnrtMemcpyDevToDev == kOnDevice && cnrtMemcpyDevToHost == kToHost);
static_assert(CNRT_NOTIFIER_DISABLE_TIMING_ALL == kNoTiming);
static_assert(cnrtQueueCaptureModeRelaxed == kCaptureRelaxed);
static_assert(cnrtQueueCaptureStatusNone == kCaptureNone && cnrtQueueCaptureStatusActive == kCaptureActive);
static_assert(cnrtErrorQueueCaptureUnsupported == kCaptureUnsupported);
static_assert(cnrtErrorQueueCaptureUnmatched == kCaptureUnmatched);
static_assert(cnrtAttrClusterCount == kClusters && cnrtAttrMcorePerCluster == kCoresPerCluster);
static_assert(cnrtAttrISAVersion == kIsa && cnrtAttrMaxL2CacheSize == kL2 && cnrtAttrTotalMemSize == kMemoryMegabytes);
