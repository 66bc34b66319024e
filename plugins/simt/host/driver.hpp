// What the shared host code asks of a SIMT vendor: a table of the runtime's functions, found by name at run time, the
// numbers that go with them, and what only the vendor knows. Names and shapes follow CUDA's driver API. Where HIP or
// MACA has another shape the table has a member for each, and a vendor binds the one that its runtime has (see
// calls.hpp for who chooses). Building needs no vendor's headers, loading no vendor's library.
#pragma once

#include <rlk/sdk.hpp>

#include <cstdint>
#include <string>

namespace rlk::simt::host {

using Result = int;
using ContextHandle = struct ContextTag*;
using StreamHandle = struct StreamTag*;
using EventHandle = struct EventTag*;
using ModuleHandle = struct ModuleTag*;
using FunctionHandle = struct FunctionTag*;
using GraphHandle = struct GraphTag*;
using GraphExecHandle = struct GraphExecTag*;
using UserObjectHandle = struct UserObjectTag*;
using HostFunction = void (*)(void*);
struct Uuid {
  char bytes[16];
};

// The same numbers in CUDA and HIP; MACA's headers are not public, its library answers as if it had these too.
constexpr Result kSuccess = 0;
constexpr Result kNotReady = 600;
constexpr unsigned kStreamNonBlocking = 1;
constexpr unsigned kEventDisableTiming = 2;
constexpr unsigned kHostAllocPortableMapped = 3;
constexpr int kCaptureThreadLocal = 1;
constexpr int kCaptureRelaxed = 2;
constexpr int kCaptureNone = 0;  // status of a stream's capture
constexpr int kCaptureActive = 1;
constexpr unsigned kUserObjectNoDestructorSync = 1;
constexpr unsigned kGraphUserObjectMove = 1;
constexpr int kFunctionMaxDynamicShared = 8;
constexpr int kPointerMemoryType = 2;
constexpr int kPointerIsManaged = 8;

// result, member, parameters. Device memory is a pointer here; CUDA's driver calls it a 64-bit number, which travels in
// the same register.
#define RLK_SIMT_FUNCTIONS(X)                                                                                        \
  X(Result, init, (unsigned flags))                                                                                  \
  X(Result, driver_version, (int* version))                                                                          \
  X(Result, device_count, (int* count))                                                                              \
  X(Result, device_get, (int* device, int ordinal)) /* without it a device is its ordinal */                         \
  X(Result, device_name, (char* name, int size, int device))                                                         \
  X(Result, device_memory, (size_t * bytes, int device))                                                             \
  X(Result, device_attribute, (int* value, int attribute, int device))                                               \
  X(Result, device_can_access_peer, (int* can, int device, int peer))                                                \
  X(Result, device_uuid, (Uuid * uuid, int device))                                                                  \
  X(Result, device_uuid_v2, (Uuid * uuid, int device)) /* tells the slices of a partitioned card apart */            \
  X(Result, device_pci_id, (char* text, int size, int device))                                                       \
  /* Either a stack of contexts per thread, or a current device per thread. */                                       \
  X(Result, context_retain, (ContextHandle * context, int device))                                                   \
  X(Result, context_release, (int device))                                                                           \
  X(Result, context_current, (ContextHandle * context))                                                              \
  X(Result, context_push, (ContextHandle context))                                                                   \
  X(Result, context_pop, (ContextHandle * context))                                                                  \
  X(Result, device_current, (int* device))                                                                           \
  X(Result, device_set, (int device))                                                                                \
  X(Result, memory_info, (size_t * available, size_t * total))                                                       \
  X(Result, memory_allocate, (void** pointer, size_t bytes))                                                         \
  X(Result, memory_free, (void* pointer))                                                                            \
  X(Result, allocate_async, (void** pointer, size_t bytes, StreamHandle stream))                                     \
  X(Result, free_async, (void* pointer, StreamHandle stream))                                                        \
  X(Result, host_allocate, (void** pointer, size_t bytes, unsigned flags))                                           \
  X(Result, host_allocate_plain, (void** pointer, size_t bytes))                                                     \
  X(Result, host_free, (void* pointer))                                                                              \
  X(Result, pointer_attribute, (void* value, int attribute, const void* pointer))                                    \
  X(Result, copy_async, (void* to, const void* from, size_t bytes, StreamHandle stream))                             \
  X(Result, copy_kind_async, (void* to, const void* from, size_t bytes, int kind, StreamHandle stream))              \
  X(Result, copy_peer_async,                                                                                         \
    (void* to, ContextHandle to_context, const void* from, ContextHandle from_context, size_t bytes,                 \
     StreamHandle stream))                                                                                           \
  X(Result, copy_peer_device_async,                                                                                  \
    (void* to, int to_device, const void* from, int from_device, size_t bytes, StreamHandle stream))                 \
  X(Result, fill_async, (void* to, unsigned char value, size_t bytes, StreamHandle stream))                          \
  X(Result, fill_int_async, (void* to, int value, size_t bytes, StreamHandle stream))                                \
  X(Result, stream_priority_range, (int* least, int* greatest))                                                      \
  X(Result, stream_create, (StreamHandle * stream, unsigned flags, int priority))                                    \
  X(Result, stream_create_plain, (StreamHandle * stream, unsigned flags))                                            \
  X(Result, stream_destroy, (StreamHandle stream))                                                                   \
  X(Result, stream_query, (StreamHandle stream))                                                                     \
  X(Result, stream_synchronize, (StreamHandle stream))                                                               \
  X(Result, stream_wait_event, (StreamHandle stream, EventHandle event, unsigned flags))                             \
  X(Result, stream_is_capturing, (StreamHandle stream, int* status))                                                 \
  X(Result, launch_host_function, (StreamHandle stream, HostFunction function, void* user))                          \
  X(Result, event_create, (EventHandle * event, unsigned flags))                                                     \
  X(Result, event_destroy, (EventHandle event))                                                                      \
  X(Result, event_record, (EventHandle event, StreamHandle stream))                                                  \
  X(Result, event_query, (EventHandle event))                                                                        \
  X(Result, event_synchronize, (EventHandle event))                                                                  \
  X(Result, event_elapsed, (float* ms, EventHandle start, EventHandle end))                                          \
  X(Result, module_load, (ModuleHandle * module, const void* image))                                                 \
  X(Result, module_unload, (ModuleHandle module))                                                                    \
  X(Result, module_function, (FunctionHandle * function, ModuleHandle module, const char* name))                     \
  X(Result, function_set_attribute, (FunctionHandle function, int attribute, int value))                             \
  X(Result, launch_kernel,                                                                                           \
    (FunctionHandle function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, \
     unsigned block_z, unsigned shared_bytes, StreamHandle stream, void** parameters, void** extra))                 \
  /* Before the kernels ahead of it are done, which it waits for itself. */                                          \
  X(Result, launch_early,                                                                                            \
    (FunctionHandle function, unsigned blocks, unsigned threads, unsigned shared_bytes, StreamHandle stream,         \
     void** parameters))                                                                                             \
  X(Result, exchange_capture_mode, (int* mode))                                                                      \
  X(Result, capture_info, (StreamHandle stream, int* status, uint64_t* id))                                          \
  X(Result, capture_info_v2,                                                                                         \
    (StreamHandle stream, int* status, uint64_t* id, GraphHandle* graph, const void** dependencies, size_t* count))  \
  X(Result, user_object_create,                                                                                      \
    (UserObjectHandle * out, void* pointer, HostFunction destroy, unsigned references, unsigned flags))              \
  X(Result, user_object_release, (UserObjectHandle object, unsigned count))                                          \
  X(Result, graph_retain, (GraphHandle graph, UserObjectHandle object, unsigned count, unsigned flags))              \
  X(Result, begin_capture, (StreamHandle stream, int mode))                                                          \
  X(Result, end_capture, (StreamHandle stream, GraphHandle * graph))                                                 \
  X(Result, graph_instantiate, (GraphExecHandle * out, GraphHandle graph, uint64_t flags))                           \
  X(Result, graph_instantiate_logged,                                                                                \
    (GraphExecHandle * out, GraphHandle graph, void** error_node, char* log, size_t size))                           \
  X(Result, graph_launch, (GraphExecHandle graph, StreamHandle stream))                                              \
  X(Result, graph_exec_destroy, (GraphExecHandle graph))                                                             \
  X(Result, graph_destroy, (GraphHandle graph))                                                                      \
  X(Result, error_name, (Result code, const char** text))                                                            \
  X(Result, error_string, (Result code, const char** text))                                                          \
  X(const char*, error_name_text, (Result code))                                                                     \
  X(const char*, error_string_text, (Result code))

// The vendor's numbers of device attributes.
struct Attributes {
  static constexpr int kNone = -1;  // reads as 0
  int warp_size = kNone;
  int multiprocessors = kNone;
  int shared_bytes = kNone;  // that a block may have, asked for where asking is necessary
  int maps_host_memory = kNone;
  int unified_addressing = kNone;
  int memory_pools = kNone;
  int l2_bytes = kNone;
  int memory_clock = kNone;  // kHz
  int bus_width = kNone;     // bits
  int pci_domain = kNone, pci_bus = kNone, pci_device = kNone;
};

// What only the vendor can say of a device; asked without opening it.
struct Profile {
  std::string arch;               // "sm_90"
  std::string driver_version;     // of the kernel's module, empty when it cannot be read
  std::string runtime_version;    // "13.0"
  double matrix_per_us = 1e6;     // 16-bit matrix operations of one multiprocessor, for estimates
  sdk::Refusal refusal;           // why no operator runs on the device
  bool waits_in_kernels = false;  // wait_for_earlier() of ../simt.cuh waits on it: kernels may be launched early
};

// What a code means by CUDA's numbering, which HIP and MACA share.
rlk_status status_of_code(Result code);

struct Driver {
#define RLK_SIMT_MEMBER(result, member, parameters) result(*member) parameters = nullptr;
  RLK_SIMT_FUNCTIONS(RLK_SIMT_MEMBER)
#undef RLK_SIMT_MEMBER

  // The vendor's part; what has no default here must be set.
  const char* name = "";    // in texts: "CUDA"
  const char* domain = "";  // of error codes: "cuda"
  // As DLPack calls the devices of tensors: frameworks made for CUDA, and for what looks like it, say kDLCUDA.
  int32_t dlpack_device_type = 2;
  Attributes attributes;
  // Where no attribute tells: pinned memory has one address for the host and for kernels. Without that (or the two
  // attributes) kernels cannot report data errors, and no operator that has any is verified.
  bool pinned_is_mapped = false;
  unsigned host_memory_type = 1;       // what kPointerMemoryType says of host memory
  int plain_shared_bytes = 48 * 1024;  // dynamic shared memory that a kernel has without asking
  int64_t grid_threads = INT64_MAX;    // that one launch may have in all; HIP: fewer than 2^32
  rlk_status (*status_of)(Result code) = &status_of_code;
  Profile (*profile)(int device) = nullptr;
  // The compiled kernels of plugins/simt/kernels/<name>.cu (or of the vendor's own) for the device, valid until the
  // plugin ends; nullptr: there are none. May compile, may throw. [thread-safe]
  const void* (*image)(const char* name, int device) = nullptr;

  sdk::Symbols symbols;
  std::string path;   // of the library that was loaded, links resolved
  std::string unfit;  // why a runtime that has every function cannot be used, empty when it can

  bool usable() const noexcept {
    return symbols.complete() && unfit.empty();
  }
  // Why the table cannot be used.
  std::string problem() const {
    if (path.empty()) return symbols.problem();
    return path + (unfit.empty() ? " lacks " + symbols.missing_functions() : " " + unfit);
  }
  bool has_graphs() const noexcept {
    return begin_capture && end_capture && (graph_instantiate || graph_instantiate_logged) && graph_launch &&
           graph_exec_destroy && graph_destroy && capture_info;
  }
  // "CUDA_ERROR_NO_DEVICE (100): no CUDA-capable device is detected"
  std::string describe(Result code) const;
};

// Defined by each vendor's plugin: opens the library once per process; it stays open. The table is unusable, never
// absent.
const Driver& driver();

// Throws for anything but success: what was attempted, the driver's own words, and the status that fits the code.
void check(Result code, const char* attempt);

}  // namespace rlk::simt::host
