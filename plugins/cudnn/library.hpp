// What the plugin calls of cuDNN 9 and of the CUDA driver, found by name at run time, and cuDNN's own numbers. Building
// needs no vendor's headers; ../../tests/cudnn compares the numbers with the headers where there are some.
#pragma once

#include <rlk/sdk.hpp>

#include <cstdint>
#include <string>

namespace rlk::cudnn {

using Status = int;
using Handle = struct HandleTag*;
using RawDescriptor = void*;

// NVIDIA's own frontend refuses attention by 9.10.0 and 9.10.1, and older releases take other graphs.
constexpr size_t kOldestVersion = 91002;
// Until here the graph of gradients took numbers of keys that are multiples of 128 only.
constexpr size_t kOldestGradients = 91501;

namespace status {
enum : int { kSuccess = 0, kBadParam = 2000, kNotSupported = 3000 };  // the thousands tell the kind
}
namespace data {
enum : int { kFloat = 0, kHalf = 2, kInt32 = 4, kBfloat16 = 9, kBoolean = 11 };
}
namespace type {  // of an attribute's value
enum : int {
  kHandle = 0,
  kDataType = 1,
  kBoolean = 2,
  kInt64 = 3,
  kVoidPointer = 6,
  kHeuristicMode = 8,
  kNumericalNote = 11,
  kPointwiseMode = 14,
  kDescriptor = 15,
  kReductionOperator = 18,
  kChar = 24,
};
}
namespace descriptor {
enum : int {
  kPointwise = 0,
  kEngine = 2,
  kEngineConfiguration = 3,
  kEngineHeuristic = 4,
  kExecutionPlan = 5,
  kPointwiseOperation = 13,
  kOperationGraph = 15,
  kVariantPack = 16,
  kTensor = 17,
  kMatmul = 18,
  kMatmulOperation = 19,
  kReduction = 21,
  kReductionOperation = 22,
  kReshapeOperation = 31,
  kDeviceProperties = 38,
};
}
namespace attribute {
enum : int {
  kPointwiseMode = 0,
  kPointwisePrecision = 1,
  kPointwiseAxis = 9,
  kHeuristicMode = 200,
  kHeuristicGraph = 201,
  kHeuristicResults = 202,
  kHeuristicDevice = 204,
  kConfigurationEngine = 300,
  kPlanHandle = 400,
  kPlanConfiguration = 401,
  kPlanWorkspace = 402,
  kPlanDevice = 407,
  kPointwiseHow = 750,
  kPointwiseX = 751,
  kPointwiseB = 752,
  kPointwiseY = 753,
  kPointwiseCondition = 758,
  kGraphHandle = 800,
  kGraphOperations = 801,
  kTensorAlignment = 900,
  kTensorType = 901,
  kTensorDimensions = 902,
  kTensorStrides = 903,
  kTensorId = 906,
  kTensorIsVirtual = 907,
  kTensorIsByValue = 908,
  kPackIds = 1000,
  kPackPointers = 1001,
  kPackWorkspace = 1003,
  kEngineNotes = 1303,
  kMatmulPrecision = 1500,
  kMatmulA = 1520,
  kMatmulB = 1521,
  kMatmulC = 1522,
  kMatmulHow = 1523,
  kReductionOperator = 1600,
  kReductionPrecision = 1601,
  kReductionX = 1610,
  kReductionY = 1611,
  kReductionHow = 1612,
  kReshapeX = 2200,
  kReshapeY = 2201,
  kDeviceJson = 2702,
};
}
namespace pointwise {
enum : int {
  kAdd = 0,
  kMultiply = 1,
  kDivide = 6,
  kSubtract = 9,
  kExp = 13,
  kLog = 15,
  kIdentity = 21,
  kGreater = 302,
  kGreaterOrEqual = 303,
  kIndex = 501,
  kSelect = 601,
};
}
namespace reduction {
enum : int { kSum = 0, kMax = 3 };
}
namespace heuristic {
enum : int { kModeA = 3 };
}
namespace note {
enum : int { kNondeterministic = 4, kMost = 64 };  // more than any release has
}

// result, member, export, parameters
#define RLK_CUDNN_FUNCTIONS(X)                                                                            \
  X(Status, create, "cudnnCreate", (Handle * handle))                                                     \
  X(Status, destroy, "cudnnDestroy", (Handle handle))                                                     \
  X(Status, set_stream, "cudnnSetStream", (Handle handle, void* stream))                                  \
  X(const char*, error_string, "cudnnGetErrorString", (Status status))                                    \
  X(void, last_error, "cudnnGetLastErrorString", (char* text, size_t bytes))                              \
  X(size_t, version, "cudnnGetVersion", ())                                                               \
  X(Status, create_descriptor, "cudnnBackendCreateDescriptor", (int type, RawDescriptor* out))            \
  X(Status, destroy_descriptor, "cudnnBackendDestroyDescriptor", (RawDescriptor descriptor))              \
  X(Status, set_attribute, "cudnnBackendSetAttribute",                                                    \
    (RawDescriptor descriptor, int attribute, int type, int64_t count, const void* values))               \
  X(Status, get_attribute, "cudnnBackendGetAttribute",                                                    \
    (RawDescriptor descriptor, int attribute, int type, int64_t requested, int64_t* count, void* values)) \
  X(Status, finalize, "cudnnBackendFinalize", (RawDescriptor descriptor))                                 \
  X(Status, execute, "cudnnBackendExecute", (Handle handle, RawDescriptor plan, RawDescriptor variant_pack))

struct Library {
#define RLK_CUDNN_MEMBER(result, member, symbol, parameters) result(*member) parameters = nullptr;
  RLK_CUDNN_FUNCTIONS(RLK_CUDNN_MEMBER)
#undef RLK_CUDNN_MEMBER

  int (*context_current)(void** context) = nullptr;
  int (*context_push)(void* context) = nullptr;
  int (*context_pop)(void** context) = nullptr;

  sdk::Symbols symbols;
};

// Opened on the first call, and never closed. [thread-safe]
const Library& library();

// "9.19.0" of 91900.
std::string version_text(size_t version);

// cuDNN has no kernel for what was asked.
inline bool is_unsupported(Status status) {
  return status / 1000 == status::kNotSupported / 1000;
}

// Throws for anything but success; RLK_UNSUPPORTED where cuDNN has no kernel.
void check(Status status, const char* attempt);

struct ContextStack {
  using Handle = void*;
  static Handle current();
  static void enter(Handle wanted);
  static void leave(Handle) noexcept;
};
using ContextScope = sdk::CurrentScope<ContextStack>;

}  // namespace rlk::cudnn
