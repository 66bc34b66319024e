#include "loader/probe/turns.hpp"

#include <algorithm>
#include <limits>

namespace rlk::loader {
namespace {

// A GPU runtime's context and the largest case of a smoke test.
constexpr uint64_t kDeviceBytesOfAProbe = uint64_t{512} << 20;
constexpr size_t kMostOnADevice = 8;
constexpr size_t kAnyNumber = std::numeric_limits<size_t>::max();

size_t room_on(const std::vector<DeviceInfo>& devices) {
  uint64_t bytes = UINT64_MAX;
  for (const DeviceInfo& device : devices)
    if (device.memory_bytes > 0) bytes = std::min(bytes, device.memory_bytes);
  return std::clamp<uint64_t>(bytes / kDeviceBytesOfAProbe, 1, kMostOnADevice);
}

bool has_passed(const PluginRecord& record) {
  return record.state == State::smoke_tested;
}

// Those say nothing about the plugin, or are tried again by a later start.
bool is_tried_later(const PluginRecord& record) {
  return record.reason_code == reason::kTimedOut.code || record.reason_code == reason::kCancelled.code ||
         record.reason_code == reason::kProbeBusy.code;
}

}  // namespace

Turns::Turns(const std::vector<size_t>& plugins, bool side_by_side) : side_by_side_(side_by_side) {
  for (const size_t count : plugins) {
    Group& group = groups_.emplace_back();
    group.plugins = count;
    group.had_company.resize(count);
  }
}

void Turns::know(size_t group, const PluginRecord& record) {
  const std::lock_guard lock(mutex_);
  learn(&groups_[group], record);
  changed_.notify_all();
}

void Turns::learn(Group* group, const PluginRecord& record) const {
  if (!side_by_side_) return;
  if (!record.devices.empty()) {
    group->room = group->has_devices ? std::min(group->room, room_on(record.devices)) : room_on(record.devices);
    group->has_devices = true;
  } else if (!group->has_devices && !is_tried_later(record)) {
    group->room = kAnyNumber;
  }
}

std::optional<Turns::Turn> Turns::next() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (stopped_) return std::nullopt;
    Group* best = nullptr;
    bool is_all_over = true;
    for (Group& group : groups_) {
      if (is_over(group)) continue;
      is_all_over = false;
      const bool may_begin = group.begun < group.plugins ? group.in_work.size() < group.room : group.in_work.empty();
      if (may_begin && (best == nullptr || group.in_work.size() < best->in_work.size())) best = &group;
    }
    if (is_all_over) return std::nullopt;
    if (best == nullptr) {
      changed_.wait(lock);
      continue;
    }
    Turn turn;
    turn.group = static_cast<size_t>(best - groups_.data());
    turn.is_again = best->begun == best->plugins;
    if (turn.is_again) {
      turn.plugin = best->again.front();
      best->again.erase(best->again.begin());
    } else {
      turn.plugin = best->begun++;
      if (!best->in_work.empty()) best->had_company[turn.plugin] = true;
      for (const size_t other : best->in_work) best->had_company[other] = true;
    }
    best->in_work.push_back(turn.plugin);
    return turn;
  }
}

bool Turns::stands(const Turn& turn, const PluginRecord& record) {
  const std::lock_guard lock(mutex_);
  Group& group = groups_[turn.group];
  learn(&group, record);
  // Where there is no device to share, company can have done no harm.
  return turn.is_again || !group.had_company[turn.plugin] || !group.has_devices || has_passed(record) ||
         is_tried_later(record);
}

void Turns::end(const Turn& turn, const PluginRecord& record, bool again) {
  const std::lock_guard lock(mutex_);
  Group& group = groups_[turn.group];
  std::erase(group.in_work, turn.plugin);
  learn(&group, record);
  if (again) group.again.push_back(turn.plugin);
  changed_.notify_all();
}

void Turns::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

}  // namespace rlk::loader
