// A plugin with one implementation of every operator of tests/declarations.
#pragma once

#include <rlk/sdk.hpp>

#include <functional>

#include "conformance/simple/device.hpp"
#include "declarations/ops.hpp"

namespace rlk::arguments {

template <class Operator>
struct Serial {
  using Op = Operator;
  static constexpr const char* kName = "serial";
};

struct CacheAppend : Serial<sdk::ops::CacheAppend> {
  static sdk::Support query(simple::SimpleDevice&, const sdk::Call<Op>&);
  static std::unique_ptr<sdk::Plan> plan(simple::SimpleDevice&, const sdk::Call<Op>&);
};
struct BlockDequantize : Serial<sdk::ops::BlockDequantize> {
  static sdk::Support query(simple::SimpleDevice&, const sdk::Call<Op>&);
  static std::unique_ptr<sdk::Plan> plan(simple::SimpleDevice&, const sdk::Call<Op>&);
};
struct WindowMax : Serial<sdk::ops::WindowMax> {
  static sdk::Support query(simple::SimpleDevice&, const sdk::Call<Op>&);
  static std::unique_ptr<sdk::Plan> plan(simple::SimpleDevice&, const sdk::Call<Op>&);
};
struct ShiftLeft : Serial<sdk::ops::ShiftLeft> {
  static sdk::Support query(simple::SimpleDevice&, const sdk::Call<Op>&);
  static std::unique_ptr<sdk::Plan> plan(simple::SimpleDevice&, const sdk::Call<Op>&);
};
struct PrefixCount : Serial<sdk::ops::PrefixCount> {
  static sdk::Support query(simple::SimpleDevice&, const sdk::Call<Op>&);
  static std::unique_ptr<sdk::Plan> plan(simple::SimpleDevice&, const sdk::Call<Op>&);
};

struct PagedRows : Serial<sdk::ops::PagedRows> {
  static sdk::Support query(simple::SimpleDevice&, const sdk::Call<Op>&);
  static std::unique_ptr<sdk::Plan> plan(simple::SimpleDevice&, const sdk::Call<Op>&);
};

class ArgumentsPlugin : public sdk::Plugin {
public:
  using Device = simple::SimpleDevice;
  using Stream = simple::SimpleStream;
  using Event = simple::SimpleEvent;
  using Implementations = std::tuple<CacheAppend, BlockDequantize, WindowMax, ShiftLeft, PrefixCount, PagedRows>;
  explicit ArgumentsPlugin(const sdk::Host&) {}
  sdk::Verdict probe(sdk::Evidence&) override { return sdk::Verdict::mine("arguments"); }
  uint32_t device_count() override { return 1; }
  void describe_device(uint32_t, rlk_device_properties& out) override { simple::SimpleDevice::describe(out); }
  std::unique_ptr<sdk::Device> open_device(uint32_t) override { return std::make_unique<simple::SimpleDevice>(); }
};

}  // namespace rlk::arguments

extern "C" const rlk_plugin* rlk_arguments_entry(const rlk_host*, rlk_error*);
