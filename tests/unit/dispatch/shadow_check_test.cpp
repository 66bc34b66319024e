// First uses are compared with the reference in the background; what is found wrong is switched off and told.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <future>
#include <limits>
#include <set>

#include "unit/dispatch/world.hpp"

namespace rlk::test {
namespace {

using sdk::ops::Add;

// The test world's `add`, shadow.
struct ShadowedWorld : World {
  explicit ShadowedWorld(const char* how = "first") : World(kAll, {{"RLK_WATCH", how}}) {
    fake_script<Add>().mark = cpu_script<Add>().mark = 0;
  }
  ~ShadowedWorld() { fake_script<Add>().mark = cpu_script<Add>().mark = 0; }
  core::ShadowStatistics run(Stream& stream, OpCall& add) {
    EXPECT_EQ(call(stream, add), RLK_OK) << text();
    EXPECT_EQ(synchronize(stream), RLK_OK) << text();
    return shadow();
  }
  core::ShadowStatistics shadow() {
    dispatcher->shadow_check().settle();
    return dispatcher->shadow_check().statistics();
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

TEST(ShadowCheck, AFirstUseIsComparedOnceAndEachSizeClassIsAFirstUse) {
  ShadowedWorld world;
  auto stream = world.stream();
  OpCall &small = world.make("add"), &large = world.make("add");
  resize(large, 300);
  EXPECT_EQ(world.run(*stream, small).compared, 1u);
  EXPECT_EQ(world.run(*stream, small).compared, 1u) << "the second call is no first use";
  EXPECT_EQ(world.run(*stream, large).compared, 2u);
}

TEST(ShadowCheck, AWrongResultSwitchesTheImplementationOffAndTheStreamTellsOnce) {
  ShadowedWorld world;
  auto stream = world.stream();
  ASSERT_EQ(world.run(*stream, world.make("add")).wrong, 0u) << "so is its canary";
  fake_script<Add>().mark = 1;  // every element is off by 1, from now on
  OpCall& add = world.make("add");
  resize(add, 300);
  ASSERT_EQ(world.call(*stream, add), RLK_OK);
  ASSERT_EQ(stream->wait_quietly(nullptr), RLK_OK);
  EXPECT_EQ(world.shadow().wrong, 1u);
  EXPECT_EQ(world.synchronize(*stream), RLK_WRONG_RESULT);
  EXPECT_NE(world.text().find("add by fake/first"), std::string::npos) << world.text();
  EXPECT_EQ(world.synchronize(*stream), RLK_OK) << "told once";
  EXPECT_EQ(World::taken(world.explain(*stream, add)), "fake/second");
}

TEST(ShadowCheck, ACanaryThatHangsKeepsNoOtherOperatorWaiting) {
  ShadowedWorld world;
  auto stream = world.stream(), other = world.stream();
  OpCall &add = world.make("add"), &logp = world.make("logp");
  std::promise<void> hanging, release;
  std::atomic<bool> is_first{true};
  fake_script<Add>().on_query = [&, released = release.get_future().share()](const rlk_private_params*) {
    if (!is_first.exchange(false)) return;
    hanging.set_value();
    released.wait();
  };
  const auto call = [&](Stream& on, OpCall& one) {  // whose error no other call writes
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

TEST(ShadowCheck, WhatTheTestsHadIsNotComparedAgain) {
  ShadowedWorld first;
  auto stream = first.stream();
  uint32_t seen = 0;
  first.registry.on_compared([&](const core::ComparedClass& compared) { seen = compared.size_class; });
  ASSERT_EQ(first.run(*stream, first.make("add")).compared, 1u);
  stream.reset();

  ShadowedWorld second;
  for (PluginBinding& plugin : second.plugins) {
    for (UnitResult& unit : plugin.units) unit.size_classes = {seen};
  }
  second.publish();
  auto other = second.stream();
  EXPECT_EQ(second.run(*other, second.make("add")).compared, 0u);
}

// What a caller passes by mistake, or a step that has diverged: the only implementation must not be lost over it.
TEST(ShadowCheck, ADifferenceIsNoVerdictWhereNumbersAreBeyondWhatTestsTry) {
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  for (const float extreme : {1e30f, 1e-30f, kInfinite, std::numeric_limits<float>::quiet_NaN()}) {
    ShadowedWorld world;
    auto stream = world.stream();
    OpCall& add = world.make("add");
    static_cast<float*>(add.inputs[0].data)[1] = extreme;
    add.refresh();
    ASSERT_EQ(world.run(*stream, world.make("add")).wrong, 0u) << "so is its canary";
    fake_script<Add>().mark = 1;
    resize(add, 300);
    ASSERT_EQ(world.call(*stream, add), RLK_OK);
    ASSERT_EQ(stream->wait_quietly(nullptr), RLK_OK);
    EXPECT_EQ(world.shadow().wrong, 0u) << extreme;
    EXPECT_EQ(world.shadow().passed_over, 1u) << extreme;
    EXPECT_EQ(world.synchronize(*stream), RLK_OK) << extreme;
  }
}

// A gradient without the softcap that its forward had: exp of scores that are not below their lse.
TEST(ShadowCheck, ADifferenceIsNoVerdictWhereTheRightAnswerIsBeyondWhatTestsTry) {
  ShadowedWorld world;
  auto stream = world.stream();
  OpCall& add = world.make("add");
  ASSERT_EQ(world.run(*stream, world.make("add")).wrong, 0u) << "so is its canary";
  static_cast<float*>(add.inputs[1].data)[1] = 0x1p30f;
  const double alpha = 0x1p40;
  std::memcpy(reinterpret_cast<char*>(add.params.data()) + add.decl->params[0].offset, &alpha, sizeof(alpha));
  fake_script<Add>().mark = 0x1p60f;
  resize(add, 300);
  EXPECT_EQ(world.run(*stream, add).wrong, 0u);
  EXPECT_EQ(world.shadow().passed_over, 1u);
}

TEST(ShadowCheck, AClassThatFoundNoRoomIsComparedLater) {
  ShadowedWorld world("1");  // every call
  auto stream = world.stream();
  std::set<uint32_t> compared;
  world.registry.on_compared([&](const core::ComparedClass& one) { compared.insert(one.size_class); });
  OpCall& small = world.make("add");
  world.run(*stream, small);
  ASSERT_EQ(compared.size(), 1u);
  fake(stream->handle()).worker->hold(true);
  fake(stream->handle()).push([] {});
  const auto passed_over = [&] { return world.dispatcher->shadow_check().statistics().passed_over; };
  for (int i = 0; i < 60; ++i) ASSERT_EQ(world.call(*stream, small), RLK_OK);
  ASSERT_GT(passed_over(), 0u) << "there is room yet";
  // The shadow check waits with one call for the stream; if it took that only now, there was room for one more.
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
  world.shadow();
  const size_t classes = compared.size();
  world.run(*stream, *large);
  EXPECT_EQ(compared.size(), classes + 1);
}

// Tensors of a call of add that lie as the test wants, in memory that it has zeroed.
struct Lying {
  const char* name;
  std::vector<int64_t> shape, strides;
};
void lay(OpCall& add, const Lying& lying) {
  int64_t below = 0, extent = 1, elements = 1;
  for (size_t i = 0; i < lying.shape.size(); ++i) {
    elements *= lying.shape[i];
    extent += (lying.shape[i] - 1) * std::abs(lying.strides[i]);
    below += lying.strides[i] < 0 ? (lying.shape[i] - 1) * -lying.strides[i] : 0;
  }
  for (Argument* argument : {&add.inputs[0], &add.inputs[1], &add.outputs[0]}) {
    argument->shape = lying.shape;
    argument->strides = contiguous_strides(lying.shape);
    argument->alignment = alignof(float);
    argument->data = add.allocate(static_cast<uint64_t>(std::max(elements, extent)) * sizeof(float));
  }
  add.inputs[1].strides = lying.strides;
  add.inputs[1].byte_offset = static_cast<uint64_t>(below) * sizeof(float);
  add.refresh();
}

// What an operand of many pieces hides, no other check would ever see.
TEST(ShadowCheck, ALiarOfOneLayoutIsCaughtWhateverTheLayout) {
  const Lying layouts[] = {
      {"transposed", {300, 200}, {1, 300}},          {"transposed in a batch", {2, 70, 50}, {3500, 1, 70}},
      {"rows with gaps", {33, 100}, {128, 1}},       {"many rows with gaps", {5000, 3}, {4, 1}},
      {"a slice of each row", {2000, 2}, {1000, 1}}, {"a reversed vector", {5000}, {-1}},
      {"every second number", {5000}, {2}},          {"far apart", {9, 9}, {1 << 16, 1 << 8}},
      {"backwards in both", {60, 70}, {-70, -1}},    {"repeated", {40, 50}, {0, 1}}};
  for (const Lying& lying : layouts) {
    ShadowedWorld world;
    auto stream = world.stream();
    ASSERT_EQ(world.run(*stream, world.make("add")).wrong, 0u) << "so is its canary";
    fake_script<Add>().on_enqueue = [](const sdk::Run& run) {
      const rlk_tensor& b = *run.input(1);
      const std::vector<int64_t> shape(b.shape, b.shape + b.ndim), strides(b.strides, b.strides + b.ndim);
      fake_script<Add>().mark = strides == contiguous_strides(shape) ? 0 : 1;
    };
    OpCall &honest = world.make("add"), &liar = world.make("add");
    lay(honest, {"", lying.shape, contiguous_strides(lying.shape)});
    lay(liar, lying);
    EXPECT_EQ(world.run(*stream, honest).compared, 2u) << lying.name << ": the same sizes, in order";
    ASSERT_EQ(world.call(*stream, liar), RLK_OK) << world.text();
    ASSERT_EQ(stream->wait_quietly(nullptr), RLK_OK);
    EXPECT_EQ(world.shadow().wrong, 1u) << lying.name;
  }
}

TEST(ShadowCheck, ACallOfAnySizeIsComparedByElementsOfItsBeginningAndEnd) {
  constexpr int64_t kSize = int64_t{6} << 20;  // three tensors of 24 MiB, of which 64 MiB are compared whole
  for (const int64_t wrong_from : {int64_t{0}, kSize - 100}) {
    ShadowedWorld world;
    auto stream = world.stream();
    ASSERT_EQ(world.run(*stream, world.make("add")).wrong, 0u) << "so is its canary";
    fake_script<Add>().mark = 1;
    fake_script<Add>().mark_from = wrong_from;
    OpCall& add = world.make("add");
    lay(add, {"", {kSize}, {1}});
    ASSERT_EQ(world.call(*stream, add), RLK_OK);
    ASSERT_EQ(stream->wait_quietly(nullptr), RLK_OK);
    EXPECT_EQ(world.shadow().wrong, 1u) << "wrong from " << wrong_from;
  }
}

// ---- what is never compared is told

struct Told {
  explicit Told(core::Registry& registry) {
    registry.on_uncompared([this](const core::UncomparedClass& one) { list.push_back(one); });
  }
  std::vector<core::UncomparedClass> list;
};

// More scores in a row than may be copied, in no memory: they all lie at one place.
OpCall& huge_logp(World& world) {
  fake_script<sdk::ops::Logp>().mark = kHonest;
  OpCall& logp = world.make("logp");
  logp.inputs[0].shape = {2, 20'000'000};
  logp.inputs[0].strides = {0, 0};
  for (Argument* argument : {&logp.inputs[1], &logp.outputs[0]}) argument->shape = {2};
  logp.refresh();
  return logp;
}

TEST(ShadowCheck, AClassTooLargeToBeComparedIsLookedAtAndToldOnce) {
  ShadowedWorld world;
  Told told(world.registry);
  auto stream = world.stream();
  OpCall& logp = huge_logp(world);
  const uint64_t before = world.shadow().passed_over;
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(world.call(*stream, logp), RLK_OK) << world.text();
    EXPECT_EQ(world.shadow().passed_over, before + 1);
  }
  ASSERT_EQ(told.list.size(), 1u);
  const core::UncomparedClass& one = told.list[0];
  EXPECT_EQ(one.reason_code, "TOO_LARGE");
  EXPECT_EQ(one.unit.op + " " + one.unit.plugin + " " + one.unit.implementation + " " + one.unit.dtype,
            "logp fake first f32");
  EXPECT_NE(one.sizes.find("V=20000000"), std::string::npos) << one.sizes;
  EXPECT_NE(one.reason.find("the limit is"), std::string::npos) << one.reason;
  ASSERT_EQ(world.shadow().uncompared.size(), 1u);
  EXPECT_EQ(world.shadow().uncompared[0].reason_code, "TOO_LARGE");
}

TEST(ShadowCheck, AnOperandInTooManyPiecesIsTold) {
  ShadowedWorld world;
  Told told(world.registry);
  auto stream = world.stream();
  fake_script<sdk::ops::Logp>().mark = kHonest;
  OpCall& logp = world.make("logp");
  // Each score of a row in a page of its own: the pieces of two rows are more than the most copies.
  constexpr int64_t kColumns = 9000, kApart = 4096;
  logp.inputs[0].shape = {2, kColumns};
  logp.inputs[0].strides = {1, kApart};
  logp.inputs[0].data = logp.allocate(uint64_t{kColumns} * kApart * sizeof(float));
  for (Argument* argument : {&logp.inputs[1], &logp.outputs[0]}) argument->shape = {2};
  logp.refresh();
  ASSERT_EQ(world.call(*stream, logp), RLK_OK) << world.text();
  EXPECT_EQ(world.shadow().passed_over, 1u);
  ASSERT_EQ(told.list.size(), 1u);
  EXPECT_EQ(told.list[0].reason_code, "SCATTERED");
  EXPECT_EQ(told.list[0].reason.find("logits lies in too many pieces"), 0u) << told.list[0].reason;
}

TEST(ShadowCheck, AClassWithoutAVerdictIsToldWhenItIsGivenUpAndForgottenWhenItIsCompared) {
  ShadowedWorld world;
  Told told(world.registry);
  auto stream = world.stream();
  ASSERT_EQ(world.run(*stream, world.make("add")).compared, 1u);
  fake_script<Add>().mark = 1;
  OpCall& extreme = world.make("add");
  static_cast<float*>(extreme.inputs[0].data)[1] = 1e30f;
  resize(extreme, 300);
  for (int i = 0; i < 7; ++i) world.run(*stream, extreme);
  EXPECT_TRUE(told.list.empty()) << "the next call may be compared";
  ASSERT_EQ(world.shadow().uncompared.size(), 1u);
  EXPECT_EQ(world.shadow().uncompared[0].calls, 7u);
  fake_script<Add>().mark = 0;
  EXPECT_EQ(world.run(*stream, extreme).compared, 2u);
  EXPECT_TRUE(world.shadow().uncompared.empty());
  fake_script<Add>().mark = 1;
  OpCall& other = world.make("add");
  static_cast<float*>(other.inputs[0].data)[1] = 1e30f;
  resize(other, 200);
  for (int i = 0; i < 12; ++i) world.run(*stream, other);
  ASSERT_EQ(told.list.size(), 1u);
  EXPECT_EQ(told.list[0].reason_code, "UNUSUAL_NUMBERS");
}

TEST(ShadowCheck, ACapturedCallIsToldAndTheClassComparedOnceItIsCalledOutsideACapture) {
  ShadowedWorld world;
  Told told(world.registry);
  auto stream = world.stream();
  OpCall& add = world.make("add");
  ASSERT_EQ(world.run(*stream, add).compared, 1u);
  OpCall& other = world.make("add");
  static_cast<float*>(other.inputs[0].data)[1] = 1e30f;
  resize(other, 300);
  fake_script<Add>().mark = 1;
  ASSERT_EQ(world.run(*stream, other).compared, 1u) << "no verdict, but a plan";
  fake_script<Add>().mark = 0;
  ASSERT_EQ(stream->begin_capture(nullptr), RLK_OK);
  ASSERT_EQ(world.call(*stream, other), RLK_OK) << world.text();
  std::unique_ptr<core::Graph> graph;
  ASSERT_EQ(core::Graph::end_capture(*stream, &graph, nullptr), RLK_OK);
  ASSERT_EQ(told.list.size(), 1u);
  EXPECT_EQ(told.list[0].reason_code, "CAPTURED");
  EXPECT_EQ(world.run(*stream, other).compared, 2u);
  EXPECT_TRUE(world.shadow().uncompared.empty());
}

TEST(ShadowCheck, AStagedCallIsTold) {
  World world(World::kAll, {{"RLK_WATCH", "1"}, {"RLK_OP_ADD", "cpu"}});
  Told told(world.registry);
  auto stream = world.stream();
  for (int i = 0; i < 2; ++i) ASSERT_EQ(world.call(*stream, world.make("add")), RLK_OK) << world.text();
  ASSERT_EQ(world.synchronize(*stream), RLK_OK);
  ASSERT_EQ(told.list.size(), 1u);
  EXPECT_EQ(told.list[0].reason_code, "STAGED");
  EXPECT_EQ(told.list[0].unit.plugin, "cpu");
}

// One call with such numbers, or with an id that does not exist, must not hide what the next one shows.
TEST(ShadowCheck, AClassWithoutAVerdictIsComparedAgainAtItsNextCallUpToEightTimes) {
  ShadowedWorld world;
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
  EXPECT_EQ(world.shadow().wrong, 1u);

  ShadowedWorld other;
  auto own = other.stream();
  ASSERT_EQ(other.run(*own, other.make("add")).wrong, 0u);
  fake_script<Add>().mark = 1;
  OpCall& always = other.make("add");
  static_cast<float*>(always.inputs[0].data)[1] = 1e30f;
  resize(always, 300);
  for (int i = 0; i < 20; ++i) other.run(*own, always);
  EXPECT_EQ(other.shadow().passed_over, 8u);
}

TEST(ShadowCheck, ACallInPlaceIsComparedWithWhatItsInputHeld) {
  ShadowedWorld world;
  auto stream = world.stream();
  OpCall& add = world.make("add");
  static_cast<float*>(add.inputs[1].data)[0] = 1;  // out = a + 1 where a lies
  add.outputs[0] = add.inputs[0];
  add.refresh();
  EXPECT_EQ(world.run(*stream, add).compared, 1u) << world.text();
  EXPECT_EQ(world.shadow().wrong, 0u);
}

TEST(ShadowCheck, OffComparesNothingAndAShareComparesLaterCallsToo) {
  ShadowedWorld off("off");
  auto stream = off.stream();
  EXPECT_EQ(off.run(*stream, off.make("add")).compared, 0u);
  stream.reset();
  ShadowedWorld all("1");
  auto other = all.stream();
  OpCall& add = all.make("add");
  for (int i = 0; i < 5; ++i) all.run(*other, add);
  EXPECT_EQ(all.shadow().compared, 5u);
}

TEST(ShadowCheckPolicy, AnUnknownWordIsNamedWithWhatIsExpected) {
  Policy policy;
  rlk_error error{};
  error.struct_size = sizeof(error);
  EXPECT_EQ(World::make_policy({{"RLK_WATCH", "sometimes"}, {"RLK_FALLBACK", "strict"}}, {}, &policy, &error),
            RLK_INVALID_ARGUMENT);
  EXPECT_NE(std::string(error.text).find("expected off, first, or a share"), std::string::npos) << error.text;
}

}  // namespace
}  // namespace rlk::test
