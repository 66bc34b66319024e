// How is a call made on the device? Through the plugin's own tables, on a stream of its own: queried, planned,
// prepared, enqueued, waited for. The harness owns the stream and the memory.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>

#include "core/conformance/buffers.hpp"
#include "core/conformance/conformance.hpp"
#include "core/conformance/releases.hpp"

struct rlk_graph_api;

namespace rlk::core::conformance {

// The answer to query.
struct Claim {
  enum class Kind { accepted, declined, failed } kind = Kind::declined;
  rlk_support support{};
  std::string variant;
  std::string reason_code, reason;  // declined, failed
};

// A call as implementations are asked about it. The call must stay where it is.
class Question {
public:
  explicit Question(const ConcreteCall& of);
  Question(const Question&) = delete;
  Question& operator=(const Question&) = delete;
  rlk_call_desc demanding(uint32_t numerics) const {
    rlk_call_desc desc = desc_;
    desc.numerics = numerics;
    return desc;
  }

  const ConcreteCall& call;

private:
  Descriptors tensors_;
  rlk_call_desc desc_{};
};

class Harness;

// A plan, destroyed with the object.
class OwnedPlan {
public:
  OwnedPlan() = default;
  ~OwnedPlan();
  OwnedPlan(const OwnedPlan&) = delete;
  OwnedPlan& operator=(const OwnedPlan&) = delete;
  const rlk_plan_info& info() const { return info_; }
  // The memory that the host keeps for the plan, and whether this is the first execution that has it.
  void give_persistent(rlk_run& run) const;
  bool is_shareable() const { return (info_.flags & RLK_PLAN_SHAREABLE) != 0; }

private:
  friend class Harness;
  const rlk_implementation* implementation_ = nullptr;
  rlk_plugin_plan* plan_ = nullptr;
  rlk_plan_info info_{};
  void* persistent_ = nullptr;
  mutable bool persistent_is_new_ = true;   // no execution has filled it
  const rlk_device_api* memory_ = nullptr;  // of persistent_
  rlk_plugin_device* device_ = nullptr;
  std::shared_ptr<Releases> releases_;     // of the harness that made it
  uint64_t workspace_limit_ = UINT64_MAX;  // what query promised for the call that was planned
};

// What the workspace holds when a call begins: the poison of everything, something else, or what the call before left.
enum class WorkspaceContent : uint8_t { poison, zeros, ones, random, kept };

struct RunSettings {
  uint8_t poison = 0xff;
  WorkspaceContent workspace = WorkspaceContent::poison;
  uint64_t shift = 0;      // bytes, a multiple of 256: the call lies this far behind where it lies else
  bool prepare = true;     // ask prepare for the exact workspace; false: only where the plan demands it
  bool poll = false;       // wait by query instead of synchronize
  bool capture = false;    // enqueue into a graph, and launch that twice
  bool is_planned = true;  // the call is the one that was planned, so that query's workspace bound holds
};

struct Outcome {
  std::vector<std::vector<std::byte>> outputs;  // row-major without gaps
  std::vector<Fault> told;                      // data errors, in the order in which the stream reported them
  std::vector<uint32_t> tags;                   // of those
  uint32_t tag = 0;                             // the call's own
  uint64_t workspace_bytes = 0;
  std::optional<Failure> failure;
};

// A call on its way: its memory and its arguments, which must stay until it has landed.
class DeviceCall;
struct DeviceCallEnd {
  void operator()(DeviceCall*) const;
};
using DeviceCallPointer = std::unique_ptr<DeviceCall, DeviceCallEnd>;

// How often two threads were in a call at the same time. Both of the calls must be new: a thread that loses its
// processor within a call is met once, however many calls the other one makes meanwhile.
struct Meeting {
  struct Side {
    std::atomic<uint64_t> entries{0};  // calls begun and calls ended: odd within a call
    uint64_t last = 0;                 // the other side's entry that was met last
    std::atomic<int> rounds{0};        // begun, where the sides wait for each other
  };
  Side sides[2];
  std::atomic<int> met{0};
  std::atomic<bool> is_left{false};  // by one side, for which the other need not wait
};

// Two calls made again and again through one plan, in turns, each at an address of its own in a ring of memory.
struct Repetition {
  const ConcreteCall* calls[2];
  // Is this outcome of call 0 or 1 right? Asked where the bytes differ from those that were right before.
  std::function<std::optional<Failure>(int which, const Outcome&)> judge;
  int times = 0;
  std::chrono::steady_clock::time_point until = std::chrono::steady_clock::time_point::max();
  Meeting* meeting = nullptr;
  int side = 0;      // of the meeting
  int meetings = 0;  // not 0: both sides begin each round together, and end after so many meetings
  int done = 0;      // out
};

// What the implementation is given.
enum class HarnessStream { created, urgent, wrapped };

class Harness {
public:
  explicit Harness(const Target& target, HarnessStream kind = HarnessStream::created) : target_(target), kind_(kind) {}
  ~Harness();
  Harness(const Harness&) = delete;
  Harness& operator=(const Harness&) = delete;

  // The stream; a failure when the device cannot give one.
  std::optional<Failure> start();
  // After a lost device or a missed deadline nothing more can be tried.
  const std::optional<Failure>& broken() const { return broken_; }
  bool can_capture() const { return graph_ != nullptr; }

  Claim query(const rlk_implementation& implementation, const Question& question, uint32_t numerics) const;
  Claim query(const rlk_implementation& implementation, const ConcreteCall& call, uint32_t numerics) const {
    return query(implementation, Question(call), numerics);
  }
  std::optional<Failure> make_plan(const rlk_implementation& implementation, const ConcreteCall& call,
                                   uint32_t numerics, const Claim& claim, OwnedPlan& out);
  Outcome run(const OwnedPlan& plan, const ConcreteCall& call, const RunSettings& settings);
  // The same in two steps: enqueued with its copies, and waited for. One call at a time.
  DeviceCallPointer launch(const OwnedPlan& plan, const ConcreteCall& call, const RunSettings& settings);
  Outcome land(DeviceCallPointer device_call);
  // What inline streams promise: the outcome is there before the host waits, and nothing is written later.
  Outcome land_inline(DeviceCallPointer device_call);
  // What the memory of the call that landed last, run with these settings, holds some time after it landed.
  Outcome look_again(const ConcreteCall& call, const RunSettings& settings);
  std::optional<Failure> repeat(const OwnedPlan& plan, Repetition& repetition);
  // What the plugin threw when plans or memory of this harness ended. [thread-safe]
  std::optional<Failure> take_thrown() { return releases_->take(); }
  // Ends everything but the plans, as the destructor does, and reports the same of it.
  std::optional<Failure> finish();
  const Target& target() const { return target_; }
  bool has_stream() const { return op_stream_ != nullptr; }
  // Bytes of the device that a test may take; 0: unknown.
  uint64_t free_memory() const;

private:
  friend class Ring;
  friend class Large;
  std::optional<Failure> workspace_fits(uint64_t bytes, const ConcreteCall& call, const char* whose) const;
  std::optional<Failure> reserve(uint64_t bytes);
  std::optional<Failure> prepare(const OwnedPlan& plan, const ConcreteCall& call, const RunSettings& settings,
                                 const rlk_run& run, uint64_t& bytes) const;
  std::optional<Failure> enqueue(const OwnedPlan& plan, const rlk_run& run);
  std::optional<Failure> execute(const OwnedPlan& plan, DeviceCall& device_call);
  std::optional<Failure> replay(const OwnedPlan& plan, DeviceCall& device_call);
  std::optional<Failure> send(const DeviceCall& device_call);
  std::optional<Failure> fetch(const DeviceCall& device_call);
  std::optional<Failure> copy(void* to, const void* from, uint64_t bytes, int32_t kind);
  std::byte* memory() const { return static_cast<std::byte*>(device_memory_); }
  std::byte* sent() const { return static_cast<std::byte*>(pinned_memory_); }
  std::byte* fetched() const { return sent() + capacity_; }
  std::optional<Failure> wait(bool poll, Outcome& outcome);
  Failure failed(rlk_status status, const char* code, const std::string& what, const rlk_error& error);
  void release(int32_t kind, void* memory) noexcept;
  void release_memory();
  std::optional<Failure> make_record();
  std::optional<Failure> make_persistent(const ConcreteCall& call, OwnedPlan& plan);

  void end() noexcept;

  Target target_;
  HarnessStream kind_;
  const std::shared_ptr<Releases> releases_ = std::make_shared<Releases>();
  uint64_t memory_bytes_ = UINT64_MAX;  // of the device
  const rlk_graph_api* graph_ = nullptr;
  rlk_plugin_stream* stream_ = nullptr;     // the owner's
  rlk_plugin_stream* op_stream_ = nullptr;  // what the implementation is given: the same, or the owner's wrapped
  void* device_memory_ = nullptr;
  void* pinned_memory_ = nullptr;  // two halves: what is sent and what is fetched
  uint64_t capacity_ = 0;
  rlk_data_error_record own_record_{};       // on unified memory
  rlk_data_error_record* record_ = nullptr;  // what kernels write; nullptr: the plugin reports by itself
  uint32_t next_tag_ = 1;
  std::optional<Failure> broken_;
};

}  // namespace rlk::core::conformance
