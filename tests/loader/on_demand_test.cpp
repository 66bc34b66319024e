// Operators that are tried when a call first asks for them (RLK_VERIFY=lazy): of a plugin with more than a hundred,
// some slow, one wrong, one that hangs, used by processes while they are tried. Each test is a process of its own.
#include <gtest/gtest.h>
#include <rlk/ops/add.h>
#include <rlk/rlk.hpp>

#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "framework/fs.hpp"
#include "framework/process.hpp"

namespace rlk::test {
namespace {

using rlk::testing::TempFolder;

class OnDemand : public ::testing::Test {
protected:
  // The verdict about the CPU is remembered for all tests.
  OnDemand() : cache(folder.folder("cache", 0700)) {
    static const TempFolder known;
    static const std::string of_cpu = [] {
      const std::string made = known.folder("cache", 0700);
      const pid_t process = rlk::testing::in_fork([&] {
        setenv("RLK_PLUGIN_PATH", "", 1);
        setenv("RLK_CACHE_DIR", made.c_str(), 1);
        const Runtime runtime;
        return 0;
      });
      EXPECT_EQ(rlk::testing::join(process), 0);
      return made;
    }();
    for (const auto& file : std::filesystem::directory_iterator(of_cpu))
      std::filesystem::copy(file.path(), cache / file.path().filename());
  }

  // With budgets of a third: an operator is put off after some seconds of silence.
  template <class Body>
  pid_t begin_process(Body&& body) const {
    return rlk::testing::in_fork([&] {
      setenv("RLK_PLUGIN_PATH", RLK_TEST_HUNDRED_PLUGIN, 1);
      setenv("RLK_CACHE_DIR", cache.c_str(), 1);
      setenv("RLK_LOG", "error", 1);
      setenv("RLK_VERIFY", "lazy", 1);
      setenv("RLK_PROBE_TIMEOUT", "20", 1);
      body();
      return HasFailure() ? 1 : 0;
    });
  }
  template <class Body>
  void in_own_process(Body&& body) const {
    EXPECT_EQ(rlk::testing::join(begin_process(body)), 0);
  }

  TempFolder folder;
  const std::filesystem::path cache;
};

struct Call {
  std::string problem;  // "" is none
  std::string by;       // the plugin that would serve it, as explain says
  bool waits = false;   // explain speaks of an operator that was not tried
};

// 1 + 2 at 64 places on the plugin's device.
Call add(const Runtime& runtime) {
  rlk_error error = RLK_ERROR_INIT;
  rlk_stream* stream = nullptr;
  if (rlk_stream_create(runtime.get(), "hundred", 0, 0, &stream, &error) != RLK_OK) return {error.text, "", false};
  const rlk_op* op = nullptr;
  rlk_op_find("add", &op, nullptr);
  alignas(64) std::array<float, 64> a, b, out;
  a.fill(1), b.fill(2), out.fill(-1);
  const int64_t shape = 64, stride = 1;
  const auto tensor = [&](std::array<float, 64>& data) {
    rlk_tensor made{};
    made.struct_size = sizeof(made);
    made.alignment = 64;
    made.data = data.data();
    made.shape = &shape, made.strides = &stride, made.ndim = 1;
    made.dtype = {RLK_DTYPE_FLOAT, 32, 1};
    return made;
  };
  const rlk_tensor tensors[] = {tensor(a), tensor(b), tensor(out)};
  const rlk_tensor* const inputs[] = {&tensors[0], &tensors[1]};
  const rlk_tensor* const outputs[] = {&tensors[2]};
  const rlk_call_options options = RLK_CALL_OPTIONS_INIT;
  Call result;
  char* text = nullptr;
  if (rlk_explain_json(stream, op, nullptr, inputs, 2, outputs, 1, &options, &text, nullptr) == RLK_OK) {
    const std::string said = text;
    rlk_string_free(text);
    result.waits = said.find("\"WAITING\"") != std::string::npos;
    const size_t taken = said.find("\"taken\"");
    const size_t plugin = said.rfind("\"plugin\":", taken);
    if (taken != std::string::npos) result.by = said.substr(plugin, 24);
  }
  rlk_status status = rlk_call(stream, op, nullptr, inputs, 2, outputs, 1, &options, &error);
  if (status == RLK_OK) status = rlk_stream_synchronize(stream, UINT64_MAX, &error);
  if (status != RLK_OK) result.problem = error.text;
  for (const float value : out)
    if (status == RLK_OK && value != 3.0f) result.problem = "a wrong number: " + std::to_string(value);
  rlk_stream_destroy(stream, nullptr);
  return result;
}

rlk_status require(const Runtime& runtime, const char* wanted, double seconds, std::string* text = nullptr) {
  rlk_error error = RLK_ERROR_INIT;
  const rlk_status status = rlk_runtime_require(runtime.get(), wanted, seconds, &error);
  if (text != nullptr) *text = error.text;
  return status;
}

bool says(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

TEST_F(OnDemand, AnotherServesUntilTheOperatorIsVerified) {
  in_own_process([&] {
    Runtime runtime;
    EXPECT_TRUE(says(runtime.list_json(), "\"waiting\":1")) << runtime.list_json();
    const Call before = add(runtime);
    EXPECT_EQ(before.problem, "");
    EXPECT_TRUE(before.waits || says(before.by, "hundred")) << before.by;
    ASSERT_EQ(require(runtime, "hundred:add", 300), RLK_OK);
    const Call after = add(runtime);
    EXPECT_EQ(after.problem, "");
    EXPECT_TRUE(says(after.by, "hundred")) << after.by;
    EXPECT_FALSE(after.waits);
  });
  in_own_process([&] {  // what was tried is remembered
    Runtime runtime;
    EXPECT_TRUE(says(add(runtime).by, "hundred"));
  });
}

TEST_F(OnDemand, AWrongOperatorIsNeverUsedAndAHangingOneDelaysNoOther) {
  in_own_process([&] {
    Runtime runtime;
    std::string why;
    EXPECT_EQ(require(runtime, "hundred:attention", 0.1, &why), RLK_TIMEOUT) << why;
    EXPECT_TRUE(says(why, "attention")) << why;
    EXPECT_EQ(require(runtime, "hundred:add,logp", 300, &why), RLK_OK) << why;
    EXPECT_EQ(require(runtime, "hundred:logp_backward", 300, &why), RLK_UNSUPPORTED);
    EXPECT_TRUE(says(why, "logp_backward") && says(why, "WRONG_RESULT")) << why;
    EXPECT_EQ(require(runtime, "hundred:attention", 0.1, &why), RLK_TIMEOUT) << "the only one that is not tried yet";
  });
}

TEST_F(OnDemand, StrictModeWaitsForTheTrialAndUsesNoOther) {
  in_own_process([&] {
    setenv("RLK_FALLBACK", "strict", 1);
    Runtime runtime;
    EXPECT_EQ(add(runtime).problem, "");
    EXPECT_TRUE(says(add(runtime).by, "hundred"));
  });
}

TEST_F(OnDemand, WhatIsRequiredIsReadyWhenTheRuntimeIs) {
  in_own_process([&] {
    setenv("RLK_REQUIRE", "cpu,hundred:add,cpu", 1);
    Runtime runtime;
    EXPECT_TRUE(says(add(runtime).by, "hundred"));
    std::string why;
    EXPECT_EQ(require(runtime, "hundred:nosuch", 1, &why), RLK_INVALID_ARGUMENT) << why;
    EXPECT_EQ(require(runtime, "nosuch", 1, &why), RLK_NOT_FOUND) << why;
    EXPECT_EQ(require(runtime, "hundred:softmax", 300, &why), RLK_UNSUPPORTED) << why;
    EXPECT_TRUE(says(why, "NOTHING")) << why;
  });
}

TEST_F(OnDemand, ProcessesThatStartTogetherTryItOnce) {
  std::vector<pid_t> processes;
  for (int i = 0; i < 4; ++i) {
    processes.push_back(begin_process([&] {
      Runtime runtime;
      std::string why;
      EXPECT_EQ(require(runtime, "hundred:add", 300, &why), RLK_OK) << why;
      EXPECT_EQ(add(runtime).problem, "");
    }));
  }
  for (const pid_t process : processes) EXPECT_EQ(rlk::testing::join(process), 0);
}

TEST_F(OnDemand, AReloadDoesNotWaitForWhatIsTriedBehind) {
  in_own_process([&] {
    Runtime runtime;
    ASSERT_EQ(require(runtime, "hundred:add", 300), RLK_OK);
    runtime.reload();
    EXPECT_EQ(add(runtime).problem, "");
  });
}

}  // namespace
}  // namespace rlk::test
