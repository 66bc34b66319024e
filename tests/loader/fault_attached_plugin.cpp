// Operators for the device of another plugin (fault_plugin.cpp), which it does not own.
#include "plugins/fault/fault.hpp"

namespace rlk::fault {
namespace {

class BorrowedStream final : public sdk::Stream {
public:
  explicit BorrowedStream(void* native) : native_(native) {}
  void* native() override { return native_; }
  rlk_status query(rlk_data_error&) override { return RLK_OK; }
  rlk_status synchronize(uint64_t, rlk_data_error&) override { return RLK_OK; }
  void wait(sdk::Event&) override {}
  void copy(void*, const void*, uint64_t, int32_t) override {}
  void fill(void*, uint8_t, uint64_t) override {}

private:
  void* native_;
};

class NoEvent final : public sdk::Event {
public:
  void record(sdk::Stream&) override {}
  rlk_status query() override { return RLK_OK; }
  rlk_status synchronize(uint64_t) override { return RLK_OK; }
};

class AttachedDevice final : public sdk::Device {
public:
  void* allocate(int32_t, uint64_t) override { return nullptr; }
  void deallocate(int32_t, void*) override {}
  void memory_info(uint64_t&, uint64_t&) override {}
  std::unique_ptr<sdk::Stream> create_stream(int32_t) override { return nullptr; }
  std::unique_ptr<sdk::Stream> wrap_stream(void* native) override { return std::make_unique<BorrowedStream>(native); }
  std::unique_ptr<sdk::Event> create_event(bool) override { return nullptr; }
};

class AttachedPlugin final : public sdk::OperatorPlugin {
public:
  using Device = AttachedDevice;
  using Stream = BorrowedStream;
  using Event = NoEvent;
  using Implementations = std::tuple<AddOperator<AttachedDevice>>;

  explicit AttachedPlugin(const sdk::Host&) {}
  sdk::Verdict probe(sdk::Evidence&) override { return sdk::Verdict::mine("attached"); }
  std::unique_ptr<sdk::Device> attach_device(const rlk_attach_info& info) override {
    if (act("attach") == "refuse") throw sdk::Error(RLK_UNSUPPORTED, "not this device");
    if (std::strcmp(info.backend, "acme") != 0) throw sdk::Error(RLK_INVALID_ARGUMENT, info.backend);
    if (std::strcmp(info.properties->arch, "f1") != 0) throw sdk::Error(RLK_INVALID_ARGUMENT, info.properties->arch);
    return std::make_unique<AttachedDevice>();
  }
};

}  // namespace
}  // namespace rlk::fault

RLK_PLUGIN(rlk::fault::AttachedPlugin, "fault-attached", "acme", "0.3.0", "operators for the fault device")
