"""The functions that slime calls by a path, beside slime's own: the policy loss and its reducer, advantages.

Megatron is made up (slime_megatron.py): ranks of context parallelism one after the other, or in threads."""
import itertools
import types

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed here")
pytest.importorskip("slime.utils.ppo_utils", reason="slime is not installed here")
import rlk  # noqa: E402
import slime_megatron  # noqa: E402
from rlk.integrations import slime as path  # noqa: E402
from trainers_truth import DTYPES, made, ratio, record  # noqa: E402

theirs, cp = slime_megatron.modules()
TOTALS, RESPONSES = [8, 5, 12, 7], [4, 4, 11, 6]
LAYOUTS = [(0, 1), (0, 2), (1, 2), (2, 3)]  # rank and number of processes of context parallelism


@pytest.fixture(autouse=True)
def one_process():
    """slime compiles what it computes here; it is the same without."""
    slime_megatron.layout.rank, slime_megatron.layout.size = 0, 1
    with torch._dynamo.config.patch(disable=True):
        yield
    slime_megatron.layout.rank, slime_megatron.layout.size = 0, 1


def masks_of(kind=torch.int):
    """Of a sample whole, with a hole, masked altogether."""
    masks = [torch.ones(n, dtype=kind) for n in RESPONSES]
    masks[2][3:6], masks[3][:] = 0, 0
    return masks


def local(tensors):
    """What of the responses' numbers lies on this rank, one sample behind the other."""
    return torch.cat([cp.slice_log_prob_with_cp(x, total, own) for x, total, own in zip(tensors, TOTALS, RESPONSES)])


# ---- --custom-pg-loss-reducer-function-path ----------------------------------------------------------------------

@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", [torch.int, torch.bool, torch.float32])
@pytest.mark.parametrize("per_token", [False, True])
def test_the_reducer_gives_what_slimes_gives_on_every_rank(dtype, kind, per_token):
    masks = masks_of(kind)
    if kind == torch.float32:
        masks[0] = masks[0] * 0.2  # weights, as functions of a trainer's own make them; their sum is less than 1
    for slime_megatron.layout.rank, slime_megatron.layout.size in LAYOUTS:
        numbers = local([made(n, seed=n).to(DTYPES[dtype]) for n in RESPONSES])
        found = []
        for reducer, of in ((path.pg_loss_reducer, DTYPES[dtype]), (reducer_of_slime, DTYPES[dtype]),
                            (reducer_of_slime, torch.float64)):
            x = numbers.to(of).requires_grad_()
            y = reducer(TOTALS, RESPONSES, masks, per_token)(x)
            found.append((y.detach(), torch.autograd.grad(y, x)[0]))
        truth = found.pop()
        size = reducer_of_slime(TOTALS, RESPONSES, masks, per_token)(numbers.double().abs())  # masks are not negative
        assert [(a.dtype, a.shape) for a in found[0]] == [(b.dtype, b.shape) for b in found[1]]
        ratios = [max(ratio(y[0][None], truth[0][None], size[None], DTYPES[dtype]),
                      ratio(y[1], truth[1], truth[1].abs(), DTYPES[dtype])) for y in found]
        record("slime", "--custom-pg-loss-reducer-function-path", "policy_loss", dtype, *ratios)
        assert ratios[0] <= 1, (slime_megatron.layout, ratios)


def reducer_of_slime(totals, responses, masks, per_token):
    return cp.get_sum_of_sample_mean(totals, responses, masks, None, per_token)


def test_a_nan_behind_a_mask_stays_out_of_the_sum():
    numbers = [torch.ones(n) for n in RESPONSES]
    numbers[2][4] = torch.nan
    assert path.pg_loss_reducer(TOTALS, RESPONSES, masks_of(), True)(torch.cat(numbers)) == 4 + 4 + 8


def test_numbers_of_other_tokens_are_refused():
    with pytest.raises(rlk.InvalidArgument, match=r"expected \[25\], one for each response token"):
        path.pg_loss_reducer(TOTALS, RESPONSES, masks_of())(torch.zeros(24))
    with pytest.raises(rlk.Unsupported, match=r"int64.*start slime without --custom-pg-loss-reducer-function-path"):
        path.pg_loss_reducer(TOTALS, RESPONSES, masks_of())(torch.zeros(25, dtype=torch.int64))


def test_another_slime_than_rlk_knows_is_refused(monkeypatch):
    from rlk.integrations import _slime_paths
    monkeypatch.setattr(_slime_paths, "_held", set())
    monkeypatch.setattr("rlk.integrations._hooks.digest", lambda text: "another")
    with pytest.raises(rlk.Unsupported, match="pg_loss_reducer computes nothing. Install slime==0.3.1"):
        path.pg_loss_reducer(TOTALS, RESPONSES, masks_of())


# ---- --custom-advantage-function-path ----------------------------------------------------------------------------

ESTIMATORS = {"grpo": None, "gspo": None, "cispo": None, "ppo": "gae", "reinforce_plus_plus": "returns",
              "reinforce_plus_plus_baseline": "token_rewards"}


def settings(**more):
    """slime's arguments, as far as its advantages read them."""
    return types.SimpleNamespace(**{"kl_coef": 0.0, "gamma": 1.0, "lambd": 1.0, "kl_loss_type": "k1", "use_opd": False,
                                    "use_rollout_logprobs": False, "normalize_advantages": False, **more})


def rollout(**more):
    """What of a rollout this rank has."""
    parts = {name: [cp.slice_log_prob_with_cp(made(n, seed=seed + n) - 2, total, n) for total, n in zip(TOTALS, RESPONSES)]
             for seed, name in enumerate(("log_probs", "ref_log_probs", "values"))}
    masks = masks_of()
    masks[3][0] = 1  # slime refuses a sample without a token
    return {**parts, "rewards": [1.5, -0.25, 0.75, 2.0], "loss_masks": masks, "total_lengths": TOTALS,
            "response_lengths": RESPONSES, **more}


def computed(args, custom):
    data = rollout()
    args = types.SimpleNamespace(**vars(args), custom_advantage_function_path=custom)
    theirs.compute_advantages_and_returns(args, data)
    return data


def recursion(numbers, factor):
    found, last = torch.zeros_like(numbers), 0.0
    for t in reversed(range(len(numbers))):
        last = found[t] = numbers[t] + factor * last
    return found


def truth_of(args, data, kl, values, i, place):
    """(advantages, returns, their condition) of sample i in fp64: place is the token that slime gives ppo's reward."""
    coefficient, reward, mask = args.kl_coef, data["rewards"][i], data["loss_masks"][i]
    kl, values = kl[i].double(), values[i].double()
    if args.advantage_estimator == "ppo":
        bonus = torch.zeros_like(kl).index_fill(0, torch.tensor(place), reward)
        after = torch.cat([values[1:], values.new_zeros(1)])
        found = recursion(bonus - coefficient * kl + args.gamma * after - values, args.gamma * args.lambd)
        size = recursion(bonus.abs() + coefficient * kl.abs() + args.gamma * after.abs() + values.abs(), args.gamma * args.lambd)
        return found, found + values, size + values.abs()
    if args.advantage_estimator == "reinforce_plus_plus":
        bonus = torch.zeros_like(kl).index_fill(0, mask.nonzero()[-1, 0], reward)
        found = recursion(bonus - coefficient * kl * mask, args.gamma)
        return found, found, recursion(bonus.abs() + coefficient * kl.abs() * mask, args.gamma)
    found = torch.full_like(kl, reward)
    if args.advantage_estimator == "reinforce_plus_plus_baseline":
        return found - coefficient * kl, found - coefficient * kl, found.abs() + coefficient * kl.abs()
    return found, found, torch.zeros_like(found)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_advantages_are_slimes_on_every_rank(estimator, monkeypatch):
    monkeypatch.setattr(cp, "dist", cp.dist)
    alone = {name: rollout()[name] for name in ("log_probs", "ref_log_probs", "values")}
    for size, (coefficient, gamma, lambd) in itertools.product((1, 2), [(0.0, 1.0, 1.0), (0.3, 1.0, 0.95), (0.1, 0.9, 0.8)]):
        args = settings(advantage_estimator=estimator, kl_coef=coefficient, gamma=gamma, lambd=lambd)
        kl = [(a - b if coefficient else 0 * a) for a, b in zip(alone["log_probs"], alone["ref_log_probs"])]
        ours, original = (slime_megatron.on_ranks(size, lambda: computed(args, custom), cp)
                          for custom in ("rlk.integrations.slime.advantages", None))
        slime_megatron.layout.size = size
        places = [cp.slice_log_prob_with_cp(torch.arange(n), total, n)[-1].item() for total, n in zip(TOTALS, RESPONSES)]
        for slime_megatron.layout.rank, (a, b) in enumerate(zip(ours, original)):
            truths = [truth_of(args, a, kl, alone["values"], i, places[i]) for i in range(len(TOTALS))]
            advantages, returns, condition = (local(x) for x in zip(*truths))
            assert [(x.dtype, x.shape) for x in a["advantages"] + a["returns"]] == [
                (x.dtype, x.shape) for x in b["advantages"] + b["returns"]]
            ratios = [max(ratio(torch.cat(x["advantages"]), advantages, condition, torch.float32),
                          ratio(torch.cat(x["returns"]), returns, condition, torch.float32)) for x in (a, b)]
            if ESTIMATORS[estimator]:
                record("slime", f"--custom-advantage-function-path ({estimator})", ESTIMATORS[estimator], "f32", *ratios)
            assert max(ratios) <= 1, (estimator, slime_megatron.layout.rank, size, ratios)
        slime_megatron.layout.rank, slime_megatron.layout.size = 0, 1


@pytest.mark.parametrize("more, wanted, reason", [
    ({"advantage_estimator": "remax"}, rlk.Unsupported, "the advantage_estimator 'remax'.*without --custom-advantage-function"),
    ({"loss_masks": [torch.full((n,), 2) for n in RESPONSES]}, rlk.Unsupported, "other numbers than 0 and 1"),
    ({"loss_masks": masks_of()}, rlk.InvalidArgument, "loss_masks of sample 3 are all 0"),
    ({"kl": [torch.zeros(n, dtype=torch.float64) for n in RESPONSES]}, rlk.Unsupported, "KL or values of torch.float64")])
def test_advantages_that_are_not_slimes_are_refused(more, wanted, reason):
    args = settings(advantage_estimator=more.pop("advantage_estimator", "reinforce_plus_plus"))
    with pytest.raises(wanted, match=reason):
        path.advantages(args, {**rollout(), "kl": [torch.zeros(n) for n in RESPONSES], **more})


def test_a_reward_without_a_token_on_the_first_rank_is_refused():
    slime_megatron.layout.size = 2
    data = {**rollout(), "kl": [torch.zeros(0)] + [torch.zeros(n) for n in RESPONSES[1:]]}
    with pytest.raises(rlk.InvalidArgument, match="sample 0 has no response token on the first rank"):
        path.advantages(settings(advantage_estimator="ppo"), data)
