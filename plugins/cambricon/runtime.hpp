// Which functions of Neuware does the plugin use, and how is each known?
//   [header]  the declarations of CNRT 6.0.2 and 6.14.1, which agree in all that is used here
//   [calls]   calls in public frameworks (PaddleCustomDevice, torch_mlu, mlu-ops, OneFlow, MegEngine); no declaration
//   seen [memory]  neither; what depends on it is tried by the smoke tests before it serves
// No struct of the vendor is used: those of device properties and pointers differ between versions.
#pragma once

#include <rlk/sdk.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace rlk::cambricon {

// The vendor's opaque handles.
using CnrtQueue = void*;
using CnrtNotifier = void*;
using CnnlHandle = void*;
using CnnlTensor = void*;    // a descriptor
using CnnlReduce = void*;    // likewise
using CnnlOpTensor = void*;  // likewise
using CnrtTopology = void*;  // of tasks: what was captured
using CnrtEntity = void*;    // of a topology: what is invoked
using CnDevice = int64_t;    // [calls] printed as a long

// [header]
constexpr int kNotReady = 1, kBusy = 632014;  // "still running": the newer and the older number
constexpr int kNoDevice = 100004, kHostMemory = 100010, kDeviceMemory = 100100;
constexpr int kQueueFailed = 100060, kAssert = 100128, kKernelTrap = 100132;
constexpr int kCaptureUnsupported = 100360, kCaptureUnmatched = 100366;  // the first and the last of what they forbid
constexpr int kCaptureRelaxed = 2;                                       // cnrtQueueCaptureMode_t
constexpr int kCaptureNone = 0, kCaptureActive = 1;                      // cnrtQueueCaptureStatus_t
constexpr int kToDevice = 0, kOnDevice = 1, kToHost = 2;                 // cnrtMemTransDir_t
constexpr int kNoTiming = 4;                                             // cnrtNotifierFlags_t
constexpr int kClusters = 0x205, kCoresPerCluster = 0x206, kIsa = 0x20a, kL2 = 0x301,  // cnrtDeviceAttr_t
    kMemoryMegabytes = 0x405;
// [header] of CNNL (2021)
constexpr int kCnnlAllocFailed = 2, kCnnlInternalError = 4, kCnnlExecutionFailed = 6, kCnnlNotSupported = 7;
constexpr int kArray = 4;  // cnnlTensorLayout_t
enum CnnlDtype : int { kHalf = 1, kFloat = 2, kInt16 = 4, kInt32 = 6, kUint8 = 7, kBool = 8 };
constexpr int kMaxDims = 8;
constexpr int kPrecise = 1;  // cnnlComputationPreference_t
// [calls] mlu-ops hands its own enumerations on to CNNL unchanged
constexpr int kHalfToFloat = 129, kFloatToHalf = 219;  // cnnlCastDataType_t, as a comment in DIOPI quotes the header
constexpr int kPropagateNan = 1, kNaturalLog = 0, kHostPointer = 0;
constexpr int kReduceSum = 0, kReduceMax = 3, kNoIndices = 0, kWithIndices = 1, kIndices32 = 0;
constexpr int kScatterUpdate = 3;
constexpr int kComputeType = 0, kTransposesFirst = 3, kTransposesSecond = 4, kAllowsTf32 = 10;  // of a product
// [calls] of Paddle, which converts them as numbers
constexpr int kEqual = 0, kNotEqual = 1, kGreater = 2, kGreaterEqual = 3, kLess = 4, kLessEqual = 5, kAnd = 6, kOr = 7;
// [memory]
constexpr int kOpAdd = 0, kOpMultiply = 2;

// X(name, arguments), all returning an enumeration as int. [header]
#define RLK_CNRT_REQUIRED(X)                                    \
  X(cnrtGetDeviceCount, (unsigned*))                            \
  X(cnrtSetDevice, (int))                                       \
  X(cnrtGetDevice, (int*))                                      \
  X(cnrtSyncDevice, ())                                         \
  X(cnrtMalloc, (void**, size_t))                               \
  X(cnrtFree, (void*))                                          \
  X(cnrtHostMalloc, (void**, size_t))                           \
  X(cnrtFreeHost, (void*))                                      \
  X(cnrtMemGetInfo, (size_t*, size_t*))                         \
  X(cnrtMemcpy, (void*, void*, size_t, int))                    \
  X(cnrtMemset, (void*, int, size_t))                           \
  X(cnrtMemsetAsync, (void*, int, size_t, CnrtQueue))           \
  X(cnrtQueueCreate, (CnrtQueue*))                              \
  X(cnrtQueueDestroy, (CnrtQueue))                              \
  X(cnrtQueueSync, (CnrtQueue))                                 \
  X(cnrtQueueQuery, (CnrtQueue))                                \
  X(cnrtQueueWaitNotifier, (CnrtNotifier, CnrtQueue, unsigned)) \
  X(cnrtNotifierCreateWithFlags, (CnrtNotifier*, unsigned))     \
  X(cnrtNotifierDestroy, (CnrtNotifier))                        \
  X(cnrtPlaceNotifier, (CnrtNotifier, CnrtQueue))               \
  X(cnrtQueryNotifier, (CnrtNotifier))                          \
  X(cnrtWaitNotifier, (CnrtNotifier))                           \
  X(cnrtNotifierElapsedTime, (CnrtNotifier start, CnrtNotifier end, float* milliseconds))

#define RLK_CNRT_OPTIONAL(X)                                                  \
  X(cnrtPeekAtLastError, ())                                                  \
  X(cnrtDriverGetVersion, (int*, int*, int*))                                 \
  X(cnrtDeviceGetAttribute, (int*, int, int))                                 \
  X(cnrtDeviceGetPCIBusId, (char*, int, int))                                 \
  X(cnrtDeviceGetQueuePriorityRange, (int* least, int* greatest))             \
  X(cnrtQueueCreateWithPriority, (CnrtQueue*, unsigned, int))                 \
  X(cnrtInvokeHostFunc, (CnrtQueue, void (*)(void*), void*))                  \
  X(cnrtGetPeerAccessibility, (unsigned*, int, int))                          \
  X(cnrtMemcpyPeerAsync, (void*, int, void*, int, size_t, CnrtQueue))         \
  X(cnrtMemAllocAsync, (void**, size_t, CnrtQueue)) /* [calls], since 6.14 */ \
  X(cnrtMemFreeAsync, (void*, CnrtQueue))           /* likewise */            \
  X(cnrtThreadExchangeQueueCaptureMode, (int*))     /* not in 6.0.2 */

// Captures: all of them, or nothing is captured. The older header has them, too; no public text says since when.
#define RLK_CNRT_CAPTURE(X)                                                                                        \
  X(cnrtQueueBeginCapture, (CnrtQueue, int))                                                                       \
  X(cnrtQueueEndCapture, (CnrtQueue, CnrtTopology*))                                                               \
  X(cnrtQueueGetCaptureInfo,                                                                                       \
    (CnrtQueue, int* status, uint64_t* number, CnrtTopology*, void* const** dependencies, size_t* n_dependencies)) \
  X(cnrtTaskTopoInstantiate, (CnrtEntity*, CnrtTopology, void** error_node, char* log, size_t log_bytes))          \
  X(cnrtTaskTopoDestroy, (CnrtTopology))                                                                           \
  X(cnrtTaskTopoEntityInvoke, (CnrtEntity, CnrtQueue))                                                             \
  X(cnrtTaskTopoEntityDestroy, (CnrtEntity))

// CNDRV. [calls]; cnCtxGetCurrent [memory]
#define RLK_CNDRV_REQUIRED(X) X(cnInit, (unsigned))
#define RLK_CNDRV_OPTIONAL(X)                \
  X(cnDeviceGet, (CnDevice*, int))           \
  X(cnDeviceGetName, (char*, int, CnDevice)) \
  X(cnCtxGetCurrent, (void**))

// CNNL [header]: handles and descriptors.
#define RLK_CNNL_REQUIRED(X)                                          \
  X(cnnlCreate, (CnnlHandle*))                                        \
  X(cnnlDestroy, (CnnlHandle))                                        \
  X(cnnlSetQueue, (CnnlHandle, CnrtQueue))                            \
  X(cnnlCreateTensorDescriptor, (CnnlTensor*))                        \
  X(cnnlSetTensorDescriptor, (CnnlTensor, int, int, int, const int*)) \
  X(cnnlDestroyTensorDescriptor, (CnnlTensor))

// CNNL [calls]: an operator whose functions the installed CNNL lacks is declined. Newer names change arguments, so each
// name has one list of them, and what has two names is looked for under both.
#define RLK_CNNL_OPTIONAL(X)                                                                                           \
  X(cnnlSetTensorDescriptorEx, (CnnlTensor, int, int, int, const int*, const int*))                                    \
  X(cnnlCreateOpTensorDescriptor, (CnnlOpTensor*))                                                                     \
  X(cnnlSetOpTensorDescriptor, (CnnlOpTensor, int, int, int))                                                          \
  X(cnnlDestroyOpTensorDescriptor, (CnnlOpTensor))                                                                     \
  X(cnnlGetOpTensorWorkspaceSize, (CnnlHandle, CnnlTensor, CnnlTensor, CnnlTensor, size_t*))                           \
  X(cnnlOpTensor, (CnnlHandle, CnnlOpTensor, const void*, CnnlTensor, const void*, const void*, CnnlTensor,            \
                   const void*, void*, size_t, const void*, CnnlTensor, void*))                                        \
  X(cnnlCreateReduceDescriptor, (CnnlReduce*))                                                                         \
  X(cnnlSetReduceDescriptor_v2, (CnnlReduce, int*, int, int, int, int, int, int, float))                               \
  X(cnnlDestroyReduceDescriptor, (CnnlReduce))                                                                         \
  X(cnnlGetReduceOpWorkspaceSize, (CnnlHandle, CnnlTensor, CnnlTensor, CnnlReduce, size_t*))                           \
  X(cnnlReduce, (CnnlHandle, CnnlReduce, void*, size_t, const void*, CnnlTensor, const void*, size_t, void*,           \
                 const void*, CnnlTensor, void*))                                                                      \
  X(cnnlGetReduceOpWorkspaceSize_v2, (CnnlHandle, CnnlTensor, CnnlTensor, CnnlTensor, CnnlReduce, size_t*))            \
  X(cnnlReduce_v2, (CnnlHandle, CnnlReduce, CnnlTensor, const void*, const void*, const void*, void*, size_t,          \
                    CnnlTensor, void*, CnnlTensor, void*))                                                             \
  X(cnnlAbs, (CnnlHandle, CnnlTensor, const void*, CnnlTensor, void*))                                                 \
  X(cnnlSqrt_v2, (CnnlHandle, int, CnnlTensor, const void*, CnnlTensor, void*))                                        \
  X(cnnlExp_v2, (CnnlHandle, int, CnnlTensor, const void*, CnnlTensor, void*))                                         \
  X(cnnlLog_v2, (CnnlHandle, int, int, CnnlTensor, const void*, CnnlTensor, void*))                                    \
  X(cnnlGetDivWorkspaceSize, (CnnlHandle, CnnlTensor, CnnlTensor, CnnlTensor, size_t*))                                \
  X(cnnlDiv_v2, (CnnlHandle, int, CnnlTensor, const void*, CnnlTensor, const void*, void*, size_t, CnnlTensor, void*)) \
  X(cnnlTransform_v2, (CnnlHandle, int, const void*, CnnlTensor, const void*, const void*, CnnlTensor, void*))         \
  X(cnnlCastDataType, (CnnlHandle, CnnlTensor, const void*, int, CnnlTensor, void*))                                   \
  X(cnnlArange_v2, (CnnlHandle, int, const void*, const void*, CnnlTensor, void*))                                     \
  X(cnnlFill_v3, (CnnlHandle, int, const void*, CnnlTensor, void*))                                                    \
  X(cnnlCopy, (CnnlHandle, CnnlTensor, const void*, CnnlTensor, void*))                                                \
  X(cnnlExpand, (CnnlHandle, CnnlTensor, const void*, CnnlTensor, void*))                                              \
  X(cnnlGetLogicOpWorkspaceSize, (CnnlHandle, CnnlTensor, CnnlTensor, CnnlTensor, size_t*))                            \
  X(cnnlLogicOp,                                                                                                       \
    (CnnlHandle, int, CnnlTensor, const void*, CnnlTensor, const void*, void*, size_t, CnnlTensor, void*))             \
  X(cnnlGetSelectV2WorkspaceSize, (CnnlHandle, CnnlTensor, CnnlTensor, CnnlTensor, size_t*))                           \
  X(cnnlSelectV2, (CnnlHandle, CnnlTensor, const void*, CnnlTensor, const void*, CnnlTensor, const void*, void*,       \
                   size_t, CnnlTensor, void*))                                                                         \
  X(cnnlGather, (CnnlHandle, int, CnnlTensor, const void*, CnnlTensor, const void*, CnnlTensor, void*))                \
  X(cnnlIndexSelect, (CnnlHandle, int, CnnlTensor, const void*, CnnlTensor, const void*, CnnlTensor, void*))           \
  X(cnnlScatterNd_v2,                                                                                                  \
    (CnnlHandle, int, CnnlTensor, const void*, CnnlTensor, const void*, CnnlTensor, const void*, CnnlTensor, void*))   \
  X(cnnlGetTopKTensorWorkspaceSize, (CnnlHandle, CnnlTensor, int, int, bool, CnnlTensor, CnnlTensor, size_t*))         \
  X(cnnlTopKTensor_v3, (CnnlHandle, CnnlTensor, const void*, int, int, bool, bool, bool, void*, size_t, CnnlTensor,    \
                        void*, CnnlTensor, void*))                                                                     \
  X(cnnlMatMulDescCreate, (void**))                                                                                    \
  X(cnnlMatMulDescDestroy, (void*))                                                                                    \
  X(cnnlSetMatMulDescAttr, (void*, int, const void*, size_t))                                                          \
  X(cnnlMatMulAlgoCreate, (void**))                                                                                    \
  X(cnnlMatMulAlgoDestroy, (void*))                                                                                    \
  X(cnnlCreateMatMulHeuristicResult, (void**))                                                                         \
  X(cnnlDestroyMatMulHeuristicResult, (void*))                                                                         \
  X(cnnlGetMatMulAlgoHeuristic,                                                                                        \
    (CnnlHandle, void*, CnnlTensor, CnnlTensor, CnnlTensor, CnnlTensor, void*, int, void**, int*))                     \
  X(cnnlGetMatMulHeuristicResult, (void*, void*, size_t*))                                                             \
  X(cnnlMatMul_v2, (CnnlHandle, void*, void*, const void*, CnnlTensor, const void*, CnnlTensor, const void*,           \
                    const void*, CnnlTensor, const void*, void*, size_t, CnnlTensor, void*))                           \
  X(cnnlGetBatchMatMulAlgoHeuristic,                                                                                   \
    (CnnlHandle, void*, CnnlTensor, CnnlTensor, CnnlTensor, void*, int, void**, int*))                                 \
  X(cnnlGetBatchMatMulHeuristicResult, (void*, void*, size_t*))                                                        \
  X(cnnlBatchMatMulBCast_v2, (CnnlHandle, void*, void*, const void*, CnnlTensor, const void*, CnnlTensor, const void*, \
                              const void*, CnnlTensor, void*, void*, size_t))                                          \
  X(cnnlGetLayerNormOpWorkspaceSize, (CnnlHandle, int, CnnlTensor, size_t*))                                           \
  X(cnnlLayerNormForward, (CnnlHandle, CnnlTensor, const void*, int, CnnlTensor, const void*, const void*, float,      \
                           void*, size_t, CnnlTensor, void*, CnnlTensor, void*, void*))                                \
  X(cnnlGetRmsNormOpWorkspaceSize, (CnnlHandle, int, CnnlTensor, size_t*))                                             \
  X(cnnlRmsNormForward, (CnnlHandle, int, CnnlTensor, const void*, CnnlTensor, const void*, const void*, float, void*, \
                         size_t, CnnlTensor, void*, CnnlTensor, void*))

// The bound functions. One per process, made once, never freed: the libraries start threads and are never closed.
struct Runtime {
#define RLK_CAMBRICON_MEMBER(name, arguments) int(*name) arguments = nullptr;
  RLK_CNRT_REQUIRED(RLK_CAMBRICON_MEMBER)
  RLK_CNRT_OPTIONAL(RLK_CAMBRICON_MEMBER)
  RLK_CNRT_CAPTURE(RLK_CAMBRICON_MEMBER)
  RLK_CNDRV_REQUIRED(RLK_CAMBRICON_MEMBER)
  RLK_CNDRV_OPTIONAL(RLK_CAMBRICON_MEMBER)
  RLK_CNNL_REQUIRED(RLK_CAMBRICON_MEMBER)
  RLK_CNNL_OPTIONAL(RLK_CAMBRICON_MEMBER)
#undef RLK_CAMBRICON_MEMBER
  // [header] 6.14 announces that the plain name goes; cnrtMemcpyAsync_V3 has the same arguments.
  int (*cnrtMemcpyAsync)(void*, void*, size_t, CnrtQueue, int) = nullptr;
  // Looked at before anything else: CNRT 4 has other functions under some of these names.
  int (*cnrtGetLibVersion)(int*, int*, int*) = nullptr;
  void (*cnnlGetLibVersion)(int*, int*, int*) = nullptr;  // [calls]
  const char* (*cnrtGetErrorStr)(int) = nullptr;
  const char* (*cnnlGetErrorString)(int) = nullptr;

  sdk::Symbols symbols;
  std::vector<std::string> library_paths;  // of what was opened
  std::string cnrt_version, cnnl_version;  // "6.14.1", or empty
  std::string reason_code, reason;         // why nothing is bound; empty: everything required is
  std::string no_captures;                 // why nothing is captured; empty: captures are

  bool loaded() const {
    return reason_code.empty();
  }
};

// Opens the libraries on the first call. [thread-safe]
const Runtime& runtime();

// Initialises CNDRV on the first call. 0, or what cnInit returned.
int initialize();

// Throw unless code is 0, with the vendor's text.
void check(int code, const char* call);
void check_cnnl(int status, const char* call);
// What a query's answer means; failures are thrown.
bool is_done(int code, const char* call);

}  // namespace rlk::cambricon
