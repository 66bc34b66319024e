// Does anything grow? Eight threads call `add` on the faulty plugin (plugins/fault) while a ninth swaps its file for
// right, wrong, crashing and failing ones and reloads. Prints a line of what the process holds, as csv, and fails when
// a number was wrong or when something was left behind.
//   long_run PLUGIN [SECONDS [LINES]]      5 seconds and 10 lines unless said otherwise
#include <rlk/ops/add.h>
#include <rlk/rlk.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

// Contents that come again: once each is loaded nothing more is. A fault with "host." passes its probe and is met here.
constexpr const char* kComeAgain[] = {"tag:a",
                                      "tag:b",
                                      "host.raw_enqueue:throw",
                                      "tag:c",
                                      "host.raw_enqueue:no_memory",
                                      "tag:d",
                                      "host.raw_query:throw_int"};
// Contents that are new each time, with a number behind: they are probed and refused.
constexpr const char* kRefused[] = {"load:crash", "enqueue:nan", "create:abort", "entry:other_draft", "open:null"};

std::string plugin_bytes;

void put(const fs::path& folder, const std::string& faults) {
  constexpr std::string_view kSlot = "RLK_FAULT_SLOT=";
  std::string bytes = plugin_bytes;
  bytes.replace(bytes.find(kSlot) + kSlot.size(), faults.size(), faults);
  std::ofstream(folder / "new", std::ios::binary) << bytes;
  fs::rename(folder / "new", folder / "plugins/librlk_plugin_fault.so");
}

struct Held {
  long rss_kb = 0, descriptors = 0, threads = 0, children = 0, files = 0;
};

template <class Iterator>
long count(const fs::path& folder) {
  std::error_code ignored;
  return static_cast<long>(std::distance(Iterator(folder, ignored), Iterator()));
}

Held held(const fs::path& folder) {
  Held now;
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (word == "VmRSS:") status >> now.rss_kb;
  now.descriptors = count<fs::directory_iterator>("/proc/self/fd");
  now.threads = count<fs::directory_iterator>("/proc/self/task");
  now.files = count<fs::recursive_directory_iterator>(folder);
  for (const auto& task : fs::directory_iterator("/proc/self/task")) {
    std::ifstream list(task.path() / "children");
    for (std::string pid; list >> pid;) ++now.children;
  }
  return now;
}

std::atomic<bool> stop{false};
std::atomic<long> calls{0}, wrong{0}, errors{0};

void call(rlk_stream* stream, const rlk_op* op) {
  alignas(16) std::array<float, 64> a, b, out;
  a.fill(1), b.fill(2), out.fill(-1);
  const int64_t shape = 64, stride = 1;
  const auto tensor = [&](std::array<float, 64>& data) {
    rlk_tensor made{};
    made.struct_size = sizeof(made);
    made.alignment = 16;
    made.data = data.data();
    made.shape = &shape, made.strides = &stride, made.ndim = 1;
    made.dtype = {RLK_DTYPE_FLOAT, 32, 1};
    return made;
  };
  const rlk_tensor tensors[] = {tensor(a), tensor(b), tensor(out)};
  const rlk_tensor* const inputs[] = {&tensors[0], &tensors[1]};
  const rlk_tensor* const outputs[] = {&tensors[2]};
  const bool served = rlk_call(stream, op, nullptr, inputs, 2, outputs, 1, nullptr, nullptr) == RLK_OK &&
                      rlk_stream_synchronize(stream, UINT64_MAX, nullptr) == RLK_OK;
  ++calls;
  errors += !served;
  wrong += served && std::any_of(out.begin(), out.end(), [](float value) { return value != 3.0f; });
}

void work(rlk_runtime* runtime, const rlk_op* op) {
  while (!stop) {
    rlk_stream* stream = nullptr;
    rlk_event* event = nullptr;
    void* memory = nullptr;
    if (rlk_stream_create(runtime, "acme", 0, 0, &stream, nullptr) != RLK_OK) {
      ++errors;
      continue;
    }
    // Another thread may have replaced the plugin in between: the event is then of the other device, and unused.
    if (rlk_event_create(runtime, "acme", 0, 0, &event, nullptr) == RLK_OK) rlk_event_record(event, stream, nullptr);
    rlk_allocate(stream, RLK_MEMORY_DEVICE, 4096, &memory, nullptr);
    for (int i = 0; i < 100 && !stop; ++i) call(stream, op);
    rlk_deallocate(stream, memory, nullptr);
    rlk_event_destroy(event, nullptr);
    rlk_stream_destroy(stream, nullptr);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "usage: long_run PLUGIN [SECONDS [LINES]]\n"), 2;
  const double seconds = argc > 2 ? std::atof(argv[2]) : 5;
  const int lines = argc > 3 ? std::atoi(argv[3]) : 10;
  std::ifstream file(argv[1], std::ios::binary);
  plugin_bytes.assign(std::istreambuf_iterator<char>(file), {});
  if (plugin_bytes.find("RLK_FAULT_SLOT=") == std::string::npos || seconds <= 0 || lines < 2)
    return std::fprintf(stderr, "long_run: %s is not the fault plugin, or the numbers are wrong\n", argv[1]), 2;
  std::string name = fs::temp_directory_path() / "rlk-long-run-XXXXXX";
  if (mkdtemp(name.data()) == nullptr) return 2;
  const fs::path folder = name;
  fs::create_directory(folder / "plugins");
  fs::create_directory(folder / "cache");
  fs::permissions(folder / "cache", fs::perms::owner_all);
  setenv("RLK_PLUGIN_PATH", (folder / "plugins").c_str(), 1);
  setenv("RLK_CACHE_DIR", (folder / "cache").c_str(), 1);
  setenv("RLK_LOG", "off", 0);

  bool grew = false;
  {
    put(folder, "tag:a");
    const rlk::Runtime runtime;
    const rlk_op* op = nullptr;
    rlk_op_find("add", &op, nullptr);
    long reloads = 0, replaced = 0, refused = 0;
    const auto reload = [&](const std::string& faults) {
      put(folder, faults);
      const std::string report = runtime.reload();
      ++reloads;
      replaced += report.find("\"replaced\"") != std::string::npos;
      refused += report.find("\"refused\"") != std::string::npos;
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) threads.emplace_back([&] { work(runtime.get(), op); });
    for (const char* content : kComeAgain) {  // what is loaded once
      reload(content);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    std::printf("seconds,rss_kb,descriptors,threads,children,files,calls,wrong,errors,reloads,replaced,refused\n");
    const auto begin = Clock::now();
    Held first, last;
    int printed = 0;
    for (size_t round = 0; printed <= lines; ++round) {
      const double now = std::chrono::duration<double>(Clock::now() - begin).count();
      if (now >= seconds * printed / lines) {
        last = held(folder);
        if (printed == lines / 4) first = last;  // caches are full
        std::printf("%.1f,%ld,%ld,%ld,%ld,%ld,%ld,%ld,%ld,%ld,%ld,%ld\n", now, last.rss_kb, last.descriptors,
                    last.threads, last.children, last.files, calls.load(), wrong.load(), errors.load(), reloads,
                    replaced, refused);
        std::fflush(stdout);
        ++printed;
      }
      if (round % 3 == 2) {
        reload(std::string(kRefused[round / 3 % std::size(kRefused)]) + ",tag:" + std::to_string(round));
      } else {
        reload(kComeAgain[round % std::size(kComeAgain)]);
      }
    }
    stop = true;
    for (std::thread& thread : threads) thread.join();
    const auto check = [&](const char* what, long before, long after, long allowed) {
      if (after - before <= allowed) return;
      grew = true;
      std::fprintf(stderr, "long_run: %s grew from %ld to %ld; at most %ld more were expected\n", what, before, after,
                   allowed);
    };
    check("memory (KiB)", first.rss_kb, last.rss_kb, 32 << 10);
    check("descriptors", first.descriptors, last.descriptors, 0);
    check("threads", first.threads, last.threads, 8);  // each caller may just have one that tries a first call
    check("children", 0, last.children, 0);
    check("wrong numbers", 0, wrong, 0);
    check("calls that failed", 0, errors, 0);
  }
  fs::remove_all(folder);
  return grew ? 1 : 0;
}
