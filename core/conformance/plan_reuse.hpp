// Does a plan stay right when nothing about the call changes but what is around it? Its memory, its workspace, the
// stream, the thread, what runs at the same time, and how often it was called before.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "core/conformance/case_run.hpp"

namespace rlk::core::conformance {

// A second host thread, which no plugin has seen before.
class Helper {
public:
  Helper() : thread_([this] { work(); }) {}
  ~Helper();
  Helper(const Helper&) = delete;
  Helper& operator=(const Helper&) = delete;
  // The task runs beside the caller until wait() returns. It does not throw.
  void start(std::function<void()> task);
  void wait();

private:
  void work();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> task_;
  bool ends_ = false;
  std::thread thread_;
};

// What surrounds a call: streams beside the harness's own, each with memory of its own, and a thread. Made when first
// used.
class Surroundings {
public:
  explicit Surroundings(const Target& target, bool smoke) : target_(target), smoke_(smoke) {}
  std::optional<Failure> start();
  Harness& urgent() { return *urgent_; }
  Harness* wrapped() { return wrapped_.get(); }  // nullptr where nothing can be wrapped
  Helper& helper() { return *helper_; }
  bool is_smoke() const { return smoke_; }
  bool is_inline() const { return is_inline_; }
  // As of a harness.
  std::optional<Failure> take_thrown();
  std::optional<Failure> finish();

private:
  Target target_;
  bool smoke_;
  bool is_inline_ = false;
  std::unique_ptr<Harness> urgent_, wrapped_;
  std::unique_ptr<Helper> helper_;
};

struct PlanReuse {
  std::optional<Failure> failure;
  std::string note;  // what was not tried whole
};

// For a call that has passed its case run. `numerics` and `claim` are that run's.
PlanReuse try_plan_reuse(Harness& harness, Surroundings& around, Examples& examples,
                         const rlk_implementation& implementation, const Example& example, uint32_t numerics,
                         const Claim& claim);

}  // namespace rlk::core::conformance
