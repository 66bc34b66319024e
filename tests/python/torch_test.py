"""rlk.torch: opcheck of every operator, gradients, torch.compile and export. On the CPU; opcheck and fake kernels also on the
device that RLK_TEST_TORCH_DEVICE names."""
import gc
import itertools
import math
import os
import signal
import subprocess
import sys
import weakref

import numpy as np
import pytest
import rlk
from declared import OPERATORS, cases

torch = pytest.importorskip("torch", reason="torch is not installed here")
import rlk.torch  # noqa: E402
import torch._dynamo.testing  # noqa: E402
from rlk._autograd import schema  # noqa: E402
from rlk import _devices, _runtime  # noqa: E402
from rlk._gradients import Gradients, functions  # noqa: E402
from rlk._torch_library import REQUEST  # noqa: E402

DIFFERENTIABLE = [name for name, op in OPERATORS.items() if op.get("backward")]


DEVICE = os.environ.get("RLK_TEST_TORCH_DEVICE", "cpu")


def calls(name, wide=False, device="cpu"):
    """(case, tensors, wanted outputs) of every form, floats as fp64 where wide."""
    for case in cases(name):
        tensors = {k: torch.from_numpy(np.array(x)).to(device) for k, x in case.inputs.items()}
        if wide:
            tensors = {k: x.double() if x.dtype == torch.float32 else x for k, x in tensors.items()}
        yield case, tensors, case.wanted


def has_gradient(name):
    """The inputs for which the backward has a gradient."""
    return [a["name"].removeprefix("grad_") for a in OPERATORS[OPERATORS[name]["backward"]]["output"]]


def raw(case, tensors, wanted):
    """The arguments of torch.ops.rlk.NAME, as rlk.torch passes them."""
    function = functions[case.op["name"]]
    op = function.operator
    codes = op.codes([case.form if p.name == op.form else p.default for p in op.params])
    inputs = [tensors.get(a.name) for a in op.inputs]
    bits = function.required | sum(function.bits[name] for name in wanted)
    if function.gradients.function is not None:
        bits |= function.gradients.saved(inputs, codes, bits)
    return (*inputs, *function.lists(codes), bits, None, "")


@pytest.mark.parametrize("name", OPERATORS)
def test_opcheck(name):
    for case, tensors, wanted in itertools.islice(calls(name, device=DEVICE), 2):  # without and with all that is optional
        if OPERATORS[name].get("backward"):
            for key in has_gradient(name):
                if key in tensors:
                    tensors[key].requires_grad_()
        arguments = raw(case, tensors, wanted)
        outputs = functions[name].overload(*arguments) or ()
        utils = ["test_schema", "test_autograd_registration", "test_faketensor"]
        if not any(x.isnan().any() for x in outputs):  # the last check takes a NaN for unequal to itself
            utils.append("test_aot_dispatch_dynamic")
        assert len(utils) == 4 or case.optional, "the plain case is checked whole"
        result = torch.library.opcheck(functions[name].overload, arguments, test_utils=utils)
        assert list(result.values()) == ["SUCCESS"] * len(utils)


@pytest.mark.parametrize("name", OPERATORS)
def test_fake_kernels_know_every_form(name):
    for case, tensors, wanted in calls(name, device=DEVICE):
        torch.library.opcheck(functions[name].overload, raw(case, tensors, wanted), test_utils=["test_faketensor"])


@pytest.mark.parametrize("name", OPERATORS)
def test_results_are_those_of_rlk_ops(name):
    for case, tensors, wanted in calls(name):
        ours = getattr(rlk.torch, name)(**tensors, **case.words(), **{w: True for w in wanted})
        plain = getattr(rlk.ops, name)(**case.inputs, **case.words(), outputs=wanted)
        if not isinstance(plain, tuple):
            ours, plain = (ours,), (plain,)
        assert getattr(ours, "_fields", None) == getattr(plain, "_fields", None)
        for a, b in zip(ours, plain):
            np.testing.assert_array_equal(a.numpy(), b)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_are_slopes(name):
    """Of every output that has one, also those that the call does not name but the backward's rules want."""
    gradients = {a["name"] for a in OPERATORS[OPERATORS[name]["backward"]]["input"]}
    outputs = [a["name"] for a in OPERATORS[name]["output"] if f"grad_{a['name']}" in gradients]
    tried = 0
    for case, tensors, wanted in calls(name, wide=True):
        leaves = [k for k in has_gradient(name) if k in tensors and tensors[k].is_floating_point() and tensors[k].numel()]
        if not leaves or tensors[leaves[0]].numel() > 5000:
            continue
        if "old_logp" not in tensors and any(a["name"] == "old_logp" for a in OPERATORS[name]["input"]):
            continue  # the old policy is then the new one, detached: a gradient that no difference shows
        for k in tensors:  # infinities have no slope that a difference could show
            if tensors[k].is_floating_point():
                tensors[k] = tensors[k].nan_to_num(neginf=-9.0)

        def function(*values):
            result = getattr(rlk.torch, name)(**tensors | dict(zip(leaves, values)), **case.words(), **{w: True for w in wanted})
            found = result if hasattr(result, "_fields") else type("Only", (), {outputs[0]: result})
            values = [getattr(found, o) for o in outputs if hasattr(found, o)]
            return tuple(x.where(x.isfinite(), 0) for x in values)  # of a row without a key, say

        values = [tensors[k].clone().requires_grad_() for k in leaves]
        assert torch.autograd.gradcheck(function, values, eps=1e-6, atol=1e-5, rtol=1e-4, fast_mode=True), (name, case.form)
        tried += 1
    assert tried


def batch(dtype=torch.float32):
    random = torch.Generator().manual_seed(3)
    return torch.randn(6, 17, generator=random, dtype=dtype), torch.randint(0, 17, (6,), generator=random)


def test_gradients_agree_with_torchs_own():
    logits, ids = batch()
    ours, theirs = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    result = rlk.torch.logp(ours, ids, temperature=0.7, entropy=True)
    (result.logp.sum() - 0.3 * result.entropy.sum()).backward()
    logp = (theirs / 0.7).log_softmax(-1)
    (logp.gather(1, ids[:, None]).sum() + 0.3 * (logp.exp() * logp).sum()).backward()
    torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-5, rtol=1e-5)


def test_sixteen_bit_gradients_have_the_dtype_of_their_input():
    logits, ids = batch(torch.bfloat16)
    bias = torch.zeros(17, dtype=torch.bfloat16, requires_grad=True)
    rlk.torch.logp(logits.requires_grad_(), ids, bias).sum().backward()
    assert logits.grad.dtype == bias.grad.dtype == torch.bfloat16


def test_an_unused_output_adds_nothing_to_a_gradient():
    logits, ids = batch()
    grads = []
    for more in ({}, {"entropy": True}, {"lse": True, "entropy": True}):
        x = logits.clone().requires_grad_()
        result = rlk.torch.logp(x, ids, **more)
        (result if not more else result.logp).sum().backward()
        grads.append(x.grad)
    assert torch.equal(grads[0], grads[1]) and torch.equal(grads[0], grads[2])


def test_an_output_without_a_gradient_does_not_ask_for_one():
    logp, advantages = torch.rand(2, 5).neg().requires_grad_(), torch.randn(2, 5)
    result = rlk.torch.policy_loss(logp, advantages, metrics=True)
    assert result.loss.requires_grad and not result.metrics.requires_grad


def test_what_has_no_gradient_raises_when_one_reaches_it():
    x = torch.randn(3, 4, requires_grad=True)
    with pytest.raises(rlk.InvalidArgument, match="whiten has no gradient.*detach"):
        rlk.torch.whiten(x).sum().backward()
    logits, ids = batch(torch.float64)
    grad, = torch.autograd.grad(rlk.torch.logp(logits.requires_grad_(), ids).sum(), logits, create_graph=True)
    with pytest.raises(rlk.InvalidArgument, match="logp_backward has no gradient"):
        grad.sum().backward()
    advantages = torch.randn(2, 5, requires_grad=True)
    with pytest.raises(rlk.InvalidArgument, match="policy_loss has no gradient for advantages"):
        rlk.torch.policy_loss(torch.zeros(2, 5), advantages).backward()


def test_the_dispatchers_own_entry_says_what_its_gradient_reads():
    logits, ids = batch()
    with pytest.raises(rlk.InvalidArgument, match="reads its output lse, which was not asked for"):
        torch.ops.rlk.logp(logits.requires_grad_(), ids)[0].sum().backward()


def test_parameters_that_a_saved_graph_does_not_know_have_their_defaults():
    logits, ids = batch()
    whole = torch.ops.rlk.logp(logits, ids, real=[0.7], whole=[], wanted=0)
    assert torch.equal(whole[0], rlk.torch.logp(logits, ids, temperature=0.7))
    assert "real=[]" in schema(functions["policy_loss"].operator)


def test_a_parameter_is_what_its_tensor_is_worth_now():
    ones, factor = torch.ones(2), torch.tensor(2.0)
    assert rlk.torch.add(ones, ones, alpha=factor)[0] == 3
    factor.fill_(5)
    assert rlk.torch.add(ones, ones, alpha=factor)[0] == 6
    known = weakref.ref(factor)
    del factor
    gc.collect()
    assert known() is None
    with pytest.raises(rlk.ArgumentTypeError, match="add: alpha is tensor.*, expected a number"):
        rlk.torch.add(ones, ones, alpha=torch.ones(2))


def test_a_parameter_that_requires_a_gradient_is_refused():
    logits, ids = batch()
    temperature = torch.tensor(0.5, requires_grad=True)
    for function in (rlk.torch.logp, rlk.ops.logp):
        with pytest.raises(rlk.InvalidArgument, match=r"logp: temperature requires a gradient.*temperature.item\(\)"):
            function(logits, ids, temperature=temperature)
        with torch.no_grad():
            assert torch.equal(function(logits, ids, temperature=temperature), function(logits, ids, temperature=0.5))


def test_a_zero_keeps_its_sign_whatever_zero_was_passed_before():
    for value in (-0.0, 0.0, -0.0):
        assert rlk.torch.fill(torch.ones(2), value=value).signbit().tolist() == [np.signbit(value)] * 2


def test_a_backward_keeps_the_sign_of_a_zero_whatever_zero_was_passed_before(monkeypatch):
    logits, ids = batch()
    seen, run, backward = [], Gradients.run, functions["logp_backward"]
    names, direct = [p.name for p in backward.operator.params], backward.direct

    def note(params):
        seen.append(math.copysign(1, params["softcap"]))

    def watched(function, given, request):
        note(dict(zip([p.name for p in backward.operator.params if p.type == "f64"], request.arguments[0])))
        return run(function, given, request)

    def watched_library(packed, *given):
        note(dict(zip(names, backward.operator.packed_params.unpack(packed[REQUEST.size:])[2:])))
        return direct(packed, *given)

    if direct is None:
        monkeypatch.setattr(Gradients, "run", staticmethod(watched))
    else:
        monkeypatch.setattr(backward, "direct", watched_library)
    for softcap in (-0.0, 0.0, -0.0):
        rlk.torch.logp(logits.clone().requires_grad_(), ids, softcap=softcap).sum().backward()
    assert seen == [-1, 1, -1]


@pytest.mark.skipif(not rlk.torch.served_by.startswith("librlk_torch"), reason=rlk.torch.served_by)
def test_after_a_reload_every_thread_makes_its_streams_anew(monkeypatch):
    asked, x = [], torch.ones(2)
    backend_of = _devices.backend_of
    monkeypatch.setattr(_devices, "backend_of", lambda *memory: asked.append(memory) or backend_of(*memory))
    _runtime.note_reload()
    for _ in range(2):
        rlk.torch.add(x, x)
    assert len(asked) == 1, "for the stream that is kept"
    _runtime.note_reload()
    rlk.torch.add(x, x)
    assert len(asked) == 2


def test_compile_in_one_graph_forward_and_backward():
    logits, ids = batch()

    def loss(x):
        return rlk.torch.logp(x * 2, ids, temperature=0.7, entropy=True).logp.sum()

    grads = []
    for function in (loss, torch.compile(loss, fullgraph=True, backend="aot_eager")):
        x = logits.clone().requires_grad_()
        function(x).backward()
        grads.append(x.grad)
    assert torch.equal(*grads)


@pytest.mark.parametrize("plain", [
    lambda k: rlk.torch.logp(*batch(), temperature=2 + k / 16),
    lambda k: rlk.torch.logp(torch.randn(k + 20, 9, requires_grad=True), torch.zeros(k + 20, dtype=torch.int64)),
    lambda k: rlk.ops.logp(*batch(), temperature=3 + k / 16),
], ids=["parameters", "sizes", "ops"])
def test_plain_calls_between_compile_no_graph_anew(plain):
    logits, ids = batch()
    torch._dynamo.reset()
    functions["logp"].gradients.answers.clear()  # as in a process that has not called yet
    counter = torch._dynamo.testing.CompileCounter()
    compiled = torch.compile(lambda x: rlk.torch.logp(x, ids) * 2, fullgraph=True, backend=counter)
    for k in range(4):
        compiled(logits.requires_grad_())
        plain(k)
    assert counter.frame_count == 1


FIRST = """
import rlk.torch, torch
x, ids = torch.randn(5, 7, requires_grad=True), torch.arange(5)
compiled = torch.compile(lambda x: rlk.torch.logp(x, ids, entropy=True).logp, fullgraph=True, backend="aot_eager")
compiled(x).sum().backward()
assert torch.equal(compiled(x), rlk.torch.logp(x, ids))
both = torch.compile(lambda x: rlk.torch.logp(x, ids, lse=True), fullgraph=True, backend="aot_eager")(x)
assert torch.equal(both.lse, rlk.torch.logp(x, ids, lse=True).lse)
"""


def test_the_first_call_of_a_process_may_be_a_compiled_one():
    subprocess.run([sys.executable, "-c", FIRST], check=True, timeout=300)


def test_what_changes_its_inputs_compiles():
    def step(gradient, parameter, mean, square):
        rlk.torch.adamw_step(gradient * 2, parameter, mean, square)
        return parameter * 1

    results = []
    for function in (step, torch.compile(step, fullgraph=True, backend="aot_eager")):
        tensors = [torch.arange(1.0, 5.0) * k for k in (1, 2, 0, 0)]
        results.append([function(*tensors), *tensors])
    assert all(torch.equal(a, b) for a, b in zip(*results)) and not torch.equal(results[0][1], results[0][2])


def test_what_changes_its_inputs_tells_a_graph_that_saved_them():
    weight, saved = torch.randn(4, requires_grad=True), torch.ones(4)
    product = (weight * saved).sum()
    rlk.torch.adamw_step(torch.ones(4), saved, torch.zeros(4), torch.zeros(4))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()
    with torch.inference_mode():
        state = [torch.ones(4) for _ in range(3)]
        assert rlk.torch.adamw_step(torch.ones(4), *state).param is state[0]


def test_what_changes_its_inputs_takes_none_that_requires_a_gradient():
    parameter, state = torch.nn.Parameter(torch.ones(4)), (torch.zeros(4), torch.zeros(4))
    with pytest.raises(rlk.InvalidArgument, match="adamw_step: an input requires a gradient.*no_grad"):
        rlk.torch.adamw_step(torch.ones(4), parameter, *state)
    assert parameter.tolist() == [1] * 4
    with torch.no_grad():
        rlk.torch.adamw_step(torch.ones(4), parameter, *state)
    assert (parameter < 1).all()
    key, caches = torch.randn(3, 2, 4, requires_grad=True), (torch.zeros(2, 4, 2, 4), torch.zeros(2, 4, 2, 4))
    with pytest.raises(rlk.InvalidArgument, match="reshape_and_cache: an input requires a gradient.*detach"):
        rlk.torch.reshape_and_cache(key, key, *caches, torch.arange(3))


def autocast(dtype=torch.bfloat16):
    return torch.autocast("cpu", dtype=dtype)


def test_autocast_makes_products_as_torch_makes_them():
    x, weight = torch.randn(3, 8, requires_grad=True), torch.randn(5, 8, requires_grad=True)
    with autocast():
        ours, theirs = rlk.torch.linear(x, weight), torch.nn.functional.linear(x, weight)
    assert ours.dtype == theirs.dtype == torch.bfloat16
    torch.testing.assert_close(ours, theirs, atol=2e-2, rtol=2e-2)
    ours.sum().backward()
    assert x.grad.dtype == weight.grad.dtype == torch.float32 and x.grad.abs().sum() > 0
    assert rlk.torch.linear(x, weight).dtype == torch.float32, "outside nothing is cast"


def test_under_autocast_the_gradient_of_a_weight_in_fp32_is_not_rounded_to_16_bits():
    hidden, weight = torch.randn(40, 16, requires_grad=True), torch.randn(30, 16, requires_grad=True)
    with autocast():
        rlk.torch.linear_logp(hidden, weight, torch.arange(40) % 30).sum().backward()
    assert weight.grad.dtype == torch.float32 and not torch.equal(weight.grad, weight.grad.bfloat16().float())
    rounded = [x.detach().bfloat16().requires_grad_() for x in (hidden, weight)]
    rlk.torch.linear_logp(*rounded, torch.arange(40) % 30).sum().backward()
    assert torch.equal(weight.grad.bfloat16(), rounded[1].grad) and torch.equal(hidden.grad.bfloat16(), rounded[0].grad)


def test_autocast_widens_what_must_agree_and_differs():
    logp, advantages = torch.rand(2, 5).neg(), torch.randn(2, 5).bfloat16()
    with pytest.raises(rlk.InvalidArgument, match="dtype"):
        rlk.torch.policy_loss(logp, advantages)
    with autocast():
        assert torch.equal(rlk.torch.policy_loss(logp, advantages), rlk.torch.policy_loss(logp, advantages.float()))


def test_autocast_leaves_alone_what_has_one_dtype_or_is_wide():
    logits, ids = batch()
    with autocast():
        assert torch.equal(rlk.torch.logp(logits, ids), torch.ops.rlk.logp(logits, ids)[0])
        assert rlk.torch.logp(logits.double(), ids).dtype == torch.float64
        assert rlk.torch.linear(logits.double(), logits.double()).dtype == torch.float64
    assert torch.equal(rlk.torch.logp(logits, ids), rlk.ops.logp(logits, ids))


def test_autocast_is_part_of_a_compiled_graph():
    x, weight = torch.randn(3, 8), torch.randn(5, 8)

    def product(x):
        with autocast():
            return rlk.torch.linear(x, weight)

    compiled = torch.compile(product, fullgraph=True, backend="aot_eager")(x)
    assert compiled.dtype == torch.bfloat16 and torch.equal(compiled, product(x))


def test_what_torch_func_cannot_differentiate_raises():
    logits, ids = batch()
    with pytest.raises(RuntimeError, match="functorch"):
        torch.func.grad(lambda x: rlk.torch.logp(x, ids).sum())(logits)
    with pytest.raises(rlk.Unsupported, match="has a tangent"):
        torch.func.jvp(lambda x: rlk.torch.logp(x, ids), (logits,), (logits,))


def test_export_keeps_sizes_open():
    logits, ids = batch()

    class Model(torch.nn.Module):
        def forward(self, x, ids):
            return rlk.torch.logp(x, ids)

    rows = torch.export.Dim("rows", min=2, max=100)
    program = torch.export.export(Model(), (logits, ids), dynamic_shapes={"x": {0: rows}, "ids": {0: rows}})
    assert torch.equal(program.module()(logits[:3], ids[:3]), rlk.torch.logp(logits[:3], ids[:3]))


def threads_started(pool):
    """By rlk, in a process in which torch has one thread."""
    program = """if True:
        import os, torch
        torch.set_num_threads(1)
        import rlk.torch
        x = torch.randn(1 << 22)
        before = len(os.listdir("/proc/self/task"))
        assert torch.equal(rlk.torch.add(x, x), x + x)
        print(len(os.listdir("/proc/self/task")) - before)"""
    done = subprocess.run([sys.executable, "-c", program], env=os.environ | {"RLK_THREAD_POOL": pool, "RLK_WATCH": "off"},
                          capture_output=True, text=True, timeout=300, check=True)
    return int(done.stdout.splitlines()[-1])


def test_loops_run_on_torchs_threads_unless_rlk_is_to_have_its_own():
    assert threads_started("") < threads_started("own")


def test_a_forked_child_computes_when_torchs_threads_have_run_before():
    x = torch.randn(1 << 22)
    assert torch.equal(rlk.torch.add(x, x), x + x)
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # a child that hangs is killed, and fails
        y = rlk.torch.add(x, x)
        os._exit(0 if float(y[0]) == 2 * float(x[0]) and float(y[-1]) == 2 * float(x[-1]) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_what_is_no_tensor_is_refused_by_name():
    logits, ids = batch()
    for x in (logits, logits.clone().requires_grad_()):
        with pytest.raises(rlk.InvalidArgument, match="logp: (ids is None, expected a tensor|input 'ids' is missing)"):
            rlk.torch.logp(x, None)
        with pytest.raises(rlk.ArgumentTypeError, match="logp: ids is a ndarray, expected a tensor of torch. rlk.ops.logp"):
            rlk.torch.logp(x, ids.numpy())
        with pytest.raises(rlk.ArgumentTypeError, match="logp: bias is a list, expected a tensor"):
            rlk.torch.logp(x, ids, [1.0])
    with pytest.raises(rlk.InvalidArgument, match="logp: .*logits"):
        rlk.torch.logp(None, None)
    with pytest.raises(rlk.InvalidArgument, match="adamw_step: .*param"):
        rlk.torch.adamw_step(torch.ones(4), None, None, None)


def test_an_optional_output_is_asked_for_by_a_bool():
    logits, ids = batch()
    for wrong in (torch.float64, torch.zeros(6), "f64", 3):
        with pytest.raises(rlk.ArgumentTypeError, match="logp: lse is .*, expected True or False.*rlk.ops.logp takes a dtype"):
            rlk.torch.logp(logits, ids, lse=wrong)
    assert rlk.torch.logp(logits, ids, lse=np.True_)._fields == ("logp", "lse")
    assert isinstance(rlk.torch.logp(logits, ids, lse=np.False_, entropy=None), torch.Tensor)


def test_who_shall_serve_is_said_in_words():
    logits, ids = batch()
    with pytest.raises(rlk.InvalidArgument, match="logp: pin is 3, expected a backend"):
        rlk.torch.logp(logits, ids, pin=3)
    with pytest.raises(rlk.InvalidArgument, match="logp: numerics is 5, expected one or several of tolerance"):
        rlk.torch.logp(logits, ids, numerics=5)
    with pytest.raises(rlk.InvalidArgument, match="numerics names '?3"):
        rlk.torch.logp(logits, ids, numerics=[3])
    assert torch.equal(rlk.torch.logp(logits, ids, numerics=["accurate", "deterministic"]), rlk.torch.logp(logits, ids))


def test_tensors_without_memory_beside_others_are_refused():
    logits, ids = batch()
    assert rlk.torch.logp(logits.to("meta"), ids.to("meta")).shape == (6,)
    for x, y in ((logits, ids.to("meta")), (logits.to("meta"), ids)):
        with pytest.raises(rlk.InvalidArgument, match="logp: inputs are on .* and on .*must be on one device"):
            rlk.torch.logp(x, y)


def test_errors_come_through_the_dispatcher():
    logits, ids = batch()
    with pytest.raises(rlk.DataError, match="row 2 has the id 99"):
        ids[2] = 99
        rlk.torch.logp(logits, ids)
    with pytest.raises(rlk.InvalidArgument, match="temperature"):
        rlk.torch.logp(logits, ids, temperature=0.0)
    with pytest.raises(rlk.Error, match="cuda"):
        rlk.torch.logp(logits, ids, pin="cuda")
