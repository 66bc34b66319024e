// `rlk-plugins bench`: how long an operator takes on each backend, against the memory speed of the device.
#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/conformance/conformance.hpp"
#include "loader/cli/child.hpp"
#include "loader/cli/data.hpp"
#include "loader/cli/measure.hpp"
#include "loader/cli/output.hpp"
#include "loader/cli/table.hpp"
#include "loader/cli/verbs.hpp"
#include "loader/discover/environment.hpp"
#include "loader/host/parallel.hpp"
#include "loader/store/costs.hpp"
#include "loader/store/store.hpp"

namespace rlk::cli {
namespace {

using nlohmann::ordered_json;

struct Row {
  std::string backend, implementation;
  Timing timing;
  double limit_bytes_per_s = 0;
  std::string problem;   // why there is no timing
  bool is_first = true;  // of its backend: dispatch would take it
  std::string plugin;
  core::MeasuredCost cost;  // what is remembered of it
  ordered_json staged;      // what a call copies, where the CPU serves the device's tensors; else null
};

uint64_t bytes_of(const OpCall& call) {
  uint64_t bytes = 0;
  for (const TensorSpecs* specs : {&call.inputs, &call.outputs}) {
    for (const auto& spec : *specs) bytes += spec ? spec->bytes() : 0;
  }
  return bytes;
}

// What could take the call on the open stream's device, as pins; first the implementation that would.
std::vector<std::string> candidates_of(Session* session, const OpCall& call, const rlk_call_options& options) {
  std::vector<std::string> pins;
  const auto explained = nlohmann::json::parse(session->explain_json(call, options));
  for (const auto& candidate : explained["candidates"]) {
    const bool taken = candidate["verdict"] == "taken", second = candidate["reason_code"] == "NOT_FIRST";
    if (candidate["staged"] == true || !(taken || second)) continue;
    pins.push_back(candidate["plugin"].get<std::string>() + "/" + candidate["implementation"].get<std::string>());
  }
  return pins;
}

// The backend that a call goes to whose data may be anywhere, "" when no implementation takes it.
std::string backend_by_dispatch(Session* session, const OpCall& call) {
  try {
    session->open_for(call, "");
    return session->backend();
  } catch (const std::exception&) {
    return "";
  }
}

constexpr double kClearlyFaster = 0.9;  // of the time of the chosen one: less is noise

std::string microseconds(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f us", value);
  return text;
}

// Where the clock says otherwise than the order of dispatch: on one device, and between devices.
std::vector<std::string> disagreements(const std::string& op, const std::vector<Row>& rows, const std::string& chosen) {
  std::vector<std::string> found;
  const auto faster = [](const Row& a, const Row& b) {
    return a.timing.median_us < kClearlyFaster * b.timing.median_us;
  };
  std::string variable = "RLK_OP_" + op;
  for (char& c : variable) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  const Row* first = nullptr;  // serves a call without a pin or a preference
  for (const Row& row : rows) {
    if (row.problem.empty() && row.is_first && row.backend == chosen) first = &row;
  }
  for (const Row& row : rows) {
    if (!row.problem.empty() || !row.staged.is_null()) continue;
    const auto own = std::find_if(rows.begin(), rows.end(), [&](const Row& other) {
      return other.is_first && other.backend == row.backend && other.problem.empty();
    });
    if (own != rows.end() && faster(row, *own)) {
      found.push_back(fmt::format(
          "on {}, dispatch takes {} ({}), but {} is faster here ({}); --remember has dispatch take what is faster, "
          "or {}={} or the policy file",
          row.backend, own->implementation, microseconds(own->timing.median_us), row.implementation,
          microseconds(row.timing.median_us), variable, row.implementation));
    }
    if (first != nullptr && row.is_first && row.backend != chosen && faster(row, *first)) {
      found.push_back(
          fmt::format("dispatch sends the call to {} ({}), because a plugin of a device comes before the CPU, "
                      "but {} is faster here ({}); {}={} or the policy file sends it there",
                      first->implementation, microseconds(first->timing.median_us), row.implementation,
                      microseconds(row.timing.median_us), variable, row.backend));
    }
  }
  return found;
}

// Of the candidate that takes the call; null where its data stay where they are.
ordered_json staged_cost_of(const std::string& explained) {
  const ordered_json document = ordered_json::parse(explained);
  for (const auto& candidate : document.at("candidates"))
    if (candidate.at("verdict") == "taken" && candidate.at("staged") == true) return candidate.at("staged_cost");
  return nullptr;
}

// What the timing says of the candidate that took the call, for later processes.
void note_cost(Session* session, const std::string& explained, Row* row) {
  const ordered_json document = ordered_json::parse(explained);
  for (const auto& candidate : document.at("candidates")) {
    if (candidate.at("verdict") != "taken" || candidate.at("staged") == true) continue;
    row->plugin = candidate.at("plugin");
    row->cost = {document.at("op"),    candidate.at("implementation"), session->properties().name, document.at("kind"),
                 document.at("sizes"), candidate.at("cost_us"),        row->timing.median_us};
  }
}

// Adds the times to what is known of the plugins, as they are now. Returns how many.
size_t remember(const std::vector<Row>& rows) {
  loader::Store store = loader::open_store(
      loader::Environment::of_process(), loader::Identity::of_process(),
      [](bool, const std::string& text) { std::fprintf(stderr, "rlk-plugins: %s\n", printable(text).c_str()); });
  if (store.folder().empty()) throw Failure("there is no cache folder; set RLK_CACHE_DIR to a folder of your own");
  size_t count = 0;
  const Judgement judgement = judge_plugins({});
  for (const loader::PluginRecord& record : judgement.records) {
    std::vector<core::MeasuredCost> costs;
    for (const Row& row : rows)
      if (row.plugin == record.id && loader::serves(record)) costs.push_back(row.cost);
    if (costs.empty()) continue;
    if (!loader::remember_costs(&store, record, costs))
      throw Failure("the times could not be written to " + store.folder());
    count += costs.size();
  }
  return count;
}

// explain() names no implementation of an operator that rlk has not tried yet. A pinned call waits until rlk has, which
// takes minutes for some operators.
void call_once(Session* session, Execution* execution) {
  const auto explained = nlohmann::json::parse(session->explain_json(execution->call(), execution->options()));
  for (const auto& candidate : explained["candidates"]) {
    if (candidate["reason_code"] != core::kWaiting) continue;
    std::fprintf(stderr,
                 "rlk-plugins bench: %s is tried on %s first, once for this file and device; that may take minutes\n",
                 explained.value("op", "").c_str(), session->backend().c_str());
    break;
  }
  execution->enqueue();
  execution->finish();
}

Row measure(Session* session, const OpCall& call, const Arrays& inputs, const std::string& backend,
            const std::string& pin, uint32_t numerics, double seconds) {
  Row row;
  row.backend = backend;
  try {
    session->open(backend);
    Execution execution(session, call, &inputs, pin, numerics);
    call_once(session, &execution);
    const std::string explained = session->explain_json(execution.call(), execution.options());
    row.implementation = chosen_of(explained);
    row.staged = staged_cost_of(explained);
    row.timing = time_calls(session, &execution, seconds);
    note_cost(session, explained, &row);
    row.limit_bytes_per_s = copy_bytes_per_second(session);
  } catch (const std::exception& error) {
    row.problem = error.what();
  }
  return row;
}

std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

ordered_json machine_json(Session* session, const std::vector<Row>& rows) {
  ordered_json machine = {{"processor", processor_name()}, {"threads", loader::thread_limit().count}};
  machine["devices"] = ordered_json::array();
  for (const Row& row : rows) {
    if (!row.problem.empty()) continue;
    session->open(row.backend);
    const rlk_device_properties properties = session->properties();
    machine["devices"].push_back({{"backend", row.backend},
                                  {"name", properties.name},
                                  {"arch", properties.arch},
                                  {"driver", properties.driver_version},
                                  {"runtime", properties.runtime_version}});
  }
  return machine;
}

ordered_json shape_json(const OpCall& call) {
  ordered_json shape = ordered_json::object();
  for (size_t i = 0; i < call.symbols.size(); ++i)
    if (call.symbols[i] >= 0) shape[call.decl->symbols[i].name] = call.symbols[i];
  if (!shape.empty()) return shape;
  for (size_t i = 0; i < call.inputs.size(); ++i)
    if (call.inputs[i]) shape[call.decl->inputs[i].name] = call.inputs[i]->shape;
  return shape;
}

std::string dtype_of_call(const OpCall& call) {
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    if (call.inputs[i] && call.decl->inputs[i].dtype.variable == 0) return core::name_of(call.inputs[i]->dtype);
  }
  return "";
}

double ratio_of(const Row& row, uint64_t bytes) {
  return row.limit_bytes_per_s > 0 ? static_cast<double>(bytes) / row.limit_bytes_per_s / (row.timing.median_us * 1e-6)
                                   : 0.0;
}

ordered_json document(Session* session, const OpCall& call, const std::vector<Row>& rows,
                      const std::vector<std::string>& warnings) {
  const uint64_t bytes = bytes_of(call);
  ordered_json out = {{"schema", 1}, {"machine", machine_json(session, rows)}, {"limits", ordered_json::object()}};
  out["rows"] = ordered_json::array();
  for (const Row& row : rows) {
    if (!row.problem.empty()) continue;
    out["limits"][row.backend + ".copy_bytes_per_s"] = row.limit_bytes_per_s;
    out["rows"].push_back({{"case", fmt::format("{} {} on {}", call.decl->name, shape_json(call).dump(), row.backend)},
                           {"op", call.decl->name},
                           {"shape", shape_json(call)},
                           {"dtype", dtype_of_call(call)},
                           {"impl", row.implementation},
                           {"median_us", row.timing.median_us},
                           {"min_us", row.timing.min_us},
                           {"repeats", row.timing.repeats},
                           {"bytes", bytes},
                           {"flops", 0},  // not counted: declarations state what is moved, not what is computed
                           {"extra_bytes", 0},
                           {"ratio_to_limit", ratio_of(row, bytes)}});
    if (!row.staged.is_null()) out["rows"].back()["staged"] = row.staged;
  }
  out["warnings"] = warnings;
  return out;
}

void print(const OpCall& call, const std::vector<Row>& rows) {
  const uint64_t bytes = bytes_of(call);
  std::fprintf(output(), "%s %s %s, %s read and written at least\n\n", call.decl->name, dtype_of_call(call).c_str(),
               shape_json(call).dump().c_str(), bytes_text(bytes).c_str());
  Table table({"backend", "ran on", "median us", "min us", "GB/s", "of copy speed", "repeats"});
  const auto number = [](const char* format, double value) {
    char text[32];
    std::snprintf(text, sizeof(text), format, value);
    return std::string(text);
  };
  for (const Row& row : rows) {
    if (!row.problem.empty()) {
      table.row({row.backend, "not measured"});
      table.note(row.problem);
      continue;
    }
    table.row({row.backend, row.implementation + (row.staged.is_null() ? "" : ", staged"),
               number("%.1f", row.timing.median_us), number("%.1f", row.timing.min_us),
               number("%.2f", static_cast<double>(bytes) / row.timing.median_us * 1e-3),
               number("%.0f %%", 100.0 * ratio_of(row, bytes)), std::to_string(row.timing.repeats)});
    if (!row.staged.is_null()) {
      table.note(fmt::format("the CPU serves tensors of {}: {} to the host and {} back per call", row.backend,
                             bytes_text(row.staged.at("to_host_bytes").get<uint64_t>()),
                             bytes_text(row.staged.at("to_device_bytes").get<uint64_t>())));
    }
  }
  table.print();
}

// Every implementation of the backend that takes the call, first the one that dispatch would take.
void measure_all(Session* session, const OpCall& call, const Arrays& inputs, const std::string& backend,
                 uint32_t numerics, double seconds, std::vector<Row>* rows) {
  std::vector<std::string> pins;
  try {
    session->open(backend);
    Execution execution(session, call, &inputs, backend, numerics);
    call_once(session, &execution);
    pins = candidates_of(session, call, execution.options());
  } catch (const std::exception&) {
    // measure() says why
  }
  if (pins.empty()) pins = {backend};
  for (const std::string& pin : pins) {
    rows->push_back(measure(session, call, inputs, backend, pin, numerics, seconds));
    rows->back().is_first = pin == pins.front();
  }
  // What the same call costs where the CPU has to serve the device's tensors.
  if (backend == "cpu") return;
  Row staged = measure(session, call, inputs, backend, "cpu", numerics, seconds);
  staged.is_first = false;
  if (staged.problem.empty() && !staged.staged.is_null()) rows->push_back(std::move(staged));
}

int run_bench(const Arguments& arguments) {
  const OpCall call = describe_call(find_op(arguments.operand(0)), arguments);
  const std::string pin = arguments.value("backend");
  const uint32_t numerics = parse_numerics(arguments.value("numerics"));
  const std::string seconds_word = arguments.value("seconds", "1");
  char* end = nullptr;
  const double seconds = std::strtod(seconds_word.c_str(), &end);
  if (*end != 0 || !(seconds > 0)) throw UsageError("--seconds " + seconds_word + ": expected a positive number");

  Session session;
  const Arrays inputs = make_inputs(&session, call);
  std::vector<Row> rows;
  std::vector<std::string> warnings;
  if (!pin.empty()) {
    session.open_for(call, pin);
    rows.push_back(measure(&session, call, inputs, session.backend(), pin, numerics, seconds));
  } else {
    for (const std::string& backend : session.backends())
      measure_all(&session, call, inputs, backend, numerics, seconds, &rows);
    warnings = disagreements(call.decl->name, rows, backend_by_dispatch(&session, call));
  }
  const bool measured = std::any_of(rows.begin(), rows.end(), [](const Row& row) { return row.problem.empty(); });
  const bool remembers = arguments.has("remember") && measured;
  const size_t remembered = remembers ? remember(rows) : 0;
  if (arguments.json()) {
    ordered_json answer = document(&session, call, rows, warnings);
    if (remembers) answer["remembered"] = remembered;
    std::fprintf(output(), "%s\n", answer.dump().c_str());
  } else if (measured) {
    print(call, rows);
    if (remembers) {
      std::fprintf(
          output(), "\n%s",
          wrapped(fmt::format("{} times are remembered. Later processes take the fastest of the implementations that "
                              "were timed, for calls of half to twice these sizes",
                              remembered),
                  0)
              .c_str());
    }
    if (!warnings.empty()) std::fprintf(output(), "\n");
    for (const std::string& warning : warnings)
      std::fprintf(output(), "%s", coloured(wrapped("warning: " + printable(warning), 0), Tone::caution).c_str());
  }
  if (!measured) throw Failure(rows.empty() ? "no backend" : rows.front().problem);
  return kFine;
}

}  // namespace

Verb verb_bench() {
  std::vector<Option> options = call_options();
  options.push_back({"backend", "B[:IMPL]", "only there, as cuda, cpu:fused or plugin/implementation"});
  options.push_back({"numerics", "CLASS,...", "demand classes: accurate, deterministic, batch_invariant, portable"});
  options.push_back({"seconds", "S", "time to spend per implementation, 1 by default"});
  options.push_back({"remember", nullptr, "later processes choose by these times, for calls of about these sizes"});
  return {
      "bench",
      "How long a call takes on every backend that is here, with every implementation.",
      "Inputs are random and obey the operator's domains. Times are per call, planning not included; devices are\n"
      "timed by their own events. GB/s counts each tensor once. Copy speed is measured on the same device: bytes\n"
      "read plus bytes written per second of a large copy; calls whose data stay in a cache exceed it.\n"
      "Where another implementation or device than the one that dispatch takes is clearly faster, a warning says so.\n"
      "Rows with \"staged\" are the CPU's with tensors of the device, copied there and back: what a call costs that "
      "no\n"
      "plugin of the device serves.",
      "rlk-plugins bench logp --dtype bf16 --shape N=512,V=32000",
      {{"OP", true}},
      std::move(options),
      run_bench};
}

}  // namespace rlk::cli
