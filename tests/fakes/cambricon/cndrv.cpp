// libcndrv.so without Cambricon: what says which device it is.
#include <cstdio>
#include <cstdlib>

#include "tests/fakes/runtime/bridge.hpp"

FAKE_EXPORT int cnInit(unsigned flags) {
  FAKE_ENTER("cnInit", kNothing);
  return flags == 0 ? 0 : 100006;
}
FAKE_EXPORT int cnDeviceGet(int64_t* device, int ordinal) {
  FAKE_ENTER("cnDeviceGet", kNothing);
  return ordinal >= 0 && ordinal < fake::device_count() ? (*device = 7000 + ordinal, 0) : 100005;
}
FAKE_EXPORT int cnDeviceGetName(char* name, int size, int64_t device) {
  FAKE_ENTER("cnDeviceGetName", kNothing);
  if (device < 7000 || device >= 7000 + fake::device_count()) return 100005;
  const char* other = std::getenv("RLK_FAKE_CNRT_NAME");
  return std::snprintf(name, static_cast<size_t>(size), "%s", other != nullptr ? other : "MLU590-Simulated"), 0;
}
FAKE_EXPORT int cnCtxGetCurrent(void** context) {
  FAKE_ENTER("cnCtxGetCurrent", kNothing);
  const int device = fake::current_device();
  return *context = device < 0 ? nullptr : reinterpret_cast<void*>(uintptr_t{0x1000} + static_cast<uintptr_t>(device)),
         0;
}
