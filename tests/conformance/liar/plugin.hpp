// The plugin of the lying device: add, over a workspace, with the lies that an operator can tell.
#pragma once

#include <rlk/sdk.hpp>
#include <rlk/sdk/ops/add.hpp>

#include "conformance/liar/device.hpp"

namespace rlk::liar {

struct Add {
  using Op = sdk::ops::Add;
  static constexpr const char* kName = "queued";
  static sdk::Support query(LiarDevice&, const sdk::Call<Op>&);
  static std::unique_ptr<sdk::Plan> plan(LiarDevice&, const sdk::Call<Op>&);
};

class LiarPlugin : public sdk::Plugin {
public:
  using Device = LiarDevice;
  using Stream = LiarStream;
  using Event = LiarEvent;
  using Implementations = std::tuple<Add>;
  explicit LiarPlugin(const sdk::Host&) {}
  sdk::Verdict probe(sdk::Evidence&) override { return sdk::Verdict::mine("liar"); }
  uint32_t device_count() override { return 1; }
  void describe_device(uint32_t, rlk_device_properties& out) override { LiarDevice::describe(out); }
  std::unique_ptr<sdk::Device> open_device(uint32_t) override { return std::make_unique<LiarDevice>(); }
  const void* extension(const char* id) override { return liar_extension(id); }
};

}  // namespace rlk::liar

extern "C" const rlk_plugin* rlk_liar_entry(const rlk_host*, rlk_error*);
