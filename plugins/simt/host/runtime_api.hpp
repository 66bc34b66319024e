// The runtime API of HIP's shape: one library, a current device per thread, copies that name their kind. HIP and MACA
// name the same functions with prefixes of their own; what a vendor calls otherwise stands in its own table.
#pragma once

#include "driver.hpp"

#include <initializer_list>
#include <vector>

// X(member of Driver, exported function)
#define RLK_SIMT_RUNTIME_REQUIRED(X, p)            \
  X(init, p##Init)                                 \
  X(driver_version, p##DriverGetVersion)           \
  X(device_count, p##GetDeviceCount)               \
  X(device_name, p##DeviceGetName)                 \
  X(device_memory, p##DeviceTotalMem)              \
  X(device_attribute, p##DeviceGetAttribute)       \
  X(device_current, p##GetDevice)                  \
  X(device_set, p##SetDevice)                      \
  X(memory_info, p##MemGetInfo)                    \
  X(memory_allocate, p##Malloc)                    \
  X(memory_free, p##Free)                          \
  X(copy_kind_async, p##MemcpyAsync)               \
  X(fill_int_async, p##MemsetAsync)                \
  X(stream_create_plain, p##StreamCreateWithFlags) \
  X(stream_destroy, p##StreamDestroy)              \
  X(stream_query, p##StreamQuery)                  \
  X(stream_synchronize, p##StreamSynchronize)      \
  X(stream_wait_event, p##StreamWaitEvent)         \
  X(event_create, p##EventCreateWithFlags)         \
  X(event_destroy, p##EventDestroy)                \
  X(event_record, p##EventRecord)                  \
  X(event_query, p##EventQuery)                    \
  X(event_synchronize, p##EventSynchronize)        \
  X(event_elapsed, p##EventElapsedTime)            \
  X(module_load, p##ModuleLoadData)                \
  X(module_unload, p##ModuleUnload)                \
  X(module_function, p##ModuleGetFunction)         \
  X(launch_kernel, p##ModuleLaunchKernel)          \
  X(error_name_text, p##GetErrorName)              \
  X(error_string_text, p##GetErrorString)

// Without one of these what needs it is not offered.
#define RLK_SIMT_RUNTIME_OPTIONAL(X, p)                        \
  X(device_can_access_peer, p##DeviceCanAccessPeer)            \
  X(device_pci_id, p##DeviceGetPCIBusId)                       \
  X(copy_peer_device_async, p##MemcpyPeerAsync)                \
  X(stream_create, p##StreamCreateWithPriority)                \
  X(stream_priority_range, p##DeviceGetStreamPriorityRange)    \
  X(stream_is_capturing, p##StreamIsCapturing)                 \
  X(launch_host_function, p##LaunchHostFunc)                   \
  X(allocate_async, p##MallocAsync)                            \
  X(free_async, p##FreeAsync)                                  \
  X(exchange_capture_mode, p##ThreadExchangeStreamCaptureMode) \
  X(capture_info, p##StreamGetCaptureInfo)                     \
  X(begin_capture, p##StreamBeginCapture)                      \
  X(end_capture, p##StreamEndCapture)                          \
  X(graph_instantiate_logged, p##GraphInstantiate)             \
  X(graph_launch, p##GraphLaunch)                              \
  X(graph_exec_destroy, p##GraphExecDestroy)                   \
  X(graph_destroy, p##GraphDestroy)

#define RLK_SIMT_BIND_REQUIRED(member, function) table.symbols.require(library, #function, table.member);
#define RLK_SIMT_BIND_OPTIONAL(member, function) table.symbols.find(library, #function, table.member);

namespace rlk::simt::host {

// What only the vendor knows of finding its runtime and its hardware.
struct Identity {
  const char* vendor;                    // "AMD"
  const char* runtime;                   // "HIP"
  std::vector<const char*> nodes;        // device files, any of which will do
  std::vector<const char*> pci_vendors;  // as in /sys/bus/pci/devices/*/vendor: "0x1002"
  std::vector<int> widths;               // of its devices' SIMT
  const char* install_hint;
  const char* device_hint;
  std::string (*version)();  // of the runtime, empty when it does not say
};

// Evidence from the nodes, the PCI bus, the library and the devices, then the verdict.
sdk::Verdict probe_runtime(const Identity& identity, sdk::Evidence& evidence);

// Of a module of the kernel; empty where it is not loaded, or does not say.
std::string module_version(const char* module);

// ROOT/lib for every variable that is set, in this order, then the default roots'.
std::vector<std::string> library_folders(std::initializer_list<const char*> variables,
                                         std::initializer_list<const char*> roots);

}  // namespace rlk::simt::host
