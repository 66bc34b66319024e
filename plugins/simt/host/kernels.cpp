// Modules and functions that were asked for.
#include "kernels.hpp"

namespace rlk::simt::host {

Kernels::~Kernels() {
  for (const auto& [name, module] : modules_) driver().module_unload(module);
}

FunctionHandle Kernels::get(const char* image, const std::string& name, int dynamic_shared) {
  const Driver& table = driver();
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = functions_.find(name);
  if (found != functions_.end()) return found->second;
  auto module = modules_.find(image);
  if (module == modules_.end()) {
    const void* bytes = table.image(image, device_);
    if (bytes == nullptr) {
      throw sdk::Error(RLK_UNSUPPORTED, std::string("this plugin holds no compiled kernels of ") + image +
                                            "; build it where the vendor's compiler is");
    }
    ModuleHandle loaded = nullptr;
    check(table.module_load(&loaded, bytes), "loading the compiled kernels");
    module = modules_.emplace(image, loaded).first;
  }
  FunctionHandle function = nullptr;
  check(table.module_function(&function, module->second, name.c_str()), ("finding the kernel " + name).c_str());
  if (dynamic_shared > table.plain_shared_bytes && table.function_set_attribute != nullptr) {
    check(table.function_set_attribute(function, kFunctionMaxDynamicShared, dynamic_shared),
          ("giving shared memory to the kernel " + name).c_str());
  }
  functions_.emplace(name, function);
  return function;
}

}  // namespace rlk::simt::host
