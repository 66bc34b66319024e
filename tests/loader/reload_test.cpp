// Files of plugins that are replaced while a process uses them: rlk_runtime_reload takes the new one into use beside
// the old one, or refuses it and the old one goes on. Each test is a process of its own: plugins stay loaded.
#include <gtest/gtest.h>
#include <rlk/ops/add.h>
#include <rlk/rlk.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "framework/fs.hpp"
#include "framework/process.hpp"

namespace rlk::test {
namespace {

using rlk::testing::TempFolder;

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class Reload : public ::testing::Test {
protected:
  // The verdict about the CPU is remembered for all tests.
  static const std::string& cache() {
    static const TempFolder folder;
    static const std::string made = folder.folder("cache", 0700);
    return made;
  }

  // `faults` are those of the file itself; as the plugin's file stands in the folder, by a new name that is moved
  // there.
  void put(const std::string& faults, const std::string& name = "fault") const {
    constexpr std::string_view kSlot = "RLK_FAULT_SLOT=";
    std::string bytes = bytes_of(name == "fault" ? RLK_TEST_FAULT_PLUGIN : RLK_TEST_ATTACHED_PLUGIN);
    const size_t slot = bytes.find(kSlot);
    ASSERT_NE(slot, std::string::npos);
    bytes.replace(slot + kSlot.size(), faults.size(), faults);
    put_bytes(bytes, name);
  }
  void put_bytes(const std::string& bytes, const std::string& name = "fault") const {
    std::filesystem::rename(folder.file("new/" + name, bytes), path(name));
  }
  std::string path(const std::string& name = "fault") const { return folder / "plugins/librlk_plugin_" + name + ".so"; }

  template <class Body>
  void in_own_process(Body&& body) {
    folder.folder("plugins");
    const std::string& shared = cache();
    const pid_t child = rlk::testing::in_fork([&] {
      setenv("RLK_PLUGIN_PATH", (folder / "plugins").c_str(), 1);
      setenv("RLK_CACHE_DIR", shared.c_str(), 1);
      setenv("RLK_LOG", "error", 1);
      body();
      return HasFailure() ? 1 : 0;
    });
    EXPECT_EQ(rlk::testing::join(child), 0);
  }

  TempFolder folder;
};

std::string name_of_device(rlk_runtime* runtime) {
  rlk_device_properties properties{};
  properties.struct_size = sizeof(properties);
  return rlk_device_describe(runtime, "acme", 0, &properties, nullptr) == RLK_OK ? properties.name : "none";
}

// 1 + 2 at 64 places; "" or what is wrong.
std::string add(rlk_stream* stream, const char* pin = nullptr) {
  const rlk_op* op = nullptr;
  rlk_op_find("add", &op, nullptr);
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
  rlk_call_options options = RLK_CALL_OPTIONS_INIT;
  options.pin = pin;
  rlk_error error = RLK_ERROR_INIT;
  rlk_status status = rlk_call(stream, op, nullptr, inputs, 2, outputs, 1, &options, &error);
  if (status == RLK_OK) status = rlk_stream_synchronize(stream, UINT64_MAX, &error);
  if (status != RLK_OK) return error.text;
  for (const float value : out)
    if (value != 3.0f) return "a wrong number: " + std::to_string(value);
  return "";
}

// How often a file of that name is mapped, whatever has the name now.
size_t mappings(const std::string& path) {
  std::ifstream maps("/proc/self/maps");
  size_t count = 0;
  for (std::string line; std::getline(maps, line);)
    count += line.find(path) != std::string::npos && line.find(" 00000000 ") != std::string::npos;
  return count;
}

bool says(const std::string& report, const std::string& text) {
  return report.find(text) != std::string::npos;
}

TEST_F(Reload, TheNewFileServesNewStreamsAndTheOldOneItsOwn) {
  in_own_process([&] {
    put("tag:a");
    Runtime runtime;
    ASSERT_EQ(name_of_device(runtime.get()), "Fault 0 a");
    Stream old = runtime.stream("acme");
    Event old_event = runtime.event("acme");
    EXPECT_EQ(add(old.get()), "");
    void* memory = nullptr;
    ASSERT_EQ(rlk_allocate(old.get(), RLK_MEMORY_DEVICE, 64, &memory, nullptr), RLK_OK);
    EXPECT_FALSE(says(runtime.reload(), "change\"")) << "nothing was replaced";

    put("tag:b");
    EXPECT_EQ(name_of_device(runtime.get()), "Fault 0 a") << "nobody asked yet";
    const std::string report = runtime.reload();
    EXPECT_TRUE(says(report, "\"replaced\"") && says(report, "\"fault\"")) << report;
    EXPECT_EQ(name_of_device(runtime.get()), "Fault 0 b");
    Stream fresh = runtime.stream("acme");
    EXPECT_EQ(add(fresh.get()), "");
    EXPECT_EQ(add(old.get()), "");
    EXPECT_EQ(add(old.get(), "acme:simple"), "") << "its own plugin's still, not the CPU's";
    EXPECT_EQ(add(fresh.get(), "acme:simple"), "");
    rlk_error error = RLK_ERROR_INIT;
    EXPECT_EQ(rlk_event_record(old_event.get(), fresh.get(), &error), RLK_INVALID_ARGUMENT);
    EXPECT_TRUE(says(error.text, "reload")) << error.text;
    EXPECT_EQ(rlk_event_record(old_event.get(), old.get(), &error), RLK_OK) << error.text;
    EXPECT_EQ(rlk_deallocate(fresh.get(), memory, &error), RLK_INVALID_ARGUMENT);
    EXPECT_EQ(rlk_deallocate(old.get(), memory, &error), RLK_OK) << error.text;
    EXPECT_TRUE(says(runtime.list_json(), "\"retired\"")) << runtime.list_json();

    EXPECT_EQ(mappings(path()), 2u);
    put("tag:a");
    EXPECT_TRUE(says(runtime.reload(), "\"replaced\""));
    EXPECT_EQ(name_of_device(runtime.get()), "Fault 0 a");
    EXPECT_EQ(mappings(path()), 2u) << "its code is there already";
    EXPECT_EQ(add(runtime.stream("acme").get(), "acme:simple"), "");
    EXPECT_EQ(add(fresh.get(), "acme:simple"), "");
    EXPECT_EQ(rlk::testing::join(rlk::testing::in_fork(
                  [&] { return rlk_runtime_reload(runtime.get(), nullptr, nullptr) == RLK_UNSUPPORTED ? 0 : 1; })),
              0)
        << "a fork has none of the threads";
  });
}

struct Bad {
  const char* faults;
  const char* code;
};

TEST_F(Reload, AFileThatIsRefusedChangesNothing) {
  in_own_process([&] {
    put("tag:a");
    Runtime runtime;
    Stream old = runtime.stream("acme");
    const auto still_the_old = [&](const std::string& what, const std::string& code) {
      const std::string report = runtime.reload();
      std::printf("| %-24s | %-18s |\n", what.c_str(), code.c_str());
      EXPECT_TRUE(says(report, "\"refused\"") && says(report, "\"" + code + "\"")) << what << report;
      EXPECT_FALSE(says(report, "\"replaced\"") || says(report, "\"retired\"")) << what << report;
      EXPECT_EQ(name_of_device(runtime.get()), "Fault 0 a") << what;
      EXPECT_EQ(add(old.get(), "acme:simple"), "") << what;
      EXPECT_EQ(add(runtime.stream("acme").get(), "acme:simple"), "") << what;
    };
    for (const Bad& bad : {Bad{"enqueue:wrong_f32", "WORSE_THAN_LOADED"},
                           {"enqueue:nan", "NOTHING_VERIFIED"},
                           {"load:crash", "CRASHED"},
                           {"create:exit", "EXITED"},
                           {"raw_create:throw_int", "CREATE_FAILED"},
                           {"probe:none", "NO_DEVICE"},
                           {"entry:other_major", "ABI_MISMATCH"}}) {
      put(bad.faults);
      still_the_old(bad.faults, bad.code);
    }
    put_bytes("junk");
    still_the_old("junk", "NOT_ELF");
    put("tag:a");
    EXPECT_FALSE(says(runtime.reload(), "change\"")) << "what serves is there again";
  });
}

TEST_F(Reload, ASymbolicLinkMayLeadToAnotherFile) {
  in_own_process([&] {
    const auto lead_to = [&](const std::string& name) {
      std::filesystem::create_symlink("../" + name, folder / "link");
      std::filesystem::rename(folder / "link", path());
    };
    for (const char* version : {"1", "2"}) {
      put(std::string("tag:") + version);
      std::filesystem::rename(path(), folder / version);
    }
    lead_to("1");
    Runtime runtime;
    EXPECT_EQ(name_of_device(runtime.get()), "Fault 0 1");
    for (const char* version : {"2", "1"}) {
      lead_to(version);
      EXPECT_TRUE(says(runtime.reload(), "\"replaced\""));
      EXPECT_EQ(name_of_device(runtime.get()), std::string("Fault 0 ") + version);
      EXPECT_EQ(add(runtime.stream("acme").get(), "acme:simple"), "");
    }
    std::filesystem::remove(path());
    std::filesystem::create_hard_link(folder / "1", path());
    EXPECT_FALSE(says(runtime.reload(), "change\"")) << "the same file by another name";
  });
}

TEST_F(Reload, AFileThatIsWrittenIntoIsRefused) {
  in_own_process([&] {
    put("tag:a");
    Runtime runtime;
    std::ofstream(path(), std::ios::app | std::ios::binary) << "more";
    const std::string report = runtime.reload();
    EXPECT_TRUE(says(report, "\"refused\"") && says(report, "OVERWRITTEN")) << report;
    EXPECT_EQ(add(runtime.stream("acme").get(), "acme:simple"), "");
  });
}

TEST_F(Reload, AFileThatIsGoneServesWhoHasItAndComesBack) {
  in_own_process([&] {
    put("tag:a");
    Runtime runtime;
    Stream old = runtime.stream("acme");
    std::filesystem::remove(path());
    const std::string report = runtime.reload();
    EXPECT_TRUE(says(report, "\"retired\"") && says(report, "GONE")) << report;
    EXPECT_EQ(name_of_device(runtime.get()), "none");
    EXPECT_THROW(runtime.stream("acme"), std::exception);
    EXPECT_EQ(add(old.get(), "acme:simple"), "");
    put("tag:a");
    EXPECT_TRUE(says(runtime.reload(), "\"added\""));
    EXPECT_EQ(add(runtime.stream("acme").get(), "acme:simple"), "");
    EXPECT_EQ(mappings(path()), 1u);
  });
}

TEST_F(Reload, OperatorsForAnothersDeviceMoveAtOnceAndFollowTheirOwner) {
  in_own_process([&] {
    put("tag:a");
    put("tag:a", "fault_attached");
    Runtime runtime;
    Stream old = runtime.stream("acme");
    EXPECT_EQ(add(old.get(), "fault-attached/simple"), "");
    put("tag:b", "fault_attached");
    EXPECT_TRUE(says(runtime.reload(), "\"replaced\""));
    EXPECT_EQ(mappings(path("fault_attached")), 2u);
    EXPECT_EQ(add(old.get(), "fault-attached/simple"), "");
    put("tag:b");
    EXPECT_TRUE(says(runtime.reload(), "\"replaced\""));
    EXPECT_EQ(mappings(path("fault_attached")), 2u) << "the same plugin, attached to another device";
    Stream fresh = runtime.stream("acme");
    EXPECT_EQ(add(fresh.get(), "fault-attached/simple"), "");
    EXPECT_EQ(add(old.get(), "fault-attached/simple"), "");
  });
}

TEST_F(Reload, WhatTheOldFileDidWrongIsNotTheNewOnes) {
  in_own_process([&] {
    put("tag:a");
    Runtime runtime;
    setenv("RLK_FAULT", "raw_enqueue:throw", 1);  // in this process alone, after the probe
    EXPECT_EQ(add(runtime.stream("acme").get()), "") << "the CPU serves";
    unsetenv("RLK_FAULT");
    EXPECT_TRUE(says(add(runtime.stream("acme").get(), "acme:simple"), "QUARANTINED"));
    put("tag:b");
    EXPECT_TRUE(says(runtime.reload(), "\"replaced\""));
    EXPECT_EQ(add(runtime.stream("acme").get(), "acme:simple"), "");
    put("tag:a");
    const std::string report = runtime.reload();
    EXPECT_TRUE(says(report, "\"replaced\"")) << report;
    EXPECT_TRUE(says(add(runtime.stream("acme").get(), "acme:simple"), "QUARANTINED"))
        << "what it did is not forgotten";
    EXPECT_EQ(add(runtime.stream("acme").get()), "") << "the CPU serves";
  });
}

// Eight threads call, on streams that stay and on new ones, while a ninth swaps the file for right, wrong and crashing
// ones and reloads.
TEST_F(Reload, EightThreadsNeverSeeAWrongNumber) {
  in_own_process([&] {
    put("tag:first");
    Runtime runtime;
    std::atomic<bool> stop{false};
    std::atomic<int> calls{0}, bad{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([&, t] {
        const auto check = [&](const std::string& wrong) {
          ++calls;
          if (!wrong.empty() && ++bad < 5) std::printf("thread %d: %s\n", t, wrong.c_str());
        };
        const char* backend = t == 7 ? "cpu" : "acme";
        Stream own = runtime.stream(backend);
        while (!stop) {
          check(add(own.get()));
          Stream fresh = runtime.stream(backend);
          for (int i = 0; i < 20; ++i) check(add(fresh.get()));
          std::this_thread::sleep_for(std::chrono::milliseconds(2));  // the ninth wants to come to work
        }
      });
    }
    int replaced = 0, refused = 0;
    for (int round = 0; round < 20; ++round) {
      const std::string tag = "tag:" + std::to_string(round % 5);
      const char* faults[] = {"", ",enqueue:nan", ",load:crash", ",enqueue:wrong_f32", ",create:abort"};
      put(tag + faults[round % 2 == 0 ? 0 : 1 + round / 2 % 4]);
      const std::string report = runtime.reload();
      replaced += says(report, "\"replaced\"");
      refused += says(report, "\"refused\"");
    }
    stop = true;
    for (std::thread& thread : threads) thread.join();
    std::printf("%d calls, %d wrong; %d files taken, %d refused\n", calls.load(), bad.load(), replaced, refused);
    EXPECT_EQ(bad, 0);
    EXPECT_EQ(replaced, 10);
    EXPECT_EQ(refused, 10);
    EXPECT_EQ(mappings(path()), 6u) << "a content is loaded once";
  });
}

}  // namespace
}  // namespace rlk::test
