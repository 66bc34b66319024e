// What a plugin that brings operators for another plugin's device has of that device: the owner's streams, borrowed.
// Memory, order and what becomes of the work are the owner's; the host asks the owner.
#pragma once

#include <rlk/sdk/device.hpp>

#include <memory>

namespace rlk::sdk {

class BorrowedStream final : public Stream {
public:
  explicit BorrowedStream(void* native) : native_(native) {}
  void* native() override { return native_; }
  rlk_status query(rlk_data_error&) override { refuse(); }
  rlk_status synchronize(uint64_t, rlk_data_error&) override { refuse(); }
  void wait(Event&) override { refuse(); }
  void copy(void*, const void*, uint64_t, int32_t) override { refuse(); }
  void fill(void*, uint8_t, uint64_t) override { refuse(); }

private:
  [[noreturn]] static void refuse() {
    throw Error(RLK_UNSUPPORTED, "the stream belongs to the plugin of the device; ask that one");
  }
  void* native_;
};

// A plugin names a type of events; a borrowed device makes none.
class NoEvent final : public Event {
public:
  void record(Stream&) override {}
  rlk_status query() override { return RLK_OK; }
  rlk_status synchronize(uint64_t) override { return RLK_OK; }
};

class BorrowedDevice : public Device {
public:
  void* allocate(int32_t, uint64_t) override { refuse(); }
  void deallocate(int32_t, void*) override { refuse(); }
  void memory_info(uint64_t&, uint64_t&) override { refuse(); }
  std::unique_ptr<Stream> create_stream(int32_t) override { refuse(); }
  std::unique_ptr<Stream> wrap_stream(void* native) override { return std::make_unique<BorrowedStream>(native); }
  std::unique_ptr<Event> create_event(bool) override { refuse(); }

private:
  [[noreturn]] static void refuse() {
    throw Error(RLK_UNSUPPORTED, "this plugin brings operators only; the device belongs to another one");
  }
};

}  // namespace rlk::sdk
