// How CNRT captures, and what becomes of it.
#include "device.hpp"

namespace rlk::cambricon {

composed::Captures& CnrtCaptures::captures() {
  static auto* const only = new composed::Captures([](uint64_t) { return false; });  // entities may outlive it
  return *only;
}

// CNRT numbers its captures.
composed::CaptureStatus CnrtCaptures::status(CnrtQueue queue, uint64_t* key) {
  int status = kCaptureNone;
  check(runtime().cnrtQueueGetCaptureInfo(queue, &status, key, nullptr, nullptr, nullptr), "cnrtQueueGetCaptureInfo");
  return status == kCaptureNone     ? composed::CaptureStatus::none
         : status == kCaptureActive ? composed::CaptureStatus::active
                                    : composed::CaptureStatus::broken;
}

// Relaxed mode: global mode would forbid questions and allocations to every thread, and CNRT does not have the mode
// between them yet.
void CnrtCaptures::begin(CnrtQueue queue) {
  check(runtime().cnrtQueueBeginCapture(queue, kCaptureRelaxed), "cnrtQueueBeginCapture");
}

// An entity is made with all that it needs of the topology.
CnrtEntity CnrtCaptures::end(CnrtQueue queue) {
  const Runtime& r = runtime();
  CnrtTopology topology = nullptr;
  check(r.cnrtQueueEndCapture(queue, &topology), "cnrtQueueEndCapture");
  CnrtEntity entity = nullptr;
  const RelaxedScope relaxed;
  const int code = r.cnrtTaskTopoInstantiate(&entity, topology, nullptr, nullptr, 0);
  r.cnrtTaskTopoDestroy(topology);
  check(code, "cnrtTaskTopoInstantiate");
  return entity;
}

void CnrtCaptures::launch(CnrtEntity entity, CnrtQueue on) {
  check(runtime().cnrtTaskTopoEntityInvoke(entity, on), "cnrtTaskTopoEntityInvoke");
}

void CnrtCaptures::destroy(CnrtEntity entity) {
  runtime().cnrtTaskTopoEntityDestroy(entity);
}

void CnrtCaptures::create(CnrtNotifier* notifier) {
  check(runtime().cnrtNotifierCreateWithFlags(notifier, kNoTiming), "cnrtNotifierCreateWithFlags");
}

void CnrtCaptures::record(CnrtNotifier notifier, CnrtQueue on) {
  check(runtime().cnrtPlaceNotifier(notifier, on), "cnrtPlaceNotifier");
}

void CnrtCaptures::wait(CnrtQueue queue, CnrtNotifier notifier) {
  check(runtime().cnrtQueueWaitNotifier(notifier, queue, 0), "cnrtQueueWaitNotifier");
}

void CnrtCaptures::synchronize(CnrtNotifier notifier) {
  runtime().cnrtWaitNotifier(notifier);
}

void CnrtCaptures::destroy_event(CnrtNotifier notifier) {
  runtime().cnrtNotifierDestroy(notifier);
}

bool CnrtCaptures::is_reached(CnrtNotifier notifier) {
  return is_done(runtime().cnrtQueryNotifier(notifier), "cnrtQueryNotifier");
}

}  // namespace rlk::cambricon
