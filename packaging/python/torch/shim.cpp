#include "shim.hpp"

#include <dlfcn.h>

#include <stdexcept>
#include <string>

namespace rlk::torch {
namespace {

Shim bound;

}  // namespace

// torch is loaded before, and its symbols are not global: its libraries are asked by name. NOLOAD loads nothing.
void* find_in_torch(const char* name) {
  for (const char* library :
       {"libtorch_cpu.so", "libtorch_cuda.so", "libtorch_hip.so", "libtorch_python.so", "libtorch.so"}) {
    void* const handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    if (handle == nullptr) continue;
    void* const found = dlsym(handle, name);
    dlclose(handle);  // torch is never unloaded
    if (found != nullptr) return found;
  }
  return dlsym(RTLD_DEFAULT, name);
}

const Shim& shim = bound;

const char* bind_shim() {
  Shim all;
#define F(name, result, parameters)                                        \
  all.name = reinterpret_cast<result(*) parameters>(find_in_torch(#name)); \
  if (all.name == nullptr) return #name;
#define F_OPTIONAL(name, result, parameters, since) \
  all.name = reinterpret_cast<result(*) parameters>(find_in_torch(#name));
#include "shim_functions.inc"
#undef F
#undef F_OPTIONAL
  bound = all;
  return nullptr;
}

void check(int32_t code, const char* function) {
  if (code != 0) throw std::runtime_error(std::string("torch's ") + function + " failed; torch has logged why");
}

}  // namespace rlk::torch
