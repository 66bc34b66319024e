// How AscendCL captures, and what becomes of it.
#include "device.hpp"

namespace rlk::ascend {
namespace {

constexpr uint32_t kEventOrder = 3;  // wait between streams, query

uint64_t key_of(AclModel model) {
  return reinterpret_cast<uintptr_t>(model);
}

void model_is_gone(void* model) {
  static_cast<void>(AclCaptures::captures().end(key_of(model), 0));
}

// It takes a function once per model.
bool tell_end(uint64_t key) {
  const auto tell = runtime().aclmdlRIDestroyRegisterCallback;
  void* const model = reinterpret_cast<void*>(static_cast<uintptr_t>(key));
  return tell != nullptr && tell(model, &model_is_gone, model) == 0;
}

}  // namespace

bool captures_graphs(const std::string& soc) {
  const Runtime& r = runtime();
#define RLK_ASCEND_IS_HERE(name, result, arguments) \
  if (r.name == nullptr) return false;
  RLK_ASCEND_ACL_CAPTURE(RLK_ASCEND_IS_HERE)
#undef RLK_ASCEND_IS_HERE
  return family_of(soc) != Family::other;
}

composed::Captures& AclCaptures::captures() {
  static auto* const only = new composed::Captures(&tell_end);  // models may outlive static objects
  return *only;
}

std::string AclCaptures::why_not(const ascend::Device& device) {
  if (device.captures()) return {};
  return "this CANN, or this chip, captures no graphs: it takes CANN 8.1 and Atlas A2 or later";
}

composed::CaptureStatus AclCaptures::status(AclStream stream, uint64_t* key) {
  int32_t status = kAclCaptureNone;
  AclModel model = nullptr;
  check(runtime().aclmdlRICaptureGetInfo(stream, &status, &model), "aclmdlRICaptureGetInfo");
  if (status == kAclCaptureNone) return composed::CaptureStatus::none;
  if (status != kAclCaptureActive) return composed::CaptureStatus::broken;
  *key = key_of(model);
  return composed::CaptureStatus::active;
}

// Thread-local mode: what other threads do meanwhile neither breaks the capture nor is broken by it.
void AclCaptures::begin(AclStream stream) {
  check(runtime().aclmdlRICaptureBegin(stream, kAclCaptureThreadLocal), "aclmdlRICaptureBegin");
}

AclModel AclCaptures::end(AclStream stream) {
  AclModel model = nullptr;
  check(runtime().aclmdlRICaptureEnd(stream, &model), "aclmdlRICaptureEnd");
  return model;
}

void AclCaptures::launch(AclModel model, AclStream on) {
  check(runtime().aclmdlRIExecuteAsync(model, on), "aclmdlRIExecuteAsync");
}

void AclCaptures::destroy(AclModel model) {
  runtime().aclmdlRIDestroy(model);
}

void AclCaptures::create(AclEvent* event) {
  const Runtime& r = runtime();
  const auto make = r.aclrtCreateEventExWithFlag != nullptr ? r.aclrtCreateEventExWithFlag : r.aclrtCreateEventWithFlag;
  check(make(event, kEventOrder), "aclrtCreateEventExWithFlag");
}

void AclCaptures::record(AclEvent event, AclStream on) {
  check(runtime().aclrtRecordEvent(event, on), "aclrtRecordEvent");
}

void AclCaptures::wait(AclStream stream, AclEvent event) {
  check(runtime().aclrtStreamWaitEvent(stream, event), "aclrtStreamWaitEvent");
}

void AclCaptures::synchronize(AclEvent event) {
  runtime().aclrtSynchronizeEvent(event);
}

void AclCaptures::destroy_event(AclEvent event) {
  runtime().aclrtDestroyEvent(event);
}

bool AclCaptures::is_reached(AclEvent event) {
  constexpr int32_t kReached = 1;
  int32_t status = kReached;
  check(runtime().aclrtQueryEventStatus(event, &status), "aclrtQueryEventStatus");
  return status == kReached;
}

}  // namespace rlk::ascend
