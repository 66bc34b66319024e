"""rlk.integrations.enable("openrlhf") against the installed OpenRLHF: every option of every function that it replaces."""
import importlib.machinery
import importlib.util
import itertools
import sys
import types

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed here")
for needed in ("deepspeed", "peft", "ray", "pylatexenc"):
    pytest.importorskip(needed, reason=f"{needed}, which OpenRLHF imports, is not installed here")
if importlib.util.find_spec("openrlhf") is None:
    pytest.skip("openrlhf is not installed here (pip install --no-deps openrlhf==0.11.2)", allow_module_level=True)


def without_flash_attn():
    """OpenRLHF imports flash_attn's padding, which only a machine with CUDA can build; none of it runs here."""
    names = {"flash_attn": (), "flash_attn.bert_padding": ("index_first_axis", "pad_input", "rearrange", "unpad_input"),
             "flash_attn.utils": (), "flash_attn.utils.distributed": ("all_gather",)}
    for name, functions in names.items():
        module = types.ModuleType(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        module.__path__ = []
        for function in functions:
            setattr(module, function, None)
        sys.modules[name] = module


import transformers  # noqa: E402,F401  looks for flash_attn itself

if importlib.util.find_spec("flash_attn") is None:
    without_flash_attn()
import openrlhf.models.actor as actor  # noqa: E402
import openrlhf.models.loss as losses  # noqa: E402
import openrlhf.models.utils as utils  # noqa: E402
import rlk.integrations  # noqa: E402
from trainers_truth import DTYPES, compare_logits, layouts, made, ratio, record  # noqa: E402

torch.set_num_threads(1)
V = 53
LOG_PROBS, ENTROPY, FORWARD = utils.log_probs_from_logits, utils.compute_entropy, losses.PolicyLoss.forward
EAGER = ENTROPY._torchdynamo_orig_callable  # the same function, not compiled


@pytest.fixture(scope="module")
def enabled():
    with rlk.integrations.enable("openrlhf") as state:
        yield state


@pytest.mark.parametrize("dtype", DTYPES)
def test_logits_in_every_layout(enabled, dtype):
    assert actor.log_probs_from_logits is utils.log_probs_from_logits is not LOG_PROBS
    assert actor.compute_entropy is utils.compute_entropy is not ENTROPY
    for logits in layouts(V, DTYPES[dtype]):
        if not logits.numel():
            continue
        ids = (torch.arange(logits[..., 0].numel()) % (V - 5) + 5).view(logits.shape[:-1])  # never the column of -inf
        compare_logits("openrlhf", "log_probs_from_logits", dtype, lambda x: actor.log_probs_from_logits(x, ids),
                       lambda x: LOG_PROBS(x, ids), logits, ids, logp=True, entropy=False)
        compare_logits("openrlhf", "compute_entropy", dtype, actor.compute_entropy, EAGER, logits, ids, logp=False, entropy=True)
    assert set(enabled.calls()["log_probs_from_logits"]) == set(enabled.calls()["compute_entropy"]) == {"rlk"}


def test_a_temperature_is_the_originals_which_writes_it_into_the_logits(enabled):
    ours, theirs, ids = made(2, 4, V), made(2, 4, V), torch.arange(8).view(2, 4)
    assert torch.equal(actor.log_probs_from_logits(ours, ids, 0.7), LOG_PROBS(theirs, ids, 0.7))
    assert torch.equal(ours, theirs) and sum("a temperature" in x for x in enabled.calls()["log_probs_from_logits"]) == 1


def batch(kind):
    logp = made(5, 9, dtype=torch.float64).abs().neg()
    old = logp + made(5, 9, seed=7, dtype=torch.float64) * 0.4
    mask = torch.arange(9) < torch.tensor([9, 4, 0, 1, 7])[:, None]
    return [x.to(kind) for x in (logp, old, made(5, 9, seed=8, dtype=torch.float64))] + [mask]


def called(forward, module, logp, old, advantages, mask, words):
    logp = logp.clone().requires_grad_()
    found = forward(module, logp, old, advantages, mask, **words)
    return found, torch.autograd.grad(found[0], logp)[0]


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_the_policy_loss_with_every_option(enabled, dtype):
    kind = DTYPES[dtype]
    logp, old, advantages, mask = batch(kind)
    counts = [{}, {"dp_size": 4, "batch_num_tokens": 150.0, "global_batch_size": 20.0}]
    for loss_type, dual, tokens, count, kept in itertools.product(("ppo", "gspo"), (None, 1.5), (True, False), counts,
                                                                  (mask, mask.long(), None)):
        if kept is None and (loss_type == "gspo" or not tokens or count):
            continue  # the original needs a mask there
        module = losses.PolicyLoss(0.1, 0.3, dual, tokens, loss_type)
        wide = [x.double() for x in (logp, old, advantages)]
        (ours, our_grad), (theirs, their_grad) = (called(f, module, logp, old, advantages, kept, count)
                                                  for f in (losses.PolicyLoss.forward, FORWARD))
        truth, grad = called(FORWARD, module, wide[0], wide[1], wide[2], kept, count)
        x = wide[0] - wide[1]
        size = wide[2].abs() * x.exp() * (1 + x.abs() + wide[0].abs())
        everywhere = torch.ones_like(mask) if kept is None else kept
        of_loss = losses.aggregate_loss(size, everywhere, module.token_level_loss, **count)
        of_grad = grad.abs() * (2 + x.abs() + (x.abs() * everywhere).sum(-1, keepdim=True))
        ratios = [[ratio(y[0].detach()[None], truth[0].detach()[None], of_loss[None], kind, 2e-8 * truth[0].detach().abs()),
                   ratio(g, grad, of_grad, kind, 2e-8 * grad.abs())] for y, g in ((ours, our_grad), (theirs, their_grad))]
        record("openrlhf", "PolicyLoss.forward", "policy_loss", dtype, max(ratios[0]), max(ratios[1]))
        assert max(ratios[0]) <= 1 and max(ratios[1]) <= 1, (loss_type, dual, tokens, count, ratios)
        assert ours[3:] == theirs[3:] == (None, None) and ours[0].dtype == theirs[0].dtype and ours[0].shape == theirs[0].shape
        for a, b in zip(ours[1:3], truth[1:3]):
            torch.testing.assert_close(a.double(), b.double(), atol=1e-6, rtol=1e-5)
    assert set(enabled.calls()["PolicyLoss.forward"]) == {"rlk"}


@pytest.mark.parametrize("sign", [1, -1])
def test_a_policy_far_from_the_old_one_is_clamped_alike(enabled, sign):
    logp, old, advantages, mask = batch(torch.float64)
    old[0, :3] = logp[0, :3] + sign * 25
    module = losses.PolicyLoss()
    (ours, our_grad), (theirs, their_grad) = (called(f, module, logp, old, advantages, mask, {})
                                              for f in (losses.PolicyLoss.forward, FORWARD))
    torch.testing.assert_close(ours[0], theirs[0], rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(our_grad, their_grad, rtol=1e-7, atol=1e-9)
    for a, b in zip(ours[1:3], theirs[1:3]):
        torch.testing.assert_close(a.double(), b.double())


def test_a_correction_is_the_originals(enabled):
    logp, old, advantages, mask = batch(torch.float32)
    module = losses.PolicyLoss(is_correction_level="token", is_correction_threshold=[0.5, 5.0])
    ours = module(logp, old, advantages, mask, rollout_log_probs=old)
    theirs = FORWARD(module, logp, old, advantages, mask, rollout_log_probs=old)
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs))
    assert enabled.calls()["PolicyLoss.forward"]["the is_correction_level 'token'"] == 1


def test_put_back_every_name_is_the_trainers_again():
    with rlk.integrations.enable("openrlhf"):
        pass
    rlk.integrations.disable("openrlhf")
    assert losses.PolicyLoss.forward is FORWARD and actor.log_probs_from_logits is LOG_PROBS
    assert actor.compute_entropy is utils.compute_entropy is ENTROPY
