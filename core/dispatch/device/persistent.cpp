// Device memory that lives as long as a plan.
#include "core/dispatch/device/persistent.hpp"

#include <utility>

#include "core/declaration/error.hpp"
#include "core/dispatch/device/stream.hpp"

namespace rlk::core {

rlk_status PersistentMemory::use(uint64_t bytes, Stream& stream, bool capturing, Use* out, rlk_error* error) {
  out->of_ = this;
  out->stream_ = &stream;
  if (done_.load(std::memory_order_acquire)) {
    out->memory_ = memory_;
    return RLK_OK;
  }
  std::unique_lock lock(mutex_);
  if (!filled_) {
    if (capturing) {
      return failf(error, RLK_CAPTURE_FORBIDS,
                   "the plan's persistent memory is filled by its first execution, which a captured graph cannot be. "
                   "Make the call once before the capture begins");
    }
    from_ = &stream.device().memory;
    const rlk_status status = from_->allocate(*stream.clock(), bytes, &memory_, error);
    if (status != RLK_OK) return status;
    out->memory_ = memory_;
    out->filling_ = std::move(lock);
    return RLK_OK;
  }
  out->memory_ = memory_;
  if (filled_at_.known_reached() || (!capturing && filled_at_.reached())) {
    done_.store(true, std::memory_order_release);
    return RLK_OK;
  }
  if (filled_at_.clock() == stream.clock().get()) return RLK_OK;
  if (capturing) {
    return failf(error, RLK_CAPTURE_FORBIDS,
                 "another stream still fills the plan's persistent memory; synchronize that stream before the capture "
                 "begins");
  }
  if (filled_at_.hold_back(stream.device().api, stream.handle()) || filled_at_.wait()) return RLK_OK;
  return failf(error, RLK_BACKEND_ERROR,
               "stream %s cannot be made to wait for the stream that fills the plan's persistent memory",
               stream.name().c_str());
}

void PersistentMemory::Use::set_filled() {
  if (!is_new()) return;
  of_->filled_at_ = stream_->fence(/*with_event=*/true);
  of_->filled_ = true;
  filling_.unlock();
}

PersistentMemory::Use::~Use() {
  if (!filling_.owns_lock()) return;
  // Part of the failed execution may already be in the stream.
  of_->from_->deallocate(std::exchange(of_->memory_, nullptr), stream_->fence(/*with_event=*/true), nullptr);
}

void PersistentMemory::release() {
  const std::lock_guard lock(mutex_);
  if (memory_ != nullptr) from_->deallocate(std::exchange(memory_, nullptr), Fence(), nullptr);
  filled_ = false;
  filled_at_ = Fence();  // its event is the device's
  done_ = false;
}

}  // namespace rlk::core
