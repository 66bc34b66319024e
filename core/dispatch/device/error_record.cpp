// Where kernels write data errors.
#include "core/dispatch/device/error_record.hpp"

namespace rlk::core {

bool take_data_error(rlk_data_error_record* record, rlk_data_error* out) {
  if (record == nullptr || __atomic_load_n(&record->state, __ATOMIC_ACQUIRE) == 0) return false;
  out->kind = record->kind;
  out->tag = record->tag;
  out->row = record->row;
  out->value = record->value;
  record->kind = 0;
  record->tag = 0;
  record->row = record->value = 0;
  __atomic_store_n(&record->state, 0, __ATOMIC_RELEASE);
  return true;
}

rlk_status RecordPool::take(rlk_data_error_record** out, rlk_error* error) {
  *out = nullptr;
  if ((flags_ & (RLK_DEVICE_UNIFIED_MEMORY | RLK_DEVICE_MAPPED_PINNED)) == 0) return RLK_OK;
  const std::lock_guard lock(mutex_);
  if (free_.empty()) {
    free_.reserve(in_use_ + kSlotsPerBlock);  // of every record: giving one back needs no memory
    Slot* slots = nullptr;
    if ((flags_ & RLK_DEVICE_UNIFIED_MEMORY) != 0) {
      slots = blocks_.emplace_back(std::make_unique<Slot[]>(kSlotsPerBlock)).get();
    } else {
      void* memory = nullptr;
      const rlk_status status = pinned_.allocate_for_good(kSlotsPerBlock * sizeof(Slot), &memory, error);
      if (status != RLK_OK) return status;
      slots = static_cast<Slot*>(memory);
    }
    for (size_t i = kSlotsPerBlock; i-- > 0;) free_.push_back(&slots[i].record);
  }
  *out = free_.back();
  free_.pop_back();
  **out = {};
  ++in_use_;
  return RLK_OK;
}

void RecordPool::give(rlk_data_error_record* record) noexcept {
  if (record == nullptr) return;
  const std::lock_guard lock(mutex_);
  free_.push_back(record);
  --in_use_;
}

size_t RecordPool::in_use() const {
  const std::lock_guard lock(mutex_);
  return in_use_;
}

}  // namespace rlk::core
