// A plugin with two devices in host memory that misbehaves as RLK_FAULT says; without it, a good one.
#include <new>

#include "plugins/fault/fault.hpp"

#ifndef RLK_FAULT_ID  // stamped out under other names too
#define RLK_FAULT_ID "fault"
#define RLK_FAULT_BACKEND "acme"
#endif

namespace rlk::fault {
namespace {

class HostStream final : public sdk::Stream {
public:
  explicit HostStream(void* native = nullptr) : native_(native != nullptr ? native : this) {}
  void* native() override { return native_; }
  rlk_status query(rlk_data_error&) override { return RLK_OK; }
  rlk_status synchronize(uint64_t, rlk_data_error&) override { return RLK_OK; }
  void wait(sdk::Event&) override {}
  void copy(void* to, const void* from, uint64_t bytes, int32_t) override { std::memcpy(to, from, bytes); }
  void fill(void* memory, uint8_t value, uint64_t bytes) override { std::memset(memory, value, bytes); }

private:
  void* native_;
};

class HostEvent final : public sdk::Event {
public:
  void record(sdk::Stream&) override {}
  rlk_status query() override { return RLK_OK; }
  rlk_status synchronize(uint64_t) override { return RLK_OK; }
};

class HostDevice final : public sdk::Device {
public:
  void* allocate(int32_t, uint64_t bytes) override { return ::operator new(bytes, std::align_val_t(256)); }
  void deallocate(int32_t, void* memory) override { ::operator delete(memory, std::align_val_t(256)); }
  void memory_info(uint64_t& available, uint64_t& total) override { available = total = uint64_t{1} << 30; }
  std::unique_ptr<sdk::Stream> create_stream(int32_t) override { return std::make_unique<HostStream>(); }
  std::unique_ptr<sdk::Stream> wrap_stream(void* native) override { return std::make_unique<HostStream>(native); }
  std::unique_ptr<sdk::Event> create_event(bool) override { return std::make_unique<HostEvent>(); }
};

class FaultPlugin final : public sdk::Plugin {
public:
  using Device = HostDevice;
  using Stream = HostStream;
  using Event = HostEvent;
  using Implementations = std::tuple<AddOperator<HostDevice>>;

  explicit FaultPlugin(const sdk::Host&) { act("create"); }
  sdk::Verdict probe(sdk::Evidence& evidence) override {
    evidence.supports("device_node", "/dev/fault0");
    const std::string what = act("probe");
    if (what == "not_mine") {
      evidence.contradicts("simt_width", "64");
      return sdk::Verdict::not_mine("WRONG_SIMT_WIDTH", "64 threads execute together, mine have 32",
                                    "use the other plugin");
    }
    if (what == "escapes")
      return sdk::Verdict::not_mine("NOT_\x1b[2J", "\x1b[31mred\n[rlk] [error] forged \xe2\x80\xae", "\a");
    if (what == "none") return sdk::Verdict::absent("", "");
    if (what == "nonsense") return {99, {}, {}, {}, {}};
    return sdk::Verdict::mine("driver 1");
  }
  uint32_t device_count() override {
    const std::string what = act("count");
    return what == "zero" ? 0 : what == "many" ? 1'000'000 : 2;
  }
  void describe_device(uint32_t ordinal, rlk_device_properties& out) override {
    act("describe");
    const std::string tag = fault_at("tag");  // tells copies of the file apart
    out.flags = RLK_DEVICE_UNIFIED_MEMORY | RLK_DEVICE_INLINE_STREAMS;
    out.memory_bytes = uint64_t{1} << 30;
    out.uuid[15] = static_cast<uint8_t>(ordinal + 1);
    std::snprintf(out.name, sizeof(out.name), "Fault %u%s%s", ordinal, tag.empty() ? "" : " ", tag.c_str());
    std::snprintf(out.arch, sizeof(out.arch), "f1");
    std::snprintf(out.pci_bus_id, sizeof(out.pci_bus_id), "%08x:00:00.0", 0x17 + ordinal);
  }
  std::unique_ptr<sdk::Device> open_device(uint32_t) override {
    if (act("open") == "null") return nullptr;
    return std::make_unique<HostDevice>();
  }
};

// Runs when the library is loaded, before anything could be asked.
const struct AtLoad {
  AtLoad() { act("load"); }
} at_load;

// What a plugin without the SDK does: the fault happens outside the thunk that would have caught it.
rlk_status act_raw(const char* where) {
  const std::string what = act(where);
  if (what == "lost") return RLK_DEVICE_LOST;
  if (what == "no_memory") return RLK_OUT_OF_MEMORY;
  if (what == "error") return RLK_BACKEND_ERROR;
  return RLK_OK;
}

#define RLK_RAW(table, original, slot, where)                       \
  table.slot = [](auto... arguments) {                              \
    const rlk_status status = act_raw("raw_" where);                \
    return status != RLK_OK ? status : original.slot(arguments...); \
  }

// The SDK's tables, each slot with a place for faults in front of it.
rlk_plugin raw(const rlk_plugin& made) {
  static rlk_plugin plugin, table;
  static rlk_device_api device, device_table;
  static rlk_stream_api stream, stream_table;
  static rlk_event_api event, event_table;
  static rlk_implementation add, add_table;
  static const rlk_implementation* implementations[] = {&add_table};
  plugin = table = made;
  RLK_RAW(table, plugin, create, "create");
  RLK_RAW(table, plugin, destroy, "destroy");
  RLK_RAW(table, plugin, probe, "probe");
  RLK_RAW(table, plugin, device_count, "count");
  RLK_RAW(table, plugin, device_describe, "describe");
  RLK_RAW(table, plugin, device_open, "open");
  RLK_RAW(table, plugin, device_close, "close");
  device = device_table = *made.device;
  RLK_RAW(device_table, device, allocate, "allocate");
  RLK_RAW(device_table, device, deallocate, "deallocate");
  stream = stream_table = *made.stream;
  RLK_RAW(stream_table, stream, create, "stream_create");
  RLK_RAW(stream_table, stream, destroy, "stream_destroy");
  RLK_RAW(stream_table, stream, query, "stream_query");
  RLK_RAW(stream_table, stream, synchronize, "synchronize");
  RLK_RAW(stream_table, stream, copy, "copy");
  event = event_table = *made.event;
  RLK_RAW(event_table, event, create, "event_create");
  RLK_RAW(event_table, event, destroy, "event_destroy");
  add = add_table = *made.implementations[0];
  RLK_RAW(add_table, add, query, "query");
  RLK_RAW(add_table, add, plan_create, "plan_create");
  RLK_RAW(add_table, add, plan_enqueue, "enqueue");
  RLK_RAW(add_table, add, plan_destroy, "plan_destroy");
  table.device = &device_table;
  table.stream = &stream_table;
  table.event = &event_table;
  table.implementations = implementations;
  return table;
}

}  // namespace
}  // namespace rlk::fault

// The entry by hand: the table that the SDK makes, with what the fault asks for changed.
RLK_PLUGIN_ENTRY(fault_entry, rlk::fault::FaultPlugin, RLK_FAULT_ID, RLK_FAULT_BACKEND, "0.2.0", "misbehaves on demand")

extern "C" __attribute__((visibility("default"))) const rlk_plugin* rlk_plugin_entry_v1(const rlk_host* host,
                                                                                        rlk_error* error) {
  const std::string wrong = rlk::fault::problem_of_words();
  if (!wrong.empty()) return rlk::sdk::detail::fail(error, RLK_INVALID_ARGUMENT, wrong.c_str()), nullptr;
  const std::string what = rlk::fault::fault_at("entry");
  if (what == "null") return rlk::sdk::detail::fail(error, RLK_INTERNAL, "no table today"), nullptr;
  if (what == "silent_null") return nullptr;
  rlk::fault::act("entry");
  const rlk_plugin* made = fault_entry(host, error);
  if (made == nullptr) return nullptr;
  static rlk_plugin table;
  static rlk_stream_api stream;
  table = rlk::fault::raw(*made);
  if (what == "tiny_table") table.struct_size = 8;
  if (what == "short_table") table.struct_size = offsetof(rlk_plugin, create);
  if (what == "other_major") table.abi_major = 2;
  if (what == "other_draft") table.abi_draft += 1;
  if (what == "newer_minor") table.abi_minor += 7;
  if (what == "needs_newer_host") table.min_host_minor = 7;
  if (what == "other_id") table.id = "somebody-else";
  if (what == "missing_slots") {
    stream = *table.stream;
    stream.copy = nullptr;
    stream.synchronize = nullptr;
    table.stream = &stream;
    table.device = nullptr;
    table.probe = nullptr;
  }
  return &table;
}

#define RLK_FAULT_NOTE RLK_SDK_NOTE_TEXT(RLK_FAULT_ID, RLK_FAULT_BACKEND, "0.2.0") ";env=RLK_FAULT,RLK_FAULT_IN"
RLK_SDK_NOTE(RLK_FAULT_NOTE)
