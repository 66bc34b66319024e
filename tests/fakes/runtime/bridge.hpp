// One state for a vendor's several libraries: the runtime's has the framework (libcnrt.so, libcuda.so.1,
// libamdhip64.so) and bridge.cpp, the others (libcndrv.so and libcnnl.so, libcublasLt.so.13, libhipblaslt.so) reach it
// through this table. client.cpp is the framework's functions over it.
#pragma once

#include "streams.hpp"

struct FakeBridge {
  int (*enter)(const char* call, fake::Needs needs);
  void (*violation)(const char* rule, const std::string& text);
  int (*enqueue)(void* stream, const char* call, fake::Command command);
  void (*require_device)(const void* pointer, size_t bytes, const fake::Argument& what);
  void (*require_aligned)(const void* pointer, size_t alignment, const fake::Argument& what);
  std::byte* (*bytes_at)(const void* pointer);
  int (*current_device)();
  int (*device_count)();
  int (*lost)();
  std::string (*recorded_with)(const void* handle);
};
FAKE_EXPORT const FakeBridge* fakeBridge();
