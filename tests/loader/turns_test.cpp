// How many plugins are probed at once, and which of them have a second turn.
#include "loader/probe/turns.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/loader/staged_loader.hpp"

namespace rlk::loader {
namespace {

PluginRecord with_device(uint64_t memory_bytes, State state = State::smoke_tested) {
  PluginRecord record;
  record.state = state;
  record.devices.push_back({0, "Acme", "a1", memory_bytes, {}, {}, -1});
  return record;
}

PluginRecord without_device(State state) {
  PluginRecord record;
  record.state = state;
  return record;
}

// Probes by many threads. Each but the first of a group stays in work until `wanted` of the group are.
struct Crowd {
  size_t most = 0, turns = 0;

  Crowd(Turns* of, const PluginRecord& verdict, size_t wanted) {
    std::mutex mutex;
    std::condition_variable changed;
    size_t in_work = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 12; ++i) {
      threads.emplace_back([&] {
        while (const auto turn = of->next()) {
          {
            std::unique_lock lock(mutex);
            ++turns;
            most = std::max(most, ++in_work);
            changed.notify_all();
            if (turn->plugin > 0) changed.wait_for(lock, std::chrono::seconds(20), [&] { return most >= wanted; });
            --in_work;
          }
          of->end(*turn, verdict, !of->stands(*turn, verdict));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
};

TEST(Turns, GoAllAtOnceWhereNoDeviceIsHere) {
  Turns turns({10}, true);
  const Crowd crowd(&turns, without_device(State::absent), 9);
  EXPECT_EQ(crowd.most, 9u) << "all but the first, which says that there is nothing to share";
  EXPECT_EQ(crowd.turns, 10u);
}

TEST(Turns, AreAsManyAsTheDevicesMemoryAllows) {
  Turns turns({12}, true);
  const Crowd crowd(&turns, with_device(uint64_t{2} << 30), 4);
  EXPECT_EQ(crowd.most, 4u);
  EXPECT_EQ(crowd.turns, 12u);
}

TEST(Turns, AreEightAtMostOnALargeDevice) {
  Turns turns({12}, true);
  EXPECT_EQ(Crowd(&turns, with_device(uint64_t{140} << 30), 8).most, 8u);
}

TEST(Turns, GoOneAfterTheOtherBehind) {
  Turns turns({5}, false);
  const Crowd crowd(&turns, without_device(State::absent), 1);
  EXPECT_EQ(crowd.most, 1u);
  EXPECT_EQ(crowd.turns, 5u);
}

TEST(Turns, OfAGroupWithAKnownDeviceNeedNoFirstAlone) {
  Turns turns({2}, true);
  turns.know(0, with_device(uint64_t{1} << 30));
  const auto first = turns.next(), second = turns.next();
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->plugin + second->plugin, 1u);
}

TEST(Turns, BeginBesideTheFirstWhenItHasToldItsDevices) {
  Turns turns({2}, true);
  const auto first = turns.next();
  ASSERT_TRUE(first);
  std::optional<Turns::Turn> second;
  std::thread waits([&] { second = turns.next(); });
  turns.know(0, with_device(uint64_t{1} << 30, State::capability_checked));
  waits.join();  // the first has not ended
  ASSERT_TRUE(second);
  EXPECT_NE(second->plugin, first->plugin);
  const PluginRecord bad = without_device(State::rejected);
  EXPECT_FALSE(turns.stands(*first, bad)) << "another was beside it";
}

TEST(Turns, AreSharedBetweenBackends) {
  Turns turns({3, 3}, true);
  const auto first = turns.next(), second = turns.next();
  ASSERT_TRUE(first && second);
  EXPECT_NE(first->group, second->group);
}

TEST(Turns, ComeAgainAloneForWhatFailedBesideAnother) {
  const PluginRecord good = with_device(uint64_t{1} << 30), bad = without_device(State::rejected);
  Turns turns({3}, true);
  const auto first = turns.next();
  EXPECT_TRUE(turns.stands(*first, good));
  turns.end(*first, good, false);
  const auto second = turns.next(), third = turns.next();
  EXPECT_FALSE(turns.stands(*second, bad));
  turns.end(*second, bad, true);
  EXPECT_TRUE(turns.stands(*third, good));
  turns.end(*third, good, false);
  const auto again = turns.next();
  ASSERT_TRUE(again);
  EXPECT_EQ(again->plugin, second->plugin);
  EXPECT_TRUE(again->is_again);
  EXPECT_TRUE(turns.stands(*again, bad)) << "it was alone";
  turns.end(*again, bad, false);
  EXPECT_FALSE(turns.next());
}

TEST(Turns, AreOneForWhatFailedAlone) {
  const PluginRecord bad = with_device(uint64_t{1} << 30, State::partial);
  Turns turns({1}, true);
  const auto only = turns.next();
  EXPECT_TRUE(turns.stands(*only, bad));
  turns.end(*only, bad, false);
  EXPECT_FALSE(turns.next());
}

// The prober behind a script that counts its runs by plugin. Two of them wait for each other, and one then fails, as a
// second process on a device for one alone does.
class SideBySide : public StagedLoader {
protected:
  SideBySide() {
    add_plugin("fault");
    add_plugin("fault_second_acme");
    std::string tiny = rlk::testing::read_text(RLK_TEST_OBJECTS "/tiny_plugin.so");
    for (size_t at = tiny.find("id=tiny"); at != std::string::npos; at = tiny.find("id=tiny", at))
      tiny.replace(at, 7, "id=zzzz");
    folder.file("plugins/librlk_plugin_zzzz.so", tiny, 0755);
    set("RLK_TEST_RUNS", folder.folder("runs"));
    options.max_children = 3;
    options.prober = folder.file("prober", R"sh(#!/bin/sh
name=$(basename "$2")
echo run >> "$RLK_TEST_RUNS/$name"
other=
case "$name" in
  *second_acme*) other=librlk_plugin_zzzz.so ;;
  *zzzz*) other=librlk_plugin_fault_second_acme.so ;;
esac
tries=0
while [ -n "$other" ] && [ ! -e "$RLK_TEST_RUNS/$other" ] && [ $tries -lt 200 ]; do
  sleep 0.1
  tries=$((tries + 1))
done
[ $tries -lt 200 ] || : > "$RLK_TEST_RUNS/alone"
if [ -n "$other" ] && [ "$(wc -l < "$RLK_TEST_RUNS/$name")" = 1 ]; then
  export RLK_FAULT_UNDECLARED=create:throw
fi
if [ "$name" = librlk_plugin_fault.so ] && [ -n "$RLK_TEST_HELD" ]; then
  export RLK_FAULT_UNDECLARED=enqueue:hold RLK_FAULT_RELEASE_FILE="$RLK_TEST_RUNS/librlk_plugin_zzzz.so"
fi
exec )sh" RLK_TEST_PROBER R"sh( "$@"
)sh",
                                 0755);
  }
  size_t runs(const std::string& name) const {
    const std::string text = rlk::testing::read_text(folder / ("runs/librlk_plugin_" + name + ".so"));
    return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  }
};

TEST_F(SideBySide, PluginsOfOneBackendAreProbedTogetherAndAFailureIsFoundAgainAlone) {
  std::map<std::string, int> finished;
  std::vector<std::string> told;
  options.on_probing = [&](const std::vector<std::string>& ids) { told = ids; };
  options.on_finished = [&](const PluginRecord& record) { ++finished[record.id]; };
  const std::vector<ProbedPlugin> plugins = probe();
  EXPECT_FALSE(std::filesystem::exists(folder / "runs/alone")) << "one waited in vain for the other";
  ASSERT_EQ(plugins.size(), 3u);
  for (const ProbedPlugin& plugin : plugins) {
    const PluginRecord& record = plugin.record;
    EXPECT_EQ(finished[record.id], 1) << record.id;
    if (record.id == "zzzz") continue;
    EXPECT_EQ(record.state, State::smoke_tested) << record.id << " " << record.reason_code << ": " << record.reason;
  }
  EXPECT_EQ(told.size(), 3u);
  EXPECT_EQ(runs("fault"), 1u);
  EXPECT_EQ(runs("fault_second_acme"), 2u);
  EXPECT_EQ(runs("zzzz"), 2u);

  options.on_probing = [](const std::vector<std::string>&) { ADD_FAILURE() << "everything is remembered"; };
  for (const ProbedPlugin& plugin : probe()) EXPECT_TRUE(plugin.record.from_cache) << plugin.record.id;
  EXPECT_EQ(runs("fault_second_acme"), 2u);
}

// The first plugin's operators wait for a run of the last one.
TEST_F(SideBySide, TheNextBeginsWhileTheFirstIsStillTried) {
  set("RLK_TEST_HELD", "1");
  for (const ProbedPlugin& plugin : probe()) {
    if (plugin.record.id != "fault") continue;
    EXPECT_EQ(plugin.record.state, State::smoke_tested) << plugin.record.reason_code << ": " << plugin.record.reason;
  }
  EXPECT_EQ(runs("fault"), 1u);
}

}  // namespace
}  // namespace rlk::loader
