// libmcruntime.so without MetaX: MACA's names and numbers over the simulated runtime, and its compiler, which is in the
// same library. mcInit must come first: nothing says that a call without it is safe.
#define P(name) mc##name
#include "functions.inc"

const Runtime& fake::runtime() {
  static constexpr Runtime only = [] {
    Runtime numbers = shared_numbers("maca", "RLK_FAKE_MACA_", 3050);
    numbers.must_initialize = true;
    numbers.is_sticky = [](int code) {
      return code == 700 || (code >= 714 && code <= 719) || code == 10002 || code == 10030;
    };
    return numbers;
  }();
  return only;
}

const Vendor& fake_simt::vendor() {
  static const auto* const only =
      new Vendor{"MetaX C500 (simulated)",
                 0xa0,
                 // As published: native version 10.0, a C500's 64 GiB bus, its L2 and its multiprocessors.
                 {{14, 1800000}, {15, 4096}, {16, 4}, {18, 8 << 20}, {21, 10}, {22, 0}, {24, 0xa0}, {25, 0}, {63, 1}},
                 10,
                 7,
                 [](int code) {
                   return code == 0       ? "mcSuccess"
                          : code == 100   ? "mcErrorNoDevice"
                          : code == 101   ? "mcErrorInvalidDevice"
                          : code == 2     ? "mcErrorMemoryAllocation"
                          : code == 719   ? "mcErrorLaunchFailure"
                          : code == 10003 ? "mcErrorDriverMismatch"
                          : code == 10007 ? "mcErrorNoMemory"
                          : code == 10030 ? "mcErrorDriverFunctionLevelReset"
                                          : "mcErrorUnknown";
                 }};
  return *only;
}

API mcMallocHost(void** pointer, size_t bytes) {
  S(MallocHost);
  return allocate_pinned(bytes, pointer);
}
API mcFreeHost(void* pointer) {
  S(FreeHost);
  return release(pointer, true, "mcFreeHost"), 0;
}
API mcDeviceGetUuid(char* uuid, int device) {
  E(DeviceGetUuid);
  if (!is_device(device)) return runtime().invalid_device;
  for (int i = 0; i < 16; ++i) uuid[i] = static_cast<char>(0x20 + 16 * device + i);
  return 0;
}
API mcrtcVersion(int* major, int* minor) {
  return *major = 3, *minor = 5, 0;
}
