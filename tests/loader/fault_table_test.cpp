// Every phase of a probe with every fault, as a table: what was tried, what became of it, and what was left behind,
// which is nothing. All the while this process computes. What a plugin may do to the host itself is
// host_fault_test.cpp.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "core/dispatch/call/dispatcher.hpp"
#include "framework/op_call.hpp"
#include "loader/register/register.hpp"
#include "tests/loader/staged_loader.hpp"

namespace rlk::loader {
namespace {

// Where the code runs, what a failure is called there, and what one that ends the thread.
struct Phase {
  const char* where;
  const char* failed;
  const char* ended;
};
constexpr Phase kPhasesOfAPlugin[] = {{"load", "CRASHED", "CRASHED"},  // an exception of a constructor ends the process
                                      {"entry", "ENTRY_FAILED", "EXITED"},
                                      {"raw_create", "CREATE_FAILED", "EXITED"},
                                      {"raw_probe", "CREATE_FAILED", "EXITED"},
                                      {"raw_count", "ENUMERATE_FAILED", "EXITED"},
                                      {"raw_describe", "ENUMERATE_FAILED", "EXITED"},
                                      {"raw_open", "ENUMERATE_FAILED", "ENUMERATE_FAILED"},
                                      {"raw_stream_create", "NOTHING_VERIFIED", "CRASHED"},
                                      {"raw_query", "NOTHING_VERIFIED", "CRASHED"},
                                      {"raw_plan_create", "NOTHING_VERIFIED", "CRASHED"},
                                      {"raw_enqueue", "NOTHING_VERIFIED", "CRASHED"},
                                      {"raw_synchronize", "NOTHING_VERIFIED", "CRASHED"}};
// nullptr: the phase's own word for a failure.
struct Fault {
  const char* what;
  const char* code;
};
constexpr Fault kFaults[] = {{"crash", "CRASHED"},  {"abort", "CRASHED"}, {"exit", "EXITED"},    {"killed", "KILLED"},
                             {"hang", "TIMED_OUT"}, {"throw", nullptr},   {"throw_int", nullptr}};
constexpr Fault kOfSlots[] = {{"lost", nullptr}, {"no_memory", nullptr}, {"error", nullptr}};
constexpr Fault kOfResults[] = {{"wrong_f32", "SOME_FAILED"},
                                {"one_element", "NOTHING_VERIFIED"},
                                {"nan", "NOTHING_VERIFIED"},
                                {"beyond", "NOTHING_VERIFIED"},
                                {"print", ""},
                                {"scribble", ""},
                                {"round_up", ""},
                                {"chdir", ""}};

struct Left {
  size_t descriptors, threads, children, files;
  bool operator==(const Left&) const = default;
};

size_t entries(const std::string& folder) {
  size_t count = 0;
  std::error_code ignored;
  for (auto it = std::filesystem::directory_iterator(folder, ignored); it != std::filesystem::directory_iterator();
       ++it)
    ++count;
  return count;
}

// Processes that wait for it are gone a moment after they were told.
size_t children() {
  size_t count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream list(task.path() / "children");
    for (std::string pid; list >> pid;) ++count;
  }
  return count;
}

class FaultTable : public StagedLoader {
protected:
  Left left() const {
    return {entries("/proc/self/fd"), entries("/proc/self/task"), children(), entries(folder.path())};
  }

  // Each worker has caches of its own: in one cache the probes of one plugin wait for each other.
  PluginRecord tried(const std::string& fault, int worker, const char* seconds = "3") const {
    Store own(cache + "/" + std::to_string(worker));
    ProbeOptions mine = options;
    mine.store = &own;
    mine.environment.values["RLK_FAULT"] = fault;
    mine.environment.values["RLK_PROBE_TIMEOUT"] = seconds;
    std::vector<ProbedPlugin> plugins = probe_plugins(discover(mine.environment, {}), mine);
    return plugins.size() == 1 ? plugins.front().record : PluginRecord();
  }

  static constexpr int kWorkers = 6;
};

TEST_F(FaultTable, AWordThatNobodyKnowsIsRefusedWithTheKnownOnes) {
  add_plugin("fault");
  folder.folder("cache/0", 0700);
  const struct {
    const char *fault, *says;
  } cases[] = {{"open:foo", "RLK_FAULT: no fault of open is called 'foo'; known: null crash"},
               {"create:crahs", "no fault of create is called 'crahs'; known: crash"},
               {"raw_open:null", "no fault of raw_open is called 'null'; known: lost"},
               {"nonsense:foo", "no place is called 'nonsense'; known: load entry"},
               {"tag:a,raw_nothing:crash", "no place is called 'raw_nothing'"},
               {"crash", "'crash' is not where:what"}};
  for (const auto& c : cases) {
    const PluginRecord record = tried(c.fault, 0);
    EXPECT_EQ(record.reason_code, "ENTRY_FAILED") << c.fault;
    EXPECT_NE(record.reason.find(c.says), std::string::npos) << record.reason;
  }
}

TEST_F(FaultTable, EveryFaultHasItsReasonAndLeavesNothingBehind) {
  add_plugin("fault");
  struct Row {
    std::string fault, code;
  };
  std::vector<Row> rows;
  for (const Phase& phase : kPhasesOfAPlugin) {
    for (const Fault& fault : kFaults)
      rows.push_back({std::string(phase.where) + ":" + fault.what, fault.code != nullptr ? fault.code : phase.failed});
    rows.push_back({std::string(phase.where) + ":end_thread", phase.ended});
    rows.push_back({std::string(phase.where) + ":crash_later", "CRASHED"});
    rows.push_back({std::string(phase.where) + ":close_all", "EXITED"});
    if (std::string_view(phase.where).substr(0, 4) != "raw_") continue;
    for (const Fault& fault : kOfSlots) rows.push_back({std::string(phase.where) + ":" + fault.what, phase.failed});
  }
  for (const Fault& fault : kOfResults) rows.push_back({std::string("enqueue:") + fault.what, fault.code});

  core::Registry registry;
  Registrar registrar(&registry, loader::host_services());
  PluginRecord cpu = built_in_record("cpu");
  registrar.publish_built_in(&cpu);
  core::Dispatcher dispatcher(registry);
  rlk_error error{};
  error.struct_size = sizeof(error);
  core::DeviceState* device = nullptr;
  ASSERT_EQ(dispatcher.device("cpu", 0, &device, &error), RLK_OK);
  std::unique_ptr<core::Stream> stream;
  ASSERT_EQ(core::Stream::create(*device, dispatcher.counters(), 0, &stream, &error), RLK_OK);
  const auto compute = [&] {
    test::OpCall call(*core::find_declaration("add"));
    for (auto& input : call.inputs) static_cast<float*>(input.data)[0] = 1.5f;
    return dispatcher.call(*stream, *call.decl, call.params.data(), call.input_pointers, call.output_pointers, {},
                           &error) == RLK_OK &&
           static_cast<const float*>(call.outputs[0].data)[0] == 3.0f;
  };
  ASSERT_TRUE(compute()) << error.text;
  for (int i = 0; i < 2 * kWorkers; ++i) folder.folder("cache/" + std::to_string(i), 0700);
  for (int i = 0; i < kWorkers; ++i) tried("", i);  // what is made once, such as the pool's threads
  const Left before = left();

  std::atomic<bool> stop{false};
  int computed = 0, failed = 0;
  std::thread caller([&] {
    while (!stop) {
      ++(compute() ? computed : failed);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
  std::atomic<size_t> next{0};
  std::vector<PluginRecord> records(rows.size());
  std::vector<std::thread> workers;
  for (int i = 0; i < kWorkers; ++i) {
    workers.emplace_back([&, i] {
      for (size_t row = next++; row < rows.size(); row = next++) {
        const auto& [fault, code] = rows[row];
        records[row] = tried(fault, i);
        // Beside other work three seconds may be too few. Where a hang is not expected, it is asked with more of them.
        if (records[row].reason_code == "TIMED_OUT" && code != "TIMED_OUT")
          records[row] = tried(fault, i + kWorkers, "60");
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  stop = true;
  caller.join();

  std::printf("| %-28s | %-14s | %-18s |\n", "tried", "final state", "reason code");
  std::map<std::string, int> codes;
  for (size_t i = 0; i < rows.size(); ++i) {
    const PluginRecord& record = records[i];
    std::printf("| %-28s | %-14s | %-18s |\n", rows[i].fault.c_str(), std::string(to_string(record.state)).c_str(),
                record.reason_code.c_str());
    EXPECT_EQ(record.reason_code, rows[i].code) << rows[i].fault << ": " << record.reason;
    EXPECT_EQ(record.state == State::smoke_tested, rows[i].code.empty()) << rows[i].fault;
    ++codes[record.reason_code];
  }
  const Left after = left();
  std::printf("%zu faults tried, %zu survived; the host computed %d times meanwhile, %d failed\n", rows.size(),
              rows.size(), computed, failed);
  std::printf("left behind: descriptors %zd, threads %zd, children %zd, files %zd\n",
              static_cast<ssize_t>(after.descriptors - before.descriptors),
              static_cast<ssize_t>(after.threads - before.threads),
              static_cast<ssize_t>(after.children - before.children), static_cast<ssize_t>(after.files - before.files));
  EXPECT_EQ(after, before);
  EXPECT_EQ(failed, 0);
  EXPECT_GT(computed, 100);
}

}  // namespace
}  // namespace rlk::loader
