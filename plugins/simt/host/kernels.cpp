// Modules and functions that were asked for.
#include "kernels.hpp"

namespace rlk::simt::host {

Kernels::~Kernels() {
  for (const auto& [name, image] : images_)
    if (image.module != nullptr) driver().module_unload(image.module);
}

ModuleHandle Kernels::module_of(const char* image) {
  Image* mine = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    mine = &images_[image];
  }
  {
    const std::lock_guard<std::mutex> lock(mine->mutex);
    if (mine->module != nullptr) return mine->module;
  }
  const void* bytes = driver().image(image, device_);  // may compile
  if (bytes == nullptr) {
    throw sdk::Error(RLK_UNSUPPORTED, std::string("this plugin holds no compiled kernels of ") + image +
                                          "; build it where the vendor's compiler is");
  }
  const std::lock_guard<std::mutex> lock(mine->mutex);
  if (mine->module == nullptr) {
    ModuleHandle loaded = nullptr;
    check(driver().module_load(&loaded, bytes), "loading the compiled kernels");
    mine->module = loaded;
  }
  return mine->module;
}

FunctionHandle Kernels::get(const char* image, const std::string& name, int dynamic_shared) {
  const Driver& table = driver();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = functions_.find(name);
    if (found != functions_.end()) return found->second;
  }
  const ModuleHandle module = module_of(image);
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = functions_.find(name);
  if (found != functions_.end()) return found->second;
  FunctionHandle function = nullptr;
  check(table.module_function(&function, module, name.c_str()), ("finding the kernel " + name).c_str());
  if (dynamic_shared > table.plain_shared_bytes && table.function_set_attribute != nullptr) {
    check(table.function_set_attribute(function, kFunctionMaxDynamicShared, dynamic_shared),
          ("giving shared memory to the kernel " + name).c_str());
  }
  functions_.emplace(name, function);
  return function;
}

}  // namespace rlk::simt::host
