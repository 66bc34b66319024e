// Contexts for a scope, waiting with a deadline, things that may still be in use, and graphs.
#include <gtest/gtest.h>
#include <rlk/sdk.hpp>

#include <chrono>

namespace {

namespace sdk = rlk::sdk;

struct Contexts {
  using Handle = int*;
  static inline std::vector<int*> stack;
  static inline bool refuses = false;
  static Handle current() { return stack.empty() ? nullptr : stack.back(); }
  static void enter(Handle wanted) {
    if (refuses) throw sdk::Error(RLK_BACKEND_ERROR, "no");
    stack.push_back(wanted);
  }
  static void leave(Handle previous) noexcept {
    stack.pop_back();
    EXPECT_EQ(current(), previous);
  }
};

TEST(CurrentScope, PutsBackWhatWasCurrent) {
  int first = 0, second = 0;
  {
    const sdk::CurrentScope<Contexts> outer(&first);
    {
      const sdk::CurrentScope<Contexts> inner(&second);
      EXPECT_EQ(Contexts::current(), &second);
      const sdk::CurrentScope<Contexts> same(&second);
      EXPECT_EQ(Contexts::stack.size(), 2u);  // nothing to do
    }
    EXPECT_EQ(Contexts::current(), &first);
  }
  EXPECT_EQ(Contexts::current(), nullptr);
}

TEST(CurrentScope, ARefusalChangesNothing) {
  int context = 0;
  Contexts::refuses = true;
  EXPECT_THROW(const sdk::CurrentScope<Contexts> scope(&context), sdk::Error);
  Contexts::refuses = false;
  EXPECT_EQ(Contexts::current(), nullptr);
}

TEST(Poll, AsksUntilTheAnswer) {
  int questions = 0;
  EXPECT_EQ(sdk::poll(UINT64_MAX, [&] { return ++questions < 100 ? RLK_NOT_READY : RLK_OK; }), RLK_OK);
  EXPECT_EQ(questions, 100);
}

TEST(Poll, ADeadlineOfNothingAsksOnce) {
  int questions = 0;
  EXPECT_EQ(sdk::poll(0, [&] { return ++questions, RLK_NOT_READY; }), RLK_TIMEOUT);
  EXPECT_EQ(questions, 1);
}

TEST(Poll, EndsAtItsDeadlineAndSleepsOnTheWay) {
  int64_t questions = 0;
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(sdk::poll(20000000, [&] { return ++questions, RLK_NOT_READY; }), RLK_TIMEOUT);
  const auto waited = std::chrono::steady_clock::now() - start;
  EXPECT_GE(waited, std::chrono::milliseconds(20));
  // 200 us of questions without a pause, then one per 50 us at most.
  const auto limit = std::chrono::nanoseconds(waited).count() / 50000 + 100000;
  EXPECT_LE(questions, limit);
}

TEST(Poll, OtherAnswersAndExceptionsEndIt) {
  EXPECT_EQ(sdk::poll(UINT64_MAX, [] { return RLK_DEVICE_LOST; }), RLK_DEVICE_LOST);
  EXPECT_THROW(sdk::poll(UINT64_MAX, []() -> rlk_status { throw sdk::Error(RLK_DEVICE_LOST, "gone"); }), sdk::Error);
}

TEST(Pool, GivesOutOnlyWhatIsFree) {
  sdk::Pool<int, bool> pool;  // the marker: whether the device has passed it
  int made = 0;
  const auto make = [&] { return ++made; };
  const auto is_free = [](bool passed) { return passed; };
  EXPECT_EQ(pool.take(is_free, make), 1);
  EXPECT_EQ(pool.take(is_free, make), 2);
  pool.give_back(1, false);
  pool.give_back(2, true);
  EXPECT_EQ(pool.take(is_free, make), 2);
  EXPECT_EQ(pool.take(is_free, make), 3);
  std::vector<int> left;
  pool.drain([&](int thing, bool) { left.push_back(thing); });
  EXPECT_EQ(left, std::vector<int>{1});
}

class Stream : public sdk::Stream {
public:
  void* native() override { return this; }
  rlk_status query(rlk_data_error&) override { return RLK_OK; }
  rlk_status synchronize(uint64_t, rlk_data_error&) override { return RLK_OK; }
  void wait(sdk::Event&) override {}
  void copy(void*, const void*, uint64_t, int32_t) override {}
  void fill(void*, uint8_t, uint64_t) override {}

  class Graph : public sdk::Graph {
  public:
    explicit Graph(int& alive) : alive_(++alive) {}
    ~Graph() override { --alive_; }
    void launch(sdk::Stream& stream) override { ++static_cast<Stream&>(stream).launches; }

  private:
    int& alive_;
  };
  void begin_capture() { captures = true; }
  std::unique_ptr<sdk::Graph> end_capture() {
    if (!captures) throw sdk::Error(RLK_INVALID_ARGUMENT, "nothing is captured");
    captures = false;
    return std::make_unique<Graph>(graphs);
  }
  bool captures = false;
  int graphs = 0, launches = 0;
};

TEST(Graph, IsATableOfTheStreamsMethods) {
  const rlk_graph_api& api = sdk::graph_api<Stream>;
  EXPECT_EQ(api.struct_size, sizeof(api));
  Stream stream;
  auto* handle = reinterpret_cast<rlk_plugin_stream*>(static_cast<sdk::Stream*>(&stream));
  rlk_plugin_graph* graph = nullptr;
  rlk_error error{};
  error.struct_size = sizeof(error);
  EXPECT_EQ(api.end_capture(handle, &graph, &error), RLK_INVALID_ARGUMENT);
  EXPECT_STREQ(error.text, "nothing is captured");
  EXPECT_EQ(api.begin_capture(handle, &error), RLK_OK);
  ASSERT_EQ(api.end_capture(handle, &graph, &error), RLK_OK);
  EXPECT_EQ(api.launch(graph, handle, &error), RLK_OK);
  EXPECT_EQ(stream.launches, 1);
  EXPECT_EQ(stream.graphs, 1);
  EXPECT_EQ(api.destroy(graph, &error), RLK_OK);
  EXPECT_EQ(stream.graphs, 0);
}

class LostStream : public Stream {
public:
  void* native() override { throw sdk::Error(RLK_DEVICE_LOST, "gone"); }
};

TEST(StreamThunks, AHandleThatCannotBeToldIsNull) {
  Stream stream;
  LostStream lost;
  const auto native_of = [](sdk::Stream& of) {
    return sdk::detail::StreamThunks<LostStream>::kTable.native(reinterpret_cast<rlk_plugin_stream*>(&of));
  };
  EXPECT_EQ(native_of(stream), &stream);
  EXPECT_EQ(native_of(lost), nullptr);
}

}  // namespace
