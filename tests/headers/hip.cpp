// The rocm plugin's declarations against HIP's header.
#define __HIP_PLATFORM_AMD__ 1
#define __HIP_DISABLE_CPP_FUNCTIONS__ 1  // templates of the same names
#include <hip/hip_runtime_api.h>

#include <string_view>

#include "plugins/rocm/hip.hpp"
#include "same.hpp"

namespace {

using rlk::simt::host::Driver;

#define RLK_NUMBER(member, name, number) static_assert(static_cast<int>(name) == number, #name);
RLK_ROCM_ATTRIBUTES(RLK_NUMBER)
static_assert(hipDeviceAttributeComputeCapabilityMajor == rlk::rocm::kAttributeMajor);
static_assert(hipDeviceAttributeComputeCapabilityMinor == rlk::rocm::kAttributeMinor);
static_assert(hipErrorNotReady == rlk::simt::host::kNotReady && hipSuccess == rlk::simt::host::kSuccess);
static_assert(hipStreamNonBlocking == rlk::simt::host::kStreamNonBlocking);
static_assert(hipEventDisableTiming == rlk::simt::host::kEventDisableTiming);
static_assert(hipStreamCaptureModeThreadLocal == rlk::simt::host::kCaptureThreadLocal);
static_assert(hipStreamCaptureModeRelaxed == rlk::simt::host::kCaptureRelaxed);
static_assert(hipStreamCaptureStatusNone == rlk::simt::host::kCaptureNone);
static_assert(hipStreamCaptureStatusActive == rlk::simt::host::kCaptureActive);
static_assert(hipMemcpyHostToDevice == 1 && hipMemcpyDeviceToHost == 2 && hipMemcpyDeviceToDevice == 3);
static_assert((hipHostMallocPortable | hipHostMallocMapped) == rlk::simt::host::kHostAllocPortableMapped);
static_assert(HIP_POINTER_ATTRIBUTE_MEMORY_TYPE == rlk::simt::host::kPointerMemoryType);
static_assert(HIP_POINTER_ATTRIBUTE_IS_MANAGED == rlk::simt::host::kPointerIsManaged);
static_assert(sizeof(hipUUID) == sizeof(rlk::simt::host::Uuid));
static_assert(hipErrorOutOfMemory == 2 && hipErrorNotSupported == 801 && hipErrorLaunchFailure == 719);
static_assert(hipErrorStreamCaptureUnsupported == 900 && hipErrorCapturedEvent == 907);
static_assert(hipMemoryTypeHost == (HIP_VERSION < rlk::rocm::kMemoryTypesChanged ? 0 : 1));

}  // namespace

using Allocate = hipError_t (*)(void**, size_t, hipStream_t);
constexpr Allocate kMallocAsync = &hipMallocAsync;  // of two overloads
#define hipMallocAsync *kMallocAsync

#define RLK_SAME(member, function) \
  static_assert(rlk::headers::is_same_call<decltype(Driver::member), std::remove_cv_t<decltype(&function)>>, #function);
RLK_SIMT_RUNTIME_REQUIRED(RLK_SAME, hip)
RLK_SIMT_RUNTIME_OPTIONAL(RLK_SAME, hip)
RLK_ROCM_REQUIRED(RLK_SAME)
#if HIP_VERSION >= 50300000
// The plugin passes NULL for the captured nodes, and declares them a level of pointers short.
#undef RLK_SAME
#define RLK_SAME(member, function)                                                             \
  static_assert(std::string_view(#member) == "capture_info_v2" ||                              \
                    rlk::headers::is_same_call<decltype(Driver::member), decltype(&function)>, \
                #function);
RLK_ROCM_OPTIONAL(RLK_SAME)
#endif

// hipRTC's own header: Debian has it, the wheel does not.
#if __has_include(<hip/hiprtc.h>)
#include <hip/hiprtc.h>

#include "plugins/simt/host/compiler.hpp"

using rlk::simt::host::Compiler;
#define RLK_SAME_RTC(member, function, parameters) \
  static_assert(rlk::headers::is_same_call<decltype(Compiler::member), decltype(&hiprtc##function)>, #function);
RLK_SIMT_COMPILER_FUNCTIONS(RLK_SAME_RTC)
static_assert(rlk::headers::is_same_call<decltype(Compiler::code_size), decltype(&hiprtcGetCodeSize)>);
static_assert(rlk::headers::is_same_call<decltype(Compiler::code), decltype(&hiprtcGetCode)>);
static_assert(HIPRTC_SUCCESS == 0);
#endif
