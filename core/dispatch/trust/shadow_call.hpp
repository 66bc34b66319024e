// One call that is compared: its part, and where the part's values are.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/conformance/sample.hpp"
#include "core/dispatch/call/call.hpp"
#include "core/dispatch/device/fetch.hpp"
#include "core/dispatch/trust/telling.hpp"
#include "core/dispatch/trust/uncompared.hpp"

namespace rlk::core {

class ShadowCall {
public:
  static constexpr uint64_t kMostBytes = uint64_t{256} << 20;  // that are copied

  ShadowCall(const Candidate& served_by, DeviceState& on)
      : held(served_by.shared_from_this()), candidate(*held), device(on) {}
  ~ShadowCall() {
    if (copies_on_ != nullptr) end = copies_on_->fence(/*with_event=*/true);
    if (memory != nullptr) device.pinned.deallocate(memory, std::move(end), nullptr);
  }
  ShadowCall(const ShadowCall&) = delete;
  ShadowCall& operator=(const ShadowCall&) = delete;

  // A part that is small enough to be judged, and lies so that it can be copied. Why there is none; nothing where there
  // is one.
  std::optional<std::pair<WhyNot, std::string>> choose_part(const Call& call, const conformance::ConcreteCall& whole,
                                                            uint64_t seed);
  // [the stream's thread]
  rlk_status copy_inputs(const Call& call) { return copy(call, call.inputs, inputs_); }
  rlk_status copy_outputs(const Call& call) { return copy(call, call.outputs, outputs_); }
  // Nothing more is copied: `end` becomes what follows the last copy. [the stream's thread]
  void end_copies(Stream& stream) {
    copies_on_ = nullptr;
    end = stream.fence(/*with_event=*/true);
  }
  // The values of the part, out of what was copied: the inputs' to the sample, the outputs' returned.
  std::vector<std::vector<std::byte>> unpack();

  const std::shared_ptr<const Candidate> held;
  const Candidate& candidate;
  DeviceState& device;
  CallClass of;
  bool first_use = false;
  std::weak_ptr<std::atomic<bool>> again;  // of a first use: whether its decision's next call is one too
  bool wants_accurate = false;
  conformance::Sample sample;
  uint64_t bytes = 0;
  void* memory = nullptr;  // pinned: what is copied, inputs first
  std::shared_ptr<StreamReports> reports;
  std::shared_ptr<Telling> telling;
  Fence end;

private:
  using Fetches = std::vector<std::optional<Fetch>>;
  const char* plan_fetches(const Call& call);
  rlk_status copy(const Call& call, std::span<const rlk_tensor* const> tensors, const Fetches& fetches);

  Fetches inputs_, outputs_;
  Stream* copies_on_ = nullptr;  // copies into the memory may be in the stream, and `end` is not set
  uint64_t copied_ = 0;
};

}  // namespace rlk::core
