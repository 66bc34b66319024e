// A baseline per position of a group: the declaration's formula, fp64.
#include <rlk/sdk/ops/optimal_token_baseline.hpp>

#include <map>

#include "core/golden/groups.hpp"
#include "core/golden/operator.hpp"
#include "core/golden/sequences.hpp"

namespace rlk::golden {
using namespace sdk::ops::optimal_token_baseline;  // NOLINT(google-build-using-namespace): its enumerations

namespace {

using TypedCall = CallOf<sdk::ops::OptimalTokenBaseline>;

// An active token with the position at which its group compares it.
struct Token {
  int64_t t, position;
  Tracked g, w;
};
using Tokens = std::vector<Token>;

Tokens tokens_of(const TypedCall& call, const Sequences& sequences, int64_t b) {
  Tokens tokens;
  TrackedSum variance, to_go;
  for (int64_t t = 0; t < sequences.tokens(b); ++t) {
    if (!sequences.kept(call.mask, b, t)) continue;
    const auto load = [&](const View& input) { return Tracked(sequences.load(input, b, t)); };
    Tracked w = Tracked(1.0) - Tracked(2.0) * exp(load(call.logp)) + load(call.sum_p2);
    if (call.weight.present()) {
      const Tracked rho = load(call.weight);
      w = w * (rho * rho);
    }
    variance.add(w);
    const bool active = call.params.position == Position::active;
    const int64_t position = active ? static_cast<int64_t>(tokens.size()) : t;
    tokens.push_back({t, position, load(call.rewards), variance.total()});
  }
  for (auto token = tokens.rbegin(); token != tokens.rend(); ++token) {
    to_go.add(token->g);
    token->g = to_go.total();
  }
  return tokens;
}

// The baseline of each position of a group.
std::map<int64_t, Tracked> baselines_of(const Rows& group, const std::vector<Tokens>& tokens, double eps) {
  std::map<int64_t, TrackedSum> numerators, denominators;
  for (const int64_t b : group) {
    for (const Token& token : tokens[static_cast<size_t>(b)]) {
      numerators[token.position].add(token.g * token.w);
      denominators[token.position].add(token.w);
    }
  }
  std::map<int64_t, Tracked> baselines;
  for (const auto& [position, numerator] : numerators) {
    baselines[position] = numerator.total() / (denominators[position].total() + Tracked(eps));
  }
  return baselines;
}

}  // namespace

DataError optimal_token_baseline(TypedCall& call) {
  const Params& params = call.params;
  const Sequences sequences(call.rewards, call.cu_seqlens);
  const auto put_both = [&](Tracked advantage, Tracked to_go) {
    put(call.advantages, advantage);
    put(call.returns, to_go);
  };
  DataError error = sequences.error();
  if (error.kind != kNoDataError) {
    fill(call.advantages, sequences.elements(), kNan);
    fill(call.returns, sequences.elements(), kNan);
    return error;
  }
  GroupingCall grouping;
  grouping.grouping = call.group_ids.present() ? Grouping::ids : Grouping::fixed;
  grouping.rows = sequences.count();
  grouping.samples_per_prompt = params.samples_per_prompt;
  grouping.ids = call.group_ids;
  std::vector<Tokens> tokens;
  for (int64_t b = 0; b < sequences.count(); ++b) {
    tokens.push_back(tokens_of(call, sequences, b));
    grouping.kept.push_back(params.position == Position::token || !tokens.back().empty());
  }
  std::vector<std::vector<Tracked>> advantages, to_go;
  for (int64_t b = 0; b < sequences.count(); ++b) {
    const auto length = static_cast<size_t>(sequences.tokens(b));
    const Tracked unless_grouped = grouping.kept[static_cast<size_t>(b)] ? kNan : 0.0;
    advantages.emplace_back(length, unless_grouped);
    to_go.emplace_back(length, unless_grouped);
  }
  for (const Rows& group : groups_of(grouping, error)) {
    std::vector<size_t> lengths;
    for (const int64_t b : group) lengths.push_back(tokens[static_cast<size_t>(b)].size());
    std::sort(lengths.begin(), lengths.end());
    const std::map<int64_t, Tracked> baselines = baselines_of(group, tokens, params.eps);
    for (const int64_t b : group) {
      const auto i = static_cast<size_t>(b);
      std::fill(advantages[i].begin(), advantages[i].end(), 0.0);
      std::fill(to_go[i].begin(), to_go[i].end(), 0.0);
      for (const Token& token : tokens[i]) {
        bool none = group.size() == 1;
        if (!none && params.zero_tail == ZeroTail::on) {
          const size_t second = lengths[lengths.size() - 2];
          none = tokens[i].size() > second && token.position >= static_cast<int64_t>(second);
        }
        const auto t = static_cast<size_t>(token.t);
        advantages[i][t] = none ? token.g : token.g - baselines.at(token.position);
        to_go[i][t] = token.g;
      }
    }
  }
  for (size_t b = 0; b < advantages.size(); ++b) {
    for (size_t t = 0; t < advantages[b].size(); ++t) put_both(advantages[b][t], to_go[b][t]);
  }
  return error;
}

}  // namespace rlk::golden
