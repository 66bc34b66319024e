// Stands for libtvm_ffi.so: what the plugins for packs ask of it, for kernels that raise nothing and make no objects.
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT void TVMFFIErrorSetRaisedFromCStr(const char* kind, const char* message) {
  (void)kind, (void)message;
}
EXPORT void TVMFFIErrorMoveFromRaised(void** object) {
  *object = NULL;
}
EXPORT int TVMFFIObjectDecRef(void* object) {
  (void)object;
  return 0;
}
EXPORT int TVMFFIFunctionCreate(void* self, void* call, void* deleter, void** out) {
  (void)self, (void)call, (void)deleter, (void)out;
  return -1;
}
EXPORT int TVMFFIFunctionSetGlobal(const void* name, void* function, int replace) {
  (void)name, (void)function, (void)replace;
  return -1;
}
EXPORT int TVMFFIStringFromByteArray(const void* text, void* out) {
  (void)text, (void)out;
  return -1;
}
EXPORT void* TVMFFIEnvGetStream(int32_t device_type, int32_t device_id) {
  (void)device_type, (void)device_id;
  return NULL;
}
EXPORT int TVMFFIEnvSetStream(int32_t device_type, int32_t device_id, void* stream, void** before) {
  (void)device_type, (void)device_id, (void)stream, (void)before;
  return 0;
}
EXPORT int TVMFFIEnvSetDLPackManagedTensorAllocator(void* allocator, int for_all_threads, void** before) {
  (void)allocator, (void)for_all_threads;
  if (before != NULL) *before = NULL;
  return 0;
}
