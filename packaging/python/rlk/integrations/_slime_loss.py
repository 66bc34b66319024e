"""--loss-type custom_loss --custom-loss-function-path rlk.integrations.slime.loss"""
import torch

from rlk.errors import InvalidArgument
from rlk.integrations._replace import require
from rlk.integrations._serve import call
from rlk.integrations._slime import KL_KINDS
from rlk.integrations._slime_paths import LAYOUT, Samples, path

_LOSS, _PPO = "slime/backends/megatron_utils/loss.py", "slime/utils/ppo_utils.py"
_SOURCES = (*(f"{_LOSS} {name}" for name in ("policy_loss_function", "loss_function", "vanilla_tis_function", "icepop_function",
                                             "get_log_probs_and_entropy")),
            *(f"{_PPO} {name}" for name in ("compute_policy_loss", "compute_cispo_loss", "compute_gspo_kl", "compute_opsm_mask",
                                            "compute_approx_kl")), *LAYOUT)
_ACTIVE, _PPO_KL, _CLIPPED, _RATIO = 0, 2, 3, 7  # of policy_loss's metrics of a sequence


@path("--loss-type custom_loss", _SOURCES)
def loss(args, batch, logits, sum_of_sample_mean):
    """(loss, metrics) of slime's policy_loss_function, for every advantage_estimator and option but those that are refused.

    Log-probabilities and entropies are those of slime's get_log_probs_and_entropy, which are rlk's where
    --custom-megatron-init-path names rlk.integrations.slime.init. The numbers of a token of mask 0 are never read, and its
    policy loss is 0 when the user's own reducer sees it."""
    from slime.backends.megatron_utils import loss as theirs
    totals, responses = batch["total_lengths"], batch["response_lengths"]
    _, found = theirs.get_log_probs_and_entropy(
        logits, args=args, unconcat_tokens=batch["unconcat_tokens"], total_lengths=totals, response_lengths=responses,
        with_entropy=True, **theirs.get_rollout_top_p_logprob_kwargs(args, batch))
    theirs._maybe_capture_log_probs(batch, found["log_probs"])
    log_probs, entropy = torch.cat(found["log_probs"]), torch.cat(found["entropy"])
    old = _packed(batch, "rollout_log_probs") if args.use_rollout_logprobs else _packed(batch, "log_probs", log_probs)
    samples = Samples(totals, responses, batch["loss_masks"])
    require(bool(((samples.masks == 0) | (samples.masks == 1)).all()), "loss_masks with other numbers than 0 and 1")
    weights = None if args.calculate_per_token_loss else samples.weights(batch["rollout_mask_sums"])
    weight, of_sampler = _correction(theirs, args, batch, log_probs)

    advantages = _packed(batch, "advantages")
    pg_losses, of_samples = _policy_loss(args, samples, log_probs, advantages, old, weight)
    if getattr(args, "custom_pg_loss_reducer_function_path", None) is not None:
        reducer = theirs.load_function(args.custom_pg_loss_reducer_function_path)
        pg_loss = reducer(totals, responses, batch["loss_masks"], args.calculate_per_token_loss)(pg_losses)
    else:
        pg_loss = samples.sum(pg_losses, weights)
    entropy_loss = samples.sum(entropy, weights)
    result = pg_loss - args.entropy_coef * entropy_loss
    if args.use_kl_loss:
        kl_loss = samples.sum(_kl(args, log_probs, old, _packed(batch, "ref_log_probs")), weights)
        result = result + args.kl_loss_coef * kl_loss
    if log_probs.numel() == 0:
        result = result + 0 * logits.sum()  # a rank without tokens takes part in the backward all the same

    weights = 1 if weights is None else weights.to(of_samples.dtype)
    counted = samples.active.to(of_samples.dtype) * weights  # of this rank's tokens: ratios of sequences are of all ranks'
    reported = {"loss": result.detach(), "pg_loss": pg_loss.detach(), "entropy_loss": entropy_loss.detach(),
                "pg_clipfrac": (of_samples[:, _ACTIVE] * weights) @ of_samples[:, _CLIPPED],
                "ppo_kl": counted @ of_samples[:, _PPO_KL]}
    with torch.no_grad():
        if batch.get("rollout_log_probs"):
            compared = log_probs if args.use_rollout_logprobs else old
            difference = (compared - _packed(batch, "rollout_log_probs")).abs()
            reported["train_rollout_logprob_abs_diff"] = sum_of_sample_mean(difference)
        if args.use_kl_loss:
            reported["kl_loss"] = kl_loss.detach()
        if of_sampler:
            reported["ois"] = counted @ of_samples[:, _RATIO]
            reported |= {name: sum_of_sample_mean(x) for name, x in of_sampler.items()}
        if args.use_opsm:
            negative = torch.stack([(x < 0).sum() for x in advantages.split(samples.lengths)])
            dropped = (of_samples[:, _PPO_KL] > args.opsm_delta) * negative
            reported["opsm_clipfrac"] = (dropped / of_samples[:, _ACTIVE].clamp_min(1)).sum()
        if batch.get("opd_reverse_kl"):
            reported["opd_reverse_kl"] = sum_of_sample_mean(torch.cat(batch["opd_reverse_kl"]))
    return result, reported


def _packed(batch, name, absent=None):
    """The samples' numbers one behind the other; where slime takes the policy's own in their place, those."""
    if not batch.get(name):
        if absent is None:
            raise InvalidArgument(f"rlk.integrations.slime.loss: the batch has no {name}, which these arguments need")
        return absent.detach()
    found = torch.cat(batch[name])
    require(found.dtype == torch.float32, f"{name} of {found.dtype}, expected fp32")
    require(not found.requires_grad, f"a gradient of {name}")
    return found


def _policy_loss(args, samples, log_probs, advantages, old, weight):
    """(the policy loss of every token, metrics of every sample)"""
    sequences = args.advantage_estimator == "gspo"
    require(sequences or samples.whole or not args.use_opsm, "--use-opsm with context parallelism, but for gspo")
    words = {"clip_low": float(args.eps_clip), "clip_high": float(args.eps_clip_high)}
    if args.advantage_estimator == "cispo":
        words["kind"] = "cispo"
    elif args.eps_clip_c is not None:
        if args.eps_clip_c <= 1:
            raise InvalidArgument(f"rlk.integrations.slime.loss: --eps-clip-c is {args.eps_clip_c}, expected more than 1")
        words["dual_clip"] = float(args.eps_clip_c)
    if sequences:
        words["importance_ratio"] = "sequence"
    if args.use_opsm:
        words |= {"opsm": "old", "opsm_threshold": float(args.opsm_delta)}
    masks, cu_seqlens, gathered = samples.masks, samples.cu_seqlens, sequences and not samples.whole
    if gathered:  # the ratio is of all ranks' tokens, the loss of this rank's: the others' advantages are 0
        log_probs, old = samples.gathered(log_probs), samples.gathered(old).detach()
        advantages, weight = samples.spread(advantages), None if weight is None else samples.spread(weight)
        masks, cu_seqlens = torch.cat(samples.loss_masks), samples.cu_seqlens_of_all
    found = call("policy_loss", log_probs, advantages, old, masks != 0, None, None, None, weight, None, cu_seqlens,
                 layout="packed", aggregation="none", per_token=True, sequence_metrics=True, **words)
    losses = found.per_token[samples.places] if gathered else found.per_token
    return losses, found.sequence_metrics.detach()


def _correction(theirs, args, batch, log_probs):
    """(the weight of every token's policy loss, what slime logs of it), or (None, {}) without a correction to the sampler."""
    if not (args.get_mismatch_metrics or args.use_tis):
        return None, {}
    name = args.custom_tis_function_path
    function = theirs.vanilla_tis_function if name is None else theirs.load_function(name)
    require(function in (theirs.vanilla_tis_function, theirs.icepop_function), f"the --custom-tis-function-path {name}")
    ratio = call("ratio_kl", _packed(batch, "log_probs", log_probs), _packed(batch, "rollout_log_probs"))
    low, high = args.tis_clip_low, args.tis_clip
    if function is theirs.vanilla_tis_function:
        weight = ratio.clamp(low, high)
    else:
        weight = ratio.where((ratio >= low) & (ratio <= high), 0)
    return weight, {"tis": ratio, "tis_clipfrac": (weight != ratio).float(), "tis_abs": (ratio - 1).abs()}


def _kl(args, log_probs, old, reference):
    require(args.kl_loss_type in KL_KINDS, f"the kl_loss_type {args.kl_loss_type!r}")
    words = {"kl_weight": "ratio"} if args.use_unbiased_kl else {}
    old = old if args.use_unbiased_kl else None
    return call("ratio_kl", log_probs, old, reference, kl=True, **words, **KL_KINDS[args.kl_loss_type]).kl
