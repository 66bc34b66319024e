"""slime: log-probabilities and entropies of Megatron's logits, advantages and returns, and estimates of the KL."""
import itertools

import torch

from rlk.integrations import _compare, _example_calls
from rlk.integrations._hooks import Hook, Integration
from rlk.integrations._replace import require
from rlk.integrations._serve import NO_IGNORED_ID, call, require_dtype, require_ids

_PPO, _FILE = "slime.utils.ppo_utils", "slime/utils/ppo_utils.py"


def _log_probs(ppo):
    def serve(original, logits, tokens, tp_group, *, with_entropy, with_entropy_grad=True, log_prob_keep_mask):
        processes = ppo._get_vocab_parallel_rank_size(tp_group)[1]
        require(processes == 1, f"a vocabulary that is spread over {processes} processes")
        require_dtype(logits, "logits")
        require(logits.ndim == 2 and logits.shape[1] > 0, f"logits of the shape {tuple(logits.shape)}, expected rows of a vocabulary")
        require_ids(tokens, logits.shape[:1], "tokens")
        keep = log_prob_keep_mask
        if keep is not None:  # slime keeps the target, whatever the mask says, and takes the entropy of all logits
            require(keep.shape == logits.shape and keep.dtype == torch.bool, "a mask that is no bool for each logit")
            keep = keep.scatter(1, tokens.long()[:, None], True)
        together = with_entropy and keep is None
        if with_entropy and not together and logits.dtype in (torch.float16, torch.bfloat16):
            logits = logits.float()  # two calls: their gradients are added before they are rounded
        found = call("logp", logits, tokens, None, None, None, keep, ignore_index=NO_IGNORED_ID, **_asked(together))
        log_prob, entropy = found if together else (found, None)
        if with_entropy and not together:
            entropy = call("logp", logits, tokens, ignore_index=NO_IGNORED_ID, **_asked(True)).entropy
        if entropy is not None:
            entropy = (entropy if with_entropy_grad else entropy.detach()).float()
        return log_prob.float()[:, None], entropy
    return serve


def _asked(entropy):
    return {"entropy": True} if entropy else {}


# ---- advantages --------------------------------------------------------------------------------------------------

def _check(*tensors):
    for x in tensors:
        require_dtype(x, "rewards or values")
        require(x.ndim == 2 and x.shape == tensors[0].shape, "rewards or values that are no matrices of one shape")
        require(x.dtype == tensors[0].dtype, f"{x.dtype} beside {tensors[0].dtype}")
        require(not (x.requires_grad and torch.is_grad_enabled()), "a gradient of rewards or values")


def _gae(ppo):
    def serve(original, rewards, values, gamma, lambd, chunk_size=128):
        _check(rewards, values)
        found = call("gae", rewards, values, gamma=float(gamma), lam=float(lambd), returns=True)
        return found.advantages.to(rewards.dtype), found.returns.to(rewards.dtype)
    return serve


def _returns(ppo):
    def serve(original, rewards, discount, chunk_size=128):
        _check(rewards)
        return call("returns", rewards, gamma=float(discount)).to(rewards.dtype)
    return serve


# ---- KL ----------------------------------------------------------------------------------------------------------

KL_KINDS = {"k1": {"kl_kind": "k1"}, "k2": {"kl_kind": "k2"}, "k3": {"kl_kind": "k3"},
          "low_var_kl": {"kl_kind": "k3", "value_clamp": 10.0}}


def _kl(ppo):
    def serve(original, log_probs, log_probs_base, kl_loss_type, importance_ratio=None):
        require(kl_loss_type in KL_KINDS, f"the kl_loss_type {kl_loss_type!r}")
        require(importance_ratio is None, "an importance_ratio")
        for x in (log_probs, log_probs_base):
            require_dtype(x, "log-probabilities")
        require(log_probs.shape == log_probs_base.shape, "log-probabilities of different shapes")
        require(not log_probs_base.requires_grad, "a gradient of the reference")
        own, base = (x.reshape(-1).float() for x in (log_probs, log_probs_base))
        return call("ratio_kl", own, None, base, kl=True, **KL_KINDS[kl_loss_type]).kl.view(log_probs.shape)
    return serve


# ---- trials ------------------------------------------------------------------------------------------------------

def _chunk_calls():
    calls = []
    for entropy, gradient, masked in itertools.product((False, True), (False, True), (False, True)):
        for call in _example_calls.logits_and_ids()[:1]:
            keep = _example_calls.made(*call.arguments[0].shape, seed=3) > 0.3 if masked else None
            calls.append(_compare.Call((*call.arguments, None), {"with_entropy": entropy, "with_entropy_grad": gradient,
                                                               "log_prob_keep_mask": keep}))
    return calls


INTEGRATION = Integration("slime", "slime", (
    Hook(_PPO, "_calculate_log_probs_and_entropy_chunk", "logp",
         (f"{_FILE} _calculate_log_probs_and_entropy_chunk", f"{_FILE} _VocabParallelLogProbEntropy",
          f"{_FILE} _get_vocab_parallel_rank_size", f"{_FILE} calculate_log_probs_and_entropy"), _log_probs,
         calls=_chunk_calls),
    Hook(_PPO, "chunked_gae", "gae", (f"{_FILE} chunked_gae", f"{_FILE} chunked_discounted_returns"), _gae,
         calls=_example_calls.gae),
    Hook(_PPO, "vanilla_gae", "gae", (f"{_FILE} vanilla_gae",), _gae, calls=_example_calls.gae),
    Hook(_PPO, "chunked_discounted_returns", "returns", (f"{_FILE} chunked_discounted_returns",), _returns,
         calls=lambda: _example_calls.gae(with_values=False)),
    Hook(_PPO, "compute_approx_kl", "ratio_kl", (f"{_FILE} compute_approx_kl",), _kl,
         calls=lambda: _example_calls.log_probs_by_kind(KL_KINDS)),
), source="https://github.com/THUDM/slime")
