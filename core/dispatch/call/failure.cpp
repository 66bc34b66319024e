// What happens when an implementation fails at run time: quarantine with evidence, and the next candidate where the
// call can be made again.
#include <fmt/core.h>

#include <algorithm>

#include "core/declaration/error.hpp"
#include "core/declaration/text.hpp"
#include "core/dispatch/call/dispatcher.hpp"

namespace rlk::core {
namespace {

std::string said(const rlk_error* error) {
  const std::string text = error != nullptr ? text_of(*error) : "";
  return text.empty() ? "without a text" : text;
}

}  // namespace

void Dispatcher::quarantine(const Candidate& candidate, const std::string& dtype, rlk_status status,
                            const std::string& text) {
  registry_.quarantine(*candidate.plugin, candidate.decl->name, candidate.implementation->name, dtype,
                       name_of_status(status), text);
}

rlk_status Dispatcher::after_failure(Call& call, const Served& served, rlk_status status, bool* memory_released,
                                     bool* again, rlk_error* error) {
  if (status > 0) status = fail(error, RLK_INTERNAL, fmt::format("the plugin answered a call with {}", status));
  const bool in_place = std::any_of(call.bound.output_alias.begin(), call.bound.output_alias.end(),
                                    [](int32_t input) { return input >= 0; });
  const bool repeatable = !call.capturing && !in_place;
  if (status == RLK_CAPTURE_FORBIDS) return status;
  if (status == RLK_OUT_OF_MEMORY) {
    if (!repeatable) return status;
    *again = true;
    if (*memory_released) {
      call.passed_over.push_back({served.from->decision->candidate, said(error)});
    } else {
      call.stream.device().memory.release_cached(/*wait=*/true);
      call.stream.device().pinned.release_cached(/*wait=*/true);
      *memory_released = true;
    }
    return status;
  }
  const std::string text = said(error);
  // Ask for an earlier failure of the stream now: later it would be blamed on the next call.
  if (!call.capturing) {
    std::vector<Suspect> suspects;
    call.stream.take_back_call();
    if (const rlk_status broken = call.stream.find_failure(error, &suspects); broken != RLK_OK) {
      return blame(broken, suspects, error);
    }
  }
  count(counters_.of(call.decl()).failures);
  quarantine(served.candidate(), first_dtype(call.bound), status, text);
  if (repeatable) {
    *again = true;
    return status;
  }
  return fail(error, status,
              fmt::format("{} by {}/{} failed and is switched off: {}. {}", call.decl().name,
                          served.candidate().plugin->id, served.candidate().implementation->name, text,
                          in_place ? "It may have written over its inputs, so the call was not made again"
                                   : "The graph in capture holds a part of it; end and drop the capture"));
}

rlk_status Dispatcher::query(Stream& stream, rlk_error* error) {
  std::vector<Suspect> suspects;
  return blame(stream.query(error, &suspects), suspects, error);
}

rlk_status Dispatcher::synchronize(Stream& stream, uint64_t timeout_ns, rlk_error* error) {
  std::vector<Suspect> suspects;
  return blame(stream.synchronize(timeout_ns, error, &suspects), suspects, error);
}

// rlk blames an implementation for an asynchronous failure only when no other can have caused it. Of several each is
// noted as evidence and none switched off: most of them are not at fault.
rlk_status Dispatcher::blame(rlk_status status, const std::vector<Suspect>& suspects, const rlk_error* error) {
  if (status == RLK_OUT_OF_MEMORY) return status;
  std::vector<Quarantined> evidence;
  for (const Suspect& suspect : suspects) {
    if (suspect.candidate == nullptr) continue;
    const Candidate& candidate = *suspect.candidate;
    evidence.push_back({candidate.plugin->id, candidate.decl->name, candidate.implementation->name,
                        candidate.decl->dtypes.empty() ? "" : name_of(suspect.dtype), name_of_status(status),
                        error != nullptr ? text_of(*error) : "an asynchronous failure", candidate.plugin->api});
    if (suspects.size() == 1) count(counters_.of(*candidate.decl).failures);
  }
  if (evidence.size() == 1 && suspects.size() == 1) {
    registry_.quarantine(std::move(evidence.front()));
  } else if (!evidence.empty()) {
    registry_.suspect(std::move(evidence));
  }
  return status;
}

}  // namespace rlk::core
