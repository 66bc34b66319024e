"""rlk.integrations.enable("trl") against the installed TRL: every option of every function that it replaces."""
import itertools

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed here")
pytest.importorskip("trl", reason="trl is not installed here (pip install trl==1.16.0)")
import rlk.integrations  # noqa: E402
import trl.trainer.utils as utils  # noqa: E402
from trainers_truth import DTYPES, Scores, compare_logits, layouts, made, ratio, record  # noqa: E402

torch.set_num_threads(1)
CHUNKED = utils._ChunkedLogProbFunction
ORIGINALS = {name: getattr(utils, name) for name in
             ("selective_log_softmax", "selective_log_softmax_and_entropy", "entropy_from_logits")}
N, V, D = 7, 53, 24


@pytest.fixture(scope="module")
def enabled():
    with rlk.integrations.enable("trl") as state:
        yield state


def ids_of(*shape, seed=1):
    return torch.randint(0, V, shape, generator=torch.Generator().manual_seed(seed))


# ---- the fused projection ----------------------------------------------------------------------------------------

OUTPUTS = [(), ("log_probs",), ("log_probs", "entropy"), ("log_probs", "log_sum_sq_probs"), ("entropy", "log_sum_sq_probs")]


def chunked(function, inputs, ids, options, grads):
    """(outputs, gradients of hidden, weight, bias) of one call."""
    leaves = [None if x is None else x.clone().requires_grad_() for x in inputs]
    outputs = function.apply(*leaves, ids, *options)
    wanted = [(x, g) for x, g in zip(outputs, grads) if x is not None and x.requires_grad]
    found = torch.autograd.grad([x for x, _ in wanted], [x for x in leaves if x is not None], [g for _, g in wanted])
    return outputs, found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("outputs", OUTPUTS)
def test_the_projection_with_every_option(enabled, dtype, bias, outputs):
    kind = DTYPES[dtype]
    hidden, weight = made(N, D, dtype=kind), made(V, D, dtype=kind, scale=0.5, seed=2)
    offset = made(V, dtype=kind, seed=3) if bias else None
    ids, grads = ids_of(N), (made(N, seed=4), made(N, seed=5))
    for temperature, softcap, scale, chunk in itertools.product((1.0, 0.7), (None, 3.0), (1.0, 0.25, 1.7), (16, 32768)):
        options = (temperature, chunk, softcap, scale, outputs)
        inputs = (hidden, weight, offset)
        ours, our_grads = chunked(utils._ChunkedLogProbFunction, inputs, ids, options, grads)
        theirs, their_grads = chunked(CHUNKED, inputs, ids, options, grads)
        h, w = hidden.double(), weight.double()
        b = torch.zeros(V, dtype=torch.float64) if offset is None else offset.double()
        scores = Scores(h @ w.T + b, ids, temperature=temperature, softcap=softcap, scale=scale,
                        condition=h.abs() @ w.abs().T + b.abs())
        of_logp, of_entropy = scores.conditions()
        dx, size = scores.grad(grads[0], grads[1] if "entropy" in outputs else None)
        truths = [(scores.logp, of_logp), (scores.entropy, of_entropy), (scores.sum_p2.log(), of_logp * 4), None, None]
        ratios = []
        for i, truth in enumerate(truths):
            assert (ours[i] is None) == (theirs[i] is None)
            if ours[i] is not None:
                assert (ours[i].dtype, ours[i].shape) == (theirs[i].dtype, theirs[i].shape)
                ratios.append([ratio(x.detach(), *truth, kind) for x in (ours[i], theirs[i])])
        truths = [(dx @ w, size @ w.abs()), (dx.T @ h, size.T @ h.abs()), (dx.sum(0), size.sum(0))]
        for a, b, truth in zip(our_grads, their_grads, truths):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            ratios.append([ratio(x, *truth, kind) for x in (a, b)])
        ours_worst, theirs_worst = map(max, zip(*ratios))
        record("trl", "_ChunkedLogProbFunction", "linear_logp", dtype, ours_worst, theirs_worst)
        assert ours_worst <= 1, (options, ratios)
        if kind == torch.float32:  # the truth is the trainer's: it keeps the bound too where it does not round its logits
            assert theirs_worst <= 1, (options, ratios)
    assert set(enabled.calls()["_ChunkedLogProbFunction"]) == {"rlk"}


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_the_projection_under_autocast_rounds_its_inputs_and_no_more(enabled, dtype):
    kind = DTYPES[dtype]
    hidden, weight, ids, grads = made(N, D), made(V, D, scale=0.5, seed=2), ids_of(N), (made(N, seed=4), made(N, seed=5))
    with torch.autocast("cpu", kind):
        ours, (_, our_grad) = chunked(utils._ChunkedLogProbFunction, (hidden, weight, None), ids,
                                      (0.7, 16, None, 1.0, OUTPUTS[2]), grads)
    h, w = hidden.to(kind).double(), weight.to(kind).double()
    scores = Scores(h @ w.T, ids, temperature=0.7, condition=h.abs() @ w.abs().T)
    dx, size = scores.grad(*grads)
    assert ratio(ours[0].detach(), scores.logp, scores.conditions()[0], kind) <= 1
    assert our_grad.dtype == torch.float32 and ratio(our_grad, dx.T @ h, size.T @ h.abs(), kind) <= 1


def test_a_half_precision_head_of_an_fp32_backbone_is_widened(enabled):
    hidden, weight, ids, grads = made(N, D), made(V, D, dtype=torch.bfloat16, seed=2), ids_of(N), (made(N, seed=4), None)
    options = (1.0, 16, None, 1.0, ("log_probs",))
    ours = chunked(utils._ChunkedLogProbFunction, (hidden, weight, None), ids, options, grads)
    theirs = chunked(CHUNKED, (hidden, weight, None), ids, options, grads)
    torch.testing.assert_close(ours[0][0], theirs[0][0], atol=1e-5, rtol=1e-6)
    for a, b in zip(ours[1], theirs[1]):
        torch.testing.assert_close(a, b)


def test_the_projection_of_no_rows(enabled):
    ours, grads = chunked(utils._ChunkedLogProbFunction, (made(0, D), made(V, D), None), ids_of(0),
                          (1.0, 16, None, 1.0, OUTPUTS[2]), (made(0), made(0)))
    assert ours[0].shape == ours[1].shape == (0,) and not any(g.any() for g in grads)


@pytest.mark.parametrize("options, reason", [
    ((1.0, 16, None, 1.0, ("log_probs", "is_top1")), "is_top1"),
    ((1.0, 16, None, 1.0, ("mean_logits",)), "mean_logits"),
    ((1.0, 16, None, -1.0, ()), "logit_scale of -1.0"),
    ((1.0, 16, 0.0, 1.0, ()), "softcap of 0.0"),
])
def test_what_the_projection_cannot_do_is_the_originals_and_said_once(enabled, caplog, options, reason):
    inputs, ids = (made(N, D), made(V, D, seed=2), None), ids_of(N)
    for _ in range(2):
        ours, theirs = utils._ChunkedLogProbFunction.apply(*inputs, ids, *options), CHUNKED.apply(*inputs, ids, *options)
        assert all(a is b is None or torch.equal(a, b) for a, b in zip(ours, theirs))
    assert sum(reason in line.message for line in caplog.records) == 1
    assert [n for text, n in enabled.calls()["_ChunkedLogProbFunction"].items() if reason in text] == [2]


def test_an_id_out_of_range_is_an_error_and_not_a_number(enabled):
    for wrong in (-100, V):
        with pytest.raises(rlk.DataError, match=str(wrong)):
            utils._ChunkedLogProbFunction.apply(made(N, D), made(V, D), None, torch.full((N,), wrong), 1.0, 16,
                                                outputs=())


# ---- the functions over logits -----------------------------------------------------------------------------------

@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ORIGINALS)
def test_logits_with_every_option(enabled, dtype, name):
    for logits in layouts(V, DTYPES[dtype]):
        ids = ids_of(*logits.shape[:-1]) % (V - 5) + 5  # never the column of -inf
        kept = made(*ids.shape, seed=6) > 0
        options = [{}]
        if name != "entropy_from_logits":
            options = [dict(temperature=t, row_mask=m) for t in (1.0, 0.6) for m in (None, kept, kept.long())]
        if name == "selective_log_softmax_and_entropy":
            options = [dict(o, entropy_requires_grad=r) for o in options for r in (True, False)]
        for option in options:
            def call(function, x, option=option):
                return function(x, **option) if name == "entropy_from_logits" else function(x, ids, **option)
            if not ids.numel():  # the original stacks nothing, an error
                outputs = call(getattr(utils, name), logits.clone().requires_grad_())
                assert all(x.shape == ids.shape for x in (outputs if isinstance(outputs, tuple) else (outputs,)))
                continue
            compare_logits("trl", name, dtype, lambda x: call(getattr(utils, name), x), lambda x: call(ORIGINALS[name], x),
                           logits, ids, logp=name != "entropy_from_logits", entropy=name != "selective_log_softmax",
                           temperature=option.get("temperature", 1.0), mask=option.get("row_mask"),
                           entropy_gradient=option.get("entropy_requires_grad", True))
    assert set(enabled.calls()[name]) == {"rlk"}


def test_several_ids_for_each_row_are_the_originals(enabled):
    logits, ids = made(2, 4, V), ids_of(2, 4, 3)
    assert torch.equal(utils.selective_log_softmax(logits, ids), ORIGINALS["selective_log_softmax"](logits, ids))
    assert enabled.calls()["selective_log_softmax"]["several ids for each row"] == 1


def test_wrong_arguments_get_the_originals_words(enabled):
    with pytest.raises(ValueError, match="temperature must be positive"):
        utils.selective_log_softmax(made(2, 4, V), ids_of(2, 4), temperature=0.0)


def test_put_back_every_name_is_the_trainers_again():
    import trl.experimental.cpo.cpo_trainer as cpo
    with rlk.integrations.enable("trl"):
        assert cpo.selective_log_softmax is utils.selective_log_softmax is not ORIGINALS["selective_log_softmax"]
    rlk.integrations.disable("trl")
    assert cpo.selective_log_softmax is utils.selective_log_softmax is ORIGINALS["selective_log_softmax"]
    assert utils._ChunkedLogProbFunction is CHUNKED
