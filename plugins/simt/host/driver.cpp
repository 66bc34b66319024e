// What an error code means, and what the driver says of it.
#include "driver.hpp"

namespace rlk::simt::host {

rlk_status status_of_code(Result code) {
  switch (code) {
    case 2:  // OUT_OF_MEMORY
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

std::string Driver::describe(Result code) const {
  const char* text_name = error_name_text != nullptr ? error_name_text(code) : nullptr;
  const char* text = error_string_text != nullptr ? error_string_text(code) : nullptr;
  if (error_name != nullptr) error_name(code, &text_name);
  if (error_string != nullptr) error_string(code, &text);
  std::string out = text_name != nullptr ? text_name : std::string(name) + " error";
  out += " (" + std::to_string(code) + ")";
  if (text != nullptr) out += std::string(": ") + text;
  return out;
}

void check(Result code, const char* attempt) {
  if (code == kSuccess) return;
  const Driver& table = driver();
  throw sdk::Error(table.status_of(code), std::string(attempt) + " failed with " + table.describe(code), code,
                   table.domain);
}

}  // namespace rlk::simt::host
