// libamdhip64.so without AMD: HIP's names and numbers over the simulated runtime, and what HIP has beside MACA.
#define P(name) hip##name
#include "functions.inc"

const Runtime& fake::runtime() {
  static constexpr Runtime only = shared_numbers("hip", "RLK_FAKE_HIP_", 60342134);
  return only;
}

const Vendor& fake_simt::vendor() {
  static const auto* const only =
      new Vendor{"Simulated Instinct",
                 0xe0,
                 // The numbers of 5.0 to 7.1.
                 {{19, 8 << 20}, {23, 9}, {59, 8192}, {60, 1600000}, {61, 0}, {63, 4}, {67, 0xe0}, {68, 0}, {88, 1}},
                 87,
                 74,
                 [](int code) {
                   return code == 0     ? "hipSuccess"
                          : code == 100 ? "hipErrorNoDevice"
                          : code == 101 ? "hipErrorInvalidDevice"
                          : code == 2   ? "hipErrorOutOfMemory"
                          : code == 719 ? "hipErrorLaunchFailure"
                                        : "hipErrorUnknown";
                 }};
  return *only;
}

API hipHostMalloc(void** pointer, size_t bytes, unsigned) {
  S(HostMalloc);
  return allocate_pinned(bytes, pointer);
}
API hipHostFree(void* pointer) {
  S(HostFree);
  return release(pointer, true, "hipHostFree"), 0;
}
API hipDeviceGetUuid(char* uuid, int device) {
  E(DeviceGetUuid);
  for (int i = 0; i < 16; ++i) uuid[i] = static_cast<char>(0x40 + 16 * device + i);
  return 0;
}
API hipPointerGetAttribute(void* value, int attribute, void* pointer) {
  E(PointerGetAttribute);
  const Kind kind = kind_of(pointer);
  if (kind == Kind::kUnknown) return runtime().invalid_value;
  // Before 6 host memory was 0 and device memory 1.
  const unsigned type = (kind == Kind::kPinned ? 1 : 2) - (version() < 60000000 ? 1u : 0u);
  return *static_cast<unsigned*>(value) = attribute == 2 ? type : 0, 0;
}
API hipStreamGetCaptureInfo_v2(void* handle, int* status, uint64_t* id, void** graph, const void***, size_t*) {
  E(StreamGetCaptureInfo_v2);
  return capture_info(handle, status, id, "hipStreamGetCaptureInfo_v2", graph);
}
API hipUserObjectCreate(void** object, void* user, void (*destroy)(void*), unsigned references, unsigned flags) {
  E(UserObjectCreate);
  return create_user_object(object, user, destroy, references, flags);
}
API hipUserObjectRelease(void* object, unsigned) {
  E(UserObjectRelease);
  return user_objects().take(object, "hipUserObjectRelease"), 0;
}
API hipGraphRetainUserObject(void* graph, void* object, unsigned count, unsigned flags) {
  E(GraphRetainUserObject);
  return retain_user_object(graph, object, count, flags, "hipGraphRetainUserObject");
}
