// A plugin with all operators there are, as a card has them, of which four do something: attention hangs, logp_backward
// is wrong, logp is right and slow, add is right. The others decline every call.
#include <chrono>
#include <deque>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "../golden/operators.hpp"
#include "core/declaration/declaration.hpp"

namespace {

namespace ops = rlk::sdk::ops;

template <class Op>
class Plan : public golden_plugin::SerialPlan<Op> {
public:
  explicit Plan(const rlk::sdk::Call<Op>& call) : golden_plugin::SerialPlan<Op>(call) {
    if constexpr (std::is_same_v<Op, ops::LogpBackward>) this->params_.temperature *= 1.02;
  }
  void enqueue(rlk::sdk::Stream& stream, const rlk::sdk::Run& run) override {
    if constexpr (std::is_same_v<Op, ops::Attention>) std::this_thread::sleep_for(std::chrono::hours(1));
    if constexpr (std::is_same_v<Op, ops::Logp>) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    golden_plugin::SerialPlan<Op>::enqueue(stream, run);
  }
};

template <class O>
struct Some {
  using Op = O;
  static constexpr const char* kName = "serial";
  static rlk::sdk::Support query(golden_plugin::Device& device, const rlk::sdk::Call<Op>& call) {
    return golden_plugin::Serial<Op>::query(device, call);
  }
  static std::unique_ptr<rlk::sdk::Plan> plan(golden_plugin::Device&, const rlk::sdk::Call<Op>& call) {
    return std::make_unique<Plan<Op>>(call);
  }
};

class Hundred : public rlk::sdk::Plugin {
public:
  using Device = golden_plugin::Device;
  using Stream = golden_plugin::Stream;
  using Event = golden_plugin::Event;
  using Implementations = std::tuple<Some<ops::Attention>, Some<ops::LogpBackward>, Some<ops::Logp>, Some<ops::Add>>;

  explicit Hundred(const rlk::sdk::Host&) {}
  rlk::sdk::Verdict probe(rlk::sdk::Evidence& evidence) override {
    evidence.supports("device_name", "host memory");
    return rlk::sdk::Verdict::mine("hundred 1");
  }
  uint32_t device_count() override { return 1; }
  void describe_device(uint32_t, rlk_device_properties& out) override { Device::describe(out); }
  std::unique_ptr<rlk::sdk::Device> open_device(uint32_t) override { return std::make_unique<Device>(); }
};

rlk_status decline(const rlk_implementation*, rlk_plugin_device*, const rlk_call_desc*, rlk_support* out, rlk_error*) {
  out->level = RLK_SUPPORT_NO;
  const std::string code = "NOTHING";
  code.copy(out->reason_code, sizeof(out->reason_code) - 1);
  return RLK_OK;
}

// The plugin's own rows, then one for each other operator.
const rlk_plugin* with_all_operators(const rlk_plugin& small) {
  static std::deque<rlk_implementation> made;
  static std::vector<const rlk_implementation*> rows(small.implementations,
                                                     small.implementations + small.n_implementations);
  std::set<std::string> there;
  for (const rlk_implementation* row : rows) there.insert(row->op);
  for (const rlk::core::OpDecl& decl : rlk::core::declarations()) {
    if (there.count(decl.name) > 0) continue;
    rlk_implementation& row = made.emplace_back(*rows.front());
    row.op = decl.name;
    row.op_revision = decl.revision;
    row.params_size = decl.params_size;
    row.n_inputs = static_cast<uint32_t>(decl.inputs.size());
    row.n_outputs = static_cast<uint32_t>(decl.outputs.size());
    row.query = decline;
    rows.push_back(&row);
  }
  static rlk_plugin all = small;
  all.implementations = rows.data();
  all.n_implementations = static_cast<uint32_t>(rows.size());
  return &all;
}

}  // namespace

#define HUNDRED_TEXT_(x) #x
#define HUNDRED_TEXT(x) HUNDRED_TEXT_(x)
#define HUNDRED_NOTE                                                                         \
  "abi=" HUNDRED_TEXT(RLK_ABI_MAJOR) "." HUNDRED_TEXT(RLK_ABI_MINOR) ";draft=" HUNDRED_TEXT( \
      RLK_ABI_DRAFT) ";id=hundred;backend=hundred;version=1.0.0"

__attribute__((used, retain, section(".note.rlk"),
               aligned(4))) static const rlk::sdk::detail::Note<sizeof(HUNDRED_NOTE)>
    hundred_note = {4, sizeof(HUNDRED_NOTE), 1, "rlk", HUNDRED_NOTE};

extern "C" __attribute__((visibility("default"))) const rlk_plugin* rlk_plugin_entry_v1(const rlk_host* host,
                                                                                        rlk_error* error) {
  const rlk_plugin* small = rlk::sdk::detail::PluginThunks<Hundred>::entry(host, error, "hundred", "hundred", "1.0.0",
                                                                           "As many operators as a card has");
  if (small == nullptr) return nullptr;
  static const rlk_plugin* const all = with_all_operators(*small);
  return all;
}
