// The table of the runtime that tests/fakes/wide simulates: what a vendor like HIP or MACA writes. Other names, other
// shapes and other numbers than CUDA's; nothing else differs.
#include <map>
#include <mutex>

#include "plugins/simt/host/calls.hpp"

// member of simt::host::Driver, export
#define RLK_WIDE_REQUIRED(X)                           \
  X(init, "wideInit")                                  \
  X(driver_version, "wideDriverGetVersion")            \
  X(device_count, "wideGetDeviceCount")                \
  X(device_name, "wideDeviceGetName")                  \
  X(device_memory, "wideDeviceTotalMem")               \
  X(device_attribute, "wideDeviceGetAttribute")        \
  X(device_can_access_peer, "wideDeviceCanAccessPeer") \
  X(device_pci_id, "wideDeviceGetPCIBusId")            \
  X(device_current, "wideGetDevice")                   \
  X(device_set, "wideSetDevice")                       \
  X(memory_info, "wideMemGetInfo")                     \
  X(memory_allocate, "wideMalloc")                     \
  X(memory_free, "wideFree")                           \
  X(host_allocate_plain, "wideMallocHost")             \
  X(host_free, "wideFreeHost")                         \
  X(copy_kind_async, "wideMemcpyAsync")                \
  X(copy_peer_device_async, "wideMemcpyPeerAsync")     \
  X(fill_int_async, "wideMemsetAsync")                 \
  X(stream_create_plain, "wideStreamCreateWithFlags")  \
  X(stream_destroy, "wideStreamDestroy")               \
  X(stream_query, "wideStreamQuery")                   \
  X(stream_synchronize, "wideStreamSynchronize")       \
  X(stream_wait_event, "wideStreamWaitEvent")          \
  X(stream_is_capturing, "wideStreamIsCapturing")      \
  X(launch_host_function, "wideLaunchHostFunc")        \
  X(event_create, "wideEventCreateWithFlags")          \
  X(event_destroy, "wideEventDestroy")                 \
  X(event_record, "wideEventRecord")                   \
  X(event_query, "wideEventQuery")                     \
  X(event_synchronize, "wideEventSynchronize")         \
  X(event_elapsed, "wideEventElapsedTime")             \
  X(module_load, "wideModuleLoadData")                 \
  X(module_unload, "wideModuleUnload")                 \
  X(module_function, "wideModuleGetFunction")          \
  X(launch_kernel, "wideModuleLaunchKernel")           \
  X(error_name_text, "wideGetErrorName")               \
  X(error_string_text, "wideGetErrorString")

#define RLK_WIDE_OPTIONAL(X)                                      \
  X(allocate_async, "wideMallocAsync")                            \
  X(free_async, "wideFreeAsync")                                  \
  X(exchange_capture_mode, "wideThreadExchangeStreamCaptureMode") \
  X(capture_info, "wideStreamGetCaptureInfo")                     \
  X(begin_capture, "wideStreamBeginCapture")                      \
  X(end_capture, "wideStreamEndCapture")                          \
  X(graph_instantiate_logged, "wideGraphInstantiate")             \
  X(graph_launch, "wideGraphLaunch")                              \
  X(graph_exec_destroy, "wideGraphExecDestroy")                   \
  X(graph_destroy, "wideGraphDestroy")

namespace rlk::wide {
namespace {

using namespace simt::host;

constexpr Result kOutOfMemory = 10007;

Driver open_driver() {
  Driver table;
  void* library = table.symbols.require_library({"libwide.so.1"});
#define RLK_WIDE_NEED(member, symbol) table.symbols.require(library, symbol, table.member);
#define RLK_WIDE_FIND(member, symbol) table.symbols.find(library, symbol, table.member);
  RLK_WIDE_REQUIRED(RLK_WIDE_NEED)
  RLK_WIDE_OPTIONAL(RLK_WIDE_FIND)
#undef RLK_WIDE_NEED
#undef RLK_WIDE_FIND
  table.path = sdk::Symbols::path_of(table.init);
  table.name = "wide";
  table.domain = "wide";
  table.attributes.multiprocessors = 63;
  table.attributes.shared_bytes = 74;
  table.attributes.warp_size = 87;
  table.pinned_is_mapped = true;
  table.plain_shared_bytes = 64 * 1024;
  table.grid_threads = (1 << 14) - 1;
  table.status_of = [](Result code) { return code == kOutOfMemory ? RLK_OUT_OF_MEMORY : status_of_code(code); };
  table.profile = [](int) {
    Profile profile;
    profile.arch = "wide64";
    profile.runtime_version = "5.2";
    return profile;
  };
  // What the runtime takes for compiled kernels is a text that names them.
  table.image = [](const char* name, int) -> const void* {
    static std::mutex mutex;
    static std::map<std::string, std::string> images;
    const std::lock_guard<std::mutex> lock(mutex);
    return images.emplace(name, std::string("simulated code object of ") + name + "\n").first->second.c_str();
  };
  return table;
}

}  // namespace
}  // namespace rlk::wide

const rlk::simt::host::Driver& rlk::simt::host::driver() {
  static const Driver table = wide::open_driver();
  return table;
}
