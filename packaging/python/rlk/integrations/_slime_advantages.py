"""--custom-advantage-function-path rlk.integrations.slime.advantages"""
import itertools

import torch

from rlk.errors import InvalidArgument
from rlk.integrations._replace import require
from rlk.integrations._serve import call
from rlk.integrations._slime_paths import LAYOUT, path

_PPO = "slime/utils/ppo_utils.py"
_SOURCES = ("slime/backends/megatron_utils/loss.py compute_advantages_and_returns",
            *(f"{_PPO} {name}" for name in ("get_grpo_returns", "get_reinforce_plus_plus_returns",
                                            "get_reinforce_plus_plus_baseline_advantages", "get_advantages_and_returns_batch",
                                            "chunked_gae", "chunked_discounted_returns")), *LAYOUT)
_PACKED = {"layout": "packed"}


@path("--custom-advantage-function-path", _SOURCES)
def advantages(args, rollout_data):
    """Sets rollout_data["advantages"] and ["returns"] as slime's compute_advantages_and_returns does with the same
    advantage_estimator; it computes the KL before and on-policy distillation and the whitening behind it, as ever. Values,
    KL and results are fp32, without gradients."""
    estimator, kl = args.advantage_estimator, rollout_data["kl"]
    require(estimator in _ESTIMATORS, f"the advantage_estimator {estimator!r}, it has {', '.join(_ESTIMATORS)}")
    beside = rollout_data["values"] if estimator == "ppo" else []
    for x in (*kl, *beside):
        require(x.dtype == torch.float32, f"a KL or values of {x.dtype}, expected fp32")
        require(not (x.requires_grad and torch.is_grad_enabled()), "a gradient of the KL or values")
    found = _ESTIMATORS[estimator](args, rollout_data, kl)
    rollout_data["advantages"], rollout_data["returns"] = found


def _reward_of_a_token(args, data, kl):
    """The same number for every token of a sample: nothing is computed."""
    found = [torch.full_like(x, reward) for x, reward in zip(kl, data["rewards"], strict=True)]
    return list(found), found


def _baseline(args, data, kl):
    scores = [torch.full_like(x, reward) for x, reward in zip(kl, data["rewards"], strict=True)]
    found = _less_kl(args, kl, scores=torch.cat(scores))
    found = list(found.split([len(x) for x in kl]))
    return found, found


def _reinforce(args, data, kl):
    masks = data["loss_masks"]
    mask = torch.cat(masks)
    require(bool(((mask == 0) | (mask == 1)).all()), "loss_masks with other numbers than 0 and 1")
    for i, own in enumerate(masks):
        if not own.any():
            raise InvalidArgument(f"rlk.integrations.slime.advantages: the loss_masks of sample {i} are all 0, so that its reward "
                                  "has no place. Leave out such samples")
    kl = _whole(data, kl)
    rewards = _less_kl(args, kl, data["rewards"], mask=mask != 0)
    found = call("returns", rewards, None, None, _cu_seqlens(kl), gamma=float(args.gamma), **_PACKED)
    found = _own(data, found)
    return list(found), found


def _gae(args, data, kl):
    from megatron.core import mpu
    rewards = None
    if mpu.get_context_parallel_rank() == 0:  # slime's reward goes to the last of this rank's tokens
        rewards = data["rewards"]
        empty = [i for i, x in enumerate(kl) if not len(x)]
        if empty:
            raise InvalidArgument(f"rlk.integrations.slime.advantages: sample {empty[0]} has no response token on the first rank of "
                                  "context parallelism, where slime puts its reward. Use fewer ranks, or longer responses")
    rewards = _less_kl(args, kl, rewards).split([len(x) for x in kl])
    rewards, values = _whole(data, rewards), _whole(data, data["values"])
    found = call("gae", torch.cat(rewards), torch.cat(values), None, None, _cu_seqlens(values), gamma=float(args.gamma),
                 lam=float(args.lambd), returns=True, **_PACKED)
    return _own(data, found.advantages), _own(data, found.returns)


_ESTIMATORS = {"grpo": _reward_of_a_token, "gspo": _reward_of_a_token, "cispo": _reward_of_a_token, "ppo": _gae,
               "reinforce_plus_plus": _reinforce, "reinforce_plus_plus_baseline": _baseline}


def _cu_seqlens(samples):
    return torch.tensor([0, *itertools.accumulate(len(x) for x in samples)], device=samples[0].device)


def _less_kl(args, kl, rewards=None, mask=None, scores=None):
    """-kl_coef KL of every token, plus the sample's reward at its last one; the KL is its own estimate k1 to 0."""
    packed = torch.cat(kl).detach()
    if rewards is not None:
        rewards = torch.tensor(rewards, dtype=torch.float32, device=packed.device)
    return call("token_rewards", packed, torch.zeros_like(packed), scores, rewards, mask, _cu_seqlens(kl),
                coefficient=float(args.kl_coef), kl_kind="k1", **_PACKED)


def _whole(data, parts):
    """The samples' numbers of all ranks of context parallelism."""
    from slime.backends.megatron_utils.cp_utils import all_gather_with_cp
    return [all_gather_with_cp(x, total, own).detach()
            for x, total, own in zip(parts, data["total_lengths"], data["response_lengths"], strict=True)]


def _own(data, packed):
    """What of whole samples lies on this rank."""
    from slime.backends.megatron_utils.cp_utils import slice_log_prob_with_cp
    own = data["response_lengths"]
    return [slice_log_prob_with_cp(x, total, n) for x, total, n in zip(packed.split(own), data["total_lengths"], own)]
