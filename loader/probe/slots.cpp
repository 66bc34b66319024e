// The tables of a plugin slot by slot, then the rows of its implementations.
#include "loader/probe/slots.hpp"

#include <fmt/core.h>

#include <set>
#include <utility>

#include "loader/probe/load.hpp"

namespace rlk::loader {
namespace {

constexpr uint32_t kMaxImplementations = 65536;
constexpr size_t kMaxProblems = 16;  // named; the rest is counted

class Check {
public:
  void problem(std::string text) {
    if (++count_ <= kMaxProblems) text_ += (text_.empty() ? "" : "; ") + std::move(text);
  }

  // A table exists and is at least as long as its first published form; only then may its slots be read. That form is
  // the whole of it today, and becomes the offset behind the last field of ABI 1.0 when the first field is appended.
  template <class Table>
  bool table(const Table* pointer, const std::string& name) {
    if (pointer == nullptr) {
      problem(name + " is NULL");
    } else if (pointer->struct_size < sizeof(Table)) {
      problem(fmt::format("{} has {} bytes, at least {} are required", name, pointer->struct_size, sizeof(Table)));
    } else {
      return true;
    }
    return false;
  }

  template <class Slot>
  void required(Slot slot, const std::string& name) {
    if (slot == nullptr) problem(name + " is NULL");
  }

  std::string text() && {
    if (count_ > kMaxProblems) text_ += fmt::format("; and {} more", count_ - kMaxProblems);
    return std::move(text_);
  }

private:
  size_t count_ = 0;
  std::string text_;
};

#define RLK_REQUIRE(check, table, type, slot) (check).required((table).slot, #type "." #slot)

void check_device(const rlk_device_api& api, Check* check) {
  RLK_REQUIRE(*check, api, rlk_device_api, allocate);
  RLK_REQUIRE(*check, api, rlk_device_api, deallocate);
  RLK_REQUIRE(*check, api, rlk_device_api, memory_info);
}

void check_stream(const rlk_stream_api& api, bool operators_only, Check* check) {
  RLK_REQUIRE(*check, api, rlk_stream_api, wrap);
  RLK_REQUIRE(*check, api, rlk_stream_api, destroy);
  if (operators_only) return;
  RLK_REQUIRE(*check, api, rlk_stream_api, create);
  RLK_REQUIRE(*check, api, rlk_stream_api, native);
  RLK_REQUIRE(*check, api, rlk_stream_api, query);
  RLK_REQUIRE(*check, api, rlk_stream_api, synchronize);
  RLK_REQUIRE(*check, api, rlk_stream_api, wait_event);
  RLK_REQUIRE(*check, api, rlk_stream_api, copy);
  RLK_REQUIRE(*check, api, rlk_stream_api, fill);
  if ((api.allocate_async == nullptr) != (api.deallocate_async == nullptr))
    check->problem("rlk_stream_api.allocate_async and deallocate_async: one is NULL, both or neither must be");
}

void check_event(const rlk_event_api& api, Check* check) {
  RLK_REQUIRE(*check, api, rlk_event_api, create);
  RLK_REQUIRE(*check, api, rlk_event_api, destroy);
  RLK_REQUIRE(*check, api, rlk_event_api, record);
  RLK_REQUIRE(*check, api, rlk_event_api, query);
  RLK_REQUIRE(*check, api, rlk_event_api, synchronize);
}

void check_implementations(const rlk_plugin& plugin, Check* check) {
  if (plugin.n_implementations == 0) return;
  if (plugin.n_implementations > kMaxImplementations || plugin.implementations == nullptr)
    return check->problem(fmt::format("rlk_plugin.implementations: {} at {}", plugin.n_implementations,
                                      plugin.implementations == nullptr ? "NULL" : "an address"));
  std::set<std::pair<std::string, std::string>> names;
  for (uint32_t i = 0; i < plugin.n_implementations; ++i) {
    const std::string row = fmt::format("rlk_plugin.implementations[{}]", i);
    const rlk_implementation* implementation = plugin.implementations[i];
    if (!check->table(implementation, row)) continue;
    const std::string op = text_of(implementation->op);
    const std::string name = text_of(implementation->name);
    if (op.empty() || name.empty()) check->problem(row + " has no operator or no name");
    if (!names.insert({op, name}).second)
      check->problem(fmt::format("{}: {} already has an implementation {}", row, op, name));
    if (implementation->params_size < sizeof(uint32_t))
      check->problem(fmt::format("{}.params_size is {}", row, implementation->params_size));
    check->required(implementation->query, row + ".query");
    check->required(implementation->plan_create, row + ".plan_create");
    check->required(implementation->plan_enqueue, row + ".plan_enqueue");
    check->required(implementation->plan_destroy, row + ".plan_destroy");
    if (implementation->n_switches > 0 && implementation->switches == nullptr)
      check->problem(fmt::format("{}.switches is NULL, but n_switches is {}", row, implementation->n_switches));
  }
}

}  // namespace

std::string check_slots(const rlk_plugin& plugin) {
  Check check;
  if (!check.table(&plugin, "rlk_plugin")) return std::move(check).text();
  if (text_of(plugin.id).empty()) check.problem("rlk_plugin.id is empty");
  if (text_of(plugin.backend).empty()) check.problem("rlk_plugin.backend is empty");
  RLK_REQUIRE(check, plugin, rlk_plugin, create);
  RLK_REQUIRE(check, plugin, rlk_plugin, destroy);
  RLK_REQUIRE(check, plugin, rlk_plugin, probe);
  RLK_REQUIRE(check, plugin, rlk_plugin, device_close);
  const bool operators_only = (plugin.flags & RLK_PLUGIN_OPERATORS_ONLY) != 0;
  if (operators_only) {
    RLK_REQUIRE(check, plugin, rlk_plugin, device_attach);
  } else {
    RLK_REQUIRE(check, plugin, rlk_plugin, device_count);
    RLK_REQUIRE(check, plugin, rlk_plugin, device_describe);
    RLK_REQUIRE(check, plugin, rlk_plugin, device_open);
    if (check.table(plugin.device, "rlk_device_api")) check_device(*plugin.device, &check);
    if (check.table(plugin.event, "rlk_event_api")) check_event(*plugin.event, &check);
  }
  if (check.table(plugin.stream, "rlk_stream_api")) check_stream(*plugin.stream, operators_only, &check);
  check_implementations(plugin, &check);
  return std::move(check).text();
}

}  // namespace rlk::loader
