// Waiting for backends and operators that a program cannot do without.
#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "core/declaration/declaration.hpp"
#include "core/declaration/error.hpp"
#include "core/dispatch/call/eligible.hpp"
#include "loader/api/process.hpp"

namespace rlk::loader {
namespace {

// "simple: TIMED_OUT, phase smoke took longer"; each implementation once, though it is on several devices.
void add_reason(const core::UnitResult& unit, std::string* reasons) {
  const std::string reason = unit.implementation + ": " + unit.reason_code + ", " + unit.reason;
  if (reasons->find(reason) != std::string::npos) return;
  *reasons += (reasons->empty() ? "" : "; ") + reason;
}

}  // namespace

rlk_status Process::check_required(rlk_error* error) {
  const auto required = environment_.get("RLK_REQUIRE");
  if (!required || required->empty()) return RLK_OK;
  return require(*required, environment_.origin("RLK_REQUIRE") + "=" + *required, 0, error);
}

rlk_status Process::require(const std::string& wanted, const std::string& who, double seconds, rlk_error* error) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = seconds <= 0 ? Clock::time_point::max()
                                     : Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                                          std::chrono::duration<double>(std::min(seconds, 1e6)));
  if (!wait_for_search_until(deadline))
    return core::failf(error, RLK_TIMEOUT, "%s: the plugins were not found within %g s", who.c_str(), seconds);
  const std::vector<Required> all = required_of(wanted);
  if (all.empty())
    return core::failf(error, RLK_INVALID_ARGUMENT,
                       "%s: names no backend; expected some, as cuda or cuda:logp,attention", who.c_str());
  for (const auto& [backend, operators] : all) {
    for (const std::string& op : operators) {
      if (core::find_declaration(op) != nullptr) continue;
      return core::failf(error, RLK_INVALID_ARGUMENT, "%s: there is no operator '%s'; rlk-plugins ops lists them",
                         who.c_str(), op.c_str());
    }
    const auto now = registry_.current();
    if (now->find_device(backend, 0) != nullptr) continue;
    const core::RejectedPlugin* rejected = now->find_rejected(backend);
    if (rejected == nullptr) {
      return core::failf(error, RLK_NOT_FOUND,
                         "%s: no plugin for '%s' was found; set RLK_ADD_PLUGIN_PATH to its folder, or see "
                         "rlk-plugins doctor",
                         who.c_str(), backend.c_str());
    }
    return core::failf(error, RLK_NOT_FOUND, "%s: plugin '%s' is not usable: %s: %s", who.c_str(), rejected->id.c_str(),
                       rejected->reason_code.c_str(), rejected->reason.c_str());
  }
  // All are asked for before one is waited for.
  const auto is_named = [&](const core::Candidate& candidate) {
    return std::any_of(all.begin(), all.end(), [&](const Required& one) {
      return one.backend == candidate.on->backend &&
             std::find(one.operators.begin(), one.operators.end(), candidate.decl->name) != one.operators.end();
    });
  };
  const auto now = registry_.current();
  for (const core::Candidate& candidate : now->candidates)
    if (is_named(candidate) && is_untried(candidate)) registry_.want(candidate);
  for (const auto& [backend, operators] : all) {
    for (const std::string& op : operators) {
      const rlk_status status = require_operator(backend, op, who, deadline, error);
      if (status != RLK_OK) return status;
    }
  }
  return RLK_OK;
}

// Of the backend's devices: one implementation that was verified is enough.
rlk_status Process::require_operator(const std::string& backend, const std::string& op, const std::string& who,
                                     std::chrono::steady_clock::time_point deadline, rlk_error* error) {
  for (;;) {
    const bool is_last_look = std::chrono::steady_clock::now() >= deadline;
    bool is_there = false, waits = false;
    std::string failures, others;  // of each implementation the first
    const auto now = registry_.current();
    for (const core::Candidate& candidate : now->candidates) {
      if (candidate.on->backend != backend || candidate.decl->name != op) continue;
      is_there = true;
      waits |= is_untried(candidate) && registry_.want(candidate);
      const core::UnitResult* worst = nullptr;
      for (const core::UnitResult* unit : candidate.units) {
        if (unit->verdict == core::UnitResult::Verdict::verified) return RLK_OK;
        const bool is_worse = unit->verdict == core::UnitResult::Verdict::failed &&
                              (worst == nullptr || worst->verdict != core::UnitResult::Verdict::failed);
        if (worst == nullptr || is_worse) worst = unit;
      }
      if (worst != nullptr)
        add_reason(*worst, worst->verdict == core::UnitResult::Verdict::failed ? &failures : &others);
    }
    const std::string why = failures + (failures.empty() || others.empty() ? "" : "; ") + others;
    if (waits && is_last_look) {
      return core::failf(error, RLK_TIMEOUT,
                         "%s: '%s' of '%s' has not been tried yet; more time, or what is known of it: "
                         "rlk-plugins scope %s",
                         who.c_str(), op.c_str(), backend.c_str(), backend.c_str());
    }
    if (!waits) {
      return core::failf(error, RLK_UNSUPPORTED, "%s: '%s' is not verified on '%s': %s", who.c_str(), op.c_str(),
                         backend.c_str(),
                         !is_there     ? "no plugin brings it"
                         : why.empty() ? "nothing of it was tried"
                                       : why.c_str());
    }
    std::unique_lock lock(mutex_);
    searched_.wait_for(lock, std::chrono::milliseconds(50));
  }
}

}  // namespace rlk::loader
