// Does the engine see a device or a plan that breaks what its tables promise? A plugin with queues for streams breaks
// one promise at a time; the smoke test must say which, and the honest plugin must pass. The table is printed.
#include <gtest/gtest.h>

#include <cstdio>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "conformance/liar/plugin.hpp"
#include "conformance/simple/target.hpp"

namespace rlk::core {
namespace {

using Verdict = UnitResult::Verdict;

// Where the lie is told: by a device with queues, by one that works inline, or by both.
enum class Where { queued, working_inline };

struct Lie {
  const char* name;
  const char* code;  // of a failed unit; empty: any
  Where where = Where::queued;
};

std::vector<UnitResult> run(Where where, const char* lie) {
  liar::set_inline(where == Where::working_inline);
  liar::set_lie(lie);
  std::vector<UnitResult> results;
  {
    const simple::OpenTarget target(rlk_liar_entry(simple::bare_host(), nullptr), simple::bare_host());
    ConformanceOptions options;
    options.dtype = "f32";
    results = run_conformance(target.target(), options);
  }
  liar::set_lie("");
  return results;
}

std::string words(const UnitResult& r) {
  return r.op + " \"" + r.feature + "\": " + r.reason_code + ": " + r.reason;
}

class Honest : public testing::TestWithParam<Where> {};

TEST_P(Honest, PluginIsVerified) {
  int verified = 0;
  for (const UnitResult& r : run(GetParam(), "")) {
    EXPECT_NE(r.verdict, Verdict::failed) << words(r);
    verified += r.verdict == Verdict::verified ? 1 : 0;
  }
  EXPECT_GT(verified, 0);
}
INSTANTIATE_TEST_SUITE_P(Devices, Honest, testing::Values(Where::queued, Where::working_inline),
                         [](const auto& test) { return test.param == Where::queued ? "Queued" : "Inline"; });

// True when the lie was reported with its code; a line of the table.
bool is_caught(const Lie& lie, std::string* first) {
  std::set<std::string> codes;
  for (const UnitResult& r : run(lie.where, lie.name)) {
    if (r.verdict != Verdict::failed) continue;
    codes.insert(r.reason_code);
    if (first->empty()) *first = words(r);
  }
  const bool caught = *lie.code == 0 ? !codes.empty() : codes == std::set<std::string>{lie.code};
  std::string list;
  for (const std::string& code : codes) list += code + " ";
  std::printf("%-34s %-7s %s\n", lie.name, codes.empty() ? "MISSED" : caught ? "caught" : "WRONG", list.c_str());
  std::fflush(stdout);
  return caught;
}

void expect_all_caught(const std::vector<Lie>& lies) {
  int caught = 0;
  for (const Lie& lie : lies) {
    std::string first;
    const bool right = is_caught(lie, &first);
    EXPECT_TRUE(right) << lie.name << ", expected " << lie.code << ": " << (first.empty() ? "not seen at all" : first);
    caught += right ? 1 : 0;
  }
  std::printf("tried %zu, caught %d\n", lies.size(), caught);
}

TEST(DeviceChecks, OfALyingDeviceIsToldByItsCode) {
  expect_all_caught({
      {"one_block_twice", "ALLOCATION_OVERLAP"},
      {"blocks_overlap", "ALLOCATION_OVERLAP"},
      {"unaligned", "ALLOCATION"},
      {"pinned_is_wild", "ALLOCATION"},
      {"more_free_than_there_is", "DEVICE_INFO"},
      {"total_in_kilobytes", "DEVICE_INFO"},
      {"every_pointer_is_pinned", "POINTER_KIND"},
      {"copy_drops_the_last_byte", ""},
      {"copy_one_too_many", "DEVICE_COPY"},
      {"copy_within_device_missing", "DEVICE_COPY"},
      {"copy_by_a_second_thread_missing", "DEVICE_THREAD"},
      {"fill_by_words", "DEVICE_FILL"},
      {"fill_with_zero", "DEVICE_FILL"},
      {"order_last_first", ""},
      {"query_always_ready", "STREAM_STATUS"},
      {"deadline_ignored", "STREAM_STATUS"},
      {"synchronize_does_not_wait", ""},
      {"destroy_does_not_wait", "STREAM_STATUS"},
      {"priority_refused", "NO_STREAM"},
      {"host_function_never", "HOST_FUNCTION"},
      {"host_function_twice", "HOST_FUNCTION"},
      {"host_function_at_once", "HOST_FUNCTION"},
      {"event_always_reached", "EVENT"},
      {"event_never_reached", "EVENT"},
      {"wait_event_ignored", "DEVICE_ORDER"},
      {"elapsed_is_nothing", "EVENT_TIME"},
      {"elapsed_is_negative", "EVENT_TIME"},
      {"elapsed_in_microseconds", "EVENT_TIME"},
      {"wrap_is_another_stream", "WRAP"},
      {"extension_is_wild", "EXTENSION"},
      {"extension_is_a_text", "EXTENSION"},
      {"extension_without_slots", "EXTENSION"},
      {"extension_of_any_id", "EXTENSION"},
      {"capture_id_of_no_capture", "CAPTURE_ID"},
      {"inline_claimed", "NOT_INLINE"},
      {"inline_but_later", "NOT_INLINE", Where::working_inline},
  });
}

// What is seen of it first is memory that does not hold what was copied.
TEST(DeviceChecks, OfASynchronizeThatDoesNotWaitIsNamed) {
  std::string first;
  EXPECT_TRUE(is_caught({"synchronize_does_not_wait", ""}, &first));
  EXPECT_NE(first.find("synchronize answer"), std::string::npos) << first;
}

TEST(DeviceChecks, OfALyingPlanIsToldByItsCode) {
  for (const Where where : {Where::queued, Where::working_inline}) {
    std::printf("-- streams %s\n", where == Where::queued ? "with queues" : "inline");
    expect_all_caught({
        {"first_pointers_are_kept", "OTHER_MEMORY", where},
        {"first_inputs_are_kept", "OTHER_MEMORY", where},
        {"workspace_expected_to_be_zero", "WORKSPACE_CONTENT", where},
        {"workspace_expected_to_be_kept", "WORKSPACE_CONTENT", where},
        {"wrong_on_a_second_stream", "OTHER_STREAM", where},
        {"wrong_on_a_wrapped_stream", "WRAPPED_STREAM", where},
        {"wrong_from_a_second_thread", "OTHER_THREAD", where},
        {"scratch_of_the_plan", "NOT_SHAREABLE", where},
        {"scratch_of_the_library", "NOT_REENTRANT", where},
        {"wrong_each_thousandth_call", "REPETITION", where},
        {"plans_share_their_end", "PLAN_LIFE", where},
        {"bound_of_2_45", "WORKSPACE_BOUND", where},
        {"bound_of_2_63", "WORKSPACE_BOUND", where},
        {"persistent_of_2_50", "WORKSPACE_BOUND", where},
        {"persistent_expected_to_be_zero", "WRONG_RESULT", where},
        {"prepare_asks_for_everything", "WORKSPACE_BOUND", where},
        {"prepare_overflows", "WORKSPACE_BOUND", where},
    });
  }
  std::printf("-- streams inline\n");
  expect_all_caught({{"writes_again_later", "", Where::working_inline}});
}

TEST(DeviceChecks, OfAPlanThatLaunchesElsewhereIsToldWithTheQuestionWhichStream) {
  int asked = 0;
  for (const UnitResult& r : run(Where::queued, "launched_on_another_stream")) {
    if (r.verdict != Verdict::failed) continue;
    EXPECT_EQ(r.reason_code, "NOT_WRITTEN") << words(r);
    asked += r.reason.find("is it launched on the stream that plan_enqueue was given") != std::string::npos ? 1 : 0;
  }
  EXPECT_GT(asked, 0);
}

}  // namespace
}  // namespace rlk::core
