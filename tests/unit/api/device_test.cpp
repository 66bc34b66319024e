// Dispatch on devices with memory of their own, through rlk.h: every backend other than the CPU that this machine (or a
// simulated runtime named by the environment) has. What a call gives there must be what the CPU gives.
#include <gtest/gtest.h>
#include <rlk/ops/add.h>
#include <rlk/ops/attention.h>
#include <rlk/ops/logp.h>
#include <rlk/rlk.hpp>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <iterator>
#include <sstream>
#include <thread>

namespace rlk::test {
namespace {

Runtime& runtime() {
  static Runtime shared;
  return shared;
}

// The operators that these tests call; each backend tries them before. All that it has would take minutes on a
// simulated device, and on some attention alone does: RLK_TEST_OPERATORS names fewer there, and the CPU serves the
// others.
std::vector<std::string> wanted() {
  const char* text = std::getenv("RLK_TEST_OPERATORS");
  std::istringstream names(text != nullptr ? text : "add logp attention");
  return {std::istream_iterator<std::string>(names), {}};
}

const std::vector<std::string>& backends() {
  static const std::vector<std::string> kFound = [] {
    std::vector<std::string> found;
    for (const char* name : {"cuda", "rocm", "maca", "ascend", "cambricon", "wide"}) {
      if (runtime().device_count(name) == 0) continue;
      found.emplace_back(name);
      for (const std::string& op : wanted()) {
        try {
          runtime().require((found.back() + ":" + op).c_str());
        } catch (const std::exception& error) {
          std::cout << "not verified: " << error.what() << "\n";
        }
      }
    }
    return found;
  }();
  return kFound;
}

// A host array and its copy on a stream's device.
template <class T>
class Array {
public:
  Array(const Stream& stream, std::vector<T> values) : stream_(stream), host(std::move(values)) {
    device_ = stream.allocate(std::max<size_t>(bytes(), 1));
    stream.copy(device_, host.data(), bytes(), RLK_COPY_HOST_TO_DEVICE);
  }
  ~Array() { stream_.deallocate(device_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  const std::vector<T>& fetch() {
    stream_.copy(host.data(), device_, bytes(), RLK_COPY_DEVICE_TO_HOST);
    return host;
  }
  void* data() const { return device_; }

private:
  size_t bytes() const { return host.size() * sizeof(T); }
  const Stream& stream_;
  void* device_ = nullptr;

public:
  std::vector<T> host;
};

std::vector<float> ramp(size_t n, float step) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) values[i] = step * static_cast<float>(i % 97) - 3;
  return values;
}

rlk_call_options on_cpu() {
  rlk_call_options options = RLK_CALL_OPTIONS_INIT;
  options.pin = "cpu";
  return options;
}

class DeviceTest : public ::testing::Test {
protected:
  void SetUp() override {
    if (backends().empty())
      GTEST_SKIP() << "no backend other than the CPU has a device here: " << runtime().list_json();
  }
  template <class Body>
  void on_each(Body&& body) {
    for (const std::string& backend : backends()) {
      SCOPED_TRACE(backend);
      const Stream stream = runtime().stream(backend.c_str());
      std::cout << "backend " << backend << "\n";
      body(stream);
    }
  }
  static void add(const Stream& stream, Array<float>& a, Array<float>& b, Array<float>& out,
                  const rlk_call_options* options = nullptr) {
    const auto n = static_cast<int64_t>(a.host.size());
    call(stream, "add", nullptr, {Tensor(a.data(), kF32, {n}), Tensor(b.data(), kF32, {n})},
         {Tensor(out.data(), kF32, {n})}, options);
  }
};

TEST_F(DeviceTest, CopiesRoundTrip) {
  on_each([](const Stream& stream) {
    Array<float> array(stream, ramp(3'000'001, 0.25f));
    const std::vector<float> before = array.host;
    std::fill(array.host.begin(), array.host.end(), 0.f);
    EXPECT_EQ(array.fetch(), before);
    auto* pinned = static_cast<float*>(stream.allocate(4096, RLK_MEMORY_PINNED));
    stream.copy(pinned, array.data(), 4096, RLK_COPY_DEVICE_TO_HOST);
    stream.synchronize();
    EXPECT_EQ(pinned[1000], before[1000]);
    stream.deallocate(pinned);
  });
}

TEST_F(DeviceTest, DeviceAndStagedCallsKeepTheirOrder) {
  on_each([](const Stream& stream) {
    Array<float> a(stream, ramp(100'000, 0.5f)), b(stream, ramp(100'000, 0.125f)), out(stream, ramp(100'000, 0));
    const rlk_call_options staged = on_cpu();
    const std::vector<float> va = a.host, vb = b.host;
    // Each call reads what the one before it wrote; every second one runs on the CPU.
    add(stream, a, b, out);
    for (int i = 0; i < 6; ++i) {
      add(stream, out, b, a, i % 2 == 0 ? &staged : nullptr);
      add(stream, a, b, out);
    }
    out.fetch();
    for (size_t i = 0; i < out.host.size(); ++i) ASSERT_EQ(out.host[i], va[i] + 13 * vb[i]) << i;
  });
}

TEST_F(DeviceTest, StagedInPlaceAndStrided) {
  on_each([](const Stream& stream) {
    const rlk_call_options staged = on_cpu();
    Array<float> a(stream, ramp(1000, 1)), b(stream, ramp(1000, 2));
    const std::vector<float> va = a.host, vb = b.host;
    add(stream, a, b, a, &staged);
    a.fetch();
    for (size_t i = 0; i < 1000; ++i) ASSERT_EQ(a.host[i], va[i] + vb[i]);
    // Every second column is the output's; the others are not its to write.
    Array<float> wide(stream, std::vector<float>(2000, -1));
    call(stream, "add", nullptr, {Tensor(a.data(), kF32, {50, 20}), Tensor(b.data(), kF32, {50, 20})},
         {Tensor(wide.data(), kF32, {50, 20}, {40, 2})}, &staged);
    wide.fetch();
    for (size_t i = 0; i < 1000; ++i) {
      ASSERT_EQ(wide.host[2 * i], a.host[i] + vb[i]);
      ASSERT_EQ(wide.host[2 * i + 1], -1);
    }
  });
}

TEST_F(DeviceTest, DataErrorsAreToldOnceWhereverTheCallRan) {
  on_each([](const Stream& stream) {
    const rlk_call_options staged = on_cpu();
    for (const rlk_call_options* options : {static_cast<const rlk_call_options*>(nullptr), &staged}) {
      Array<float> logits(stream, ramp(231, 0.1f)), logp(stream, std::vector<float>(7, 0));
      Array<int64_t> ids(stream, {1, 2, 3, 4, 4711, 6, 7});
      call(stream, "logp", nullptr, {Tensor(logits.data(), kF32, {7, 33}), Tensor(ids.data(), kI64, {7})},
           {Tensor(logp.data(), kF32, {7})}, options);
      try {
        stream.synchronize();
        FAIL();
      } catch (const Exception& e) {
        EXPECT_EQ(e.status(), RLK_DATA_ERROR) << e.what();
        for (const char* part : {"logp", "row 4", "4711"}) {
          EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
        }
      }
      EXPECT_NO_THROW(stream.synchronize());
      logp.fetch();
      EXPECT_TRUE(std::isnan(logp.host[4]));
      EXPECT_TRUE(std::isfinite(logp.host[3]));
    }
  });
}

TEST_F(DeviceTest, LogpGivesWhatTheCpuGives) {
  on_each([](const Stream& stream) {
    const Stream cpu = runtime().stream();
    for (const int64_t rows : {1, 5, 64, 0, 33}) {
      const std::vector<float> values = ramp(static_cast<size_t>(rows) * 1031, 0.07f);
      std::vector<int64_t> chosen(static_cast<size_t>(rows));
      for (size_t i = 0; i < chosen.size(); ++i) chosen[i] = static_cast<int64_t>(i * 13 % 1031);
      std::vector<float> expected(static_cast<size_t>(rows));
      call(cpu, "logp", nullptr,
           {ConstTensor(values.data(), kF32, {rows, 1031}), ConstTensor(chosen.data(), kI64, {rows})},
           {Tensor(expected.data(), kF32, {rows})});
      Array<float> logits(stream, values), logp(stream, std::vector<float>(static_cast<size_t>(rows), -1));
      Array<int64_t> ids(stream, chosen);
      call(stream, "logp", nullptr, {Tensor(logits.data(), kF32, {rows, 1031}), Tensor(ids.data(), kI64, {rows})},
           {Tensor(logp.data(), kF32, {rows})});
      logp.fetch();
      for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(logp.host[i], expected[i], 2e-5) << rows << " " << i;
    }
  });
}

TEST_F(DeviceTest, PackedAttentionGivesWhatTheCpuGives) {
  on_each([](const Stream& stream) {
    const Stream cpu = runtime().stream();
    const std::vector<int32_t> lengths = {0, 4, 4, 11};
    const std::vector<float> q = ramp(1408, 0.01f), k = ramp(704, 0.02f), v = ramp(704, 0.5f);
    std::vector<float> expected(q.size());
    rlk_attention_params params = RLK_ATTENTION_PARAMS_INIT;
    params.layout = RLK_ATTENTION_LAYOUT_PACKED;
    params.causal = RLK_ATTENTION_CAUSAL_ON;
    const auto run = [&](const Stream& on, const void* dq, const void* dk, const void* dv, const void* dl, void* out) {
      call(on, "attention", &params,
           {ConstTensor(dq, kF32, {11, 2, 64}), ConstTensor(dk, kF32, {11, 1, 64}), ConstTensor(dv, kF32, {11, 1, 64}),
            ConstTensor(dl, kI32, {4}), ConstTensor(dl, kI32, {4})},
           {Tensor(out, kF32, {11, 2, 64})});
    };
    run(cpu, q.data(), k.data(), v.data(), lengths.data(), expected.data());
    Array<float> dq(stream, q), dk(stream, k), dv(stream, v), out(stream, std::vector<float>(q.size(), -1));
    Array<int32_t> dl(stream, lengths);
    run(stream, dq.data(), dk.data(), dv.data(), dl.data(), out.data());
    out.fetch();
    stream.synchronize();
    for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(out.host[i], expected[i], 1e-3) << i;
  });
}

// A counter of one operator, from the document that counters_json gives.
uint64_t counter(const std::string& op, const std::string& name) {
  const std::string counters = runtime().counters_json();
  const size_t begin = counters.find("\"name\": \"" + op + "\"");
  const size_t at = counters.find("\"" + name + "\": ", begin);
  EXPECT_TRUE(begin != std::string::npos && at != std::string::npos) << counters;
  return std::strtoull(counters.c_str() + at + name.size() + 4, nullptr, 10);
}

TEST_F(DeviceTest, CallsWhoseTokenCountsChangeEveryStepReuseTheirPlans) {
  on_each([](const Stream& stream) {
    constexpr int64_t kSteps = 40;
    Array<float> logits(stream, ramp(kSteps * 37, 0.07f)), logp(stream, std::vector<float>(kSteps, 0));
    Array<int64_t> ids(stream, std::vector<int64_t>(kSteps, 3));
    // fp16, which every backend's attention takes.
    Array<uint16_t> q(stream, std::vector<uint16_t>(kSteps * 64, 0x3400)),
        out(stream, std::vector<uint16_t>(kSteps * 64));
    Array<int32_t> lengths(stream, {0, 0, 0});
    rlk_attention_params params = RLK_ATTENTION_PARAMS_INIT;
    params.layout = RLK_ATTENTION_LAYOUT_PACKED;
    const uint64_t logp_before = counter("logp", "plan_misses"), attention_before = counter("attention", "plan_misses");
    const uint64_t logp_hits = counter("logp", "plan_hits"), attention_hits = counter("attention", "plan_hits");
    for (int64_t n = 1; n <= kSteps; ++n) {
      call(stream, "logp", nullptr, {Tensor(logits.data(), kF32, {n, 37}), Tensor(ids.data(), kI64, {n})},
           {Tensor(logp.data(), kF32, {n})});
      lengths.host = {0, static_cast<int32_t>(n / 3), static_cast<int32_t>(n)};
      stream.copy(lengths.data(), lengths.host.data(), 3 * sizeof(int32_t), RLK_COPY_HOST_TO_DEVICE);
      call(stream, "attention", &params,
           {Tensor(q.data(), kF16, {n, 1, 64}), Tensor(q.data(), kF16, {n, 1, 64}), Tensor(q.data(), kF16, {n, 1, 64}),
            Tensor(lengths.data(), kI32, {3}), Tensor(lengths.data(), kI32, {3})},
           {Tensor(out.data(), kF16, {n, 1, 64})});
    }
    stream.synchronize();
    EXPECT_LE(counter("logp", "plan_misses") - logp_before, 1u);
    EXPECT_GE(counter("logp", "plan_hits") - logp_hits, static_cast<uint64_t>(kSteps - 1));
    out.fetch();
    EXPECT_EQ(out.host, q.host) << "the mean of equal values";
    EXPECT_LE(counter("attention", "plan_misses") - attention_before, 1u);
    EXPECT_GE(counter("attention", "plan_hits") - attention_hits, static_cast<uint64_t>(kSteps - 1));
  });
}

// As the layers of a model are.
void capture_many_equal_calls(const Stream& stream) {
  constexpr int kCalls = 24;
  Array<float> sum(stream, ramp(1000, 0)), b(stream, ramp(1000, 0.25f));
  const Tensor to(sum.data(), kF32, {1000});
  const auto add_once = [&](const Stream& s) { call(s, "add", nullptr, {to, Tensor(b.data(), kF32, {1000})}, {to}); };
  add_once(stream);
  stream.synchronize();
  const Graph graph = capture(stream, [&](const Stream& s) {
    for (int i = 0; i < kCalls; ++i) add_once(s);
  });
  add_once(stream);
  const std::vector<float> before = sum.fetch();
  graph.launch(stream);
  sum.fetch();
  for (size_t i = 0; i < before.size(); ++i) ASSERT_EQ(sum.host[i], before[i] + kCalls * b.host[i]) << i;
}

void expect_data_errors_of_replays(const Stream& stream) {
  Array<float> logits(stream, ramp(231, 0.1f)), logp(stream, std::vector<float>(7, 0));
  Array<int64_t> ids(stream, {1, 2, 3, 4, 4711, 6, 7});
  const auto call_logp = [&](const Stream& s) {
    call(s, "logp", nullptr, {Tensor(logits.data(), kF32, {7, 33}), Tensor(ids.data(), kI64, {7})},
         {Tensor(logp.data(), kF32, {7})});
  };
  const auto expect_told = [](const Stream& by) {
    try {
      by.synchronize();
      ADD_FAILURE();
    } catch (const Exception& e) {
      EXPECT_EQ(e.status(), RLK_DATA_ERROR) << e.what();
      for (const char* part : {"logp", "row 4", "4711"})
        EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
    EXPECT_NO_THROW(by.synchronize());
  };
  call_logp(stream);
  expect_told(stream);
  const Graph graph = capture(stream, call_logp);
  EXPECT_NO_THROW(stream.synchronize());
  const Stream other = runtime().stream(backends().front().c_str());
  for (const Stream* on : {&stream, &other}) {
    graph.launch(*on);
    expect_told(*on);
  }
}

TEST_F(DeviceTest, Graphs) {
  on_each([](const Stream& stream) {
    if (rlk_graph_begin(stream.get(), nullptr) == RLK_UNSUPPORTED) {
      std::cout << "this backend captures no graphs\n";
      return;
    }
    rlk_graph* nothing = nullptr;
    ASSERT_EQ(rlk_graph_end(stream.get(), &nothing, nullptr), RLK_OK);
    ASSERT_EQ(rlk_graph_destroy(nothing, nullptr), RLK_OK);
    Array<float> a(stream, ramp(1000, 1)), b(stream, ramp(1000, 2)), out(stream, ramp(1000, 0));
    add(stream, a, b, out);
    add(stream, out, b, out);  // in place is another plan, and none is made while capturing
    stream.synchronize();
    const rlk_call_options staged = on_cpu();
    {
      const Graph graph = capture(stream, [&](const Stream& s) {
        add(s, a, b, out);
        // What cannot be captured is refused, and the capture goes on.
        for (const auto& refused :
             {std::function<void()>([&] { add(s, a, b, out, &staged); }),
              std::function<void()>([&] { s.allocate(100); }), std::function<void()>([&] { s.synchronize(); })}) {
          try {
            refused();
            ADD_FAILURE();
          } catch (const Exception& e) {
            EXPECT_EQ(e.status(), RLK_CAPTURE_FORBIDS) << e.what();
          }
        }
        add(s, out, b, out);
      });
      for (int i = 0; i < 3; ++i) {
        graph.launch(stream);
        out.fetch();
        for (size_t k = 0; k < 1000; ++k) ASSERT_EQ(out.host[k], a.host[k] + 2 * b.host[k]);
      }
      const Stream other = runtime().stream(backends().front().c_str());
      graph.launch(other);
      other.synchronize();
    }
    add(stream, a, b, out);
    stream.synchronize();
    capture_many_equal_calls(stream);
    expect_data_errors_of_replays(stream);
  });
}

TEST_F(DeviceTest, StreamsInSeveralThreads) {
  for (const std::string& backend : backends()) {
    SCOPED_TRACE(backend);
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        const Stream stream = runtime().stream(backend.c_str());
        const rlk_call_options staged = on_cpu();
        Array<float> a(stream, ramp(5000, 1)), b(stream, ramp(5000, static_cast<float>(t))), out(stream, ramp(5000, 0));
        for (int i = 0; i < 20; ++i) add(stream, a, b, out, i % 5 == 4 ? &staged : nullptr);
        out.fetch();
        for (size_t i = 0; i < 5000; ++i) wrong += out.host[i] != a.host[i] + b.host[i];
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0);
  }
}

TEST_F(DeviceTest, NothingWasQuarantinedOrLeaked) {
  for (const std::string& backend : backends()) {
    rlk_memory_statistics statistics = {};
    statistics.struct_size = sizeof(statistics);
    ASSERT_EQ(rlk_memory_statistics_get(runtime().get(), backend.c_str(), 0, &statistics, nullptr), RLK_OK);
    EXPECT_EQ(statistics.in_use_bytes, 0u) << backend;
  }
  EXPECT_EQ(runtime().list_json().find("QUARANTINED"), std::string::npos);
  std::cout << runtime().counters_json() << "\n";
}

}  // namespace
}  // namespace rlk::test
