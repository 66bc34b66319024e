"""rlk's loss for slime's --custom-loss-function-path beside slime's policy_loss_function: every option, values and gradients.

Megatron is made up (slime_megatron.py). Log-probabilities and entropies are put in place of the model's, but for the last tests,
which begin at logits."""
import threading
import types

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed here")
pytest.importorskip("slime.utils.ppo_utils", reason="slime is not installed here")
import rlk  # noqa: E402
import rlk.integrations  # noqa: E402
import slime_megatron  # noqa: E402
from rlk.integrations import slime as path  # noqa: E402
from trainers_truth import made, ratio, record  # noqa: E402

theirs, cp = slime_megatron.modules()
TOTALS, RESPONSES = [8, 5, 12, 7], [4, 4, 11, 6]
ICEPOP = "slime.backends.megatron_utils.loss.icepop_function"
ESTIMATORS = ["grpo", "ppo", "cispo", "gspo", "reinforce_plus_plus"]
OPTIONS = {
    "plain": {}, "dual clip": {"eps_clip_c": 1.1}, "clip high": {"eps_clip": 0.1, "eps_clip_high": 0.4}, "opsm": {"use_opsm": True},
    "tight": {"eps_clip": 0.01, "eps_clip_high": 0.02},
    "tis": {"use_tis": True}, "icepop": {"use_tis": True, "custom_tis_function_path": ICEPOP, "tis_clip_low": 0.8},
    "mismatch": {"get_mismatch_metrics": True, "use_rollout_logprobs": True, "tis_clip_low": 0.8},
    "rollout": {"use_rollout_logprobs": True}, "entropy": {"entropy_coef": 0.01}, "k1": {"use_kl_loss": True, "kl_loss_type": "k1"},
    "k2": {"use_kl_loss": True, "kl_loss_type": "k2"}, "k3": {"use_kl_loss": True, "kl_loss_type": "k3"},
    "low_var_kl": {"use_kl_loss": True, "kl_loss_type": "low_var_kl"},
    "unbiased": {"use_kl_loss": True, "kl_loss_type": "low_var_kl", "use_unbiased_kl": True},
    "all": {"eps_clip_c": 1.2, "use_opsm": True, "use_tis": True, "entropy_coef": 0.1, "use_kl_loss": True, "kl_loss_type": "k3"}}


@pytest.fixture(autouse=True)
def one_process():
    """slime compiles what it computes here; it is the same without."""
    with torch._dynamo.config.patch(disable=True):
        yield
    slime_megatron.layout.rank, slime_megatron.layout.size = 0, 1


def settings(**more):
    """slime's arguments, as far as its policy loss reads them."""
    return types.SimpleNamespace(**{
        "advantage_estimator": "grpo", "eps_clip": 0.2, "eps_clip_high": 0.2, "eps_clip_c": None, "use_opsm": False,
        "opsm_delta": 0.02, "use_tis": False, "get_mismatch_metrics": False, "custom_tis_function_path": None, "tis_clip": 1.3,
        "tis_clip_low": 0.0, "use_rollout_logprobs": False, "rollout_top_p": 1.0, "entropy_coef": 0.0, "use_kl_loss": False,
        "kl_loss_coef": 0.2, "kl_loss_type": "k3", "use_unbiased_kl": False, "calculate_per_token_loss": False,
        "allgather_cp": False, "log_probs_chunk_size": -1, "rollout_temperature": 1.0, "loss_type": "policy_loss",
        "recompute_loss_function": False, **more})


def batch():
    """A micro-batch on this rank. Two of its samples are of one rollout, and of another rollout one sample is elsewhere."""
    def numbers(seed, scale, base=None):
        found = [made(n, seed=seed + n) * scale for n in RESPONSES]
        return found if base is None else [x + y for x, y in zip(found, base)]

    own = [-x.abs() - 0.1 for x in numbers(1, 1.0)]
    base = numbers(40, 0.5, own)
    base[0][1] += 4  # beyond what low_var_kl is clamped to
    masks = [torch.ones(n, dtype=torch.int) for n in RESPONSES]
    masks[2][3:6], masks[3][:] = 0, 0
    of_tokens = {"own": own, "log_probs": numbers(20, 0.3, own), "ref_log_probs": base,
                 "rollout_log_probs": numbers(60, 0.4, own), "entropy": [x.abs() for x in numbers(80, 1.0)],
                 "advantages": [torch.full((n,), a) for n, a in zip(RESPONSES, (0.9, -1.1, -0.4, 0.5))],
                 "opd_reverse_kl": numbers(90, 0.3)}
    cut = {name: [cp.slice_log_prob_with_cp(x, *lengths) for x, *lengths in zip(parts, TOTALS, RESPONSES)]
           for name, parts in of_tokens.items()}
    return {**cut, "total_lengths": TOTALS, "response_lengths": RESPONSES, "loss_masks": masks, "unconcat_tokens": None,
            "rollout_mask_sums": torch.tensor([8.0, 8.0, 11.0, 0.0])}


def wide(x):
    return [wide(y) for y in x] if isinstance(x, list) else x.double() if isinstance(x, torch.Tensor) else x


model = threading.local()  # what it gives in this thread


@pytest.fixture
def no_model(monkeypatch):
    monkeypatch.setattr(cp, "dist", cp.dist)  # put back behind on_ranks
    monkeypatch.setattr(theirs, "get_log_probs_and_entropy", lambda *a, **b: (None, dict(model.found)))


def run(function, args, data):
    """(loss, metrics, gradients of log-probabilities and entropies)"""
    own = [x.clone().requires_grad_() for x in data["own"]]
    entropy = [x.clone().requires_grad_(args.entropy_coef != 0) for x in data["entropy"]]
    model.found = {"log_probs": own, "entropy": entropy}
    loss, metrics = function(args, data, torch.zeros(1), reducer(args, data))
    wanted = own + (entropy if args.entropy_coef else [])
    grads = torch.autograd.grad(loss, wanted, allow_unused=True)
    grads = [torch.zeros_like(x) if g is None else g for x, g in zip(wanted, grads)]
    return loss.detach(), metrics, torch.cat(grads[:4]), torch.cat(grads[4:] or [torch.zeros(0)])


def reducer(args, data):
    return cp.get_sum_of_sample_mean(TOTALS, RESPONSES, data["loss_masks"], data["rollout_mask_sums"], args.calculate_per_token_loss)


def kl_in_fp64(own, base, kl_loss_type, importance_ratio=None):
    """compute_approx_kl, which rounds to fp32 whatever it gets, without that."""
    d = base - own
    found = {"k1": -d, "k2": d * d / 2}.get(kl_loss_type, d.exp() - 1 - d)
    found = found if importance_ratio is None else importance_ratio * found
    return found.clamp(-10, 10) if kl_loss_type == "low_var_kl" else found


def terms(args, data):
    """What the absolute values of every token's terms sum to: (policy loss, KL, entropy), of whole samples."""
    own, old, base, sampler, trained = (torch.cat(data[name]) for name in (
        "own", "rollout_log_probs" if args.use_rollout_logprobs else "log_probs", "ref_log_probs", "rollout_log_probs", "log_probs"))
    x, factor, d = own - old, torch.ones_like(own), base - own
    if args.use_tis or args.get_mismatch_metrics:
        factor = (trained - sampler).exp() * (1 + (trained - sampler).abs())
    far = x.abs()
    if args.advantage_estimator == "gspo":
        x, far = means(x), means(far)
    policy = torch.cat(data["advantages"]).abs() * (x.exp() + 1) * (2 + far + own.abs()) * factor
    kl = 1 + d.exp() * (1 + d.abs()) + d.abs() + d * d
    kl = args.kl_loss_coef * args.use_kl_loss * kl * ((own - old).exp() * (1 + (own - old).abs()) if args.use_unbiased_kl else 1)
    return means(policy) if args.advantage_estimator == "gspo" else policy, kl, args.entropy_coef * torch.cat(data["entropy"])


def means(x):
    return torch.cat([y.mean().expand_as(y) for y in x.split(RESPONSES)])


def conditions(args, data, whole):
    """(of the loss, of the gradient of log-probabilities) on this rank."""
    policy, kl, entropy = (torch.cat([cp.slice_log_prob_with_cp(x, *lengths) for x, *lengths in zip(
        y.split(RESPONSES), TOTALS, RESPONSES)]) for y in whole)
    z = torch.zeros_like(policy).requires_grad_()
    weights = torch.autograd.grad(reducer(args, data)(z), z)[0]
    return reducer(args, data)(policy + kl + entropy), weights * (policy + kl)


def exact():
    return {name: wide(x) for name, x in batch().items()}


def compare(args, monkeypatch, size=1):
    """[the worst error of rlk's and of slime's], over the ranks of context parallelism."""
    whole, f32, ratios = terms(args, exact()), torch.float32, []
    everyone = [slime_megatron.on_ranks(size, lambda: run(function, args, batch()), cp)
                for function in (path.loss, theirs.policy_loss_function)]
    with monkeypatch.context() as patch:
        patch.setattr(theirs, "compute_approx_kl", kl_in_fp64)
        everyone.append(slime_megatron.on_ranks(size, lambda: run(theirs.policy_loss_function, args, exact()), cp))
    everyone.append(slime_megatron.on_ranks(size, lambda: conditions(args, exact(), whole), cp))
    for ours, original, truth, (of_loss, of_grad) in zip(*everyone):
        assert [(x.dtype, x.shape) for x in (ours[0], *ours[2:])] == [(x.dtype, x.shape) for x in (original[0], *original[2:])]
        assert list(ours[1]) == list(original[1]) and not any(x.requires_grad for x in ours[1].values())
        for name, seen in ours[1].items():
            wanted = truth[1][name]
            assert seen.shape == () and abs(seen - wanted) <= 1e-5 * max(1, abs(wanted)), (name, seen, wanted)
        ratios.append([max(ratio(y[0][None], truth[0][None], of_loss[None], f32), ratio(y[2], truth[2], of_grad, f32),
                           ratio(y[3], truth[3], truth[3].abs(), f32)) for y in (ours, original)])
    return [max(column) for column in zip(*ratios)]


@pytest.mark.parametrize("per_token", [False, True])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_policy_losses_with_every_option(estimator, per_token, no_model, monkeypatch):
    for name, option in OPTIONS.items():
        args = settings(advantage_estimator=estimator, calculate_per_token_loss=per_token, **option)
        ratios = compare(args, monkeypatch)
        record("slime", f"--custom-loss-function-path ({estimator})", "policy_loss", "f32", *ratios)
        assert max(ratios) <= 1, (name, ratios)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("estimator", ["grpo", "cispo", "gspo"])
def test_every_rank_of_context_parallelism_has_its_part_of_the_loss(size, estimator, no_model, monkeypatch):
    for name in ("tis", "tight", "unbiased", "entropy") + ("all",) * (estimator == "gspo"):
        ratios = compare(settings(advantage_estimator=estimator, **OPTIONS[name]), monkeypatch, size)
        record("slime", f"--custom-loss-function-path ({estimator})", "policy_loss", "f32", *ratios)
        assert max(ratios) <= 1, (name, ratios)


@pytest.mark.parametrize("size, option, wanted, reason", [
    (2, {"use_opsm": True}, rlk.Unsupported, "--use-opsm with context parallelism.*without --loss-type custom_loss"),
    (1, {"use_tis": True, "custom_tis_function_path": "math.exp"}, rlk.Unsupported, "the --custom-tis-function-path math.exp"),
    (1, {"use_kl_loss": True, "kl_loss_type": "abs"}, rlk.Unsupported, "the kl_loss_type 'abs'"),
    (1, {"eps_clip_c": 0.0}, rlk.InvalidArgument, "--eps-clip-c is 0.0, expected more than 1")])
def test_what_rlk_does_not_serve_exactly_is_refused(size, option, wanted, reason, no_model):
    slime_megatron.layout.size = size
    with pytest.raises(wanted, match=reason):
        run(path.loss, settings(**option), batch())


def test_a_batch_without_what_the_arguments_need_is_refused(no_model):
    data = {**batch(), "rollout_log_probs": None}
    with pytest.raises(rlk.InvalidArgument, match="the batch has no rollout_log_probs"):
        run(path.loss, settings(use_tis=True), data)
    with pytest.raises(rlk.Unsupported, match="other numbers than 0 and 1"):
        run(path.loss, settings(), {**data, "loss_masks": [x * 2 for x in data["loss_masks"]]})
    with pytest.raises(rlk.Unsupported, match="log_probs of torch.float64, expected fp32"):
        run(path.loss, settings(), {**data, "log_probs": wide(data["log_probs"])})


def test_slimes_record_of_log_probabilities_has_them(no_model):
    theirs.enable_log_prob_capture()
    data = {**batch(), "partition": [7, 3, 5, 1]}
    run(path.loss, settings(), data)
    captured = theirs.drain_captured_log_probs()
    assert list(captured) == [7, 3, 5, 1] and all(torch.equal(captured[i], x) for i, x in zip(captured, data["own"]))


# ---- from logits -------------------------------------------------------------------------------------------------

def of_logits(args, data, logits):
    """What slime's loss_function makes of a micro-batch: (loss, [metrics], the gradient of the logits)."""
    x = logits.clone().requires_grad_()
    loss, _, log = theirs.loss_function(args, data, 1, 8, x)
    return loss.detach(), log["values"], torch.autograd.grad(loss, x)[0]


@pytest.fixture
def one_group(monkeypatch):
    monkeypatch.setattr(theirs.mpu, "get_data_parallel_world_size", lambda with_context_parallel: 1, raising=False)


@pytest.mark.parametrize("more", [{}, {"rollout_temperature": 0.7, "entropy_coef": 0.01}, {"recompute_loss_function": True},
                                  {"advantage_estimator": "gspo", "calculate_per_token_loss": True}])
def test_slimes_loss_function_takes_it_by_its_path(more, one_group):
    vocabulary, data = 17, batch()
    data["unconcat_tokens"] = [torch.arange(n) * 5 % vocabulary for n in TOTALS]
    logits = made(1, sum(TOTALS), vocabulary, scale=2.0)
    theirs_too = {**more, "loss_type": "custom_loss", "custom_loss_function_path": "rlk.integrations.slime.loss"}
    original = of_logits(settings(**more), data, logits)
    with rlk.integrations.enable("slime") as state:
        ours = of_logits(settings(**theirs_too), data, logits)
        assert set(state.calls()["_calculate_log_probs_and_entropy_chunk"]) == {"rlk"}
    for a, b in zip(ours, original):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("reducer", ["rlk.integrations.slime.pg_loss_reducer", "trainers_slime_loss_test.reducer_of_a_trainer"])
def test_a_reducer_of_the_policy_loss_is_asked(reducer, no_model):
    args = settings(custom_pg_loss_reducer_function_path=reducer, entropy_coef=0.1)
    ours, original = (run(function, args, batch()) for function in (path.loss, theirs.policy_loss_function))
    for a, b in zip((ours[0], *ours[1].values(), *ours[2:]), (original[0], *original[1].values(), *original[2:])):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=2e-6)


def reducer_of_a_trainer(total_lengths, response_lengths, loss_masks, calculate_per_token_loss):
    """Dr.GRPO's: sums over a constant."""
    return lambda x: (x * torch.cat(loss_masks)).sum() / 1000
