// The implementations of the simple plugin, and the plugin itself: serial, strided, obvious, fp32 accumulation.
#pragma once

#include <rlk/sdk.hpp>
#include <rlk/sdk/ops/add.hpp>
#include <rlk/sdk/ops/attention.hpp>
#include <rlk/sdk/ops/logp.hpp>
#include <rlk/sdk/ops/logp_backward.hpp>

#include <string_view>

#include "conformance/simple/device.hpp"

namespace rlk::simple {

struct Logp {
  using Op = sdk::ops::Logp;
  static constexpr const char* kName = "serial";
  static constexpr rlk_switch kSwitches[] = {{sizeof(rlk_switch), 0, "V", 64}};
  static sdk::Support query(SimpleDevice&, const sdk::Call<Op>&);
  static std::unique_ptr<sdk::Plan> plan(SimpleDevice&, const sdk::Call<Op>&);
};

struct LogpBackward {
  using Op = sdk::ops::LogpBackward;
  static constexpr const char* kName = "serial";
  static sdk::Support query(SimpleDevice&, const sdk::Call<Op>&);
  static std::unique_ptr<sdk::Plan> plan(SimpleDevice&, const sdk::Call<Op>&);
};

struct Attention {
  using Op = sdk::ops::Attention;
  static constexpr const char* kName = "serial";
  static sdk::Support query(SimpleDevice&, const sdk::Call<Op>&);
  static std::unique_ptr<sdk::Plan> plan(SimpleDevice&, const sdk::Call<Op>&);
};

struct Add {
  using Op = sdk::ops::Add;
  static constexpr const char* kName = "serial";
  static sdk::Support query(SimpleDevice&, const sdk::Call<Op>&);
  static std::unique_ptr<sdk::Plan> plan(SimpleDevice&, const sdk::Call<Op>&);
};

class SimplePlugin : public sdk::Plugin {
public:
  using Device = SimpleDevice;
  using Stream = SimpleStream;
  using Event = SimpleEvent;
  using Implementations = std::tuple<Logp, LogpBackward, Attention, Add>;
  explicit SimplePlugin(const sdk::Host&) {}
  sdk::Verdict probe(sdk::Evidence&) override { return sdk::Verdict::mine("simple"); }
  uint32_t device_count() override { return 1; }
  void describe_device(uint32_t, rlk_device_properties& out) override { SimpleDevice::describe(out); }
  std::unique_ptr<sdk::Device> open_device(uint32_t) override { return std::make_unique<SimpleDevice>(); }
  const void* extension(const char* id) override {
    return std::string_view(id) == RLK_EXT_GRAPH ? &sdk::graph_api<SimpleStream> : nullptr;
  }
};

}  // namespace rlk::simple

extern "C" const rlk_plugin* rlk_simple_entry(const rlk_host*, rlk_error*);
