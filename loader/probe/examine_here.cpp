#include "loader/probe/examine_here.hpp"

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <utility>

namespace rlk::loader {
namespace {

const char* phase_name(const std::string& phase) {
  const auto* known =
      std::find_if(std::begin(kPhases), std::end(kPhases), [&](const char* name) { return phase == name; });
  return known != std::end(kPhases) ? *known : "start";
}

}  // namespace

void examine_here(ExamineOptions how, const Patience& patience, PluginRecord* record) {
  // The thread may outlive everything but what it owns; the hanging one keeps its record for ever.
  struct Work {
    PluginRecord record;
    ExamineOptions how;
    Attempt attempt;
  };
  const auto work = std::make_shared<Work>();
  work->record = *record;
  work->how = std::move(how);
  work->how.place = Place::host;
  Attempt* const attempt_of_work = &work->attempt;
  work->how.on_phase = [attempt_of_work](const std::string& phase) { attempt_of_work->enter(phase_name(phase)); };
  const auto given_up = attempt(
      std::shared_ptr<Attempt>(work, &work->attempt), [work](Attempt&) { examine(&work->record, work->how); },
      patience);
  if (given_up) return reject(*given_up, Place::host, record);
  *record = std::move(work->record);
}

}  // namespace rlk::loader
