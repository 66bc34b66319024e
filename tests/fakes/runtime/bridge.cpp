// The table through which a vendor's other libraries reach the runtime's state, in the library that has it.
#include "bridge.hpp"

using namespace fake;

FAKE_EXPORT const FakeBridge* fakeBridge() {
  static const FakeBridge only = {&enter,
                                  [](const char* rule, const std::string& text) { violation(rule, text); },
                                  &enqueue,
                                  &require_device,
                                  &require_aligned,
                                  &bytes_at,
                                  &current_device,
                                  &device_count,
                                  &lost,
                                  &recorded_with};
  return &only;
}
