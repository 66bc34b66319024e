// One change at a time, so that a failure names what the plan depends on.
#include "core/conformance/plan_reuse.hpp"

#include <fmt/core.h>

#include <atomic>
#include <exception>
#include <limits>

namespace rlk::core::conformance {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kCalls = 2600;  // beyond two thousand: what is wrong at each thousandth call is seen twice
constexpr int kPlans = 24;
constexpr std::chrono::milliseconds kSmokeTime(250);
constexpr int64_t kLongCall = int64_t{16} << 20;  // bytes
constexpr int kMeetings = 64;
constexpr std::chrono::milliseconds kMeetingTime(10), kFullMeetingTime(2000);  // of a machine busy with other things

class Steps {
public:
  Steps(Harness& harness, Surroundings& around, const rlk_implementation& implementation, const Example& first,
        const Example& second, uint32_t numerics, const Claim& claim)
      : harness_(harness),
        around_(around),
        implementation_(implementation),
        examples_{&first, &second},
        numerics_(numerics),
        claim_(claim) {}

  PlanReuse run() {
    PlanReuse reuse;
    reuse.failure = all(reuse.note);
    return reuse;
  }

private:
  // Outcomes of the plain run, which the case run's checks have passed: equal bytes need no second look.
  struct Known {
    std::vector<std::vector<std::byte>> outputs;
  };

  std::optional<Failure> all(std::string& note) {
    if (auto failure = make(plan_)) return failure;
    if (auto failure = plain()) return failure;
    if (around_.is_smoke() && is_long()) return in_brief(note);
    if (auto failure = workspace()) return failure;
    if (auto failure = places()) return failure;
    if (auto failure = plans()) return failure;
    if (auto failure = streams()) return failure;
    if (auto failure = another_thread()) return failure;
    if (auto failure = in_flight_together()) return failure;
    if (auto failure = inline_streams()) return failure;
    return repetition(note);
  }

  // A variant may begin at sizes of which some dozens of calls would take the time of all other tests.
  bool is_long() const {
    int64_t bytes = 0;
    for (const Argument& input : call(0).inputs) bytes += input.present ? input.byte_count() : 0;
    for (const Argument& output : call(0).outputs) bytes += output.present ? output.byte_count() : 0;
    return bytes > kLongCall;
  }

  std::optional<Failure> in_brief(std::string& note) {
    note =
        "repetition, several plans and calls at the same time were not tried: the variant's smallest call is too long";
    if (auto failure = told(once(around_.urgent(), plan_, 1), "OTHER_STREAM", "on a second stream")) return failure;
    std::optional<Failure> failure;
    beside(failure, [this] { return once(harness_, plan_, 0); });
    around_.helper().wait();
    return told(failure, "OTHER_THREAD", "called by a second thread");
  }

  std::optional<Failure> make(OwnedPlan& plan) {
    return harness_.make_plan(implementation_, examples_[0]->call, numerics_, claim_, plan);
  }
  const ConcreteCall& call(int which) const { return examples_[which]->call; }
  bool is_deterministic() const { return (claim_.support.numerics & RLK_NUMERICS_DETERMINISTIC) != 0; }

  std::optional<Failure> judge(int which, const Outcome& outcome) const {
    if (!outcome.failure && outcome.told.empty() && outcome.outputs == known_[which].outputs) return std::nullopt;
    Quality quality;
    if (auto failure = check(call(which), *examples_[which]->answer, outcome, RunSettings().poison, quality)) {
      return failure;
    }
    if ((claim_.support.numerics & RLK_NUMERICS_ACCURATE) != 0 && !quality.inaccurate.empty()) {
      return Failure{"NOT_ACCURATE", quality.inaccurate + " by the class accurate, which it claims"};
    }
    if (!is_deterministic() || known_[which].outputs.empty()) return std::nullopt;
    for (size_t i = 0; i < outcome.outputs.size(); ++i) {
      if (!call(which).outputs[i].present) continue;
      const std::string difference = first_difference(call(which), i, known_[which].outputs[i], outcome.outputs[i]);
      if (!difference.empty()) {
        return Failure{"NONDETERMINISTIC", difference + ", expected the same bits as in the plain call"};
      }
    }
    return std::nullopt;
  }

  // The step's own code, unless the device is gone.
  static std::optional<Failure> told(std::optional<Failure> failure, const char* code, const std::string& what) {
    if (!failure || failure->code == "TIMEOUT" || failure->code == "DEVICE_LOST") return failure;
    return Failure{
        code, fmt::format("{}: {}{}", what, failure->text, failure->code == code ? "" : " (" + failure->code + ")")};
  }

  std::optional<Failure> once(Harness& harness, const OwnedPlan& plan, int which,
                              const RunSettings& settings = {}) const {
    return judge(which, harness.run(plan, call(which), settings));
  }

  std::optional<Failure> plain() {
    for (int which : {0, 1}) {
      Outcome outcome = harness_.run(plan_, call(which), {});
      if (auto failure = judge(which, outcome)) return told(failure, "WRONG_RESULT", "a plan made anew");
      uses_workspace_ |= outcome.workspace_bytes > 0;
      known_[which].outputs = std::move(outcome.outputs);
    }
    return std::nullopt;
  }

  std::optional<Failure> workspace() {
    if (!uses_workspace_) return std::nullopt;
    using Content = WorkspaceContent;
    const struct {
      int which;
      Content content;
      const char* words;
    } rows[] = {{0, Content::zeros, "holds 0"},
                {1, Content::ones, "holds bytes of 0xff"},
                {0, Content::random, "holds random bytes"},
                {0, Content::kept, "holds what the same call left"},
                {1, Content::kept, "holds what a call with other data left"},
                {0, Content::random, "holds other random bytes than before"}};
    for (const auto& row : rows) {
      RunSettings settings;
      settings.workspace = row.content;
      if (auto failure = once(harness_, plan_, row.which, settings)) {
        return told(failure, "WORKSPACE_CONTENT", std::string("when the workspace ") + row.words);
      }
    }
    return std::nullopt;
  }

  std::optional<Failure> places() {
    constexpr uint64_t kShifts[] = {uint64_t{256} * 13, 0, uint64_t{256} * 64, 0};
    int which = 0;
    for (const uint64_t shift : kShifts) {
      RunSettings settings;
      settings.shift = shift;
      settings.workspace = WorkspaceContent::random;
      if (auto failure = once(harness_, plan_, which, settings)) {
        return told(failure, "OTHER_MEMORY", "with tensors and workspace at other addresses through the same plan");
      }
      which ^= shift == 0 ? 1 : 0;
    }
    return std::nullopt;
  }

  std::optional<Failure> streams() {
    for (int which : {0, 1}) {
      if (auto failure = told(once(around_.urgent(), plan_, which), "OTHER_STREAM",
                              "on a second stream, with memory of its own, through the same plan")) {
        return failure;
      }
      if (auto failure =
              told(once(harness_, plan_, which), "OTHER_STREAM", "on the first stream, after a second one")) {
        return failure;
      }
      if (around_.wrapped() == nullptr) continue;
      if (auto failure = told(once(*around_.wrapped(), plan_, which), "WRAPPED_STREAM",
                              "on a stream that was wrapped, through the same plan")) {
        return failure;
      }
    }
    return std::nullopt;
  }

  // Runs a step beside this thread; what it throws is its failure.
  template <class Step>
  void beside(std::optional<Failure>& failure, Step&& step) {
    around_.helper().start([&failure, step] {
      try {
        failure = step();
      } catch (const std::exception& e) {
        failure = Failure{"EXCEPTION", e.what()};
      } catch (...) {
        failure = Failure{"EXCEPTION", "an exception of unknown type left the plugin"};
      }
    });
  }

  std::optional<Failure> another_thread() {
    std::optional<Failure> failure;
    beside(failure, [this]() -> std::optional<Failure> {
      for (int which : {0, 1}) {
        if (auto wrong = once(harness_, plan_, which)) return wrong;
        if (auto wrong = once(around_.urgent(), plan_, which)) return wrong;
      }
      OwnedPlan own;
      if (auto wrong = make(own)) return wrong;
      return once(harness_, own, 0);
    });
    around_.helper().wait();
    if (!failure) failure = once(harness_, plan_, 1);
    return told(failure, "OTHER_THREAD", "called by a second thread");
  }

  // Enqueued on both streams before the host waits for either.
  std::optional<Failure> in_flight_together() {
    OwnedPlan own;
    const bool shared = plan_.is_shareable();
    if (!shared) {
      if (auto failure = make(own)) return failure;
    }
    for (int round = 0; round < 4; ++round) {
      const int which = round % 2;
      DeviceCallPointer a = harness_.launch(plan_, call(which), {});
      DeviceCallPointer b = around_.urgent().launch(shared ? plan_ : own, call(1 - which), {});
      std::optional<Failure> failure = judge(which, harness_.land(std::move(a)));
      std::optional<Failure> other = judge(1 - which, around_.urgent().land(std::move(b)));
      if (!failure) failure = other;
      if (!failure) continue;
      return shared ? told(failure, "NOT_SHAREABLE",
                           "in flight on two streams through one plan, which says it is shareable")
                    : told(failure, "NOT_REENTRANT", "in flight on two streams, each through a plan of its own");
    }
    return std::nullopt;
  }

  std::optional<Failure> inline_streams() {
    if (!around_.is_inline()) return std::nullopt;
    RunSettings settings;
    settings.shift = 256;
    return told(judge(0, harness_.land_inline(harness_.launch(plan_, call(0), settings))), "NOT_INLINE",
                "looked at without waiting, as RLK_DEVICE_INLINE_STREAMS permits");
  }

  std::optional<Failure> plans() {
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < kPlans; ++i) {
      OwnedPlan one;
      auto other = std::make_unique<OwnedPlan>();
      if (auto failure = make(one)) return told(failure, "PLAN_LIFE", "making one more plan");
      if (auto failure = make(*other)) return told(failure, "PLAN_LIFE", "making one more plan");
      std::optional<Failure> failure = once(harness_, *other, i % 2);
      other.reset();
      if (!failure) failure = once(harness_, one, 1 - i % 2);
      if (failure) return told(failure, "PLAN_LIFE", "with one of two equal plans, before or after the other's end");
      if (around_.is_smoke() && i >= 2 && Clock::now() - start > kSmokeTime / 4) break;
    }
    return told(once(harness_, plan_, 0), "PLAN_LIFE", "after other plans were made and destroyed");
  }

  Repetition again(int first, int times) {
    Repetition repetition;
    repetition.calls[0] = &call(first);
    repetition.calls[1] = &call(1 - first);
    repetition.judge = [this, first](int which, const Outcome& outcome) {
      return judge(which == 0 ? first : 1 - first, outcome);
    };
    repetition.times = times;
    if (around_.is_smoke()) repetition.until = Clock::now() + kSmokeTime;
    return repetition;
  }

  // By two threads at once, each with its stream: through one plan where it is shareable. They go on until they have
  // met often enough for a shared scratch to show.
  std::optional<Failure> repetition(std::string& note) {
    const bool shared = plan_.is_shareable();
    OwnedPlan own;
    if (!shared) {
      if (auto failure = make(own)) return failure;
    }
    OwnedPlan& theirs = shared ? plan_ : own;
    Meeting meeting;
    int done = 0;
    Repetition mine = again(0, shared ? kCalls / 2 : kCalls), other = again(1, kCalls / 2);
    if (auto failure = by_two_threads(theirs, mine, other, meeting, done)) {
      return told_of_repetition(std::move(failure), shared);
    }
    if (done < kCalls) {
      note = fmt::format("repeated {} times instead of {}, because the time for it had passed", done, kCalls);
    }
    const Clock::time_point until = Clock::now() + (around_.is_smoke() ? kMeetingTime : kFullMeetingTime);
    if (meeting.met < kMeetings) {
      mine = again(0, std::numeric_limits<int>::max());
      other = again(1, std::numeric_limits<int>::max());
      mine.until = other.until = until;
      mine.meetings = other.meetings = kMeetings;
      if (auto failure = by_two_threads(theirs, mine, other, meeting, done)) {
        return told_of_repetition(std::move(failure), shared);
      }
    }
    if (meeting.met < kMeetings) {
      note += (note.empty() ? "" : "; ") +
              fmt::format("two threads were in a call at the same time {} times instead of {}", meeting.met, kMeetings);
    }
    return std::nullopt;
  }

  std::optional<Failure> by_two_threads(const OwnedPlan& theirs, Repetition& mine, Repetition& other, Meeting& meeting,
                                        int& done) {
    mine.meeting = other.meeting = &meeting;
    other.side = 1;
    std::optional<Failure> failure, their_failure;
    std::atomic<int> ready{0};
    const auto meet = [&ready] {
      ++ready;
      while (ready < 2) std::this_thread::yield();
    };
    beside(their_failure, [&] {
      meet();
      return around_.urgent().repeat(theirs, other);
    });
    meet();
    std::exception_ptr thrown;
    try {
      failure = harness_.repeat(plan_, mine);
    } catch (...) {
      thrown = std::current_exception();
    }
    around_.helper().wait();
    if (thrown) std::rethrow_exception(thrown);
    done += mine.done + (&theirs == &plan_ ? other.done : 0);
    return failure ? failure : their_failure;
  }

  // Is it the number of calls, or that two threads made them?
  std::optional<Failure> told_of_repetition(std::optional<Failure> failure, bool shared) {
    if (harness_.broken() || around_.urgent().broken()) return failure;
    OwnedPlan alone;
    if (auto refused = make(alone)) return refused;
    Repetition repetition = again(0, kCalls);
    if (auto also = harness_.repeat(alone, repetition))
      return told(also, "REPETITION", "the same calls again and again");
    return shared ? told(failure, "NOT_SHAREABLE",
                         "called by two threads at once through one plan, which says it is shareable")
                  : told(failure, "NOT_REENTRANT", "called by two threads at once, each with a plan of its own");
  }

  Harness& harness_;
  Surroundings& around_;
  const rlk_implementation& implementation_;
  const Example* examples_[2];
  uint32_t numerics_;
  const Claim& claim_;
  OwnedPlan plan_;
  Known known_[2];
  bool uses_workspace_ = false;
};

}  // namespace

Helper::~Helper() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void Helper::start(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  task_ = std::move(task);
  changed_.notify_all();
}

void Helper::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !task_; });
}

void Helper::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return task_ || ends_; });
    if (!task_) return;
    const std::function<void()>& task = task_;
    lock.unlock();
    task();
    lock.lock();
    task_ = nullptr;
    changed_.notify_all();
  }
}

std::optional<Failure> Surroundings::take_thrown() {
  for (Harness* harness : {urgent_.get(), wrapped_.get()}) {
    if (harness == nullptr) continue;
    if (auto thrown = harness->take_thrown()) return thrown;
  }
  return std::nullopt;
}

std::optional<Failure> Surroundings::finish() {
  for (Harness* harness : {urgent_.get(), wrapped_.get()}) {
    if (harness == nullptr) continue;
    if (auto thrown = harness->finish()) return thrown;
  }
  return std::nullopt;
}

std::optional<Failure> Surroundings::start() {
  if (helper_ != nullptr) return urgent_->broken();
  is_inline_ = (target_.owner_flags & RLK_DEVICE_INLINE_STREAMS) != 0;
  urgent_ = std::make_unique<Harness>(target_, HarnessStream::urgent);
  if (auto failure = urgent_->start()) return failure;
  wrapped_ = std::make_unique<Harness>(target_, HarnessStream::wrapped);
  if (auto failure = wrapped_->start()) return failure;
  if (!wrapped_->has_stream()) wrapped_.reset();
  helper_ = std::make_unique<Helper>();
  return std::nullopt;
}

PlanReuse try_plan_reuse(Harness& harness, Surroundings& around, Examples& examples,
                         const rlk_implementation& implementation, const Example& example, uint32_t numerics,
                         const Claim& claim) {
  if (auto failure = around.start()) return {failure, {}};
  const std::shared_ptr<const Example> other = examples.get(example.spec, true);
  return Steps(harness, around, implementation, example, *other, numerics, claim).run();
}

}  // namespace rlk::core::conformance
