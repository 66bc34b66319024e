// Opening the library, finding every function, and what an error code means.
#include "driver.hpp"

#include <dlfcn.h>

#include <cstdlib>

namespace rlk::cuda {
namespace {

std::string resolved_path_of(void* symbol) {
  Dl_info info;
  if (dladdr(symbol, &info) == 0 || info.dli_fname == nullptr) return "libcuda.so.1";
  char* real = realpath(info.dli_fname, nullptr);
  std::string path = real != nullptr ? real : info.dli_fname;
  std::free(real);
  return path;
}

Driver open_driver() {
  Driver table;
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();
    table.problem = why != nullptr ? why : "libcuda.so.1 could not be opened";
    return table;
  }
#define RLK_CUDA_FIND(member, symbol, parameters) \
  table.member = reinterpret_cast<Result(*) parameters>(dlsym(library, symbol));
#define RLK_CUDA_NEED(member, symbol, parameters) \
  RLK_CUDA_FIND(member, symbol, parameters)       \
  if (table.member == nullptr) table.missing.push_back(symbol);
  RLK_CUDA_REQUIRED(RLK_CUDA_NEED)
  RLK_CUDA_OPTIONAL(RLK_CUDA_FIND)
#undef RLK_CUDA_NEED
#undef RLK_CUDA_FIND
  void* any = dlsym(library, "cuInit");
  table.path = any != nullptr ? resolved_path_of(any) : "libcuda.so.1";
  if (!table.missing.empty()) {
    table.problem = table.path + " lacks";
    for (const std::string& name : table.missing) table.problem += " " + name;
  }
  return table;
}

rlk_status status_of(Result code) {
  switch (code) {
    case kOutOfMemory:
      return RLK_OUT_OF_MEMORY;
    case 214:  // ECC_UNCORRECTABLE
    case 700:  // ILLEGAL_ADDRESS
    case 702:  // LAUNCH_TIMEOUT
    case 709:  // CONTEXT_IS_DESTROYED
    case 710:  // ASSERT
    case 714:  // HARDWARE_STACK_ERROR
    case 715:  // ILLEGAL_INSTRUCTION
    case 716:  // MISALIGNED_ADDRESS
    case 717:  // INVALID_ADDRESS_SPACE
    case 718:  // INVALID_PC
    case 719:  // LAUNCH_FAILED
    case 721:  // CONTAINED
      return RLK_DEVICE_LOST;
    default:
      return code >= 900 && code <= 908 ? RLK_CAPTURE_FORBIDS : RLK_BACKEND_ERROR;
  }
}

}  // namespace

std::string Driver::describe(Result code) const {
  const char* name = nullptr;
  const char* text = nullptr;
  if (error_name != nullptr) error_name(code, &name);
  if (error_string != nullptr) error_string(code, &text);
  std::string out = name != nullptr ? name : "CUDA error";
  out += " (" + std::to_string(code) + ")";
  if (text != nullptr) out += std::string(": ") + text;
  return out;
}

const Driver& driver() {
  static const Driver table = open_driver();
  return table;
}

void check(Result code, const char* attempt) {
  if (code == kSuccess) return;
  throw sdk::Error(status_of(code), std::string(attempt) + " failed with " + driver().describe(code), code, "cuda");
}

}  // namespace rlk::cuda
