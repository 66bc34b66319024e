// A call in memory: its image, descriptors that point into the harness's memory, and the run that is passed to the
// plan.
#pragma once

#include "core/conformance/harness.hpp"

namespace rlk::core::conformance {

class DeviceCall {
public:
  DeviceCall(const ConcreteCall& what, const RunSettings& how) : call(what), settings(how), image(what, how.poison) {}

  // Points the arguments into memory: again whenever the memory has moved.
  void place(std::byte* memory, const rlk_plan_info& info);

  const ConcreteCall& call;
  const RunSettings settings;
  Image image;
  rlk_run run{};
  Outcome outcome;

private:
  std::optional<Descriptors> tensors_;
  std::vector<const void*> host_inputs_;
};

// Fills memory with what a workspace is to hold at first.
void fill_workspace(WorkspaceContent content, uint32_t seed, std::span<std::byte> bytes);

}  // namespace rlk::core::conformance
