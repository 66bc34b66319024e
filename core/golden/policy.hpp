// What policy_loss and its backward agree on: the loss of every token of a sequence, as the declaration of
// policy_loss has it, and how tokens make one loss.
#pragma once

#include <rlk/sdk/ops/policy_loss.hpp>
#include <rlk/sdk/ops/policy_loss_backward.hpp>

#include <set>
#include <utility>
#include <vector>

#include "core/golden/dual.hpp"
#include "core/golden/loss_weights.hpp"
#include "core/golden/operator.hpp"
#include "core/golden/sequences.hpp"

namespace rlk::golden {

// A call of policy_loss, or what its backward has of one.
using PolicyCall = CallOf<sdk::ops::PolicyLoss>;

// What slopes are with respect to. A token's loss changes with its own logp, and with one mean over its sequence: of
// the log ratios (importance_ratio sequence) or of their clipped form (gmpo).
enum class PolicySeed { none, own_logp, sequence_mean };

// An active token.
struct PolicyToken {
  int64_t t = 0;  // its place in the sequence
  Dual loss;
  Tracked share;  // seed own_logp: the slope of the sequence's mean
  Tracked x, kl, ratio, entropy, phi, weight;
  bool selected = true;  // e
  bool clipped = false, clipped_lower = false, below = false, above = false;
};

class PolicyBatch {
public:
  using Rule = sdk::ops::policy_loss_backward::ClampGradient;
  explicit PolicyBatch(const PolicyCall& call, Rule rule = Rule::zero);

  const DataError& error() const { return error_; }
  int64_t sequences() const { return rows_.count(); }
  int64_t tokens() const { return rows_.elements(); }          // of all sequences, masked ones too
  int64_t length(int64_t b) const { return rows_.tokens(b); }  // of a sequence
  int64_t flat(int64_t b, int64_t t) const;                    // row-major index of a token in an output
  bool unmasked(int64_t b, int64_t t) const { return rows_.kept(call_.mask, b, t); }
  double load(const View& view, int64_t b, int64_t t) const { return rows_.load(view, b, t); }
  std::vector<PolicyToken> losses(int64_t b, PolicySeed seed) const;  // the active tokens of sequence b
  struct Active {
    int64_t tokens, selected;
  };
  Active active(int64_t b) const;  // how many they are

  const Tracked& mean_weight() const { return mean_weight_; }  // of w before its division
  const Tracked& effective() const { return effective_; }      // (sum w)^2 / (N sum w^2)
  bool has_own_bonus() const;                                  // entropy_aggregation token_mean
  Tracked bonus_divisor(int64_t selected) const;               // D_H, with so many tokens of e = 1

private:
  struct Token {
    int64_t t;
    Dual logp, old_logp, x;
    Tracked advantage, rollout;  // rollout: r
    Tracked weight{1, 0};        // w
    double ref_logp, own_weight, entropy, sampler;
    double divergence;   // of rollout_gate
    bool taken = false;  // by covariance
  };
  struct Sequence;
  std::vector<Token> gather(int64_t b, PolicySeed seed) const;
  bool is_rejected(const Token& token) const;
  bool is_rejected(const std::vector<Token>& tokens) const;
  void weigh(std::vector<Token>& tokens) const;
  void average_weights();
  void find_least_entropy();
  void take_by_covariance();
  std::vector<Token> active_tokens(int64_t b, PolicySeed seed) const;
  bool is_selected(const Token& token) const;   // e
  bool means_selected() const;                  // gmpo_mean selected
  bool may_be_taken(const Token& token) const;  // by clip_cov
  Dual clamped(const Dual& log_ratio) const;
  Dual clipped_log_ratio(const Token& token) const;
  Sequence summarise(const std::vector<Token>& active, PolicySeed seed) const;
  Dual policy(const Token& token, const Sequence& sequence, const Dual& s, PolicyToken& out) const;
  Dual kl(const Token& token, const Dual& ratio) const;

  const PolicyCall& call_;
  const sdk::ops::policy_loss::Params& p_;
  const Rule rule_;  // of the slopes of clamps
  const Sequences rows_;
  Tracked mean_weight_, effective_;
  Tracked weight_divisor_{1, 0};
  bool selects_ = false;
  double least_entropy_ = 0;                     // h
  std::set<std::pair<int64_t, int64_t>> taken_;  // (b, t), by covariance
  DataError error_;
};

}  // namespace rlk::golden
