// A call in memory: its image, descriptors that point into the harness's memory, and the run that is passed to the
// plan.
#pragma once

#include "core/conformance/harness.hpp"

namespace rlk::core::conformance {

// What is passed to the plan. Stays where it was placed.
class PlacedCall {
public:
  // Points the arguments into memory that has the layout of the image: again whenever the memory has moved.
  void place(const ConcreteCall& call, const Image& image, std::byte* memory, const rlk_plan_info& info);

  rlk_run run{};

private:
  std::optional<Descriptors> tensors_;
  std::vector<const void*> host_inputs_;
};

class DeviceCall : public PlacedCall {
public:
  DeviceCall(const ConcreteCall& what, const RunSettings& how) : call(what), settings(how), image(what, how.poison) {}

  void place(std::byte* memory, const rlk_plan_info& info) { PlacedCall::place(call, image, memory, info); }

  const ConcreteCall& call;
  const RunSettings settings;
  Image image;
  Outcome outcome;
};

// Fills memory with what a workspace is to hold at first.
void fill_workspace(WorkspaceContent content, uint32_t seed, std::span<std::byte> bytes);

}  // namespace rlk::core::conformance
