// A caller's other thread writes into tensors while an operator reads them: ids, offsets and lengths are in range when
// they are checked, and far out of it a moment later. The result may be anything; nothing is read or written outside of
// the tensors. Every operator of the CPU with such an input, which the declarations name.
#include <gtest/gtest.h>
#include <rlk/rlk.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/conformance/cases.hpp"
#include "core/conformance/data.hpp"

namespace rlk::test {
namespace {

using namespace core;
using namespace core::conformance;

constexpr int kCalls = 300;   // of each case
constexpr size_t kCases = 6;  // of each operator
constexpr size_t kAlignment = 256;

char current[400];
void tell_and_die(int signal) {
  const auto ignored = write(STDERR_FILENO, current, std::strlen(current));
  static_cast<void>(ignored);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

bool is_lookup(const ArgDecl& decl, const Argument& argument) {
  if (!argument.present || argument.count() == 0) return false;
  if (decl.domain.kind == Domain::mask) return argument.dtype == Dtype::u8;
  return argument.dtype == Dtype::i32 || argument.dtype == Dtype::i64;
}

// Writes one element after the other, in range or out of it, until it is told to end.
class Changer {
public:
  explicit Changer(std::vector<std::pair<const Argument*, void*>> tensors)
      : tensors_(std::move(tensors)), thread_([this] { work(); }) {}
  ~Changer() {
    ends_ = true;
    thread_.join();
  }
  Changer(const Changer&) = delete;
  Changer& operator=(const Changer&) = delete;

private:
  template <class T>
  void change(const Argument& argument, void* memory) {
    static constexpr int64_t kBad[] = {-1, int64_t{1} << 30, -(int64_t{1} << 30), (int64_t{1} << 31) - 1};
    for (int64_t i = 0; i < argument.count(); ++i) {
      T value;
      std::memcpy(&value, argument.bytes.data() + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
      random_ = random_ * 6364136223846793005u + 1442695040888963407u;
      if ((random_ >> 62) == 0)
        value = sizeof(T) == 1 ? static_cast<T>(value == 0) : static_cast<T>(kBad[random_ >> 60 & 3]);
      std::atomic_ref<T>(static_cast<T*>(memory)[i]).store(value, std::memory_order_relaxed);
    }
  }
  void work() {
    while (!ends_) {
      for (const auto& [argument, memory] : tensors_) {
        if (argument->dtype == Dtype::i64) change<int64_t>(*argument, memory);
        if (argument->dtype == Dtype::i32) change<int32_t>(*argument, memory);
        if (argument->dtype == Dtype::u8) change<uint8_t>(*argument, memory);
      }
    }
  }

  const std::vector<std::pair<const Argument*, void*>> tensors_;
  uint64_t random_ = 1;
  std::atomic<bool> ends_{false};
  std::thread thread_;
};

class ChangedValues : public ::testing::Test {
protected:
  ChangedValues() {
    for (const int signal : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE}) std::signal(signal, tell_and_die);
    setenv("RLK_WATCH", "off", 1);  // which would take what the caller does for the implementation's fault
    EXPECT_EQ(rlk_runtime_create(nullptr, &runtime_, nullptr), RLK_OK);
    EXPECT_EQ(rlk_stream_create(runtime_, "cpu", 0, 0, &stream_, nullptr), RLK_OK);
  }
  ~ChangedValues() override {
    rlk_stream_destroy(stream_, nullptr);
    rlk_runtime_destroy(runtime_, nullptr);
  }

  // Cases that differ in which lookups they have, or else in their parameters.
  static std::vector<Case> cases_of(const OpDecl& decl) {
    std::vector<Case> list;
    std::set<std::string> seen;
    for (int form = 0; form < static_cast<int>(std::max<size_t>(decl.forms.size(), 1)); ++form) {
      std::vector<Case> tried = plain_cases(decl, 0, form, /*smoke=*/true, {});
      if (tried.empty()) continue;
      const std::vector<Case> singles = single_cases(tried.front(), /*smoke=*/true);
      tried.resize(1);
      tried.insert(tried.end(), singles.begin(), singles.end());
      for (const Case& c : tried) {
        ConcreteCall call;
        if (!resolve(c, call)) continue;
        std::string lookups = std::to_string(form);
        for (size_t i = 0; i < call.inputs.size(); ++i)
          if (is_lookup(decl.inputs[i], call.inputs[i])) lookups += std::string(" ") + decl.inputs[i].name;
        if (lookups.find(' ') != std::string::npos && seen.insert(lookups).second && list.size() < kCases)
          list.push_back(c);
      }
    }
    return list;
  }

  void run(const Case& c) {
    ConcreteCall call;
    ASSERT_TRUE(resolve(c, call));
    fill_inputs(c, 1, call);
    std::vector<std::unique_ptr<void, void (*)(void*)>> memory;
    const auto block = [&](Argument& argument) {
      argument.layout = Layout::contiguous;
      argument.shift = 0;
      const size_t bytes = (static_cast<size_t>(argument.byte_count()) / kAlignment + 1) * kAlignment;
      memory.emplace_back(std::aligned_alloc(kAlignment, bytes), std::free);
      if (!argument.bytes.empty()) std::memcpy(memory.back().get(), argument.bytes.data(), argument.bytes.size());
      return memory.back().get();
    };
    std::vector<void*> inputs, outputs;
    std::vector<std::pair<const Argument*, void*>> lookups;
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      inputs.push_back(block(call.inputs[i]));
      if (is_lookup(call.decl->inputs[i], call.inputs[i])) lookups.emplace_back(&call.inputs[i], inputs.back());
    }
    for (size_t i = 0; i < call.outputs.size(); ++i) {
      const int32_t input = call.output_alias[i];
      outputs.push_back(input >= 0 ? inputs[static_cast<size_t>(input)] : block(call.outputs[i]));
    }
    const Descriptors tensors(call, inputs, outputs);
    const rlk_op* op = nullptr;
    ASSERT_EQ(rlk_op_find(call.decl->name, &op, nullptr), RLK_OK);
    std::snprintf(current, sizeof(current), "%s %s\n", call.decl->name, describe(c, call).c_str());
    rlk_error error = {};
    error.struct_size = sizeof(error);
    const Changer changer(std::move(lookups));
    for (int i = 0; i < kCalls; ++i) {
      const rlk_status status =
          rlk_call(stream_, op, call.params.data(), tensors.inputs().data(), static_cast<uint32_t>(inputs.size()),
                   tensors.outputs().data(), static_cast<uint32_t>(outputs.size()), nullptr, &error);
      const rlk_status told = status == RLK_OK ? rlk_stream_synchronize(stream_, UINT64_MAX, &error) : status;
      ASSERT_TRUE(told == RLK_OK || told == RLK_DATA_ERROR) << current << error.text;
      ++(told == RLK_OK ? good_ : bad_);
    }
  }

  rlk_runtime* runtime_ = nullptr;
  rlk_stream* stream_ = nullptr;
  int64_t good_ = 0, bad_ = 0;
};

TEST_F(ChangedValues, OfWhatAnOperatorLooksUpReachNoMemoryOutsideOfItsTensors) {
  int operators = 0;
  for (const OpDecl& decl : declarations()) {
    const std::vector<Case> cases = cases_of(decl);
    operators += cases.empty() ? 0 : 1;
    for (const Case& c : cases) ASSERT_NO_FATAL_FAILURE(run(c));
  }
  std::printf("%d operators: %lld calls without and %lld with a data error\n", operators, static_cast<long long>(good_),
              static_cast<long long>(bad_));
  EXPECT_GT(operators, 30);
  EXPECT_GT(good_, 0);
  EXPECT_GT(bad_, 0) << "nothing was changed while it was read";
}

}  // namespace
}  // namespace rlk::test
