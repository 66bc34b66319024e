// How is a call made on the device? Through the plugin's own tables, on a stream of its own: queried, planned,
// prepared, enqueued, waited for. The rig owns the stream and the memory.
#pragma once

#include "core/conformance/buffers.hpp"
#include "core/conformance/conformance.hpp"

struct rlk_graph_api;

namespace rlk::core::conformance {

// The answer to query.
struct Claim {
  enum class Kind { accepted, declined, failed } kind = Kind::declined;
  rlk_support support{};
  std::string variant;
  std::string reason_code, reason;  // declined, failed
};

class Rig;

// A plan, destroyed with the object.
class Plan {
public:
  Plan() = default;
  ~Plan();
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  const rlk_plan_info& info() const { return info_; }
  bool is_dynamic(size_t symbol) const { return (info_.dynamic_symbols >> symbol & 1) != 0; }

private:
  friend class Rig;
  const rlk_implementation* implementation_ = nullptr;
  rlk_plugin_plan* plan_ = nullptr;
  rlk_plan_info info_{};
  void* persistent_ = nullptr;
  mutable bool persistent_is_new_ = true;   // no execution has filled it
  const rlk_device_api* memory_ = nullptr;  // of persistent_
  rlk_plugin_device* device_ = nullptr;
  uint64_t workspace_limit_ = UINT64_MAX;  // what query promised for the call that was planned
};

struct RunSettings {
  uint8_t poison = 0xff;
  bool prepare = true;     // ask prepare for the exact workspace; false: only where the plan demands it
  bool poll = false;       // wait by query instead of synchronize
  bool capture = false;    // enqueue into a graph, and launch that twice
  bool is_planned = true;  // the call is the one that was planned, so that query's workspace bound holds
};

struct Outcome {
  std::vector<std::vector<std::byte>> outputs;  // row-major without gaps
  std::vector<Fault> told;                      // data errors, in the order in which the stream told them
  std::vector<uint32_t> tags;                   // of those
  uint32_t tag = 0;                             // the call's own
  std::optional<Failure> failure;
};

class Rig {
public:
  explicit Rig(const Target& target) : target_(target) {}
  ~Rig();
  Rig(const Rig&) = delete;
  Rig& operator=(const Rig&) = delete;

  // The stream; a failure when the device cannot give one.
  std::optional<Failure> start();
  // After a lost device or a missed deadline nothing more can be tried.
  const std::optional<Failure>& broken() const { return broken_; }
  bool can_capture() const { return graph_ != nullptr; }

  Claim query(const rlk_implementation& implementation, const Call& call, uint32_t numerics) const;
  std::optional<Failure> make_plan(const rlk_implementation& implementation, const Call& call, uint32_t numerics,
                                   const Claim& claim, Plan& out);
  Outcome run(const Plan& plan, const Call& call, const RunSettings& settings);

private:
  struct Arguments;
  std::optional<Failure> reserve(uint64_t bytes);
  std::optional<Failure> prepare(const Plan& plan, const RunSettings& settings, const rlk_run& run,
                                 uint64_t& bytes) const;
  std::optional<Failure> execute(const Plan& plan, const rlk_run& run, const Image& image);
  std::optional<Failure> replay(const Plan& plan, const rlk_run& run, const Image& image);
  std::optional<Failure> copy(const Image& image, int32_t kind);
  std::optional<Failure> wait(bool poll, Outcome& outcome);
  Failure failed(rlk_status status, const char* code, const std::string& what, const rlk_error& error);
  void release_memory();
  std::optional<Failure> make_record();

  Target target_;
  const rlk_graph_api* graph_ = nullptr;
  rlk_plugin_stream* stream_ = nullptr;     // the owner's
  rlk_plugin_stream* op_stream_ = nullptr;  // what the implementation is given: the same, or the owner's wrapped
  void* device_memory_ = nullptr;
  void* pinned_memory_ = nullptr;  // two halves: what is sent and what is fetched
  uint64_t capacity_ = 0;
  rlk_data_error_record own_record_{};       // on unified memory
  rlk_data_error_record* record_ = nullptr;  // what kernels write; nullptr: the plugin tells by itself
  uint32_t next_tag_ = 1;
  std::optional<Failure> broken_;
};

}  // namespace rlk::core::conformance
