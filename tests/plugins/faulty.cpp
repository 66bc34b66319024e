// Plugins with one fault each: this file is compiled once per fault, with RLK_FAULT naming it. But for the fault they
// are the golden plugin, so that whatever a loader says of them is about the fault. The name of the fault is the id
// and, but for operators_only, the backend.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "golden/operators.hpp"

#define FAULT_TEXT_(x) #x
#define FAULT_TEXT(x) FAULT_TEXT_(x)
#define FAULT_ID FAULT_TEXT(RLK_FAULT)

namespace {

enum class Fault : uint8_t {
  // wrong numbers
  liar_softcap,  // logp ignores softcap
  liar_bf16,     // logp is wrong for bf16 logits only
  // version windows
  old_abi,           // ABI 0.9
  newer_abi,         // the next draft
  newer_major,       // ABI 2.0, under the entry symbol of that version
  newer_minor,       // the next minor version, with an appended field: no fault, must work
  needs_newer_host,  // the same, and accepts no older host
  // not what a plugin must be
  missing_slot,     // no allocate
  no_symbol,        // no entry symbol
  missing_library,  // needs two libraries that are not there
  // what plugins may be, and a loader must handle
  declines,        // supports no call
  operators_only,  // operators for the golden plugin's devices
  writes_stdout,   // prints what could look like a program's protocol, and works
  // misbehaviour, by the phase in which it shows
  crash_constructor,
  crash_entry,
  crash_create,
  crash_probe,
  crash_query,
  crash_plan,
  crash_enqueue,
  hang_create,
  hang_probe,
  hang_enqueue,
  exit,        // create ends the process, with success
  throws,      // probe throws; the SDK makes a status of it
  throws_raw,  // probe throws past the C ABI
};
constexpr Fault kFault = Fault::RLK_FAULT;

#if defined(RLK_FAULT_NEEDS_LIBRARIES)
extern "C" int acme_runtime_version(void);
extern "C" int acme_blas_version(void);
#endif

void crash() {
  volatile int* volatile nowhere = nullptr;
  *nowhere = 0;
}

void hang() {
  std::signal(SIGTERM, SIG_IGN);
  for (;;) pause();
}

void print() {
  static constexpr char kText[] = "{\"schema\": 1, \"state\": \"registered\"}\nheartbeat\n\0\xff\x01\x02 no line end";
  if (write(STDOUT_FILENO, kText, sizeof(kText)) < 0) return;  // a closed stdout is the loader's good right
  std::fputs("buffered, without a line end", stdout);
}

// What happens on the way in.
void at(Fault crash_here, Fault hang_here = Fault::declines) {
  if (kFault == crash_here) crash();
  if (kFault == hang_here && hang_here != Fault::declines) hang();
  if (kFault == Fault::writes_stdout) print();
}

const struct AtLoad {
  AtLoad() { at(Fault::crash_constructor); }
} kAtLoad;

template <class Op>
void lie([[maybe_unused]] const rlk::sdk::Call<Op>& call, [[maybe_unused]] typename Op::Params& params) {
  if constexpr (std::is_same_v<Op, rlk::sdk::ops::Logp>) {
    const bool bf16 = rlk::sdk::dtype_of(*call.input(RLK_LOGP_IN_LOGITS)) == rlk::sdk::Dtype::bf16;
    if (kFault == Fault::liar_softcap) params.softcap = 0;
    if (kFault == Fault::liar_bf16 && bf16) params.temperature *= 1.02;
  }
}

template <class Op>
class Plan : public golden_plugin::SerialPlan<Op> {
public:
  explicit Plan(const rlk::sdk::Call<Op>& call) : golden_plugin::SerialPlan<Op>(call) { lie(call, this->params_); }
  void enqueue(rlk::sdk::Stream& stream, const rlk::sdk::Run& run) override {
    at(Fault::crash_enqueue, Fault::hang_enqueue);
    golden_plugin::SerialPlan<Op>::enqueue(stream, run);
  }
};

template <class O>
struct Faulty {
  using Op = O;
  using Call = rlk::sdk::Call<Op>;
  static constexpr const char* kName = "serial";
  static rlk::sdk::Support query(golden_plugin::Device& device, const Call& call) {
    at(Fault::crash_query);
    if (kFault == Fault::declines) return rlk::sdk::Support::no("NOTHING", "this plugin declines every call");
    rlk::sdk::Support answer = golden_plugin::Serial<Op>::query(device, call);
    // What is attached to another plugin's device was installed to be used there.
    if (kFault == Fault::operators_only && answer.level != RLK_SUPPORT_NO) answer.level = RLK_SUPPORT_PREFERRED;
    return answer;
  }
  static std::unique_ptr<rlk::sdk::Plan> plan(golden_plugin::Device&, const Call& call) {
    at(Fault::crash_plan);
    return std::make_unique<Plan<Op>>(call);
  }
};

using Base = std::conditional_t<kFault == Fault::operators_only, rlk::sdk::OperatorPlugin, rlk::sdk::Plugin>;

class FaultyPlugin : public Base {
public:
  using Device = golden_plugin::Device;
  using Stream = golden_plugin::Stream;
  using Event = golden_plugin::Event;
  // As few operators as the fault needs: a test of all these plugins has to test each one's.
  static constexpr bool kHasLogp =
      kFault == Fault::liar_softcap || kFault == Fault::liar_bf16 || kFault == Fault::operators_only;
  using Implementations =
      std::conditional_t<kHasLogp, std::tuple<Faulty<rlk::sdk::ops::Logp>, Faulty<rlk::sdk::ops::Add>>,
                         std::tuple<Faulty<rlk::sdk::ops::Add>>>;

  explicit FaultyPlugin(const rlk::sdk::Host&) {
    at(Fault::crash_create, Fault::hang_create);
    if (kFault == Fault::exit) std::exit(0);
  }
  rlk::sdk::Verdict probe(rlk::sdk::Evidence& evidence) override {
    at(Fault::crash_probe, Fault::hang_probe);
    if (kFault == Fault::throws) throw std::runtime_error("the plugin's probe throws");
    evidence.supports("device_name", "host memory");
    return rlk::sdk::Verdict::mine("faulty 1");
  }
  uint32_t device_count() override { return kFault == Fault::operators_only ? 0 : 1; }
  void describe_device(uint32_t ordinal, rlk_device_properties& out) override {
    if (kFault == Fault::operators_only) return Base::describe_device(ordinal, out);
    Device::describe(out);
  }
  std::unique_ptr<rlk::sdk::Device> open_device(uint32_t ordinal) override {
    if (kFault == Fault::operators_only) return Base::open_device(ordinal);
    return std::make_unique<Device>();
  }
  std::unique_ptr<rlk::sdk::Device> attach_device(const rlk_attach_info& info) override {
    if (kFault != Fault::operators_only) return rlk::sdk::Plugin::attach_device(info);
    return std::make_unique<Device>();
  }
};

[[noreturn]] rlk_status throwing_probe(rlk_plugin_instance*, const rlk_evidence_sink*, rlk_probe_result*, rlk_error*) {
  throw std::runtime_error("the plugin's probe throws past the ABI");
}

// The table as a later minor version would have it: longer.
struct Table {
  rlk_plugin plugin;
  void (*appended)();
};

// Called once, by the entry.
Table spoiled(const rlk_plugin& sound) {
  static rlk_device_api device;
  Table table = {sound, nullptr};
  rlk_plugin& plugin = table.plugin;
  switch (kFault) {
    case Fault::old_abi:
      plugin.abi_major = 0;
      plugin.abi_minor = 9;
      plugin.abi_draft = 0;
      break;
    case Fault::newer_abi:
      plugin.abi_draft += 1;
      break;
    case Fault::newer_major:
      plugin.abi_major += 1;
      break;
    case Fault::needs_newer_host:
      plugin.min_host_minor = RLK_ABI_MINOR + 1;
      [[fallthrough]];
    case Fault::newer_minor:
      plugin.struct_size = sizeof(Table);
      plugin.abi_minor += 1;
      break;
    case Fault::missing_slot:
      device = *sound.device;
      device.allocate = nullptr;
      plugin.device = &device;
      break;
    case Fault::throws_raw:
      plugin.probe = &throwing_probe;
      break;
    default:
      break;
  }
  return table;
}

}  // namespace

// The note says what the table says: no plugin here lies about its version.
#if !defined(RLK_FAULT_ABI)
#define RLK_FAULT_ABI FAULT_TEXT(RLK_ABI_MAJOR) "." FAULT_TEXT(RLK_ABI_MINOR)
#endif
#if !defined(RLK_FAULT_DRAFT)
#define RLK_FAULT_DRAFT RLK_ABI_DRAFT
#endif
#if !defined(RLK_FAULT_BACKEND)
#define RLK_FAULT_BACKEND FAULT_ID
#endif
#if !defined(RLK_FAULT_ENTRY)
#define RLK_FAULT_ENTRY rlk_plugin_entry_v1
#endif
#define FAULT_NOTE                                                                                         \
  "abi=" RLK_FAULT_ABI ";draft=" FAULT_TEXT(RLK_FAULT_DRAFT) ";id=" FAULT_ID ";backend=" RLK_FAULT_BACKEND \
                                                             ";version=1.0.0"

__attribute__((used, retain, section(".note.rlk"), aligned(4))) static const rlk::sdk::detail::Note<sizeof(FAULT_NOTE)>
    fault_note = {4, sizeof(FAULT_NOTE), 1, "rlk", FAULT_NOTE};

extern "C" __attribute__((visibility("default"))) const rlk_plugin* RLK_FAULT_ENTRY(const rlk_host* host,
                                                                                    rlk_error* error) {
  at(Fault::crash_entry);
#if defined(RLK_FAULT_NEEDS_LIBRARIES)
  if (acme_runtime_version() + acme_blas_version() == 0) return nullptr;
#endif
  const rlk_plugin* sound = rlk::sdk::detail::PluginThunks<FaultyPlugin>::entry(
      host, error, FAULT_ID, RLK_FAULT_BACKEND, "1.0.0", "A plugin with one fault");
  if (sound == nullptr) return nullptr;
  static const Table table = spoiled(*sound);
  return &table.plugin;
}
