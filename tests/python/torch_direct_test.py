"""Plain calls go around torch's dispatcher where torch lets them (2.10 and newer). What of torch is to see a call sees it all
the same, and autograd's promises hold."""
import gc
import weakref

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed here")

import rlk.torch  # noqa: E402
from rlk import _runtime, errors  # noqa: E402
from rlk._gradients import Sizes, Unknown, functions, is_unwatched, saved_of_graph  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402


def batch(requires_grad=True):
    logits = torch.linspace(-2, 2, 12).reshape(3, 4).requires_grad_(requires_grad)
    return logits, torch.tensor([0, 3, 1])


@pytest.fixture
def dispatched(monkeypatch):
    """The names of the operators whose calls go through the dispatcher."""
    names = []
    for name in ("logp", "logp_backward", "add", "fill"):
        def watched(*arguments, name=name, overload=functions[name].overload):
            names.append(name)
            return overload(*arguments)
        monkeypatch.setattr(functions[name], "overload", watched)
    return names


needs_direct = pytest.mark.skipif(functions["logp"].direct is None, reason="this torch gives the library no tensors of Python")


@needs_direct
def test_a_plain_call_and_its_backward_do_not_reach_the_dispatcher(dispatched):
    logits, ids = batch()
    rlk.torch.logp(logits, ids).sum().backward()
    with torch.no_grad():
        rlk.torch.logp(torch.nn.Parameter(logits), ids, lse=True, pin="cpu", numerics=("deterministic", "accurate"))
    assert dispatched == []


class Seeing(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, function, types, arguments=(), words=None):
        self.seen.append(str(function))
        return function(*arguments, **(words or {}))


class SeeingFunctions(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, function, types, arguments=(), words=None):
        self.seen.append(str(function))
        return function(*arguments, **(words or {}))


# torch runs a backward outside of the mode of functions that saw backward() itself.
@pytest.mark.parametrize("mode, seen", [(Seeing, ["rlk.logp.default", "rlk.logp_backward.default"]),
                                        (SeeingFunctions, ["rlk.logp.default"])])
def test_a_mode_sees_every_call(mode, seen):
    logits, ids = batch()
    with mode() as watching:
        rlk.torch.logp(logits, ids).sum().backward()
    assert [name for name in watching.seen if "rlk" in name] == seen


def test_a_profiler_sees_every_call():
    logits, ids = batch()
    with torch.profiler.profile() as watching:
        rlk.torch.logp(logits, ids).sum().backward()
    assert {"rlk::logp", "rlk::logp_backward"} <= {event.key for event in watching.key_averages()}


def test_a_transform_a_trace_and_a_tangent_are_no_plain_calls():
    assert is_unwatched()
    found = []

    def looking(x):
        found.append(is_unwatched())
        return x * 2

    torch.func.vmap(looking)(torch.ones(2))
    torch.func.grad(looking)(torch.ones(()))
    torch.jit.trace(looking, torch.ones(2), check_trace=False)
    with torch.autograd.forward_ad.dual_level():
        looking(torch.ones(2))
    with torch.amp.autocast("cpu"):
        looking(torch.ones(2))
    assert found == [False] * len(found)


class Own(torch.Tensor):
    pass


@pytest.mark.parametrize("other", [
    lambda x: x.as_subclass(Own), lambda x: torch.complex(x, -x).conj().imag, lambda x: x.to("meta"),
], ids=["a class of one's own", "lazily negated", "without memory"])
def test_what_memory_alone_does_not_tell_goes_through_the_dispatcher(other, dispatched):
    x = other(torch.ones(3))
    y = rlk.torch.add(x, x)
    assert dispatched == ["add"]
    assert (y.shape, y.device) == (x.shape, x.device)
    if not x.is_meta:
        torch.testing.assert_close(torch.as_tensor(y), 2 * torch.ones(3))


def test_a_call_after_one_of_another_shape_dtype_or_parameter_is_its_own():
    for _ in range(2):
        for shape in ((3,), (2, 2), (0,), (4,)):
            for dtype in (torch.float32, torch.bfloat16, torch.float64):
                for alpha in (1.0, 2, -0.5):
                    x = torch.ones(shape, dtype=dtype)
                    y = rlk.torch.add(x, x, alpha=alpha)
                    assert (y.dtype, y.shape) == (dtype, x.shape)
                    assert y.tolist() == (x + alpha * x).tolist()
    x, ids = batch(False)
    for lse, entropy in ((False, False), (True, False), (False, True), (True, True), (False, False)):
        result = rlk.torch.logp(x, ids, lse=lse, entropy=entropy)
        assert getattr(result, "_fields", ("logp",)) == ("logp", *["lse"] * lse, *["entropy"] * entropy)


def test_errors_are_rlks_on_both_ways():
    logits, ids = batch()
    said = []
    for mode in (torch.no_grad, Seeing):
        for arguments, words in (((logits, ids.float()), {}), ((logits, ids[:2]), {}), ((logits, ids), {"pin": "nowhere"}),
                                 ((logits.to(torch.complex64), ids), {})):
            with mode(), pytest.raises(errors.Error) as caught:
                rlk.torch.logp(*arguments, **words)
            said.append((type(caught.value), str(caught.value)))
    assert said[:4] == said[4:]
    with pytest.raises(errors.DataError):
        rlk.torch.logp(logits, ids + 100)
    assert rlk.torch.logp(logits, ids).isfinite().all(), "an error of one call is none of the next"


def test_a_graph_ends_with_its_backward_and_can_be_kept():
    logits, ids = batch()
    y = rlk.torch.logp(logits, ids).sum()
    first, = torch.autograd.grad(y, logits, retain_graph=True)
    second, = torch.autograd.grad(y, logits)
    assert torch.equal(first, second)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(y, logits)


def test_what_a_backward_reads_must_not_change_before():
    logits, ids = batch()
    x = logits * 1
    y = rlk.torch.logp(x, ids)
    x.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_hooks_see_what_is_saved_and_the_gradient():
    logits, ids = batch()
    packed, seen = [], []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: packed.append(x) or x, lambda x: x):
        y = rlk.torch.logp(logits, ids)
    logits.register_hook(seen.append)
    y.grad_fn.register_hook(lambda into, outof: seen.append(into))
    y.sum().backward()
    assert len(packed) == 3, "logits, ids and lse"
    assert len(seen) == 2


def test_only_what_needs_a_gradient_gets_one():
    a, b = (torch.ones(2, 3, requires_grad=needs) for needs in (True, False))
    y = rlk.torch.add(a, b[:1], alpha=2.0)
    y.sum().backward()
    assert a.grad.tolist() == torch.ones(2, 3).tolist() and b.grad is None
    assert not rlk.torch.add(a.detach(), b).requires_grad
    with torch.inference_mode():
        assert rlk.torch.add(a, b).is_inference()


def test_a_second_derivative_is_refused():
    logits, ids = batch()
    g, = torch.autograd.grad(rlk.torch.logp(logits, ids).sum(), logits, create_graph=True)
    with pytest.raises(Exception, match="no gradient"):
        g.sum().backward()


@needs_direct
def test_after_a_reload_a_plain_call_finds_its_stream_anew():
    x = torch.ones(2)
    rlk.torch.add(x, x)
    _runtime.note_reload()
    assert rlk.torch.add(x, x).tolist() == [2, 2]


def gradient_of_logp(logits, ids, **words):
    leaf = logits.detach().requires_grad_()
    result = rlk.torch.logp(leaf, ids, **words)
    logp = result if isinstance(result, torch.Tensor) else result.logp
    return torch.autograd.grad((logp * torch.arange(len(ids))).sum(), leaf)[0]


@needs_direct
def test_a_call_that_the_library_knows_is_what_it_was_before_it_knew():
    torch.manual_seed(0)
    calls = [(torch.randn(rows, columns), torch.arange(rows) % columns, words) for rows, columns in ((3, 4), (5, 4), (1, 7))
             for words in ({}, {"temperature": 0.5}, {"lse": True, "entropy": True})]
    function, found = functions["logp"], []
    for way in ("unknown", "known"):
        for logits, ids, words in calls:
            for time in range(2):  # the second time with the very same objects
                if way == "unknown":
                    function.known, function.last = None, ((object(),), None)
                found.append((way, rlk.torch.logp(logits, ids, **words), gradient_of_logp(logits, ids, **words)))
    assert function.known is not None
    half = len(found) // 2
    for (_, before, its_gradient), (_, after, gradient) in zip(found[:half], found[half:]):
        assert type(before) is type(after) and torch.equal(its_gradient, gradient)
        for x, y in zip(*(r if isinstance(r, tuple) else (r,) for r in (before, after))):
            assert torch.equal(x, y)


@needs_direct
def test_a_known_call_is_not_taken_for_one_with_other_words(monkeypatch):
    x = torch.ones(3)
    whole, answers = functions["add"].whole, []
    monkeypatch.setattr(functions["add"], "whole", lambda *given: answers.append(whole(*given)) or answers[-1])
    for alpha in (1.0, 1, True, -1.0, 0.0, -0.0, torch.tensor(2.0), 1.0):
        assert rlk.torch.add(x, x, alpha=alpha).tolist() == (1 + float(alpha) * x).tolist()
        assert rlk.torch.add(x, x, alpha=alpha).tolist() == (1 + float(alpha) * x).tolist()
    assert any(a is None for a in answers) and any(a is not None for a in answers)


@needs_direct
def test_calls_keep_nothing_alive():
    def run():
        logits, ids = batch()
        loss = rlk.torch.logp(logits, ids, lse=True).logp.sum()
        loss.backward()
        return [weakref.ref(x) for x in (logits, ids, loss)]
    for _ in range(3):
        kept = run()
        gc.collect()
        assert [reference() for reference in kept] == [None] * 3


@needs_direct
def test_an_error_in_a_known_call_is_rlks_and_the_next_call_is_right():
    logits, ids = batch()
    expected = rlk.torch.logp(logits, ids)
    for _ in range(2):
        with pytest.raises(errors.DataError):
            rlk.torch.logp(logits, ids + 100)
        with torch.no_grad(), pytest.raises(errors.DataError):
            rlk.torch.logp(logits, ids + 100)
        with pytest.raises(errors.ArgumentTypeError, match="ids is a list"):
            rlk.torch.logp(logits, [1, 2, 3])
        assert torch.equal(rlk.torch.logp(logits, ids), expected)


def test_a_tensor_of_a_transform_that_has_ended_has_its_gradient():
    kept, (logits, ids) = [], batch()

    def keeping(x):
        kept.append(x)
        return x.sum()

    leaf = logits.detach().clone().requires_grad_()
    torch.func.grad(keeping)(leaf)
    for _ in range(2):
        rlk.torch.logp(logits, ids)
        gradient, = torch.autograd.grad(rlk.torch.logp(kept[0], ids).sum(), leaf)
        assert torch.equal(gradient, torch.autograd.grad(rlk.torch.logp(logits, ids).sum(), logits)[0])


def test_what_a_graph_saves_is_what_a_plain_call_saves():
    known = 0
    for function in functions.values():
        if not function.pure or function.gradients.function is None:
            continue
        for there in ((True,) * function.n_inputs, tuple([not a.optional for a in function.operator.inputs])):
            words = tuple([function.defaults[i] for i in function.enums])
            bits = saved_of_graph(function.operator.name, there, words, function.required)
            known += bits >= 0
            try:
                plain = function.gradients.saved_of(there, function.required, function.defaults, lambda form: Sizes())
            except Unknown:
                assert bits == -1, function.operator.name
            else:
                assert bits in (plain, -1), function.operator.name
    assert known > 10


@needs_direct
def test_the_node_of_a_known_call_is_the_librarys_and_does_what_pythons_does():
    logits, ids = batch()
    found = []
    for _ in range(3):
        result = rlk.torch.logp(logits, ids, lse=True, entropy=True)
        found.append((result.logp.grad_fn.name(), torch.autograd.grad(result.logp.sum() + result.entropy.sum(), logits)[0],
                      torch.autograd.grad(rlk.torch.logp(logits, ids, lse=True, entropy=True).lse.sum(), logits)[0]))
    assert {name for name, *_ in found[1:]} == {"KnownBackward"}
    for _, *gradients in found[1:]:
        assert all(map(torch.equal, gradients, found[0][1:]))
    with pytest.raises(RuntimeError, match="for calls of rlk.torch alone"):
        type(result.logp.grad_fn)._forward_cls.apply(logits)


@needs_direct
def test_an_error_in_a_known_backward_is_rlks():
    logits, ids = batch()
    rlk.torch.logp(logits, ids).sum().backward()
    rlk.torch.logp(logits, ids).sum().backward()
    y = rlk.torch.logp(logits, ids).sum()
    ids.data.fill_(100)  # which torch does not see
    with pytest.raises(errors.DataError):
        y.backward()


@needs_direct
def test_the_overload_of_graphs_gives_what_the_operator_gives():
    (logits, ids), of_graphs, overload = batch(False), functions["logp"].of_graphs, functions["logp"].overload
    for rest in (([0.5, 0.0], [-100, 0, 0], 3, None, ""), ([], [], 1, "cpu", None), ([2.0], [-1], 7, None, "accurate")):
        arguments = (logits, ids, None, None, None, None, *rest)
        short, expected = of_graphs(*arguments), overload(*arguments)
        assert type(short) is list and len(short) == len(expected) and all(map(torch.equal, short, expected))
    with pytest.raises(RuntimeError):
        of_graphs(logits, ids, None, None, None, None, [1.0, 0.0, 0.0], [], 1, None, "")
    meta = of_graphs(logits.to("meta"), ids.to("meta"), None, None, None, None, [], [], 1, None, "")
    assert meta[0].is_meta


def test_a_compiled_graph_calls_the_overload_without_autograd():
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd
    called = []

    def collect(graph, inputs):
        called.extend(str(node.target) for node in graph.graph.nodes if "rlk" in str(node.target))
        return make_boxed_func(graph.forward)

    logits, ids = batch()
    compiled = torch.compile(lambda x, i: rlk.torch.logp(x, i), backend=aot_autograd(fw_compiler=collect), fullgraph=True)
    gradient, = torch.autograd.grad(compiled(logits, ids).sum(), logits)
    assert torch.equal(gradient, torch.autograd.grad(rlk.torch.logp(logits, ids).sum(), logits)[0])
    assert called == ["rlk.logp.kernel", "rlk.logp_backward.kernel"]
