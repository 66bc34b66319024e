// libamdhip64.so without AMD: HIP's names and numbers over the simulated runtime, and what HIP has beside MACA.
#define P(name) hip##name
#include "functions.inc"

namespace fake_simt {

const Vendor& vendor() {
  static const auto* const only =
      new Vendor{"hip",
                 "RLK_FAKE_HIP_",
                 "Simulated Instinct",
                 60342134,
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

}  // namespace fake_simt

API hipHostMalloc(void** pointer, size_t bytes, unsigned) {
  ENTER_SAFE(HostMalloc);
  return allocate_pinned(bytes, pointer);
}
API hipHostFree(void* pointer) {
  ENTER_SAFE(HostFree);
  return release(pointer, true, "hipHostFree"), 0;
}
API hipDeviceGetUuid(char* uuid, int device) {
  ENTER(DeviceGetUuid, true);
  for (int i = 0; i < 16; ++i) uuid[i] = static_cast<char>(0x40 + 16 * device + i);
  return 0;
}
API hipPointerGetAttribute(void* value, int attribute, void* pointer) {
  ENTER(PointerGetAttribute, true);
  const int kind = kind_of(pointer);
  if (kind == 0) return kInvalidValue;
  // Before 6 host memory was 0 and device memory 1.
  const unsigned type = static_cast<unsigned>(kind) - (knob("VERSION", vendor().version) < 60000000 ? 1 : 0);
  return *static_cast<unsigned*>(value) = attribute == 2 ? type : 0, 0;
}
API hipStreamGetCaptureInfo_v2(void* handle, int* status, unsigned long long* id, void** graph, const void***,
                               size_t*) {
  ENTER(StreamGetCaptureInfo_v2, true);
  const auto stream = stream_of(handle, "hipStreamGetCaptureInfo_v2");
  *status = stream->capture == nullptr ? 0 : stream->capture->broken ? 2 : 1;
  if (*status == 1 && id != nullptr) *id = stream->capture->id;
  if (*status == 1 && graph != nullptr) *graph = graphs().add(stream->capture->graph);
  return 0;
}
API hipUserObjectCreate(void** object, void* user, void (*destroy)(void*), unsigned references, unsigned flags) {
  ENTER(UserObjectCreate, true);
  if (references != 1 || flags != 1) return kInvalidValue;
  const auto held = std::shared_ptr<Held>(new Held{user, destroy});
  return *object = user_objects().add(std::make_shared<std::shared_ptr<Held>>(held)), 0;
}
API hipUserObjectRelease(void* object, unsigned) {
  ENTER(UserObjectRelease, true);
  user_objects().get(object, "hipUserObjectRelease");
  return user_objects().remove(object), 0;
}
API hipGraphRetainUserObject(void* graph, void* object, unsigned count, unsigned flags) {
  ENTER(GraphRetainUserObject, true);
  if (count != 1 || flags != 1) return kInvalidValue;
  graphs()
      .get(graph, "hipGraphRetainUserObject")
      ->held.push_back(*user_objects().get(object, "hipGraphRetainUserObject"));
  return user_objects().remove(object), 0;
}
