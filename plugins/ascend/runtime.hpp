// Which functions of CANN does the plugin use, and where do they come from? AscendCL (libascendcl.so), the aclnn base
// (libnnopbase.so) and the aclnn operators (libopapi.so; 9.x splits it) are opened at run time. Prototypes are those of
// the public headers of CANN 8.1, or of the first version that has the function; each is also valid for 9.x.
#pragma once

#include <rlk/sdk.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace rlk::ascend {

// The vendor's opaque handles.
struct AclTensor;
struct AclScalar;
struct AclIntArray;
struct AclTensorList;
struct AclExecutor;
using AclStream = void*;
using AclEvent = void*;
using AclContext = void*;
using AclModel = void*;  // aclmdlRI: what a capture becomes

enum AclDtype : int32_t {
  kAclFloat = 0,
  kAclFloat16 = 1,
  kAclInt8 = 2,
  kAclInt32 = 3,
  kAclUint8 = 4,
  kAclInt64 = 9,
  kAclDouble = 11,
  kAclBool = 12,
  kAclBf16 = 27
};

constexpr int kAclRepeatInitialize = 100002;
constexpr int kAclStreamSyncTimeout = 507046;
constexpr int kAclEventSyncTimeout = 507047;
constexpr int32_t kAclFormatNd = 2;
constexpr int32_t kAclHbm = 1;
constexpr int32_t kAclCaptureThreadLocal = 1, kAclCaptureRelaxed = 2;  // aclmdlRICaptureMode
constexpr int32_t kAclCaptureNone = 0, kAclCaptureActive = 1;          // aclmdlRICaptureStatus
constexpr uint64_t kTensorAlignment = 32;  // bytes; of the storage address of every aclTensor

// X(name, result, arguments)
#define RLK_ASCEND_ACL_REQUIRED(X)                                                   \
  X(aclInit, int, (const char*))                                                     \
  X(aclrtGetDeviceCount, int, (uint32_t*))                                           \
  X(aclrtSetDevice, int, (int32_t))                                                  \
  X(aclrtGetDevice, int, (int32_t*))                                                 \
  X(aclrtGetCurrentContext, int, (AclContext*))                                      \
  X(aclrtSetCurrentContext, int, (AclContext))                                       \
  X(aclrtSynchronizeDevice, int, ())                                                 \
  X(aclrtGetSocName, const char*, ())                                                \
  X(aclGetRecentErrMsg, const char*, ())                                             \
  X(aclrtMalloc, int, (void**, size_t, int32_t))                                     \
  X(aclrtFree, int, (void*))                                                         \
  X(aclrtMallocHost, int, (void**, size_t))                                          \
  X(aclrtFreeHost, int, (void*))                                                     \
  X(aclrtMemcpy, int, (void*, size_t, const void*, size_t, int32_t))                 \
  X(aclrtMemcpyAsync, int, (void*, size_t, const void*, size_t, int32_t, AclStream)) \
  X(aclrtMemset, int, (void*, size_t, int32_t, size_t))                              \
  X(aclrtMemsetAsync, int, (void*, size_t, int32_t, size_t, AclStream))              \
  X(aclrtGetMemInfo, int, (int32_t, size_t*, size_t*))                               \
  X(aclrtCreateStreamWithConfig, int, (AclStream*, uint32_t, uint32_t))              \
  X(aclrtDestroyStream, int, (AclStream))                                            \
  X(aclrtSynchronizeStream, int, (AclStream))                                        \
  X(aclrtSynchronizeStreamWithTimeout, int, (AclStream, int32_t))                    \
  X(aclrtStreamQuery, int, (AclStream, int32_t*))                                    \
  X(aclrtStreamWaitEvent, int, (AclStream, AclEvent))                                \
  X(aclrtCreateEventWithFlag, int, (AclEvent*, uint32_t))                            \
  X(aclrtDestroyEvent, int, (AclEvent))                                              \
  X(aclrtRecordEvent, int, (AclEvent, AclStream))                                    \
  X(aclrtQueryEventStatus, int, (AclEvent, int32_t*))                                \
  X(aclrtSynchronizeEvent, int, (AclEvent))                                          \
  X(aclrtSynchronizeEventWithTimeout, int, (AclEvent, int32_t))                      \
  X(aclrtEventElapsedTime, int, (float*, AclEvent, AclEvent))

#define RLK_ASCEND_ACL_OPTIONAL(X)                                                          \
  X(aclrtGetVersion, int, (int32_t*, int32_t*, int32_t*))                                   \
  X(aclGetDeviceCapability, int, (uint32_t, int32_t, int64_t*))                             \
  X(aclrtGetDeviceInfo, int, (uint32_t, int32_t, int64_t*))                                 \
  X(aclrtDeviceCanAccessPeer, int, (int32_t*, int32_t, int32_t))                            \
  X(aclrtDeviceGetPCIBusId, int, (int32_t, char*, int32_t))                                 \
  X(aclrtCreateEventExWithFlag, int, (AclEvent*, uint32_t))                                 \
  X(aclrtLaunchHostFunc, int, (AclStream, void (*)(void*), void*))            /* since 9 */ \
  X(aclmdlRIDestroyRegisterCallback, int, (AclModel, void (*)(void*), void*)) /* since 9 */

// Captures: all of them, or nothing is captured.
#define RLK_ASCEND_ACL_CAPTURE(X)                                  \
  X(aclmdlRICaptureBegin, int, (AclStream, int32_t))               \
  X(aclmdlRICaptureGetInfo, int, (AclStream, int32_t*, AclModel*)) \
  X(aclmdlRICaptureEnd, int, (AclStream, AclModel*))               \
  X(aclmdlRICaptureThreadExchangeMode, int, (int32_t*))            \
  X(aclmdlRIExecuteAsync, int, (AclModel, AclStream))              \
  X(aclmdlRIDestroy, int, (AclModel))

#define RLK_ASCEND_NNOPBASE_REQUIRED(X)                                                                     \
  X(aclCreateTensor, AclTensor*,                                                                            \
    (const int64_t*, uint64_t, int32_t, const int64_t*, int64_t, int32_t, const int64_t*, uint64_t, void*)) \
  X(aclDestroyTensor, int32_t, (const AclTensor*))                                                          \
  X(aclCreateScalar, AclScalar*, (void*, int32_t))                                                          \
  X(aclDestroyScalar, int32_t, (const AclScalar*))                                                          \
  X(aclCreateIntArray, AclIntArray*, (const int64_t*, uint64_t))                                            \
  X(aclDestroyIntArray, int32_t, (const AclIntArray*))                                                      \
  X(aclCreateTensorList, AclTensorList*, (const AclTensor* const*, uint64_t))                               \
  X(aclDestroyTensorList, int32_t, (const AclTensorList*))                                                  \
  X(aclSetAclOpExecutorRepeatable, int32_t, (AclExecutor*))                                                 \
  X(aclDestroyAclOpExecutor, int32_t, (AclExecutor*))                                                       \
  X(aclSetInputTensorAddr, int32_t, (AclExecutor*, size_t, AclTensor*, void*))                              \
  X(aclSetOutputTensorAddr, int32_t, (AclExecutor*, size_t, AclTensor*, void*))

// X(name, arguments of phase 1 before the workspace size and the executor)
#define RLK_ASCEND_OPERATORS(X)                                                                                     \
  X(Add, const AclTensor*, const AclTensor*, const AclScalar*, AclTensor*)                                          \
  X(Adds, const AclTensor*, const AclScalar*, const AclScalar*, AclTensor*)                                         \
  X(Sub, const AclTensor*, const AclTensor*, const AclScalar*, AclTensor*)                                          \
  X(Mul, const AclTensor*, const AclTensor*, AclTensor*)                                                            \
  X(Muls, const AclTensor*, const AclScalar*, AclTensor*)                                                           \
  X(Div, const AclTensor*, const AclTensor*, AclTensor*)                                                            \
  X(Divs, const AclTensor*, const AclScalar*, AclTensor*)                                                           \
  X(Exp, const AclTensor*, AclTensor*)                                                                              \
  X(Log, const AclTensor*, AclTensor*)                                                                              \
  X(Abs, const AclTensor*, AclTensor*)                                                                              \
  X(Sqrt, const AclTensor*, AclTensor*)                                                                             \
  X(Tanh, const AclTensor*, AclTensor*)                                                                             \
  X(Floor, const AclTensor*, AclTensor*)                                                                            \
  X(BitwiseAndTensor, const AclTensor*, const AclTensor*, AclTensor*)                                               \
  X(BitwiseXorTensor, const AclTensor*, const AclTensor*, AclTensor*)                                               \
  X(Clamp, const AclTensor*, const AclScalar*, const AclScalar*, AclTensor*)                                        \
  X(EqTensor, const AclTensor*, const AclTensor*, AclTensor*)                                                       \
  X(LtTensor, const AclTensor*, const AclTensor*, AclTensor*)                                                       \
  X(LtScalar, const AclTensor*, const AclScalar*, AclTensor*)                                                       \
  X(LeTensor, const AclTensor*, const AclTensor*, AclTensor*)                                                       \
  X(NeTensor, const AclTensor*, const AclTensor*, AclTensor*)                                                       \
  X(LeScalar, const AclTensor*, const AclScalar*, AclTensor*)                                                       \
  X(GtScalar, const AclTensor*, const AclScalar*, AclTensor*)                                                       \
  X(GeScalar, const AclTensor*, const AclScalar*, AclTensor*)                                                       \
  X(EqScalar, const AclTensor*, const AclScalar*, AclTensor*)                                                       \
  X(NeScalar, const AclTensor*, const AclScalar*, AclTensor*)                                                       \
  X(LogicalAnd, const AclTensor*, const AclTensor*, AclTensor*)                                                     \
  X(LogicalOr, const AclTensor*, const AclTensor*, AclTensor*)                                                      \
  X(SWhere, const AclTensor*, const AclTensor*, const AclTensor*, AclTensor*)                                       \
  X(Cast, const AclTensor*, int32_t, AclTensor*)                                                                    \
  X(InplaceCopy, AclTensor*, const AclTensor*)                                                                      \
  X(InplaceFillScalar, AclTensor*, const AclScalar*)                                                                \
  X(Arange, const AclScalar*, const AclScalar*, const AclScalar*, AclTensor*)                                       \
  X(ReduceSum, const AclTensor*, const AclIntArray*, bool, int32_t, AclTensor*)                                     \
  X(Amax, const AclTensor*, const AclIntArray*, bool, AclTensor*)                                                   \
  X(MaxDim, const AclTensor*, int64_t, bool, AclTensor*, AclTensor*)                                                \
  X(Gather, const AclTensor*, int64_t, const AclTensor*, AclTensor*)                                                \
  X(IndexSelect, const AclTensor*, int64_t, const AclTensor*, AclTensor*)                                           \
  X(Sort, const AclTensor*, bool, int64_t, bool, AclTensor*, AclTensor*)                                            \
  X(SwiGlu, const AclTensor*, int64_t, const AclTensor*)                                                            \
  X(RmsNorm, const AclTensor*, const AclTensor*, double, const AclTensor*, const AclTensor*)                        \
  X(AddRmsNorm, const AclTensor*, const AclTensor*, const AclTensor*, double, AclTensor*, AclTensor*, AclTensor*)   \
  X(Softmax, const AclTensor*, int64_t, AclTensor*)                                                                 \
  X(LogSoftmax, const AclTensor*, int64_t, AclTensor*)                                                              \
  X(SoftmaxBackward, const AclTensor*, const AclTensor*, int64_t, AclTensor*)                                       \
  X(LogSoftmaxBackward, const AclTensor*, const AclTensor*, int64_t, AclTensor*)                                    \
  X(Matmul, const AclTensor*, const AclTensor*, AclTensor*, int8_t)                                                 \
  X(InplaceIndexCopy, AclTensor*, int64_t, const AclTensor*, const AclTensor*)                                      \
  X(FusedInferAttentionScoreV3, const AclTensor*, const AclTensorList*, const AclTensorList*, const AclTensor*,     \
    const AclTensor*, const AclIntArray*, const AclIntArray*, const AclTensor*, const AclTensor*, const AclTensor*, \
    const AclTensor*, const AclTensor*, const AclTensor*, const AclTensor*, const AclTensor*, const AclTensor*,     \
    const AclTensor*, const AclTensor*, const AclTensor*, const AclTensor*, const AclTensor*, const AclTensor*,     \
    const AclTensor*, const AclIntArray*, const AclTensor*, const AclTensor*, const AclTensor*, int64_t, double,    \
    int64_t, int64_t, char*, int64_t, int64_t, int64_t, int64_t, int64_t, bool, int64_t, int64_t, const AclTensor*, \
    const AclTensor*)
// Those of versions after 8.1.
#define RLK_ASCEND_LATER_OPERATORS(X) \
  X(RotaryPositionEmbedding, const AclTensor*, const AclTensor*, const AclTensor*, int64_t, AclTensor*)

using Phase2 = int32_t (*)(void* workspace, uint64_t workspace_bytes, AclExecutor*, AclStream);

// One aclnn operator; both are null when the installed CANN lacks it.
template <class... Arguments>
struct Operator {
  const char* name;
  int32_t (*workspace)(Arguments..., uint64_t*, AclExecutor**) = nullptr;
  Phase2 run = nullptr;
  bool present() const { return workspace != nullptr && run != nullptr; }
};
using UnaryOperator = Operator<const AclTensor*, AclTensor*>;
using BinaryOperator = Operator<const AclTensor*, const AclTensor*, AclTensor*>;
using ScalarOperator = Operator<const AclTensor*, const AclScalar*, AclTensor*>;  // of a tensor and a number
using RowOperator = Operator<const AclTensor*, int64_t, AclTensor*>;              // along a dimension
using RowGradientOperator = Operator<const AclTensor*, const AclTensor*, int64_t, AclTensor*>;

// The bound functions. One per process, made once, never freed: the libraries start threads and are never closed.
struct Runtime {
#define RLK_ASCEND_MEMBER(name, result, arguments) result(*name) arguments = nullptr;
  RLK_ASCEND_ACL_REQUIRED(RLK_ASCEND_MEMBER)
  RLK_ASCEND_ACL_OPTIONAL(RLK_ASCEND_MEMBER)
  RLK_ASCEND_ACL_CAPTURE(RLK_ASCEND_MEMBER)
  RLK_ASCEND_NNOPBASE_REQUIRED(RLK_ASCEND_MEMBER)
#undef RLK_ASCEND_MEMBER
#define RLK_ASCEND_MEMBER(name, ...) Operator<__VA_ARGS__> name{"aclnn" #name};
  RLK_ASCEND_OPERATORS(RLK_ASCEND_MEMBER)
  RLK_ASCEND_LATER_OPERATORS(RLK_ASCEND_MEMBER)
#undef RLK_ASCEND_MEMBER

  sdk::Symbols symbols;
  std::vector<std::string> library_paths;  // of what was opened

  bool loaded() const {
    return symbols.complete();
  }
};

// Opens the libraries on the first call. [thread-safe]
const Runtime& runtime();

// Of which family a chip is: the vendor's documents say by family what a function takes.
enum class Family {
  other,
  atlas_a2,  // Ascend910B and a digit; Ascend910B alone is a training device, as Ascend910A
  atlas_a3,  // Ascend910_93 and more
  ascend_950
};
// By AscendCL's name of the chip.
Family family_of(const std::string& soc);
// That of the process's chips; empty where AscendCL has none.
std::string soc_name();

// Throws unless code is 0, with the vendor's text.
void check(int code, const char* call);
// The same for a call that returns what it made, or NULL.
void check_created(const void* made, const char* call);

// Names of those operators that the installed CANN lacks, separated by commas.
template <class... Operators>
std::string missing(const Operators&... operators) {
  std::string names;
  const auto look = [&names](const auto& op) {
    if (!op.present()) names += (names.empty() ? "" : ", ") + std::string(op.name);
  };
  (look(operators), ...);
  return names;
}

}  // namespace rlk::ascend
