// Finding every function, and what an error code means.
#include "driver.hpp"

namespace rlk::cuda {
namespace {

Driver open_driver() {
  Driver table;
  void* library = table.symbols.require_library({"libcuda.so.1"});
#define RLK_CUDA_NEED(member, symbol, parameters) table.symbols.require(library, symbol, table.member);
#define RLK_CUDA_FIND(member, symbol, parameters) table.symbols.find(library, symbol, table.member);
  RLK_CUDA_REQUIRED(RLK_CUDA_NEED)
  RLK_CUDA_OPTIONAL(RLK_CUDA_FIND)
#undef RLK_CUDA_NEED
#undef RLK_CUDA_FIND
  table.path = sdk::Symbols::path_of(table.init);
  return table;
}

rlk_status status_of(Result code) {
  switch (code) {
    case kOutOfMemory:
      return RLK_OUT_OF_MEMORY;
    case 801:  // NOT_SUPPORTED
      return RLK_UNSUPPORTED;
    // After these the context is corrupt: whatever is called next returns the same code, until the process ends.
    case 46:   // DEVICE_UNAVAILABLE
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
