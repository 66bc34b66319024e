// What rlk uses of tvm-ffi's C ABI (https://github.com/apache/tvm-ffi, tvm/ffi/c_api.h and extra/c_env_api.h,
// DLPack 1.x), declared here: neither its headers nor its library are needed to build or to load this. tests/headers
// compares.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace rlk::tvmffi {

// ---- DLPack -------------------------------------------------------------------------------------------------------
struct DlDevice {
  int32_t type;  // kDl*
  int32_t id;
};
struct DlDtype {
  uint8_t code, bits;
  uint16_t lanes;
};
struct DlTensor {
  void* data;
  DlDevice device;
  int32_t ndim;
  DlDtype dtype;
  int64_t* shape;
  int64_t* strides;  // NULL from before DLPack 1.2: row-major
  uint64_t byte_offset;
};
constexpr int32_t kDlCpu = 1, kDlCuda = 2, kDlCudaHost = 3, kDlRocm = 10, kDlRocmHost = 11, kDlExtDev = 12,
                  kDlCudaManaged = 13;
constexpr uint8_t kDlUint = 1;

// A tensor that its maker hands over, and the function by which the taker frees it.
struct DlManagedTensor {
  uint32_t version[2];
  void* context;
  void (*deleter)(DlManagedTensor* self);
  uint64_t flags;
  DlTensor tensor;
};

// ---- values -------------------------------------------------------------------------------------------------------
constexpr int32_t kNone = 0, kInt = 1, kBool = 2, kFloat = 3, kOpaquePtr = 4, kDlTensorPtr = 7, kRawStr = 8,
                  kSmallStr = 11, kObjectBegin = 64, kStr = 65, kError = 67, kTensor = 70;

struct Object {
  uint64_t reference_counts;
  int32_t type_index;
  uint32_t padding;
  void (*deleter)(void* self, int flags);
};
struct Any {
  int32_t type_index;
  uint32_t small_length;  // of a small string; else 0
  union {
    int64_t i64;
    double f64;
    void* pointer;
    const char* text;
    Object* object;
    char bytes[8];
  };
};
struct Bytes {
  const char* data;
  size_t size;
};
struct ErrorCell {  // begins so, behind the Object
  Bytes kind, message;
};

template <class T>
T* behind(Object* object) noexcept {
  return reinterpret_cast<T*>(reinterpret_cast<char*>(object) + sizeof(Object));
}

// Every exported function: "__tvm_ffi_NAME". 0, or -1 and an error raised in the thread. *result is None before.
using Function = int (*)(void* self, const Any* arguments, int32_t count, Any* result);
constexpr const char* kSymbolPrefix = "__tvm_ffi_";

// What a kernel that allocates asks (DLPackManagedTensorAllocator).
using Allocator = int (*)(DlTensor* prototype, void** out, void* context,
                          void (*set_error)(void* context, const char* kind, const char* message));

// ---- the library --------------------------------------------------------------------------------------------------
// X(member, symbol, type)
#define RLK_TVMFFI_LIBRARY(X)                                                                                         \
  X(set_error, TVMFFIErrorSetRaisedFromCStr, void (*)(const char* kind, const char* message))                         \
  X(take_error, TVMFFIErrorMoveFromRaised, void (*)(void** object))                                                   \
  X(release, TVMFFIObjectDecRef, int (*)(void* object))                                                               \
  X(make_function, TVMFFIFunctionCreate, int (*)(void* self, Function call, void (*deleter)(void* self), void** out)) \
  X(set_global, TVMFFIFunctionSetGlobal, int (*)(const Bytes* name, void* function, int replace))                     \
  X(make_string, TVMFFIStringFromByteArray, int (*)(const Bytes* text, Any* out))                                     \
  X(get_stream, TVMFFIEnvGetStream, void* (*)(int32_t device_type, int32_t device_id))                                \
  X(set_stream, TVMFFIEnvSetStream, int (*)(int32_t device_type, int32_t device_id, void* stream, void** before))
// Not in the first releases; nullptr then.
#define RLK_TVMFFI_OPTIONAL(X)                                                                     \
  X(set_allocator, TVMFFIEnvSetDLPackManagedTensorAllocator,                                       \
    int (*)(Allocator allocator, int for_all_threads, Allocator* before))                          \
  X(get_global, TVMFFIFunctionGetGlobal, int (*)(const Bytes* name, void** out))                   \
  X(call, TVMFFIFunctionCall, int (*)(void* function, Any* arguments, int32_t count, Any* result)) \
  X(make_tensor, TVMFFITensorFromDLPackVersioned,                                                  \
    int (*)(DlManagedTensor * from, int32_t alignment, int32_t contiguous, void** out))

template <class T>
struct Is {
  using type = T;
};

struct Library {
#define RLK_TVMFFI_MEMBER(member, symbol, ...) Is<__VA_ARGS__>::type member = nullptr;
  RLK_TVMFFI_LIBRARY(RLK_TVMFFI_MEMBER)
  RLK_TVMFFI_OPTIONAL(RLK_TVMFFI_MEMBER)
#undef RLK_TVMFFI_MEMBER
};

constexpr const char* kLibraryName = "libtvm_ffi.so";

// The functions of the libtvm_ffi that this process has already, however it was loaded; false, with the reason
// in *why, when there is none. Loads nothing.
inline bool find_library(Library* out, std::string* why) {
  // Python loads it with global symbols, a kernel's library only for itself: then its own name finds it.
  void* own = dlopen(kLibraryName, RTLD_LAZY | RTLD_NOLOAD);
  const auto find = [own](const char* symbol) {
    void* found = dlsym(RTLD_DEFAULT, symbol);
    return found != nullptr || own == nullptr ? found : dlsym(own, symbol);
  };
  std::string missing;
#define RLK_TVMFFI_FIND(member, symbol, ...) out->member = reinterpret_cast<decltype(out->member)>(find(#symbol));
#define RLK_TVMFFI_MISSING(member, symbol, ...) \
  if (out->member == nullptr) missing += (missing.empty() ? "" : ", ") + std::string(#symbol);
  RLK_TVMFFI_LIBRARY(RLK_TVMFFI_FIND)
  RLK_TVMFFI_OPTIONAL(RLK_TVMFFI_FIND)
  RLK_TVMFFI_LIBRARY(RLK_TVMFFI_MISSING)
#undef RLK_TVMFFI_FIND
#undef RLK_TVMFFI_MISSING
  if (own != nullptr) dlclose(own);
  if (missing.empty()) return true;
  const bool is_there = out->set_error != nullptr || own != nullptr;
  *why = is_there
             ? "the libtvm_ffi of this process lacks " + missing +
                   "; expected tvm-ffi 0.1 or newer (pip install -U "
                   "apache-tvm-ffi)"
             : "no libtvm_ffi is loaded in this process; import tvm_ffi first (pip install apache-tvm-ffi), or load "
               "libtvm_ffi.so";
  return false;
}

}  // namespace rlk::tvmffi
