"""The functions that slime calls by a path, beside slime's own: the policy loss and its reducer, advantages.

Megatron is made up (slime_megatron.py): one process, or one rank after the other of context parallelism."""
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed here")
pytest.importorskip("slime.utils.ppo_utils", reason="slime is not installed here")
import rlk  # noqa: E402
import slime_megatron  # noqa: E402
from rlk.integrations import slime as path  # noqa: E402
from trainers_truth import DTYPES, made, ratio, record  # noqa: E402

theirs, cp = slime_megatron.modules()
TOTALS, RESPONSES = [9, 5, 12, 7], [4, 3, 11, 2]
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
        masks[0] = masks[0] * 0.3  # weights, as functions of a trainer's own make them
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
    assert path.pg_loss_reducer(TOTALS, RESPONSES, masks_of(), True)(torch.cat(numbers)) == 4 + 3 + 8


def test_numbers_of_other_tokens_are_refused():
    with pytest.raises(rlk.InvalidArgument, match=r"expected \[20\], one for each response token"):
        path.pg_loss_reducer(TOTALS, RESPONSES, masks_of())(torch.zeros(21))
    with pytest.raises(rlk.Unsupported, match=r"int64.*start slime without --custom-pg-loss-reducer-function-path"):
        path.pg_loss_reducer(TOTALS, RESPONSES, masks_of())(torch.zeros(20, dtype=torch.int64))


def test_another_slime_than_rlk_knows_is_refused(monkeypatch):
    from rlk.integrations import _slime_paths
    monkeypatch.setattr(_slime_paths, "_held", set())
    monkeypatch.setattr("rlk.integrations._hooks.digest", lambda text: "another")
    with pytest.raises(rlk.Unsupported, match="pg_loss_reducer computes nothing. Install slime==0.3.1"):
        path.pg_loss_reducer(TOTALS, RESPONSES, masks_of())
