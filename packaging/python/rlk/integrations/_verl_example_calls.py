"""Made-up calls by which verl's losses and advantages of an unknown source are tried."""
import itertools
import types

import numpy as np

from rlk.integrations._compare import Call
from rlk.integrations._example_calls import Batch, lengths_mask, made


def _config(info, **words):
    from verl.workers.config import ActorConfig, PolicyLossConfig
    config = ActorConfig(strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1, policy_loss=PolicyLossConfig(dro_beta=0.3),
                         **words)
    config.global_batch_info.update(info)
    return config


def losses(aggregations):
    """Every aggregation, of one process and of several, weighted and not, with clips that most tokens reach; and tokens so far
    from the old policy that their ratios are clamped."""
    sharp = {"clip_ratio_low": 0.05, "clip_ratio_high": 0.1, "clip_ratio_c": 1.2, "tau_pos": 2.0, "tau_neg": 0.7}
    shared = {"dp_size": 4, "batch_num_tokens": 150, "global_batch_size": 20, "loss_scale_factor": 40}
    near = Batch()
    settings = [(near, mode, info, words, weights) for mode, (info, words, weights) in itertools.product(
        aggregations, (({}, {}, None), (shared, sharp, near.weights)))]
    settings += [(Batch(far), "token-mean", {}, {}, None) for far in (25.0, -25.0)]
    return [Call(named=dict(
        old_log_prob=batch.old, log_prob=batch.logp.clone().requires_grad_(), advantages=batch.advantages,
        response_mask=batch.mask, loss_agg_mode=mode, config=_config(info, **words), rollout_is_weights=weights))
        for batch, mode, info, words, weights in settings]


def _rewards(**more):
    mask = lengths_mask(6, 2, 3, 1, 6, 4, 5, 2, 2, width=6)
    return dict(token_level_rewards=made(9, 6, seed=1) * mask, response_mask=mask, **more)


def groups(*options):
    """Groups of several sizes, one sample alone."""
    index = np.array(["a", "b", "a", "c", "b", "a", "b", "d", "d"], dtype=object)
    return [Call(named=_rewards(index=index, **option)) for option in (options or ({},))]


def groups_divided_or_not():
    return groups({}, {"norm_adv_by_std_in_grpo": False})


def gae():
    values = made(9, 6, seed=2)
    mask = _rewards()["response_mask"] != 0
    return [Call(named=_rewards(values=values, gamma=gamma, lam=lam),
                 read=lambda found: [x[mask] for x in found])  # no loss reads what verl has at masked tokens
            for gamma, lam in ((1.0, 1.0), (0.99, 0.95))]


def returns():
    return [Call(named=_rewards(config=types.SimpleNamespace(gamma=gamma))) for gamma in (1.0, 0.99)]
