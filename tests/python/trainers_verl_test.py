"""rlk.integrations.enable("verl") against the installed verl: every option of every function that it replaces."""
import itertools
import os
import subprocess
import sys
import types

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed here")
pytest.importorskip("verl", reason="verl is not installed here (pip install verl==0.9.1)")
core = pytest.importorskip("verl.trainer.ppo.core_algos", reason="verl is not whole here: its own dependencies are missing")
import rlk.integrations  # noqa: E402
import verl.utils.kernel.linear_cross_entropy as linear  # noqa: E402
import verl.utils.torch_functional as functional  # noqa: E402
from trainers_truth import DTYPES, Scores, compare_logits, layouts, made, ratio, record  # noqa: E402
from verl.workers.config import ActorConfig, PolicyLossConfig  # noqa: E402

torch.set_num_threads(1)
N, V, D = 7, 53, 24
LOGITS = {name: getattr(functional, name) for name in
          ("logprobs_from_logits", "entropy_from_logits", "entropy_from_logits_with_chunking")}
LOSSES = {mode: core.POLICY_LOSS_REGISTRY[mode] for mode in 
          ("vanilla", "gspo", "cispo", "sapo", "dppo_tv", "dppo_kl", "dro", "gpg")}


@pytest.fixture(scope="module")
def enabled():
    with rlk.integrations.enable("verl") as state:
        yield state


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", LOGITS)
def test_logits_with_every_option(enabled, dtype, name):
    for logits in layouts(V, DTYPES[dtype]):
        if not logits.numel():
            continue  # the originals stack nothing, an error
        if name == "entropy_from_logits_with_chunking":
            logits = logits.reshape(-1, V)
        options = {"logprobs_from_logits": [{}, {"inplace_backward": False}], "entropy_from_logits": [{}]}.get(
            name, [{}, {"chunk_size": 4}])
        ids = (torch.arange(logits[..., 0].numel()) % (V - 5) + 5).view(logits.shape[:-1])  # never the column of -inf
        for option in options:
            def call(function, x, option=option):
                return function(x, ids, **option) if name == "logprobs_from_logits" else function(x, **option)
            compare_logits("verl", name, dtype, lambda x: call(getattr(functional, name), x),
                           lambda x: call(LOGITS[name], x), logits, ids, logp=name == "logprobs_from_logits",
                           entropy=name != "logprobs_from_logits")
    assert set(enabled.calls()[name]) == {"rlk"}


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_projection_is_its_formula(enabled, dtype):
    """The original runs on CUDA alone."""
    kind = DTYPES[dtype]
    hidden, weight, g, e = made(1, N, D, dtype=kind), made(V, D, dtype=kind, scale=0.5), made(N, seed=4), made(N, seed=5)
    ids = torch.arange(N)[None] * 5
    h, w = hidden[0].double(), weight.double()
    for temperature in (1.0, 0.7):
        leaves = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
        logp, entropy = linear.linear_cross_entropy(*leaves, ids, temperature, "none")
        grads = torch.autograd.grad([logp, entropy], leaves, [g, e])
        assert logp.shape == entropy.shape == (N,) and logp.dtype == entropy.dtype == torch.float32
        assert [x.shape for x in grads] == [x.shape for x in leaves] and all(x.dtype == kind for x in grads)
        scores = Scores(h @ w.T, ids[0], temperature=temperature, condition=h.abs() @ w.abs().T)
        dx, size = scores.grad(g, e)
        of_logp, of_entropy = scores.conditions()
        worst = max(ratio(logp.detach(), scores.logp, of_logp, kind), ratio(entropy.detach(), scores.entropy, of_entropy, kind),
                    ratio(grads[0][0], dx @ w, size @ w.abs(), kind), ratio(grads[1], dx.T @ h, size.T @ h.abs(), kind))
        record("verl", "linear_cross_entropy", "linear_logp", dtype, worst)
        assert worst <= 1
    assert set(enabled.calls()["linear_cross_entropy"]) == {"rlk"}


@pytest.mark.parametrize("arguments, reason", [
    ((1.0, "mean", None), "the reduction 'mean'"), ((1, "none", None), "the temperature 1"),
    ((1.0, "none", "a group"), "spread over processes"),
])
def test_what_the_projection_cannot_do_goes_to_the_original(enabled, arguments, reason, caplog):
    with pytest.raises(Exception):  # which wants a GPU
        linear.linear_cross_entropy(made(N, D), made(V, D), torch.arange(N), *arguments)
    assert any(reason in line.message for line in caplog.records)


# ---- policy losses -----------------------------------------------------------------------------------------------

MODES = ["token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-sum-norm", "seq-mean-token-mean"]
SHARP = {"clip_ratio_low": 0.05, "clip_ratio_high": 0.1, "clip_ratio_c": 1.2, "tau_pos": 2.0, "tau_neg": 0.7}
INFOS = [{}, {"dp_size": 4, "batch_num_tokens": 150, "global_batch_size": 20}, {"loss_scale_factor": 40}]
CONFIGS = [{}, {"clip_ratio_low": 0.1, "clip_ratio_high": 0.3, "clip_ratio_c": 1.5}, SHARP]


def config_of(**words):
    return ActorConfig(strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1,
                       policy_loss=PolicyLossConfig(dro_beta=0.3), **words)


def batch(kind):
    logp = made(5, 9, dtype=torch.float64).abs().neg()
    old = logp + made(5, 9, seed=7, dtype=torch.float64) * 0.4
    mask = (torch.arange(9) < torch.tensor([9, 4, 0, 1, 7])[:, None]).long()
    advantages = made(5, 9, seed=8, dtype=torch.float64)
    return [x.to(kind) for x in (old, logp, advantages)] + [mask, made(5, 9, seed=9, dtype=torch.float64).abs().to(kind)]


def with_gradient(function, old, logp, advantages, mask, weights, mode, config):
    logp = logp.clone().requires_grad_()
    loss, metrics = function(old, logp, advantages, mask, mode, config, weights)
    return loss, metrics, torch.autograd.grad(loss, logp)[0]


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("name", LOSSES)
def test_policy_losses_with_every_option(enabled, dtype, name):
    kind = DTYPES[dtype]
    old, logp, advantages, mask, weights = batch(kind)
    for mode, info, config, weighted in itertools.product(MODES, INFOS, CONFIGS, (False, True)):
        config = config_of(**config)
        config.global_batch_info.update(info)
        w = weights if weighted else None
        ours = with_gradient(core.POLICY_LOSS_REGISTRY[name], old, logp, advantages, mask, w, mode, config)
        theirs = with_gradient(LOSSES[name], old, logp, advantages, mask, w, mode, config)
        wide = [x.double() if x is not None and x.is_floating_point() else x for x in (old, logp, advantages, mask, w)]
        truth = with_gradient(LOSSES[name], *wide, mode, config)
        x = wide[1] - wide[0]
        size = wide[2].abs() * x.exp() * (1 + x.abs() + wide[1].abs()) * (1 if w is None else wide[4])
        of_loss = core.agg_loss(loss_mat=size, loss_mask=mask, loss_agg_mode=mode, **config.global_batch_info)
        of_grad = truth[2].abs() * (2 + x.abs() + (x.abs() * mask).sum(-1, keepdim=True))
        ratios = [[ratio(y[0].detach()[None], truth[0].detach()[None], of_loss[None], kind, 2e-8 * truth[0].detach().abs()),
                   ratio(y[2], truth[2], of_grad, kind, 2e-8 * truth[2].abs())] for y in (ours, theirs)]
        record("verl", f"POLICY_LOSS_REGISTRY[{name}]", "policy_loss", dtype, max(ratios[0]), max(ratios[1]))
        assert (ours[0].dtype, ours[0].shape, ours[2].dtype) == (theirs[0].dtype, theirs[0].shape, theirs[2].dtype)
        assert max(ratios[0]) <= 1 and max(ratios[1]) <= 1, (mode, info, ratios)
        assert ours[1].keys() == theirs[1].keys() and all(type(y) is float for y in ours[1].values())
        assert all(abs(ours[1][key] - truth[1][key]) <= 1e-5 * max(1, abs(truth[1][key])) for key in truth[1])
    assert set(enabled.calls()[f"POLICY_LOSS_REGISTRY[{name}]"]) == {"rlk"}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("sign", [1, -1])
def test_policy_losses_far_from_the_old_policy_are_clamped_alike(enabled, name, sign):
    old, logp, advantages, mask, _ = batch(torch.float64)
    old[0, :3] = logp[0, :3] + sign * 25
    config = config_of()
    ours, theirs = (with_gradient(function, old, logp, advantages, mask, None, "token-mean", config)
                    for function in (core.POLICY_LOSS_REGISTRY[name], LOSSES[name]))
    torch.testing.assert_close(ours[0], theirs[0], rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(ours[2], theirs[2], rtol=1e-7, atol=1e-9)
    assert all(abs(ours[1][key] - theirs[1][key]) <= 1e-7 * max(1, abs(theirs[1][key])) for key in theirs[1])


def test_a_loss_that_rlk_does_not_serve_exactly_is_the_originals(enabled):
    old, logp, advantages, mask, _ = batch(torch.float32)
    config = config_of()
    ours, theirs = core.POLICY_LOSS_REGISTRY["vanilla"], LOSSES["vanilla"]
    for arguments, reason in (((old, logp, advantages, mask.float() * 0.5), "a mask of torch.float32"),
                              ((old, logp, advantages.double(), mask), "advantages of torch.float64"),
                              ((old.clone().requires_grad_(), logp, advantages, mask), "a gradient of the old")):
        assert torch.equal(ours(*arguments, config=config)[0], theirs(*arguments, config=config)[0])
        assert [n for text, n in enabled.calls()["POLICY_LOSS_REGISTRY[vanilla]"].items() if reason in text] == [1]


VECTORIZED = {name: core.ADV_ESTIMATOR_REGISTRY[name] for name in ("grpo_vectorized", "rloo_vectorized")}
WHITENED = {name: core.ADV_ESTIMATOR_REGISTRY[name] for name in ("gae", "reinforce_plus_plus", "reinforce_plus_plus_baseline")}
ESTIMATORS = {name: core.ADV_ESTIMATOR_REGISTRY[name] for name in ("grpo", "rloo", "opo")}


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_advantages_of_groups_of_every_size(enabled, dtype, name):
    kind = DTYPES[dtype]
    index = np.array(["a", "b", "a", "c", "b", "a", "b", "d", "d"], dtype=object)  # c is alone
    mask = (torch.arange(6) < torch.tensor([6, 2, 3, 1, 6, 4, 5, 2, 2])[:, None]).long()
    rewards = made(9, 6, dtype=kind) * mask
    options = [{}] if name != "grpo" else [{}, {"norm_adv_by_std_in_grpo": False}, {"epsilon": 1e-3}]
    for option, own in itertools.product(options, (mask, mask.bool())):
        if name == "opo" and own is not mask:
            own = own.int()
        ours, theirs, truth = (function(x.clone(), own, index, **option) for function, x in (
            (core.ADV_ESTIMATOR_REGISTRY[name], rewards), (ESTIMATORS[name], rewards), (ESTIMATORS[name], rewards.double())))
        assert ours[0] is ours[1] and (ours[0].dtype, ours[0].shape) == (theirs[0].dtype, theirs[0].shape)
        scores = rewards.double().sum(-1)
        same = torch.tensor(index[:, None] == index[None, :])
        spread = torch.stack([scores[s].std() if s.sum() > 1 else torch.tensor(1.0).double() for s in same])
        divided = name == "grpo" and option.get("norm_adv_by_std_in_grpo", True)
        largest = torch.stack([rewards.double().abs().sum(-1)[s].max() for s in same])
        if divided:  # the original adds epsilon to an fp32 1 there, in fp64 too
            alone = same.sum(1) == 1
            truth[0][alone] = (scores / (1 + option.get("epsilon", 1e-6)))[alone, None] * mask[alone]
        condition = largest * 4 / (spread if divided else 1) * (1 + (largest / spread if divided else 0))
        ratios = [ratio(x[0], truth[0], condition[:, None] * mask, kind) for x in (ours, theirs)]
        record("verl", f"ADV_ESTIMATOR_REGISTRY[{name}]", "group_advantages", dtype, *ratios)
        assert ratios[0] <= 1 and (ratios[1] <= 1 or kind == torch.float64), (option, ratios)
    assert set(enabled.calls()[f"ADV_ESTIMATOR_REGISTRY[{name}]"]) == {"rlk"}


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("name", ["grpo_vectorized", "rloo_vectorized"])
def test_advantages_without_loops_are_those_of_the_same_operator(enabled, dtype, name):
    kind, function = DTYPES[dtype], VECTORIZED[name]
    mask = (torch.arange(6) < torch.tensor([6, 2, 3, 1, 6, 4])[:, None]).long()
    rewards = made(6, 6, dtype=kind) * mask
    for index in (np.array(["a", "b", "a", "c", "b", "a"], dtype=object), np.array([4, 7, 4, 9, 7, 4])):
        ours, theirs = (f(rewards.clone(), mask, index)[0] for f in (core.ADV_ESTIMATOR_REGISTRY[name], function))
        truth = ESTIMATORS[name.split("_")[0]](rewards.double(), mask, index)[0]
        if name == "rloo_vectorized":
            truth[3] = 0  # alone
        size = rewards.double().abs().sum(-1).max() * 8 * (1 + truth.abs()) * mask
        ratios = [ratio(y.to(kind), truth, size, torch.float32) for y in (ours, theirs)]
        record("verl", f"ADV_ESTIMATOR_REGISTRY[{name}]", "group_advantages", dtype, *ratios)
        assert ours.shape == theirs.shape and ratios[0] <= 1, ratios
    assert set(enabled.calls()[f"ADV_ESTIMATOR_REGISTRY[{name}]"]) == {"rlk"}


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("name", ["gae", "reinforce_plus_plus", "reinforce_plus_plus_baseline"])
def test_advantages_of_tokens_are_whitened_over_the_batch(enabled, dtype, name):
    """With masked tokens between the others too. What stands at masked tokens is 0, where GAE of verl has numbers that no loss
    reads."""
    kind, operator = DTYPES[dtype], {"gae": "gae", "reinforce_plus_plus": "returns"}.get(name, "group_advantages")
    mask = (torch.arange(12) < torch.tensor([12, 5, 7, 2])[:, None]).long()
    mask[0, 4:7] = 0
    rewards, values = made(4, 12, dtype=kind) * mask, made(4, 12, dtype=kind, seed=3)
    for gamma, lam in ((1.0, 1.0), (0.99, 0.95)):
        def outcome(function, rewards, values, gamma=gamma, lam=lam):
            if name == "gae":
                return function(rewards, values, mask, gamma, lam)
            if name == "reinforce_plus_plus":
                return function(rewards, mask, config=types.SimpleNamespace(gamma=gamma))
            return function(rewards.clone(), mask, np.array(["a", "b", "a", "c"], dtype=object))
        ours = outcome(core.ADV_ESTIMATOR_REGISTRY[name], rewards, values)
        theirs, truth = (outcome(WHITENED[name], *x) for x in ((rewards, values), (rewards.double(), values.double())))
        assert all((a.dtype, a.shape) == (b.dtype, b.shape) for a, b in zip(ours, theirs))
        assert not ours[0][mask == 0].any()
        size = (rewards.double().abs() + 2 * values.double().abs()).sum(-1).max() * 2
        keep = mask != 0
        scores = rewards.double().sum(-1)
        scores[[0, 2]] -= scores[[0, 2]].mean()
        before = {"gae": truth[1] - values, "reinforce_plus_plus": truth[1]}.get(name, scores[:, None] * mask)
        # verl's own quotient of two counts is fp32, in fp64 too.
        whitened = (before - before[keep].mean()) / (before[keep].var() + 1e-8).sqrt()
        torch.testing.assert_close(whitened[keep], truth[0][keep], rtol=1e-6, atol=1e-6)
        condition = size / before[keep].std() * (2 + 2 * whitened.abs())
        ratios = []
        for y in (ours, theirs):
            of = [ratio(y[0][keep], whitened[keep], condition[keep], kind)]
            if name != "reinforce_plus_plus_baseline":
                of.append(ratio(y[1][keep], truth[1][keep], torch.full_like(truth[1], size)[keep], kind))
            ratios.append(max(of))
        record("verl", f"ADV_ESTIMATOR_REGISTRY[{name}]", operator, dtype, *ratios)
        assert ratios[0] <= 1, (gamma, lam, ratios)
    assert set(enabled.calls()[f"ADV_ESTIMATOR_REGISTRY[{name}]"]) == {"rlk"}


def test_a_single_token_has_no_variance_and_is_verls(enabled):
    mask = torch.zeros(2, 3, dtype=torch.long)
    mask[0, 0] = 1
    with pytest.raises(ValueError, match="sum of the mask is one"):
        core.ADV_ESTIMATOR_REGISTRY["gae"](made(2, 3), made(2, 3), mask, 1.0, 1.0)
    assert enabled.calls()["ADV_ESTIMATOR_REGISTRY[gae]"]["fewer than two tokens, of which there is no variance"] == 1


def test_a_group_without_variance_has_advantages_of_exactly_0(enabled):
    """Where the original divides the rounding of a mean by its epsilon."""
    rewards, index = torch.full((3, 1), 0.1), np.array(["a"] * 3, dtype=object)
    functions = core.ADV_ESTIMATOR_REGISTRY["grpo"], ESTIMATORS["grpo"]
    ours, theirs = (function(rewards.clone(), torch.ones(3, 1), index)[0] for function in functions)
    assert not ours.any() and theirs.abs().max() < 0.01


def test_compiled_they_are_one_graph(enabled):
    logits, ids = made(5, V), torch.arange(5)
    for function in (functional.entropy_from_logits, lambda x: functional.logprobs_from_logits(x, ids)):
        x = logits.clone().requires_grad_()
        found = torch.compile(function, fullgraph=True, dynamic=True, backend="aot_eager")(x)
        assert torch.equal(found, function(logits)) and torch.autograd.grad(found.sum(), x)[0].abs().sum() > 0


# ---- workers -----------------------------------------------------------------------------------------------------

PRINT = "import verl, rlk.integrations as i, verl.utils.torch_functional as f; print(i.enabled(), type(f.logprobs_from_logits))"


def test_a_process_that_sees_the_variable_has_it_enabled():
    environment = os.environ | {"VERL_USE_EXTERNAL_MODULES": "rlk.integrations.verl"}
    done = subprocess.run([sys.executable, "-c", PRINT], env=environment, capture_output=True, text=True, check=True)
    assert "('verl',) <class 'rlk.integrations._replace.Replacement'>" in done.stdout
    del environment["VERL_USE_EXTERNAL_MODULES"]
    done = subprocess.run([sys.executable, "-c", PRINT], env=environment, capture_output=True, text=True, check=True)
    assert "() <class 'function'>" in done.stdout


RAY = """
import ray
ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)

@ray.remote
def worker():
    import rlk.integrations
    import verl.utils.torch_functional as functional
    return rlk.integrations.enabled(), type(functional.logprobs_from_logits).__name__

print(ray.get(worker.remote()))
"""


def test_a_worker_of_ray_that_sees_the_variable_has_it_enabled():
    pytest.importorskip("ray", reason="ray is not installed here")
    environment = os.environ | {"VERL_USE_EXTERNAL_MODULES": "rlk.integrations.verl", "RAY_USAGE_STATS_ENABLED": "0"}
    done = subprocess.run([sys.executable, "-c", RAY], env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert "(('verl',), 'Replacement')" in done.stdout, done.stderr[-2000:]
