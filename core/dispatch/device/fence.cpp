// Has a stream passed a point?
#include "core/dispatch/device/fence.hpp"

#include <new>
#include <utility>

#include "core/dispatch/trust/release.hpp"

namespace rlk::core {

namespace {

// What the plugin says of an event whose work is over. Any other answer (a capture forbids to ask, the event is
// invalid, the plugin threw) says nothing of the work, whose memory may then be in use.
bool is_over(rlk_status status) {
  return status == RLK_OK || status == RLK_BACKEND_ERROR || status == RLK_DEVICE_LOST;
}

}  // namespace

EventPool::~EventPool() {
  for (rlk_plugin_event* event : idle_) release_by(api_, "event destroy", api_.event->destroy, event);
}

rlk_plugin_event* EventPool::take() noexcept {
  if (api_.event == nullptr) return nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      rlk_plugin_event* event = idle_.back();
      idle_.pop_back();
      return event;
    }
    // Its place first: giving an event back needs no memory.
    try {
      if (idle_.capacity() <= made_) idle_.reserve(2 * made_ + 8);
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
    ++made_;
  }
  rlk_plugin_event* event = nullptr;
  if (call_of(api_, "event create", api_.event->create, device_, 0, &event, nullptr) != RLK_OK) event = nullptr;
  if (event == nullptr) {
    const std::lock_guard lock(mutex_);
    --made_;
  }
  return event;
}

void EventPool::give(rlk_plugin_event* event) noexcept {
  const std::lock_guard lock(mutex_);
  idle_.push_back(event);
}

Fence::Fence(std::shared_ptr<StreamClock> clock, EventPool* events, const rlk_plugin* api, rlk_plugin_stream* stream,
             bool with_event) noexcept
    : clock_(std::move(clock)), sequence_(clock_->issue()), events_(events) {
  if (!with_event || clock_->has_passed(sequence_)) return;
  event_ = events_->take();
  if (event_ != nullptr && call_of(*api, "event record", api->event->record, event_, stream, nullptr) != RLK_OK)
    drop_event();
}

Fence& Fence::operator=(Fence&& other) noexcept {
  if (this == &other) return *this;
  drop_event();
  clock_ = std::move(other.clock_);
  sequence_ = other.sequence_;
  events_ = other.events_;
  event_ = std::exchange(other.event_, nullptr);
  return *this;
}

void Fence::drop_event() {
  if (event_ != nullptr) events_->give(std::exchange(event_, nullptr));
}

bool Fence::reached() {
  if (known_reached()) return true;
  if (event_ == nullptr || !is_over(call_of(events_->plugin(), "event query", events_->api().query, event_, nullptr)))
    return false;
  clock_->pass(sequence_);
  drop_event();
  return true;
}

rlk_status Fence::ask() {
  if (known_reached()) return RLK_OK;
  if (event_ == nullptr) return RLK_NOT_READY;
  const rlk_status status = call_of(events_->plugin(), "event query", events_->api().query, event_, nullptr);
  if (status == RLK_OK) clock_->pass(sequence_);
  return status;
}

bool Fence::hold_back(const rlk_plugin& api, rlk_plugin_stream* stream) {
  return known_reached() ||
         (event_ != nullptr && call_of(api, "wait_event", api.stream->wait_event, stream, event_, nullptr) == RLK_OK);
}

bool Fence::wait() {
  if (reached()) return true;
  if (event_ == nullptr) return false;
  if (!is_over(
          call_of(events_->plugin(), "event synchronize", events_->api().synchronize, event_, UINT64_MAX, nullptr)))
    return false;
  clock_->pass(sequence_);
  drop_event();
  return true;
}

}  // namespace rlk::core
