// What is known of one plugin: where it was found, how far it came, why it stopped, and what of it was verified.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/conformance/conformance.hpp"
#include "core/dispatch/call/measured_cost.hpp"
#include "loader/store/reason.hpp"

namespace rlk::loader {

enum class State : uint8_t {
  discovered,
  screened,
  loaded,
  negotiated,
  probed,
  capability_checked,
  smoke_tested,
  registered,
  shadowed,     // another file of the same identity was found first
  absent,       // nothing is broken: this machine has no such hardware or runtime
  rejected,     // will not be used; the reason says why
  deferred,     // a deadline passed, or the probe was stopped; tried again later
  partial,      // registered, but some operators or dtypes failed and are off
  quarantined,  // switched off at run time
  retired,      // replaced by a newer generation
};
enum class Place : uint8_t { static_screen, child, host };  // "static" (no code of the plugin ran), "child", "host"

std::string_view to_string(State state);
// What the state means, in a line for people.
std::string_view meaning_of(State state);
std::string_view to_string(Place place);
bool parse(std::string_view text, State* state);
bool parse(std::string_view text, Place* place);

// One step of a plugin's way, in order of time.
struct StateChange {
  State state = State::discovered;
  Place place = Place::static_screen;
  int64_t unix_us = 0;
  std::string reason_code;  // empty for a step that needs no reason
};

struct DeviceInfo {
  uint32_t index = 0;
  std::string name;
  std::string arch;
  uint64_t memory_bytes = 0;
  std::string uuid;        // "8f1a2c3d-...", empty when the card has none
  std::string pci_bus_id;  // "0000:17:00.0", likewise
  int32_t numa_node = -1;  // -1: unknown
};

// Something the plugin saw when it decided whether the hardware is its own.
struct Evidence {
  std::string kind;  // "device_node", "runtime_library", "device_name", ...
  std::string value;
  int supports = 0;  // 1: speaks for "mine", 0: against, -1: neither (null in JSON)
};

struct PluginRecord {
  // Not a plugin but a place of the search (a folder, a variable's word) that gave none or was not searched: it has a
  // path, a source and a reason, and no id.
  bool is_place = false;
  std::string path;    // as found; the canonical path once screened; empty for a built-in
  std::string source;  // the variable, policy file or folder that found it
  std::string id;
  std::string backend;
  std::string version;
  std::string abi;  // "1.0"

  State state = State::discovered;
  std::string reason_code;
  std::string reason;
  std::string hint;
  bool broken = false;  // the reason is a fault, not merely absent hardware or the user's choice
  std::vector<StateChange> history;

  std::vector<std::string> notes;  // harmless remarks, such as a sticky folder on the path
  std::vector<DeviceInfo> devices;
  std::vector<Evidence> evidence;
  // How its operators were tried: kTriedEverything, kTriedCanary, or empty where they were not.
  std::string tried;
  std::vector<core::UnitResult> units;    // what was tried of the plugin's operators, and how it went
  std::vector<core::MeasuredCost> costs;  // what calls of it took (costs.hpp); in no document
  std::vector<std::string> loaded_files;  // what the child had mapped at its end; part of a cached result's validity
  std::string output;                     // last 4 KiB the plugin printed while it was probed
  bool from_cache = false;                // this answer was remembered, not measured in this process

  // A step forward without a reason.
  void advance(State next, Place place);
  // The end of the way, or `partial`: with a reason. `rejected` for absent hardware or runtime becomes `absent`. An
  // empty `better_hint` takes the reason's default hint.
  void stop(State next, Place place, const Reason& why, std::string text, std::string better_hint = {});
};

// reason_code of a declined unit that the smoke test had no time for: it says nothing about the plugin.
inline constexpr std::string_view kUnitNotReached = "BUDGET";

// Values of PluginRecord::tried. A canary is one call of each operator, dtype and implementation of the built-in
// plugin: its code is rlk's own, and the tests of rlk's build have tried the rest.
inline constexpr std::string_view kTriedEverything = "everything";
inline constexpr std::string_view kTriedCanary = "canary";

// Whether something of it passed its test, or waits for one: it may be loaded.
bool may_run(const PluginRecord& record);
// Whether it is loaded and answers calls.
bool serves(const PluginRecord& record);

// How many operators are in which condition; an operator is counted once.
struct OperatorCounts {
  uint32_t verified = 0;     // at least one unit verified, none failed
  uint32_t partial = 0;      // a unit failed
  uint32_t unsupported = 0;  // every unit declined
  uint32_t quarantined = 0;
  uint32_t waiting = 0;  // not tried yet
};
OperatorCounts count_operators(const PluginRecord& record);
// Of each operator the first unit with each verdict, reason code and presence of cases: as many as count_operators(),
// waiting_operators() and objection_to() (report.hpp) need for the answer that they have for all, in the same order.
std::vector<core::UnitResult> representative_units(const std::vector<core::UnitResult>& units);
// The operators that have not been tried yet, in the order of the units: those that were put off last.
std::vector<std::string> waiting_operators(const PluginRecord& record);

struct HostIdentity {
  std::string version;
  std::string abi;
};

// JSON. Text that is not UTF-8 is written with replacement characters, so a hostile plugin cannot break the document.
std::string record_to_json(const PluginRecord& record);
// False with `error` set when the text is not a record; never throws. Unknown members are ignored.
bool record_from_json(std::string_view text, PluginRecord* record, std::string* error);
bool record_from_document(const nlohmann::json& document, PluginRecord* record, std::string* error);
// The form of the prober's protocol and of the cache: JSON on a line, then the units (unit_text.hpp).
std::string record_to_text(const PluginRecord& record);
bool record_from_text(std::string_view text, PluginRecord* record, std::string* error);
class Store;
// The document of `rlk-plugins list --json`, schema 1. Of the units it needs no more than representative ones; `store`
// as support_of() takes it.
std::string list_to_json(const HostIdentity& host, const std::vector<PluginRecord>& records, Store* store = nullptr);

}  // namespace rlk::loader
