// Simulated SIMT devices: what runtimes of HIP's shape have beside streams and memory (../runtime): attributes, modules
// and kernels. A vendor's library is a table of exported functions over it (functions.inc) and a few numbers (Vendor).
// Kernels are the shipped sources on fibers.
#pragma once

#include "tests/fakes/runtime/streams.hpp"

#include <map>
#include <string>

namespace fake_simt {

using namespace fake;

// Defined by each vendor's library, beside fake::runtime().
struct Vendor {
  const char* device_name;
  int first_bus;                          // PCI bus of device 0
  std::map<int, int> attributes;          // number -> value
  int width_attribute, shared_attribute;  // numbers of those that can be set
  const char* (*name_of)(int code);
  const char* pci_format = "0000:%02x:00.0";  // of the bus
  unsigned shared_bytes = 65536;              // of a block, unless ..._SHARED says otherwise
  unsigned plain_shared = UINT32_MAX;         // that a kernel may have before it is given more
  uint64_t grid_threads = uint64_t{1} << 32;  // a launch has fewer
};
const Vendor& vendor();

// CUDA's numbers, which HIP and MACA share.
constexpr Runtime shared_numbers(const char* name, const char* variable, int version) {
  Runtime numbers{};
  numbers.name = name;
  numbers.variable = variable;
  numbers.version = version;
  numbers.invalid_value = 1;
  numbers.out_of_memory = 2;
  numbers.no_device = 100;
  numbers.invalid_device = 101;
  numbers.invalid_handle = 400;
  numbers.not_ready = 600;
  numbers.launch_failed = 719;
  numbers.capture_forbids = 900;
  numbers.capture_broken = 901;
  numbers.event_in_capture = 907;
  numbers.is_sticky = [](int code) { return code == 46 || code == 214 || code == 700 || (code >= 714 && code <= 719); };
  return numbers;
}
constexpr int kInvalidImage = 200, kNotFound = 500;

// The vendor's code for an attribute that it does not have is that of an invalid value.
int attribute_of(int device, int attribute, int* value);

struct Module {
  int device;
  std::string kernels;  // "add"; empty: any
};
struct Function {
  int device;
  std::string name;
  void* entry;
  unsigned shared_limit;
  unsigned cluster;  // blocks that run at the same time
};
Handles<Module>& modules();
Handles<Function>& functions();
Handles<std::shared_ptr<Held>>& user_objects();

unsigned shared_bytes();  // that a block may have
int load_module(const void* image, void** out);
int find_function(Module& module, const char* name, void** out);
// is_early: each of its threads waits itself for what is ahead of it in the stream.
int launch(Function& function, const unsigned grid[3], const unsigned block[3], unsigned shared, void* stream,
           void** parameters, const char* call, bool is_early = false);

// What a graph keeps for its owner: an object, then a part of the graph. Of one reference, moved: nothing else is
// known.
int create_user_object(void** out, void* user, void (*destroy)(void*), unsigned references, unsigned flags);
int retain_user_object(void* graph, void* object, unsigned count, unsigned flags, const char* call);

// What a simulated run-time compiler makes of kernels, and a module is loaded from.
constexpr const char* kCodeMagic = "simulated code object of ";

}  // namespace fake_simt
