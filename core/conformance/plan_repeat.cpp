// The same calls thousands of times through one plan. A ring of copies of the calls lies in memory, poisoned anew for
// each round, so that each result has a place of its own and is looked at, while the stream never waits within a round.
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <thread>
#include <utility>

#include "core/conformance/device_call.hpp"

namespace rlk::core::conformance {
namespace {

constexpr uint64_t kRingBytes = uint64_t{1} << 20;
constexpr int kMostSlots = 48;
constexpr uint64_t kZone = 512;  // bytes beside the workspace that the plan may not touch
// Of a thread that looks for another one: on a busy machine they may not meet often enough, however long they look.
constexpr std::chrono::milliseconds kMostProcessorTime(250);

uint64_t up(uint64_t bytes) {
  return (bytes + 255) / 256 * 256;
}

std::chrono::nanoseconds own_processor_time() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

// A thread is in a call as long as this lives.
class Presence {
public:
  Presence(Meeting* meeting, int side) : meeting_(meeting), side_(side) {
    if (meeting_ == nullptr) return;
    Meeting::Side& own = meeting_->sides[side_];
    ++own.entries;
    const uint64_t other = meeting_->sides[1 - side_].entries;
    if (other % 2 == 0 || other == own.last) return;
    own.last = other;
    ++meeting_->met;
  }
  ~Presence() {
    if (meeting_ != nullptr) ++meeting_->sides[side_].entries;
  }
  Presence(const Presence&) = delete;
  Presence& operator=(const Presence&) = delete;

private:
  Meeting* meeting_;
  int side_;
};

// Tells the other side that this one looks for it no longer.
class Departure {
public:
  explicit Departure(const Repetition& repetition) : meeting_(repetition.meetings > 0 ? repetition.meeting : nullptr) {}
  ~Departure() {
    if (meeting_ != nullptr) meeting_->is_left = true;
  }
  Departure(const Departure&) = delete;
  Departure& operator=(const Departure&) = delete;

private:
  Meeting* meeting_;
};

}  // namespace

class Ring {
public:
  Ring(Harness& harness, const OwnedPlan& plan, Repetition& repetition)
      : harness_(harness), plan_(plan), repetition_(repetition) {}

  std::optional<Failure> run() {
    const Departure departure(repetition_);
    if (auto failure = build()) return failure;
    for (int round = 0; repetition_.done < repetition_.times && !has_met_enough(); ++round) {
      if (std::chrono::steady_clock::now() > repetition_.until) return std::nullopt;
      if (!finds_the_other(round)) return std::nullopt;
      if (auto failure = turn(round)) return failure;
    }
    return std::nullopt;
  }

private:
  bool has_met_enough() const { return repetition_.meetings > 0 && repetition_.meeting->met >= repetition_.meetings; }

  // Threads that look for each other begin each round together: on a busy machine one alone would only spend time.
  bool finds_the_other(int round) {
    if (repetition_.meetings == 0) return true;
    if (own_processor_time() - began_ > kMostProcessorTime) return false;
    Meeting& meeting = *repetition_.meeting;
    meeting.sides[repetition_.side].rounds = round + 1;
    while (meeting.sides[1 - repetition_.side].rounds <= round) {
      if (meeting.is_left || std::chrono::steady_clock::now() > repetition_.until) return false;
      std::this_thread::yield();
    }
    return true;
  }

  std::optional<Failure> build() {
    for (int which = 0; which < 2; ++which) {
      images_.emplace_back(*repetition_.calls[which], settings_.poison);
      stride_ = std::max(stride_, up(images_.back().size()));
    }
    const uint64_t fitting = kRingBytes / stride_ / 2 * 2;
    const int slots = static_cast<int>(std::clamp<uint64_t>(fitting, 2, kMostSlots));
    workspace_at_ = static_cast<uint64_t>(slots) * stride_ + kZone;
    for (int round = 0; round < 2; ++round) {  // the workspace is known when the memory is, and makes it grow
      if (auto failure = harness_.reserve(workspace_at_ + workspace_bytes_ + kZone)) return failure;
      placed_.clear();
      for (int slot = 0; slot < slots; ++slot) {
        PlacedCall& placed = *placed_.emplace_back(std::make_unique<PlacedCall>());
        const ConcreteCall& call = *repetition_.calls[slot % 2];
        placed.place(call, images_[static_cast<size_t>(slot % 2)],
                     harness_.memory() + static_cast<uint64_t>(slot) * stride_, plan_.info());
        placed.run.data_error_record = harness_.record_;
        if (slot > 1) {
          placed.run.workspace_bytes = placed_[static_cast<size_t>(slot % 2)]->run.workspace_bytes;
          continue;
        }
        uint64_t bytes = 0;
        if (auto failure = harness_.prepare(plan_, call, settings_, placed.run, bytes)) return failure;
        placed.run.workspace_bytes = bytes;
        workspace_bytes_ = std::max(workspace_bytes_, bytes);
      }
    }
    for (const auto& placed : placed_) {
      if (placed->run.workspace_bytes > 0) placed->run.workspace = harness_.memory() + workspace_at_;
    }
    std::memset(harness_.sent(), settings_.poison, total());
    for (int slot = 0; slot < slots; ++slot) {
      const Image& image = images_[static_cast<size_t>(slot % 2)];
      std::memcpy(harness_.sent() + static_cast<uint64_t>(slot) * stride_, image.bytes(), image.size());
    }
    return std::nullopt;
  }

  uint64_t total() const { return workspace_at_ + workspace_bytes_ + kZone; }

  std::optional<Failure> turn(int round) {
    static constexpr WorkspaceContent kContents[] = {WorkspaceContent::random, WorkspaceContent::zeros,
                                                     WorkspaceContent::ones};
    fill_workspace(kContents[round % 3], static_cast<uint32_t>(round),
                   {harness_.sent() + workspace_at_, workspace_bytes_});
    if (auto failure = harness_.copy(harness_.memory(), harness_.sent(), total(), RLK_COPY_HOST_TO_DEVICE))
      return failure;
    const int slots = std::min(static_cast<int>(placed_.size()), repetition_.times - repetition_.done);
    Outcome told;
    std::optional<Failure> failure;
    for (int slot = 0; slot < slots && !failure; ++slot) {
      failure = call(*placed_[static_cast<size_t>(slot)], *repetition_.calls[slot % 2], told);
    }
    if (!failure) failure = harness_.copy(harness_.fetched(), harness_.memory(), total(), RLK_COPY_DEVICE_TO_HOST);
    if (auto waited = harness_.wait(false, told); waited && !failure) failure = waited;
    if (!failure && !told.told.empty()) {
      failure = Failure{"UNEXPECTED_DATA_ERROR", "a data error was told of calls that contain none"};
    }
    for (int slot = 0; slot < slots && !failure; ++slot) failure = look(slot);
    if (!failure) failure = look_beside_the_workspace();
    if (failure) return failure;
    repetition_.done += slots;
    return std::nullopt;
  }

  std::optional<Failure> call(PlacedCall& placed, const ConcreteCall& what, Outcome& told) {
    placed.run.tag = harness_.next_tag_++;
    placed.run.persistent = nullptr;
    if ((plan_.info().flags & RLK_PLAN_PREPARE) != 0) {
      void* workspace = std::exchange(placed.run.workspace, nullptr);
      uint64_t bytes = std::exchange(placed.run.workspace_bytes, 0);
      const uint64_t before = bytes;
      if (auto failure = harness_.prepare(plan_, what, settings_, placed.run, bytes)) return failure;
      if (bytes > before) {
        return Failure{
            "WORKSPACE_BOUND",
            fmt::format("plan_prepare asks for {} bytes of workspace, and asked for {} for the same call before", bytes,
                        before)};
      }
      placed.run.workspace = workspace;
      placed.run.workspace_bytes = bytes;
    }
    plan_.give_persistent(placed.run);
    const Presence presence(repetition_.meeting, repetition_.side);
    if (auto failure = harness_.enqueue(plan_, placed.run)) return failure;
    // One in flight: the next call has to wait.
    return plan_.is_shareable() ? std::nullopt : harness_.wait(false, told);
  }

  std::optional<Failure> look(int slot) {
    const auto which = static_cast<size_t>(slot % 2);
    const Image& image = images_[which];
    std::byte* got = harness_.fetched() + static_cast<uint64_t>(slot) * stride_;
    std::vector<std::byte>& right = right_[which];
    if (right.size() == image.size() && std::memcmp(right.data(), got, image.size()) == 0) return std::nullopt;
    right.assign(got, got + image.size());
    Outcome outcome;
    outcome.failure = image.collect(*repetition_.calls[which], got, outcome.outputs);
    if (auto failure = repetition_.judge(static_cast<int>(which), outcome)) {
      failure->text = fmt::format("call {} through one plan: {}", repetition_.done + slot + 1, failure->text);
      return failure;
    }
    return std::nullopt;
  }

  std::optional<Failure> look_beside_the_workspace() {
    const uint64_t behind = workspace_at_ + workspace_bytes_;
    if (std::memcmp(harness_.sent() + workspace_at_ - kZone, harness_.fetched() + workspace_at_ - kZone, kZone) == 0 &&
        std::memcmp(harness_.sent() + behind, harness_.fetched() + behind, kZone) == 0) {
      return std::nullopt;
    }
    return Failure{"RED_ZONE", fmt::format("memory beside the workspace of {} bytes was written to", workspace_bytes_)};
  }

  Harness& harness_;
  const OwnedPlan& plan_;
  Repetition& repetition_;
  const std::chrono::nanoseconds began_ = own_processor_time();  // made by the thread that runs it
  RunSettings settings_{.poison = 0x7b};
  std::vector<Image> images_;  // of the two calls
  std::vector<std::unique_ptr<PlacedCall>> placed_;
  uint64_t stride_ = 0, workspace_at_ = 0, workspace_bytes_ = 0;
  std::vector<std::byte> right_[2];  // what was fetched last and found right
};

std::optional<Failure> Harness::repeat(const OwnedPlan& plan, Repetition& repetition) {
  return Ring(*this, plan, repetition).run();
}

}  // namespace rlk::core::conformance
