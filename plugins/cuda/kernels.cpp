// The images, embedded by the assembler, and the functions that were asked for.
#include "kernels.hpp"

// RLK_CUDA_IMAGE_FOLDER: where the build put the compiled kernels; not defined when it had no nvcc.
#ifdef RLK_CUDA_IMAGE_FOLDER
#define RLK_CUDA_EMBED(name)                       \
  asm(".section .rodata, \"a\", @progbits\n"       \
      ".balign 64\n"                               \
      ".globl rlk_cuda_image_" #name               \
      "\n"                                         \
      ".hidden rlk_cuda_image_" #name              \
      "\n"                                         \
      "rlk_cuda_image_" #name                      \
      ":\n"                                        \
      ".incbin \"" RLK_CUDA_IMAGE_FOLDER "/" #name \
      ".fatbin\"\n"                                \
      ".previous\n");                              \
  extern "C" const unsigned char rlk_cuda_image_##name[] __attribute__((visibility("hidden")));

RLK_CUDA_EMBED(add)
RLK_CUDA_EMBED(attention_mma)
RLK_CUDA_EMBED(attention_simt)
RLK_CUDA_EMBED(logp)
RLK_CUDA_EMBED(logp_backward)
#endif

namespace rlk::cuda {
namespace {

const void* image_of([[maybe_unused]] Image image) {
#ifdef RLK_CUDA_IMAGE_FOLDER
  static constexpr const unsigned char* kImages[] = {rlk_cuda_image_add, rlk_cuda_image_attention_mma,
                                                     rlk_cuda_image_attention_simt, rlk_cuda_image_logp,
                                                     rlk_cuda_image_logp_backward};
  return kImages[static_cast<int>(image)];
#else
  return nullptr;
#endif
}

}  // namespace

bool kernels_built() noexcept {
#ifdef RLK_CUDA_IMAGE_FOLDER
  return true;
#else
  return false;
#endif
}

Kernels::~Kernels() {
  for (ModuleHandle module : modules_) {
    if (module != nullptr) driver().module_unload(module);
  }
}

FunctionHandle Kernels::get(Image image, const std::string& name, int dynamic_shared) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = functions_.find(name);
  if (found != functions_.end()) return found->second;
  const void* bytes = image_of(image);
  if (bytes == nullptr) {
    throw sdk::Error(RLK_UNSUPPORTED, "this plugin was built without nvcc and holds no kernels; rebuild it with nvcc");
  }
  ModuleHandle& module = modules_[static_cast<int>(image)];
  if (module == nullptr) check(driver().module_load(&module, bytes), "loading the compiled kernels");
  FunctionHandle function = nullptr;
  check(driver().module_function(&function, module, name.c_str()), ("finding the kernel " + name).c_str());
  if (dynamic_shared > 48 * 1024) {
    check(driver().function_set_attribute(function, kFunctionMaxDynamicShared, dynamic_shared),
          ("giving shared memory to the kernel " + name).c_str());
  }
  functions_.emplace(name, function);
  return function;
}

}  // namespace rlk::cuda
