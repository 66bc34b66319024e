"""OpenRLHF: log-probabilities and entropies of logits, and its policy loss."""
import itertools

import torch

from rlk.integrations import _compare, _example_calls
from rlk.integrations._hooks import Hook, Integration
from rlk.integrations._replace import require
from rlk.integrations._serve import entropy, logp, policy_loss

_UTILS, _FILE, _LOSS = "openrlhf.models.utils", "openrlhf/models/utils.py", "openrlhf/models/loss.py"


def _log_probs(utils):
    def serve(original, logits, labels, temperature=1.0):
        require(temperature == 1.0, "a temperature, which the original also writes into the logits")
        return logp(logits, labels)[0].to(logits.dtype)
    return serve


def _entropy(utils):
    return lambda original, logits: entropy(logits).to(logits.dtype)


def _policy(losses):
    def serve(original, module, log_probs, old_log_probs, advantages, action_mask=None, rollout_log_probs=None, dp_size=1,
              batch_num_tokens=None, global_batch_size=None):
        require(module.is_correction_level == "off", f"the is_correction_level {module.is_correction_level!r}")
        words = {"clip_low": module.clip_eps_low, "clip_high": module.clip_eps_high}
        if module.policy_loss_type == "gspo":
            require(action_mask is not None, "gspo without a mask")
            words["importance_ratio"] = "sequence"
        else:
            require(module.policy_loss_type == "ppo", f"the policy loss {module.policy_loss_type!r}")
            words |= {"log_ratio_clamp_low": 20.0, "log_ratio_clamp_high": 20.0}
        if module.dual_clip is not None:
            words["dual_clip"] = module.dual_clip
        count = batch_num_tokens if module.token_level_loss else global_batch_size
        require(module.token_level_loss or action_mask is not None, "means of sequences without a mask")
        if not module.token_level_loss:
            words |= {"aggregation": "seq_mean_token_mean", "exclude_empty_sequences": "on"}
        if count is not None:
            require(float(count) > 0, f"a global count of {count}")
            words["denominator"] = float(count) / dp_size
        loss, metrics = policy_loss(log_probs, old_log_probs, advantages, action_mask, **words)
        with torch.no_grad():
            ppo_kl = losses.masked_mean(old_log_probs - log_probs, action_mask, dim=None)
        clipped = metrics["clip_ratio_low"] + metrics["clip_ratio_high"]
        return loss, clipped.to(torch.float32), ppo_kl, None, None
    return serve


def _policy_calls():
    """Both losses and both means, of one process and of several, with a dual clip and without; and tokens so far from the old
    policy that their ratios are clamped."""
    from openrlhf.models.loss import PolicyLoss
    shared = {"dp_size": 4, "batch_num_tokens": 150, "global_batch_size": 20}
    near, clips = _example_calls.Batch(), {"clip_eps_low": 0.05, "clip_eps_high": 0.1}
    settings = [(near, counts, {"policy_loss_type": kind, "token_level_loss": tokens, "dual_clip": dual, **clips})
                for kind, tokens, dual, counts in itertools.product(("ppo", "gspo"), (True, False), (None, 1.2), ({}, shared))]
    settings += [(_example_calls.Batch(far), {}, {}) for far in (25.0, -25.0)]
    return [_compare.Call((PolicyLoss(**words), batch.logp.clone().requires_grad_(), batch.old, batch.advantages),
                          {"action_mask": batch.mask, **counts}) for batch, counts, words in settings]


INTEGRATION = Integration("openrlhf", "openrlhf", (
    Hook(_UTILS, "log_probs_from_logits", "logp", (f"{_FILE} log_probs_from_logits", f"{_FILE} _logsumexp_by_chunk"),
         _log_probs, calls=_example_calls.logits_and_ids),
    Hook(_UTILS, "compute_entropy", "logp", (f"{_FILE} compute_entropy",), _entropy, calls=_example_calls.logits),
    Hook("openrlhf.models.loss", "PolicyLoss.forward", "policy_loss",
         (f"{_LOSS} PolicyLoss.forward", f"{_LOSS} PolicyLoss.__init__", f"{_LOSS} aggregate_loss", f"{_FILE} masked_mean"),
         _policy, calls=_policy_calls),
))
