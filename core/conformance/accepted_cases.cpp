// Walks, and answers to them. Most of a walk is making cases, which implementations of the same switches and answers
// share.
#include "core/conformance/accepted_cases.hpp"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "core/declaration/numerics.hpp"

namespace rlk::core::conformance {
namespace {

constexpr uint32_t kBothClasses = RLK_NUMERICS_DETERMINISTIC | RLK_NUMERICS_BATCH_INVARIANT;
// What a caller may demand. Answers that name another variant or other classes are tried apart.
constexpr uint32_t kDemands[] = {RLK_NUMERICS_TOLERANCE | RLK_NUMERICS_ACCURATE | kBothClasses | RLK_NUMERICS_PORTABLE,
                                 RLK_NUMERICS_TOLERANCE | RLK_NUMERICS_ACCURATE | kBothClasses,
                                 RLK_NUMERICS_TOLERANCE | RLK_NUMERICS_ACCURATE | RLK_NUMERICS_DETERMINISTIC,
                                 RLK_NUMERICS_TOLERANCE | RLK_NUMERICS_ACCURATE,
                                 RLK_NUMERICS_TOLERANCE | kBothClasses | RLK_NUMERICS_PORTABLE,
                                 RLK_NUMERICS_TOLERANCE | kBothClasses,
                                 RLK_NUMERICS_TOLERANCE | RLK_NUMERICS_DETERMINISTIC,
                                 RLK_NUMERICS_TOLERANCE};

bool is_same_switch(const rlk_switch* a, const rlk_switch* b) {
  if (a == b || a == nullptr || b == nullptr) return a == b;
  const auto symbol = [](const rlk_switch* change) {
    return std::string_view(change->symbol != nullptr ? change->symbol : "");
  };
  return a->at == b->at && symbol(a) == symbol(b);
}

}  // namespace

AcceptedCases::AcceptedCases(const OpDecl& decl, int dtype_choice,
                             const std::vector<const rlk_implementation*>& implementations, Harness& harness,
                             Extent extent, uint64_t seed, Refused refused)
    : decl_(decl),
      dtype_choice_(dtype_choice),
      implementations_(implementations),
      harness_(harness),
      extent_(extent),
      seed_(seed),
      refused_(std::move(refused)),
      asked_(implementations.size()),
      walked_(decl.forms.size()) {}

void AcceptedCases::walk() {
  for (size_t i = 0; i < implementations_.size(); ++i) {
    for (size_t form = 0; form < decl_.forms.size(); ++form) {
      if (!follows(i, walked_[form])) walk(i, form);
    }
  }
}

void AcceptedCases::walk(size_t i, size_t form) {
  const std::span<const rlk_switch* const> switches = switches_of(i);
  Walked& walked = walked_[form];
  walked = {{switches.begin(), switches.end()}, {}};
  std::vector<bool> is_in_walk;  // of work_
  schedule(decl_, dtype_choice_, static_cast<int>(form), extent_, switches, seed_,
           [&](const Case& c, Stage stage) -> std::vector<std::string> {
             const std::optional<size_t> work = work_of(c, stage);
             if (!work) return {};
             std::vector<std::string> variants = ask(i, *work);
             if (is_in_walk.size() < work_.size()) is_in_walk.resize(work_.size());
             if (!is_in_walk[*work]) walked.steps.push_back({*work, variants});
             is_in_walk[*work] = true;
             return variants;
           });
}

// A walk depends on the switches and the answers alone: the walk asks an implementation with those of the one before,
// as most rows of a plugin have, for the same cases. A different answer makes a new walk, which offers no case twice.
bool AcceptedCases::follows(size_t i, const Walked& walked) {
  const std::span<const rlk_switch* const> switches = switches_of(i);
  if (walked.steps.empty() ||
      !std::equal(switches.begin(), switches.end(), walked.switches.begin(), walked.switches.end(), is_same_switch)) {
    return false;
  }
  return std::all_of(walked.steps.begin(), walked.steps.end(),
                     [&](const Walked::Step& step) { return ask(i, step.work) == step.variants; });
}

void AcceptedCases::offer(size_t i, const Case& c, Stage stage) {
  if (const std::optional<size_t> work = work_of(c, stage)) ask(i, *work);
}

// nullopt: the declaration does not allow the case.
std::optional<size_t> AcceptedCases::work_of(const Case& c, Stage stage) {
  ConcreteCall call;
  if (!resolve(c, call)) return std::nullopt;
  std::string words = describe(c, call);
  const auto [at, is_new] = index_.emplace(words, work_.size());
  if (is_new) {
    const std::vector<std::string> list = features(call);
    work_.push_back({c, std::move(call), stage, std::move(words), {list.begin(), list.end()}, {}});
  } else if (!c.brief) {
    work_[at->second].spec.brief = false;
  }
  return at->second;
}

// Asks the implementation, once; a yes becomes a job. The variants that would run the case.
std::vector<std::string> AcceptedCases::ask(size_t i, size_t w) {
  Work& work = work_[w];
  std::set<std::pair<std::string, uint32_t>> taken;
  if (asked_[i].size() < work_.size()) asked_[i].resize(work_.size());
  if (asked_[i][w]) {
    for (const Job& job : work.jobs) {
      if (job.implementation == i) taken.emplace(job.claim.variant, job.claim.support.numerics);
    }
  } else {
    asked_[i][w] = true;
    Claim claim;
    const Question question(work.call);
    for (const uint32_t demand : kDemands) {
      if ((demand & RLK_NUMERICS_PORTABLE) != 0 && !decl_.portable) continue;
      // The suite asks no implementation for what needs no claim: dispatch does not pass it on either.
      if ((demand & implied_numerics(decl_, work.call.dtypes[0])) != 0) continue;
      claim = harness_.query(*implementations_[i], question, demand);
      if (claim.kind != Claim::Kind::accepted) continue;
      if ((demand & ~RLK_NUMERICS_TOLERANCE & ~claim.support.numerics) != 0) continue;
      if (!taken.emplace(claim.variant, claim.support.numerics).second) continue;
      work.jobs.push_back({i, demand, claim});
    }
    if (taken.empty()) refused_(i, work, claim);
  }
  std::vector<std::string> variants;
  for (const auto& [variant, numerics] : taken) variants.push_back(variant);
  return variants;
}

}  // namespace rlk::core::conformance
