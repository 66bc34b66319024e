// First uses are compared with the reference in the background; what is found wrong is switched off and told.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <limits>
#include <numeric>
#include <optional>
#include <set>

#include "core/dispatch/fetch.hpp"
#include "unit/dispatch/world.hpp"

namespace rlk::test {
namespace {

using sdk::ops::Add;

// The test world's `add`, watched.
struct WatchedWorld : World {
  explicit WatchedWorld(const char* how = "first") : World(kAll, {{"RLK_WATCH", how}}) {
    fake_script<Add>().mark = cpu_script<Add>().mark = 0;
  }
  ~WatchedWorld() { fake_script<Add>().mark = cpu_script<Add>().mark = 0; }
  core::WatchStatistics run(Stream& stream, OpCall& add) {
    EXPECT_EQ(call(stream, add), RLK_OK) << text();
    EXPECT_EQ(synchronize(stream), RLK_OK) << text();
    return watched();
  }
  core::WatchStatistics watched() {
    dispatcher->watcher().settle();
    return dispatcher->watcher().statistics();
  }
};

// One dimension; the memory of a call has room for more.
void resize(OpCall& add, int64_t size) {
  for (Argument* argument : {&add.inputs[0], &add.inputs[1], &add.outputs[0]}) {
    argument->shape = {size};
    argument->strides = {1};
  }
  add.refresh();
}

TEST(Watch, AFirstUseIsComparedOnceAndEachSizeClassIsAFirstUse) {
  WatchedWorld world;
  auto stream = world.stream();
  OpCall &small = world.make("add"), &large = world.make("add");
  resize(large, 300);
  EXPECT_EQ(world.run(*stream, small).compared, 1u);
  EXPECT_EQ(world.run(*stream, small).compared, 1u) << "the second call is no first use";
  EXPECT_EQ(world.run(*stream, large).compared, 2u);
}

TEST(Watch, AWrongResultSwitchesTheImplementationOffAndTheStreamTellsOnce) {
  WatchedWorld world;
  auto stream = world.stream();
  ASSERT_EQ(world.run(*stream, world.make("add")).wrong, 0u) << "so is its canary";
  fake_script<Add>().mark = 1;  // every element is off by 1, from now on
  OpCall& add = world.make("add");
  resize(add, 300);
  ASSERT_EQ(world.call(*stream, add), RLK_OK);
  ASSERT_EQ(stream->wait_quietly(nullptr), RLK_OK);
  EXPECT_EQ(world.watched().wrong, 1u);
  EXPECT_EQ(world.synchronize(*stream), RLK_WRONG_RESULT);
  EXPECT_NE(world.text().find("add by fake/first"), std::string::npos) << world.text();
  EXPECT_EQ(world.synchronize(*stream), RLK_OK) << "told once";
  EXPECT_EQ(World::taken(world.explain(*stream, add)), "fake/second");
}

TEST(Watch, ACanaryThatHangsKeepsNoOtherOperatorWaiting) {
  WatchedWorld world;
  auto stream = world.stream(), other = world.stream();
  OpCall &add = world.make("add"), &logp = world.make("logp");
  std::promise<void> hanging, release;
  std::atomic<bool> is_first{true};
  fake_script<Add>().on_query = [&, released = release.get_future().share()](const rlk_private_params*) {
    if (!is_first.exchange(false)) return;
    hanging.set_value();
    released.wait();
  };
  const auto call = [&](Stream& on, OpCall& one) {  // whose error is nobody else's
    return world.dispatcher->call(on, *one.decl, one.params.data(), one.input_pointers, one.output_pointers, {},
                                  nullptr);
  };
  auto hangs = std::async(std::launch::async, [&] { return call(*stream, add); });
  hanging.get_future().wait();
  auto goes_on = std::async(std::launch::async, [&] { return call(*other, logp); });
  EXPECT_EQ(goes_on.wait_for(std::chrono::seconds(30)), std::future_status::ready);
  release.set_value();
  EXPECT_EQ(goes_on.get(), RLK_OK);
  EXPECT_EQ(hangs.get(), RLK_OK);
}

TEST(Watch, WhatTheTestsHadIsNotComparedAgain) {
  WatchedWorld first;
  auto stream = first.stream();
  uint32_t seen = 0;
  first.registry.on_compared([&](const core::ComparedClass& compared) { seen = compared.size_class; });
  ASSERT_EQ(first.run(*stream, first.make("add")).compared, 1u);
  stream.reset();

  WatchedWorld second;
  for (PluginBinding& plugin : second.plugins) {
    for (UnitResult& unit : plugin.units) unit.size_classes = {seen};
  }
  second.publish();
  auto other = second.stream();
  EXPECT_EQ(second.run(*other, second.make("add")).compared, 0u);
}

// What a caller passes by mistake, or a step that has diverged: the only implementation must not be lost over it.
TEST(Watch, ADifferenceIsNoVerdictWhereNumbersAreBeyondWhatTestsTry) {
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  for (const float extreme : {1e30f, 1e-30f, kInfinite, std::numeric_limits<float>::quiet_NaN()}) {
    WatchedWorld world;
    auto stream = world.stream();
    OpCall& add = world.make("add");
    static_cast<float*>(add.inputs[0].data)[1] = extreme;
    add.refresh();
    ASSERT_EQ(world.run(*stream, world.make("add")).wrong, 0u) << "so is its canary";
    fake_script<Add>().mark = 1;
    resize(add, 300);
    ASSERT_EQ(world.call(*stream, add), RLK_OK);
    ASSERT_EQ(stream->wait_quietly(nullptr), RLK_OK);
    EXPECT_EQ(world.watched().wrong, 0u) << extreme;
    EXPECT_EQ(world.watched().passed_over, 1u) << extreme;
    EXPECT_EQ(world.synchronize(*stream), RLK_OK) << extreme;
  }
}

// A gradient without the softcap that its forward had: exp of scores that are not below their lse.
TEST(Watch, ADifferenceIsNoVerdictWhereTheRightAnswerIsBeyondWhatTestsTry) {
  WatchedWorld world;
  auto stream = world.stream();
  OpCall& add = world.make("add");
  ASSERT_EQ(world.run(*stream, world.make("add")).wrong, 0u) << "so is its canary";
  static_cast<float*>(add.inputs[1].data)[1] = 0x1p30f;
  const double alpha = 0x1p40;
  std::memcpy(reinterpret_cast<char*>(add.params.data()) + add.decl->params[0].offset, &alpha, sizeof(alpha));
  fake_script<Add>().mark = 0x1p60f;
  resize(add, 300);
  EXPECT_EQ(world.run(*stream, add).wrong, 0u);
  EXPECT_EQ(world.watched().passed_over, 1u);
}

TEST(Watch, AClassThatFoundNoRoomIsComparedLater) {
  WatchedWorld world("1");  // every call
  auto stream = world.stream();
  std::set<uint32_t> compared;
  world.registry.on_compared([&](const core::ComparedClass& one) { compared.insert(one.size_class); });
  OpCall& small = world.make("add");
  world.run(*stream, small);
  ASSERT_EQ(compared.size(), 1u);
  fake(stream->handle()).worker->hold(true);
  fake(stream->handle()).push([] {});
  const auto passed_over = [&] { return world.dispatcher->watcher().statistics().passed_over; };
  for (int i = 0; i < 60; ++i) ASSERT_EQ(world.call(*stream, small), RLK_OK);
  ASSERT_GT(passed_over(), 0u) << "there is room yet";
  // The watcher waits with one call for the stream; if it took that only now, there was room for one more.
  OpCall* large = nullptr;
  uint64_t before = 0;
  for (const int64_t size : {300, 200}) {
    large = &world.make("add");
    resize(*large, size);
    before = passed_over();
    ASSERT_EQ(world.call(*stream, *large), RLK_OK);
    if (passed_over() != before) break;
  }
  ASSERT_EQ(passed_over(), before + 1);
  fake(stream->handle()).worker->hold(false);
  ASSERT_EQ(world.synchronize(*stream), RLK_OK);
  world.watched();
  const size_t classes = compared.size();
  world.run(*stream, *large);
  EXPECT_EQ(compared.size(), classes + 1);
}

TEST(Watch, AClassTooLargeToBeComparedIsLookedAtOnce) {
  WatchedWorld world;
  auto stream = world.stream();
  constexpr int64_t kSize = int64_t{6} << 20;  // three tensors of 24 MiB: the limit is 64
  std::vector<float> memory[3];
  OpCall& add = world.make("add");
  resize(add, kSize);
  Argument* const arguments[] = {&add.inputs[0], &add.inputs[1], &add.outputs[0]};
  for (size_t i = 0; i < 3; ++i) {
    memory[i].resize(kSize);
    arguments[i]->data = memory[i].data();
    arguments[i]->alignment = alignof(float);
  }
  add.refresh();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(world.run(*stream, add).passed_over, 1u);
  EXPECT_EQ(world.watched().compared, 0u);
}

// One call with such numbers, or with an id that does not exist, must not hide what the next one shows.
TEST(Watch, AClassWithoutAVerdictIsComparedAgainAtItsNextCallUpToEightTimes) {
  WatchedWorld world;
  auto stream = world.stream();
  ASSERT_EQ(world.run(*stream, world.make("add")).wrong, 0u);
  fake_script<Add>().mark = 1;
  OpCall &extreme = world.make("add"), &ordinary = world.make("add");
  static_cast<float*>(extreme.inputs[0].data)[1] = 1e30f;
  resize(extreme, 300);
  resize(ordinary, 300);
  EXPECT_EQ(world.run(*stream, extreme).passed_over, 1u);
  EXPECT_EQ(world.run(*stream, extreme).passed_over, 2u);
  ASSERT_EQ(world.call(*stream, ordinary), RLK_OK);
  ASSERT_EQ(stream->wait_quietly(nullptr), RLK_OK);
  EXPECT_EQ(world.watched().wrong, 1u);

  WatchedWorld other;
  auto own = other.stream();
  ASSERT_EQ(other.run(*own, other.make("add")).wrong, 0u);
  fake_script<Add>().mark = 1;
  OpCall& always = other.make("add");
  static_cast<float*>(always.inputs[0].data)[1] = 1e30f;
  resize(always, 300);
  for (int i = 0; i < 20; ++i) other.run(*own, always);
  EXPECT_EQ(other.watched().passed_over, 8u);
}

TEST(Watch, ACallInPlaceIsComparedWithWhatItsInputHeld) {
  WatchedWorld world;
  auto stream = world.stream();
  OpCall& add = world.make("add");
  static_cast<float*>(add.inputs[1].data)[0] = 1;  // out = a + 1 where a lies
  add.outputs[0] = add.inputs[0];
  add.refresh();
  EXPECT_EQ(world.run(*stream, add).compared, 1u) << world.text();
  EXPECT_EQ(world.watched().wrong, 0u);
}

TEST(Watch, OffComparesNothingAndAShareComparesLaterCallsToo) {
  WatchedWorld off("off");
  auto stream = off.stream();
  EXPECT_EQ(off.run(*stream, off.make("add")).compared, 0u);
  stream.reset();
  WatchedWorld all("1");
  auto other = all.stream();
  OpCall& add = all.make("add");
  for (int i = 0; i < 5; ++i) all.run(*other, add);
  EXPECT_EQ(all.watched().compared, 5u);
}

TEST(WatchPolicy, AnUnknownWordIsNamedWithWhatIsExpected) {
  Policy policy;
  rlk_error error{};
  error.struct_size = sizeof(error);
  EXPECT_EQ(World::make_policy({{"RLK_WATCH", "sometimes"}, {"RLK_FALLBACK", "strict"}}, {}, &policy, &error),
            RLK_INVALID_ARGUMENT);
  EXPECT_NE(std::string(error.text).find("expected off, first, or a share"), std::string::npos) << error.text;
}

// ---- what is copied

struct Matrix {
  std::vector<float> values;
  std::vector<int64_t> shape, strides;
  rlk_tensor tensor() {
    return {
        sizeof(rlk_tensor),      4, values.data(), 0, shape.data(), strides.data(), static_cast<int32_t>(shape.size()),
        {RLK_DTYPE_FLOAT, 32, 1}};
  }
};

using Indices = std::vector<int64_t>;

std::vector<float> fetched(Matrix& matrix, std::vector<std::optional<Indices>> wanted, int* copies) {
  const rlk_tensor tensor = matrix.tensor();
  const auto fetch = core::Fetch::make(tensor, std::move(wanted));
  *copies = -1;
  if (!fetch) return {};
  *copies = 0;
  std::vector<char> buffer(fetch->bytes());
  EXPECT_EQ(fetch->enqueue(tensor, buffer.data(),
                           [&](char* to, const char* from, uint64_t bytes) {
                             ++*copies;
                             std::memcpy(to, from, bytes);
                             return RLK_OK;
                           }),
            RLK_OK);
  const std::vector<std::byte> bytes = fetch->pick(buffer.data());
  std::vector<float> values(bytes.size() / 4);
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

Matrix counting(std::vector<int64_t> shape, std::vector<int64_t> strides, size_t elements) {
  Matrix matrix{{}, std::move(shape), std::move(strides)};
  for (size_t i = 0; i < elements; ++i) matrix.values.push_back(static_cast<float>(i));
  return matrix;
}

TEST(Fetch, RowsOfAMatrixAreOneCopyEach) {
  Matrix matrix = counting({4, 3}, {3, 1}, 12);
  int copies = 0;
  EXPECT_EQ(fetched(matrix, {Indices{0, 3}, Indices{0, 1, 2}}, &copies), (std::vector<float>{0, 1, 2, 9, 10, 11}));
  EXPECT_EQ(copies, 2);
}

TEST(Fetch, AWholeMatrixIsOneCopy) {
  Matrix matrix = counting({4, 3}, {3, 1}, 12);
  int copies = 0;
  EXPECT_EQ(fetched(matrix, {Indices{0, 1, 2, 3}, Indices{0, 1, 2}}, &copies), matrix.values);
  EXPECT_EQ(copies, 1);
  EXPECT_EQ(fetched(matrix, {std::nullopt, std::nullopt}, &copies), matrix.values);
  EXPECT_EQ(copies, 1);
  EXPECT_EQ(fetched(matrix, {Indices{1, 3}, std::nullopt}, &copies), (std::vector<float>{3, 4, 5, 9, 10, 11}));
}

TEST(Fetch, ScatteredElementsAreCopiedWithWhatLiesBetweenAndPicked) {
  Matrix matrix = counting({100, 4, 2}, {8, 2, 1}, 800);
  Indices rows(100);
  std::iota(rows.begin(), rows.end(), int64_t{0});
  int copies = 0;
  const std::vector<float> values = fetched(matrix, {rows, Indices{2}, Indices{0, 1}}, &copies);
  EXPECT_EQ(copies, 1) << "100 copies would be one per row";
  ASSERT_EQ(values.size(), 200u);
  EXPECT_EQ(values[0], 4);
  EXPECT_EQ(values[199], 99 * 8 + 5);
}

TEST(Fetch, ATransposedMatrixWithManyRowsIsPassedOver) {
  Matrix matrix = counting({100, 100}, {1, 100}, 10000);
  std::vector<int64_t> all(100);
  for (int64_t i = 0; i < 100; ++i) all[static_cast<size_t>(i)] = i;
  int copies = 0;
  fetched(matrix, {all, all}, &copies);
  EXPECT_EQ(copies, -1);
}

}  // namespace
}  // namespace rlk::test
