"""rlk.torch: gradients of operators that have no backward of their own, and are calls of others."""
import pytest
import rlk

torch = pytest.importorskip("torch", reason="torch is not installed here")
import rlk.torch  # noqa: E402
from rlk import _composed  # noqa: E402
from rlk._composed import RULES  # noqa: E402
from rlk._gradients import functions  # noqa: E402

ops = rlk.torch


def real(*shape, dtype=torch.float64):
    random = torch.Generator().manual_seed(sum(shape) + len(shape))
    return torch.randn(*shape, generator=random, dtype=dtype)


HOLDS = torch.tensor([[True, False, True, False]])
PLACES = torch.tensor([2, 0, 1])
CACHE = real(3, 6)
COS, SIN = real(3, 6), real(3, 6)

TARGETS = torch.tensor([1, 4, -100, 0])


def fused(**params):
    """linear_cross_entropy's loss, its gradients beside it."""
    def loss(hidden, weight, bias):
        return ops.fused_linear_cross_entropy(hidden, weight, TARGETS, bias, grad_weight=True, grad_bias=True, **params).loss
    return loss


# {operator: [(function, shapes of its inputs with a gradient)]}
CASES = {
    "add": [(lambda a, b: ops.add(a, b, alpha=-2.0), [(3, 4), (4,)]), (ops.add, [(3, 1), (3, 4)])],
    "sub": [(lambda a, b: ops.sub(a, b, alpha=0.5), [(3, 4), (3, 1)])],
    "mul": [(ops.mul, [(3, 4), (1, 4)]), (ops.mul, [(2,), (3, 2)])],
    "div": [(lambda a, b: ops.div(a, b * b + 1), [(3, 4), (4,)])],
    "where": [(lambda a, b: ops.where(HOLDS, a, b), [(3, 4), (4,)])],
    "copy": [(ops.copy, [(3, 4)])],
    "cat": [(ops.cat, [(3, 4), (3, 2)]), (ops.cat, [(3, 1), (3, 5)])],
    "sum": [(ops.sum, [(3, 4)])],
    "mean": [(ops.mean, [(3, 4)])],
    "max": [(ops.max, [(3, 5)])],
    "sort": [(lambda x: ops.sort(x).y, [(3, 5)]), (lambda x: ops.sort(x, descending="on").y, [(2, 6)])],
    "top_k": [(lambda x: ops.top_k(x, k=2).y, [(3, 5)]), (lambda x: ops.top_k(x, k=3, largest="off").y, [(3, 5)])],
    "moe_sum": [(ops.moe_sum, [(3, 2, 5)])],
    "topk_softmax": [(lambda x: ops.topk_softmax(x, k=3).weights, [(4, 6)]),
                     (lambda x: ops.topk_softmax(x, k=3, renormalize="on").weights, [(4, 6)])],
    "gemm": [(lambda a, b, c: ops.gemm(a, b, c, alpha=-0.5, beta=2.0), [(2, 3, 4), (2, 4, 5), (2, 3, 5)]),
             (lambda a, b: ops.gemm(a, b, transpose="a"), [(2, 4, 3), (2, 4, 5)]),
             (lambda a, b: ops.gemm(a, b, transpose="b", alpha=3.0), [(1, 3, 4), (1, 5, 4)]),
             (lambda a, b: ops.gemm(a, b, transpose="both"), [(2, 4, 3), (2, 5, 4)])],
    "fused_linear_cross_entropy": [(fused(), [(4, 3), (5, 3), (5,)]),
                                   (fused(reduction="sum", label_smoothing=0.2, softcap=2.0), [(4, 3), (5, 3), (5,)])],
    "rotary_embedding": [
        (lambda q, k: tuple(ops.rotary_embedding(PLACES, q, k, CACHE, key_out=True)), [(3, 2, 6), (3, 1, 6)]),
        (lambda q: ops.rotary_embedding(PLACES, q, cos_sin_cache=CACHE, style="interleaved", inverse="on", offset=1),
         [(3, 2, 8)]),
        (lambda q, k: ops.rotary_embedding(PLACES, q, k, CACHE, key_out=True).key_out, [(3, 2, 6), (3, 1, 6)])],
    "apply_rotary_pos_emb": [
        (lambda q, k: tuple(ops.apply_rotary_pos_emb(q, k, COS, SIN, key_out=True)), [(3, 2, 6), (3, 1, 6)]),
        (lambda q: ops.apply_rotary_pos_emb(q, cos=COS, sin=SIN, style="interleaved"), [(3, 2, 6)])],
}


def test_every_rule_is_tried():
    assert set(CASES) | {"cast"} == set(RULES)
    own = {name for name in RULES if functions[name].operator.backward is not None}
    assert own == {"mul", "div"}, "where there is a backward, it serves"


# Cosines and sines may be any numbers: the backward is the transposed matrix all the same.
@pytest.mark.parametrize("name, place", [(name, i) for name, cases in CASES.items() for i in range(len(cases))])
def test_a_composed_gradient_is_a_slope(name, place):
    function, sizes = CASES[name][place]
    assert torch.autograd.gradcheck(function, [real(*shape).requires_grad_() for shape in sizes], eps=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_a_composed_gradient_is_the_same_in_a_compiled_graph(name):
    function, sizes = CASES[name][0]
    grads = []
    for call in (function, torch.compile(function, fullgraph=True, backend="aot_eager", dynamic=False)):
        leaves = [real(*shape).requires_grad_() for shape in sizes]
        results = call(*leaves)
        total = sum((x * x).sum() for x in (results if isinstance(results, tuple) else (results,)))
        grads.append(torch.autograd.grad(total, leaves))
    for plain, compiled in zip(*grads):
        torch.testing.assert_close(plain, compiled, rtol=1e-12, atol=1e-12)


def test_a_cast_casts_its_gradient_back():
    x = real(3, 4, dtype=torch.bfloat16).requires_grad_()
    y = ops.cast(x)
    g = real(3, 4).to(y.dtype)
    y.backward(g)
    assert torch.equal(x.grad, g.to(torch.bfloat16))


def test_sixteen_bit_inputs_have_sixteen_bit_gradients():
    x = real(5, 8, dtype=torch.bfloat16).requires_grad_()
    ops.topk_softmax(x, k=2, renormalize="on").weights[:, 0].sum().backward()
    plain = x.detach().float().requires_grad_()
    plain.topk(2).values.softmax(-1)[:, 0].sum().backward()
    assert x.grad.dtype == torch.bfloat16
    torch.testing.assert_close(x.grad.float(), plain.grad, rtol=1e-2, atol=1e-3)


def test_a_fused_loss_has_the_gradients_of_the_two_calls_that_it_replaces():
    names = ("hidden", "weight", "bias")
    sizes = ((4, 3), (5, 3), (5,))
    for needed in (names, ("hidden",), ("weight", "bias")):
        for of_tokens in (False, True):
            found = []
            for function in (ops.linear_cross_entropy, ops.fused_linear_cross_entropy):
                leaves = [real(*shape).requires_grad_(name in needed) for name, shape in zip(names, sizes)]
                result = function(leaves[0], leaves[1], TARGETS, leaves[2], lse_square_scale=1e-2, token_loss=True)
                total = -3 * result.loss.sum() + ((result.token_loss ** 2).sum() if of_tokens else 0)
                found.append((result.loss, *torch.autograd.grad(total, [x for x in leaves if x.requires_grad])))
            for ours, theirs in zip(*found):
                torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def test_a_linear_cross_entropy_of_a_device_finds_its_gradients_with_its_loss(monkeypatch):
    ran, found = [], []
    for name in ("fused_linear_cross_entropy", "linear_cross_entropy_backward"):
        def run(*arguments, name=name, below=functions[name].below):
            ran.append(name)
            return below(*arguments)
        monkeypatch.setattr(functions[name], "below", run)
    for is_device in (False, True):
        monkeypatch.setattr(_composed, "is_fused_on", lambda device, answer=is_device: answer)
        leaves = [real(4, 3).requires_grad_(), real(5, 3).requires_grad_()]
        result = ops.linear_cross_entropy(*leaves, TARGETS, softcap=3.0, lse=True, token_loss=True)
        assert result._fields == ("loss", "token_loss", "lse")
        assert not result.lse.requires_grad
        found.append((*(x.detach() for x in result), *torch.autograd.grad(2 * result.loss.sum(), leaves)))
        with torch.no_grad():
            ops.linear_cross_entropy(*leaves, TARGETS)
        ops.linear_cross_entropy(*leaves, TARGETS, reduction="none", token_loss=True).token_loss.sum().backward()
    assert ran == ["linear_cross_entropy_backward"] * 2 + ["fused_linear_cross_entropy", "linear_cross_entropy_backward"]
    for ours, theirs in zip(*found):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_gradient_times_a_number_of_the_device_is_rounded_once(dtype, monkeypatch):
    monkeypatch.setattr(_composed, "SCALED_NUMBERS", 8)  # two rows of 3 at a time
    factor = torch.tensor([1 / 3], dtype=torch.float64 if dtype == torch.float64 else torch.float32)
    for x in (real(7, 3).to(factor.dtype), real(7, 3).to(dtype), real(7).to(factor.dtype), real(0, 3).to(factor.dtype)):
        y = _composed.scaled(x, factor, dtype)
        assert torch.equal(y, (x.to(factor.dtype) * factor).to(dtype))
        assert y.dtype == dtype and y.shape == x.shape


def test_what_a_fused_loss_finds_on_the_way_has_no_gradient_and_its_gradient_none():
    hidden, weight = real(4, 3).requires_grad_(), real(5, 3).requires_grad_()
    result = ops.fused_linear_cross_entropy(hidden, weight, TARGETS, lse=True, grad_weight=True)
    assert [name for name in result._fields if getattr(result, name).requires_grad] == ["loss"]
    with pytest.raises(rlk.InvalidArgument, match="linear_cross_entropy_backward has no gradient"):
        [of_hidden] = torch.autograd.grad(result.loss, hidden, create_graph=True)
        of_hidden.sum().backward()


def test_what_a_rule_has_no_gradient_for_is_named():
    query, cache = real(3, 2, 6).requires_grad_(), real(3, 6).requires_grad_()
    with pytest.raises(rlk.InvalidArgument, match="rotary_embedding has no gradient for cos_sin_cache.*detach"):
        ops.rotary_embedding(PLACES, query, cos_sin_cache=cache).sum().backward()
