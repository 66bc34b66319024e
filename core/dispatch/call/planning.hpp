// The time that making a plan takes, where several threads make plans of one plugin. One may wait for another there,
// for a lock that the plugin holds while it compiles: the time that an operator only waited does not count against it.
#pragma once

#include <rlk/abi.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>

namespace rlk::core {

// Which plans of one plugin are being made, and for how long each was alone at it. Times are seconds of any clock.
class PlanTimes {
public:
  uint64_t begin(double now);
  void end(uint64_t plan, double now);
  // The caller has left this one, and it is still inside the plugin.
  void give_up(uint64_t plan, double now);

  // When the plan is given up. Only the time counts in which no other plan was being made; with others inside it has
  // a limit for itself and one for each of them.
  double deadline(uint64_t plan, double limit, double now) const;
  // Another one is inside, given up or not: this one may wait for it.
  bool is_alone(uint64_t plan) const { return plans_.size() == 1 && plans_.count(plan) == 1; }
  size_t active() const;  // that are not given up

private:
  struct One {
    double begun = 0, own = 0;
    int others = 0;  // that were being made meanwhile
    bool given_up = false;
  };
  // Counts the time since the last change.
  void settle(double now);

  std::map<uint64_t, One> plans_;
  uint64_t last_ = 0;
  double changed_ = 0;
};

// What a piece of work with a plugin is at. [the work's thread]
class PlanPhases {
public:
  virtual ~PlanPhases() = default;
  virtual void begin_plan() = 0;
  virtual void end_plan() = 0;
  // What is not planning begins anew to count.
  virtual void next() = 0;
};

// Limits with patience 1 (timeout.hpp).
struct PhaseSeconds {
  double plan, other;
};

enum class Ended {
  returned,
  late,     // beyond its limit, and it can have waited for no other plan
  held_up,  // beyond its limit while another plan of the plugin was being made
};

// Runs the work on a thread of its own, with a limit for each of its phases.
Ended within_phases(const rlk_plugin& plugin, PhaseSeconds limits, std::function<void(PlanPhases&)> work);
// A plan that ended as held_up is still inside the plugin: other plans would wait behind it. [thread-safe]
bool is_held_up(const rlk_plugin& plugin);
// A plan is being made: whatever else is inside the plugin may wait for it, and is not judged by the time it takes.
// [thread-safe]
bool is_planning(const rlk_plugin& plugin);

}  // namespace rlk::core
