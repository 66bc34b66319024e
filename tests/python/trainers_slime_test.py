"""slime's functions with rlk in their place: log-probabilities with every option, advantages, returns, estimates of the KL.

slime is not on PyPI: the tests run where its source is (a checkout on PYTHONPATH with its metadata)."""
import itertools
import types

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed here")
pytest.importorskip("slime.utils.ppo_utils", reason="slime is not installed here")
import rlk  # noqa: E402
import rlk.integrations  # noqa: E402
import slime.utils.ppo_utils as ppo  # noqa: E402
from rlk.integrations import slime as path  # noqa: E402
from trainers_truth import DTYPES, Scores, made, ratio, record  # noqa: E402

V = 53
NAMES = ("_calculate_log_probs_and_entropy_chunk", "chunked_gae", "vanilla_gae", "chunked_discounted_returns",
         "compute_approx_kl")
ORIGINAL = types.SimpleNamespace(**{name: getattr(ppo, name) for name in NAMES})


@pytest.fixture
def enabled():
    with rlk.integrations.enable("slime") as state:
        yield state


def test_its_path_replaces_the_functions_and_disable_puts_them_back():
    path.init(types.SimpleNamespace())
    assert rlk.integrations.enabled() == ("slime",) and ppo.chunked_gae is not ORIGINAL.chunked_gae
    rlk.integrations.disable("slime")
    assert all(getattr(ppo, name) is getattr(ORIGINAL, name) for name in NAMES)


# ---- log-probabilities -------------------------------------------------------------------------------------------

def keep_of(logits, ids):
    keep = made(*logits.shape, seed=3) > 0.3
    keep[0], keep[1] = False, True  # a row of which the target alone is left, and a whole one
    return keep.scatter(1, ids[:, None], made(len(ids), 1, seed=6) > 0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("chunk", [-1, 4])
def test_log_probs_and_entropy_with_every_option(enabled, dtype, chunk):
    kind = DTYPES[dtype]
    logits, ids = made(11, V, dtype=kind, scale=3.0), torch.arange(11) * 4
    grads = [made(11, 1, seed=4), made(11, seed=5)]
    for masked, entropy, gradient in itertools.product((False, True), (False, True), (False, True)):
        keep = keep_of(logits, ids) if masked else None
        found = []
        for function in (ppo._calculate_log_probs_and_entropy_chunk, ORIGINAL._calculate_log_probs_and_entropy_chunk):
            x = logits.clone().requires_grad_()
            try:
                ppo._calculate_log_probs_and_entropy_chunk, before = function, ppo._calculate_log_probs_and_entropy_chunk
                outputs = ppo.calculate_log_probs_and_entropy(x, ids, None, entropy, chunk, keep, gradient)
            finally:
                ppo._calculate_log_probs_and_entropy_chunk = before
            wanted = [(y, g) for y, g in zip(outputs, grads) if y is not None and y.requires_grad]
            assert len(wanted) == 1 + (entropy and gradient)
            found.append((*outputs, torch.autograd.grad([y for y, _ in wanted], x, [g for _, g in wanted])[0]))
        for ours, theirs in zip(*found):
            assert (ours is None) == (theirs is None)
            assert ours is None or (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        barred = logits
        if masked:
            own = torch.zeros(11, V, dtype=torch.bool).scatter(1, ids[:, None], True)
            barred = logits.masked_fill(~(keep | own), -torch.inf)
        of_logp, of_entropy = Scores(barred, ids), Scores(logits, ids)
        dx, size = of_logp.grad(grads[0][:, 0])
        if entropy and gradient:
            more, its_size = of_entropy.grad(torch.zeros(11), grads[1])
            dx, size = dx + more, size + its_size
        ratios = [[ratio(y[0].detach()[:, 0], of_logp.logp, of_logp.conditions()[0], kind), ratio(y[2], dx, size, kind),
                   ratio(y[1].detach(), of_entropy.entropy, of_entropy.conditions()[1], kind) if entropy else 0.0]
                  for y in found]
        record("slime", "_calculate_log_probs_and_entropy_chunk", "logp", dtype, max(ratios[0]), max(ratios[1]))
        assert max(ratios[0]) <= 1, (masked, entropy, gradient, ratios)
    assert set(enabled.calls()["_calculate_log_probs_and_entropy_chunk"]) == {"rlk"}


def test_without_rows_slime_asks_nobody(enabled):
    log_prob, entropy = ppo.calculate_log_probs_and_entropy(torch.zeros(0, V), torch.zeros(0, dtype=torch.int64), None, True)
    assert log_prob.shape == entropy.shape == (0,)


def test_an_id_out_of_range_is_an_error_and_never_a_number(enabled):
    with pytest.raises(rlk.DataError):
        ppo.calculate_log_probs_and_entropy(torch.zeros(2, V), torch.tensor([0, V]), None)


def test_a_vocabulary_that_is_spread_is_slimes(enabled, monkeypatch):
    group = types.SimpleNamespace(rank=lambda: 0, size=lambda: 2)
    logits, ids = made(3, V), torch.arange(3)
    monkeypatch.setattr(ppo, "_maybe_all_reduce", lambda *arguments: None)
    ours, theirs = (function(logits, ids, group, with_entropy=True, log_prob_keep_mask=None)
                    for function in (ppo._calculate_log_probs_and_entropy_chunk, ORIGINAL._calculate_log_probs_and_entropy_chunk))
    assert torch.equal(ours[0], theirs[0])
    assert enabled.calls()["_calculate_log_probs_and_entropy_chunk"] == {"a vocabulary that is spread over 2 processes": 1}


# ---- advantages and returns --------------------------------------------------------------------------------------

def recursion(deltas, factor):
    """a[t] = deltas[t] + factor a[t + 1] in fp64, and the same of the absolute values."""
    def of(x):
        found, last = torch.zeros_like(x), torch.zeros(x.shape[0], dtype=torch.float64)
        for t in reversed(range(x.shape[1])):
            last = found[:, t] = x[:, t] + factor * last
        return found
    return of(deltas.double()), of(deltas.double().abs())


SHAPES = [(3, 7), (1, 1), (4, 300)]


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("name", ["chunked_gae", "vanilla_gae"])
def test_advantages_of_every_length(enabled, dtype, name):
    kind = DTYPES[dtype]
    for shape, (gamma, lam) in itertools.product(SHAPES, [(1.0, 1.0), (0.99, 0.95), (1.0, 0.0), (0.9, 1.0)]):
        rewards, values = made(*shape, dtype=kind, seed=1), made(*shape, dtype=kind, seed=2)
        after = torch.cat([values[:, 1:], torch.zeros(shape[0], 1, dtype=kind)], 1).double()
        truth, _ = recursion(rewards.double() + gamma * after - values.double(), gamma * lam)
        size = recursion(rewards.double().abs() + gamma * after.abs() + values.double().abs(), gamma * lam)[1]
        ours, theirs = (function(rewards, values, gamma, lam) for function in (getattr(ppo, name), getattr(ORIGINAL, name)))
        assert all((a.dtype, a.shape) == (b.dtype, b.shape) for a, b in zip(ours, theirs))
        ratios = [max(ratio(y[0], truth, size, kind), ratio(y[1], truth + values, size + values.abs(), kind))
                  for y in (ours, theirs)]
        record("slime", name, "gae", dtype, *ratios)
        assert ratios[0] <= 1, (shape, gamma, lam, ratios)
    assert set(enabled.calls()[name]) == {"rlk"}


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_discounted_returns_of_every_length(enabled, dtype):
    kind = DTYPES[dtype]
    for shape, discount in itertools.product(SHAPES, [1.0, 0.99, 0.0]):
        rewards = made(*shape, dtype=kind, seed=1)
        truth, size = recursion(rewards, discount)
        ours, theirs = (function(rewards, discount) for function in (
            ppo.chunked_discounted_returns, ORIGINAL.chunked_discounted_returns))
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        ratios = [ratio(y, truth, size, kind) for y in (ours, theirs)]
        record("slime", "chunked_discounted_returns", "returns", dtype, *ratios)
        assert ratios[0] <= 1, (shape, discount, ratios)
    assert set(enabled.calls()["chunked_discounted_returns"]) == {"rlk"}


# ---- KL ----------------------------------------------------------------------------------------------------------

@pytest.fixture(autouse=True)
def eager():
    """slime compiles its estimates of the KL; what they compute is the same without."""
    with torch._dynamo.config.patch(disable=True):
        yield


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f64"])
@pytest.mark.parametrize("kind", ["k1", "k2", "k3", "low_var_kl"])
def test_estimates_of_the_kl_and_their_gradients(enabled, dtype, kind):
    own, base, g = made(37, dtype=DTYPES[dtype]), made(37, dtype=DTYPES[dtype], seed=2), made(37, seed=3)
    base[0], base[1] = own[0] + 4, own[1] - 4  # beyond what low_var_kl is clamped to, and not
    found = []
    for function in (ppo.compute_approx_kl, ORIGINAL.compute_approx_kl):
        x = own.clone().requires_grad_()
        y = function(x, base, kind)
        found.append((y.detach(), torch.autograd.grad(y, x, g)[0]))
    d = base.float().double() - own.float().double()
    values = {"k1": -d, "k2": d * d / 2}.get(kind, d.exp() - d - 1)
    slope = {"k1": torch.ones_like(d), "k2": -d}.get(kind, 1 - d.exp())
    size = d.exp() * (1 + d.abs()) + d.abs() + d * d + 1 + own.double().abs() + base.double().abs()
    if kind == "low_var_kl":
        slope, values = slope * (values < 10), values.clamp(-10, 10)
    f32 = torch.float32  # slime computes in it whatever it gets
    ratios = [max(ratio(y[0], values, size, f32), ratio(y[1], slope * g, size * g.abs(), f32)) for y in found]
    record("slime", "compute_approx_kl", "ratio_kl", dtype, *ratios)
    assert all((a.dtype, a.shape) == (b.dtype, b.shape) for a, b in zip(*found))
    assert ratios[0] <= 1, ratios
    assert set(enabled.calls()["compute_approx_kl"]) == {"rlk"}


def test_what_the_operators_do_not_have_is_slimes(enabled):
    own, base = made(5), made(5, seed=2)
    weight = made(5, seed=3).exp()
    assert torch.equal(ppo.compute_approx_kl(own, base, "k3", weight), ORIGINAL.compute_approx_kl(own, base, "k3", weight))
    assert enabled.calls()["compute_approx_kl"] == {"an importance_ratio": 1}
