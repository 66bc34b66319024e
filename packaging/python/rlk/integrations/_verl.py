"""verl: log-probabilities and entropies of logits, the fused projection, policy losses and advantages of its registries."""
import os

import numpy as np
import torch

from rlk.integrations import _example_calls, _verl_example_calls
from rlk.integrations._hooks import Hook, Integration
from rlk.integrations._replace import require
from rlk.integrations._serve import NO_IGNORED_ID, call, entropy, logp, policy_loss, require_dtype, require_ids

_F, _LINEAR, _CORE = "verl.utils.torch_functional", "verl.utils.kernel.linear_cross_entropy", "verl.trainer.ppo.core_algos"


def _logprobs(functional):
    def serve(original, logits, labels, inplace_backward=True):
        found, _ = logp(logits, labels)
        fused = functional.FLAH_ATTN_CROSS_ENTROPY_LOSS_AVAILABLE and os.environ.get("VERL_DISABLE_FLASH_ATTN_CE", "0") != "1"
        return found.to(torch.float32 if fused else logits.dtype)
    return serve


def _entropy(functional):
    return lambda original, logits: entropy(logits).to(logits.dtype)


def _entropy_by_chunks(functional):
    def serve(original, logits, chunk_size=2048):
        require(logits.ndim == 2, f"logits of {logits.ndim} dimensions, expected 2")
        return entropy(logits).to(torch.get_default_dtype())
    return serve


def _linear(kernel):
    def serve(original, hidden, weight, labels, temperature=1.0, reduction="none", dist_process_group=None):
        require(isinstance(temperature, float) and temperature > 0, f"the temperature {temperature!r}, expected a float above 0")
        require(isinstance(reduction, str) and reduction.lower() == "none", f"the reduction {reduction!r}, expected 'none'")
        require(dist_process_group is None, "a vocabulary that is spread over processes")
        require_dtype(hidden, "hidden")
        require(weight.dtype == hidden.dtype, f"a weight of {weight.dtype} beside hidden of {hidden.dtype}")
        hidden, labels = hidden.reshape(-1, hidden.shape[-1]), labels.reshape(-1)
        require_ids(labels, hidden.shape[:1], "labels")
        result = call("linear_logp", hidden, weight, labels, temperature=temperature, entropy=True, ignore_index=NO_IGNORED_ID)
        return result.logp.float(), result.entropy.float()
    return serve


# ---- policy losses -----------------------------------------------------------------------------------------------

_EMPTY = {"exclude_empty_sequences": "on"}
_AGGREGATIONS = {"token-mean": ("batch_num_tokens", {"aggregation": "token_mean"}),
                 "token-sum": (None, {"aggregation": "token_sum"}),
                 "seq-mean-token-sum": ("global_batch_size", {"aggregation": "seq_mean_token_sum", **_EMPTY}),
                 "seq-mean-token-sum-norm": ("global_batch_size", {"aggregation": "seq_mean_token_sum", **_EMPTY}),
                 "seq-mean-token-mean": ("global_batch_size", {"aggregation": "seq_mean_token_mean", **_EMPTY})}


def _aggregation(mode, info, length):
    """(words for policy_loss, what its loss is divided by) of agg_loss."""
    require(mode in _AGGREGATIONS, f"the loss_agg_mode {mode!r}")
    count_name, words = _AGGREGATIONS[mode]
    info = {name: value for name, value in dict(info or {}).items() if value is not None}
    unknown = set(info) - {"dp_size", "batch_num_tokens", "global_batch_size", "loss_scale_factor"}
    require(not unknown, f"the global_batch_info {', '.join(sorted(unknown))}")
    processes, count = float(info.get("dp_size", 1)), info.get(count_name)
    require(count_name is None or count is not None or processes <= 1, f"several processes and no {count_name}")
    if count_name is None:
        words = {**words, "denominator": 1 / processes}
    elif count is not None:
        require(float(count) > 0, f"a {count_name} of {count}")
        words = {**words, "denominator": float(count) / processes}
    if mode != "seq-mean-token-sum-norm":
        return words, 1.0
    return words, float(info.get("loss_scale_factor", length))


_CLAMPS = {"log_ratio_clamp_low": 20.0, "log_ratio_clamp_high": 20.0}


def _clips(config):
    low, high = config.clip_ratio_low, config.clip_ratio_high
    return {"clip_low": config.clip_ratio if low is None else low, "clip_high": config.clip_ratio if high is None else high}


def _vanilla(config):
    c = config.get("clip_ratio_c", 3.0)
    require(c > 1, f"a clip_ratio_c of {c}, expected more than 1")
    return {**_clips(config), "dual_clip": c, **_CLAMPS}


def _gspo(config):
    return {**_clips(config), "importance_ratio": "sequence_token", "log_ratio_clamp_high": 10.0}


def _cispo(config):
    return {**_clips(config), "kind": "cispo", **_CLAMPS}


def _gpg(config):
    return {"kind": "gpg"}


def _dro(config):
    beta = config.policy_loss.dro_beta
    require(beta is not None and beta > 0, f"a dro_beta of {beta}, expected more than 0")
    return {"kind": "dro", "dro_beta": beta}


def _sapo(config):
    require(config.tau_pos > 0 and config.tau_neg > 0, f"a tau of {min(config.tau_pos, config.tau_neg)}, expected more than 0")
    return {"kind": "sapo", "sapo_tau_positive": config.tau_pos, "sapo_tau_negative": config.tau_neg, **_CLAMPS}


def _dppo(kind):
    def words(config):
        c = config.get("clip_ratio_c", 20.0)
        require(c > 0, f"a clip_ratio_c of {c}, expected more than 0")
        return {**_clips(config), "kind": kind, "delta": c, **_CLAMPS}
    return words


def _policy(words_of, metrics_of, clamp=float("inf"), only=None):
    """metrics_of: {verl's metric: the operator's, None for 0}; clamp: what verl holds the log ratio of its ppo_kl to; only: the
    aggregation that verl takes whatever it was asked for."""
    def make(core):
        def serve(original, old_log_prob, log_prob, advantages, response_mask, loss_agg_mode="token-mean", config=None,
                  rollout_is_weights=None):
            require(config is not None, "no config")
            words, divisor = _aggregation(only or loss_agg_mode, config.global_batch_info, response_mask.shape[-1])
            loss, metrics = policy_loss(log_prob, old_log_prob, advantages, response_mask, rollout_is_weights,
                                        **words_of(config), **words)
            loss = loss if divisor == 1 else loss / divisor
            if not metrics_of:
                return loss, {}
            with torch.no_grad():
                metrics["ppo_kl"] = core.verl_F.masked_mean((old_log_prob - log_prob).clamp(-clamp, clamp), response_mask)
                zero = torch.zeros_like(metrics["ppo_kl"])
                found = torch.stack([zero if name is None else metrics[name].to(zero.dtype) for name in metrics_of.values()])
            return loss, dict(zip(metrics_of, found.tolist()))
        return serve
    return make


# ---- advantages --------------------------------------------------------------------------------------------------

def _advantages(rewards, mask, index, lengths=None, **words):
    require_dtype(rewards, "rewards")
    require(not rewards.requires_grad, "a gradient of the rewards")
    places = {}  # a group is what its samples share: a string, say
    groups = [places.setdefault(key, len(places)) for key in index]
    require(len(groups) == len(rewards), "another number of groups than of samples")
    groups = torch.tensor(groups, dtype=torch.int64, device=rewards.device)
    found = call("group_advantages", rewards.sum(-1), None, groups, None, lengths, grouping="ids", **{"singleton": "raw", **words})
    found = found.to(rewards.dtype).unsqueeze(-1) * mask
    return found, found


def _grpo(core):
    def serve(original, token_level_rewards, response_mask, index, epsilon=1e-6, norm_adv_by_std_in_grpo=True, config=None):
        return _advantages(token_level_rewards, response_mask, index, eps=epsilon,
                           scale="group" if norm_adv_by_std_in_grpo else "none")
    return serve


def _rloo(core):
    def serve(original, token_level_rewards, response_mask, index, epsilon=1e-6, config=None, **more):
        return _advantages(token_level_rewards, response_mask, index, baseline="rloo", scale="none")
    return serve


def _opo(core):
    def serve(original, token_level_rewards, response_mask, index, epsilon=1e-6, config=None, **more):
        require(not response_mask.is_floating_point(), f"a mask of {response_mask.dtype}, which may be a weight")
        return _advantages(token_level_rewards, response_mask, index, response_mask.sum(-1), baseline="opo", scale="none")
    return serve


def _vectorized(words_of):
    """The same of verl's forms without loops, which group by numpy or torch."""
    def make(core):
        def serve(original, token_level_rewards, response_mask, index, epsilon=1e-6, norm_adv_by_std_in_grpo=True, config=None,
                  **more):
            require(not isinstance(index, torch.Tensor) and len({type(key) for key in index}) == 1
                    and isinstance(index[0], (str, int, np.integer)), "groups that are neither strings nor numbers")
            return _advantages(token_level_rewards, response_mask, index, **words_of(epsilon, norm_adv_by_std_in_grpo))
        return serve
    return make


def _require_tokens(rewards, mask, *beside):
    for x in (rewards, *beside):
        require_dtype(x, "rewards or values")
        require(x.shape == mask.shape and x.dtype == rewards.dtype, "rewards, values and masks of different shapes or dtypes")
        require(not (x.requires_grad and torch.is_grad_enabled()), "a gradient of rewards or values")
    require(not mask.is_floating_point(), f"a mask of {mask.dtype}, which may be a weight")
    active = mask != 0
    require(int(active.sum()) > 1, "fewer than two tokens, of which there is no variance")
    return active


def _gae(core):
    def serve(original, token_level_rewards, values, response_mask, gamma, lam):
        rewards, values = token_level_rewards.detach(), values.detach()
        active = _require_tokens(rewards, response_mask, values)
        found = call("gae", rewards, values, active, gamma=float(gamma), lam=float(lam), returns=True)
        return call("whiten", found.advantages, active).to(rewards.dtype), found.returns.to(rewards.dtype)
    return serve


def _reinforce(core):
    def serve(original, token_level_rewards, response_mask, config=None, **more):
        require(config is not None, "no config")
        rewards = token_level_rewards.detach()
        active = _require_tokens(rewards, response_mask)
        found = call("returns", rewards, active, gamma=float(config.gamma))
        return call("whiten", found, active).to(rewards.dtype), found.to(rewards.dtype)
    return serve


def _reinforce_baseline(core):
    def serve(original, token_level_rewards, response_mask, index, epsilon=1e-6, config=None, **more):
        active = _require_tokens(token_level_rewards, response_mask)
        found, _ = _advantages(token_level_rewards, active, index, scale="none")
        found = call("whiten", found, active).to(token_level_rewards.dtype)
        return found, found
    return serve


_FILE, _CORE_FILE = "verl/utils/torch_functional.py", "verl/trainer/ppo/core_algos.py"
_LINEAR_FILES = ("verl/utils/kernel/linear_cross_entropy.py LinearCrossEntropy",
                 "verl/utils/kernel/kernels.py efficient_entropy_forward",
                 "verl/utils/kernel/kernels.py efficient_entropy_backward")


def _metrics(clipped, lower):
    return {"actor/pg_clipfrac": clipped, "actor/ppo_kl": "ppo_kl", "actor/pg_clipfrac_lower": lower}


def _loss(mode, make):
    return Hook(_CORE, f"POLICY_LOSS_REGISTRY[{mode}]", "policy_loss",
                (f"{_CORE_FILE} compute_policy_loss_{mode}", f"{_CORE_FILE} agg_loss", f"{_FILE} masked_sum",
                 f"{_FILE} masked_mean"), make, calls=lambda: _verl_example_calls.losses(_AGGREGATIONS))


def _estimator(name, make, operator="group_advantages", *more, function=None, calls=_verl_example_calls.groups):
    return Hook(_CORE, f"ADV_ESTIMATOR_REGISTRY[{name}]", operator,
                (f"{_CORE_FILE} {function or f'compute_{name}_outcome_advantage'}", *more), make, calls=calls)


_WHITEN = tuple(f"{_FILE} masked_{name}" for name in ("whiten", "var", "mean", "sum"))
_GROUPS = tuple(f"verl/utils/groupwise.py {name}" for name in ("as_torch_index", "group_mean_std"))


INTEGRATION = Integration("verl", "verl", (
    Hook(_F, "logprobs_from_logits", "logp",
         (f"{_FILE} logprobs_from_logits", f"{_FILE} logprobs_from_logits_v2", f"{_FILE} logprobs_from_logits_flash_attn"),
         _logprobs, calls=_example_calls.logits_and_ids),
    Hook(_F, "entropy_from_logits", "logp", (f"{_FILE} entropy_from_logits",), _entropy, calls=_example_calls.logits),
    Hook(_F, "entropy_from_logits_with_chunking", "logp", (f"{_FILE} entropy_from_logits_with_chunking",), _entropy_by_chunks,
         calls=lambda: [*_example_calls.logits()[:1], *_example_calls.logits(chunk_size=4)[:1]]),
    Hook(_LINEAR, "linear_cross_entropy", "linear_logp", _LINEAR_FILES, _linear,
         calls=lambda: _example_calls.hidden_on_cuda(_example_calls.ids_of, 0.7, "none")),
    _loss("vanilla", _policy(_vanilla, _metrics("clip_fraction", "clip_fraction_lower"), 20.0)),
    _loss("gspo", _policy(_gspo, _metrics("clip_fraction", None))),
    _loss("cispo", _policy(_cispo, _metrics("clip_fraction", None), 20.0)),
    _loss("sapo", _policy(_sapo, _metrics(None, None), 20.0, "seq-mean-token-mean")),
    _loss("dppo_tv", _policy(_dppo("dppo_tv"), _metrics("clip_fraction", "clip_fraction_lower"), 20.0)),
    _loss("dppo_kl", _policy(_dppo("dppo_kl"), _metrics("clip_fraction", "clip_fraction_lower"), 20.0)),
    _loss("dro", _policy(_dro, {"actor/ppo_kl": "ppo_kl"})),
    _loss("gpg", _policy(_gpg, {})),
    _estimator("grpo", _grpo, calls=_verl_example_calls.groups_divided_or_not),
    _estimator("rloo", _rloo),
    _estimator("opo", _opo),
    _estimator("grpo_vectorized", _vectorized(lambda epsilon, divides: {"eps": epsilon, "scale": "group" if divides else "none"}),
               "group_advantages", *_GROUPS, calls=_verl_example_calls.groups_divided_or_not),
    _estimator("rloo_vectorized", _vectorized(lambda epsilon, divides: {"baseline": "rloo", "scale": "none", "singleton": "zero"})),
    _estimator("gae", _gae, "gae", *_WHITEN, function="compute_gae_advantage_return", calls=_verl_example_calls.gae),
    _estimator("reinforce_plus_plus", _reinforce, "returns", *_WHITEN, calls=_verl_example_calls.returns),
    _estimator("reinforce_plus_plus_baseline", _reinforce_baseline, "group_advantages", *_WHITEN),
))
