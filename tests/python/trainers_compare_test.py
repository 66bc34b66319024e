"""Functions of a trainer whose source rlk does not know: tried against rlk, taken when both agree, refused when they do not."""
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed here")
import rlk  # noqa: E402
import rlk.integrations  # noqa: E402
from rlk.integrations import _compare, _example_calls  # noqa: E402
from rlk.integrations._replace import Original  # noqa: E402


def mean_of(x, scale=1.0):
    return x.mean(-1) * scale


def test_what_agrees_in_results_and_gradients_is_no_difference():
    assert _compare.difference(mean_of, lambda original, x, scale=1.0: x.sum(-1) / x.shape[-1], _example_calls.logits()) is None


@pytest.mark.parametrize("serve, seen", [
    (lambda original, x: mean_of(x, 1.01), "the result differs by"),
    (lambda original, x: mean_of(x.detach()) + 0 * x.sum(-1), "the gradient of argument 0 differs by"),
    (lambda original, x: mean_of(x).double(), "torch.float32 .* rlk's torch.float64"),
    (lambda original, x: (mean_of(x), x), r"it gives the result, the gradient of argument 0, rlk the result\[0\], the result\[1\]"),
    (lambda original, x: mean_of(x) * float("nan"), "differs by nan"),
    (lambda original, x: 1 / 0, "rlk raises ZeroDivisionError"),
])
def test_what_differs_is_told(serve, seen):
    import re
    assert re.search(seen, _compare.difference(mean_of, serve, _example_calls.logits()))


def test_a_metric_of_another_name_is_told_though_its_number_is_the_same():
    seen = _compare.difference(lambda x: {"clipped": 0.5}, lambda original, x: {"clip_fraction": 0.5}, [_compare.Call((1,))])
    assert seen == "call 0: it gives the result['clipped'], rlk the result['clip_fraction']"


def test_what_a_trainer_never_reads_may_differ():
    def with_garbage_at(place):
        def function(original, x):
            found = x * 2
            found[place] = 7.0
            return found
        return function
    x = torch.arange(4.0)
    calls = [_compare.Call((x,), read=lambda found: found[:3])]
    assert _compare.difference(lambda x: with_garbage_at(3)(None, x), lambda original, x: x * 2, calls) is None
    assert "differs by 7" in _compare.difference(lambda x: with_garbage_at(0)(None, x), lambda original, x: x * 2, calls)


def test_infinities_agree_where_both_have_the_same():
    x = torch.tensor([[0.0, -torch.inf, 2.0]])
    def of(value):
        return lambda x: torch.where(x.isinf(), value, x)
    calls = [_compare.Call((x,))]
    assert _compare.difference(of(-torch.inf), lambda original, x: x, calls) is None
    for other in (torch.inf, torch.nan, -1e30):
        assert "call 0: the result differs by" in _compare.difference(of(other), lambda original, x: x, calls)


def test_a_trial_in_which_rlk_serves_nothing_proves_nothing():
    def declines(original, x):
        raise Original("everything")
    assert _compare.difference(mean_of, declines, _example_calls.logits()) == "rlk serves none of the calls that it is tried with"


def test_an_original_that_cannot_be_called_so_is_no_agreement():
    def other(x, y):
        return x + y
    assert "the original raises TypeError" in _compare.difference(other, lambda original, x: x, _example_calls.logits())


# ---- installed packages ------------------------------------------------------------------------------------------

@pytest.fixture
def unknown(monkeypatch):
    """No function has the source that rlk knows, as after an update of each package."""
    monkeypatch.setattr("rlk.integrations._hooks.digest", lambda text: "another")


# The package, a module that it needs, and how many functions rlk replaces of those that it can try without a card.
PACKAGES = {"trl": ("trl.trainer.utils", 4), "openrlhf": ("openrlhf.models.loss", 3), "verl": ("verl.trainer.ppo.core_algos", 19),
            "slime": ("slime.utils.ppo_utils", 5), "vllm": ("vllm.v1.sample.sampler", 3),
            "sglang": ("sglang.srt.layers.sampler", 5)}
ONLY_ON_A_CARD = {"verl": "linear_cross_entropy", "vllm": "compute_token_logprobs"}


@pytest.mark.parametrize("package", PACKAGES)
class TestEveryPackage:
    def test_functions_of_an_unknown_source_that_agree_are_taken_with_a_warning(self, package, unknown, caplog):
        module, count = PACKAGES[package]
        pytest.importorskip(module, reason=f"{package} is not whole here", exc_type=ImportError)
        with rlk.integrations.enable(package) as state:
            taken = [r.function for r in state.replaced]
        only = ONLY_ON_A_CARD.get(package)
        if only and not torch.cuda.is_available():
            assert not any(only in function for function in taken)
            assert "cannot be tried here without a CUDA device" in caplog.text
        assert len(taken) == count + bool(only and torch.cuda.is_available()), caplog.text
        added = len([r for r in caplog.records if ": added to " in r.message])
        tried = len([r for r in caplog.records if "gave the same in trial calls" in r.message])
        assert tried + added == len(taken), caplog.text

    def test_strict_refuses_them_untried(self, package, unknown):
        pytest.importorskip(PACKAGES[package][0], reason=f"{package} is not whole here", exc_type=ImportError)
        with pytest.raises(rlk.Unsupported, match="is not the function that rlk knows"):
            rlk.integrations.enable(package, strict=True)


# vLLM and SGLang are too large to be installed for a test: what they compute stands here as its formula.
FORMULAS = {
    ("vllm", "Sampler.compute_logprobs"): lambda logits: logits.log_softmax(-1, torch.float32),
    ("vllm", "Sampler.greedy_sample"): lambda logits: logits.argmax(-1).view(-1),
    ("vllm", "compute_token_logprobs"): lambda logits, ids: logits.log_softmax(-1, torch.float32).gather(1, ids),
    ("sglang", "gather_chunked_token_logprobs"): lambda *, logits, row_indices, token_indices, per_row_temps, chunk_size:
        (logits[row_indices].float() / per_row_temps[:, None]).log_softmax(-1).gather(1, token_indices[:, None])[:, 0],
}


@pytest.mark.parametrize("package, name", FORMULAS)
def test_trial_calls_of_an_engine_agree_with_its_formula_and_with_nothing_else(package, name, monkeypatch):
    monkeypatch.setattr(_example_calls, "_cuda", lambda: "cpu")
    hook, = [h for h in rlk.integrations.integration(package).hooks if h.name == name]
    formula, calls = FORMULAS[package, name], hook.calls()
    assert _compare.difference(formula, hook.make(None), calls) is None
    assert "differs by" in _compare.difference(lambda *a, **n: formula(*a, **n) * 2 + 1, hook.make(None), calls)


class TestTrl:
    @pytest.fixture(autouse=True)
    def utils_of_trl(self, unknown):
        self.utils = pytest.importorskip("trl.trainer.utils", reason="trl is not installed here")

    def test_one_that_computes_something_else_is_refused(self, monkeypatch):
        before = self.utils.entropy_from_logits

        def entropy_from_logits(logits, chunk_size=128):
            return before(logits, chunk_size) / 0.6931471805599453  # in bits

        monkeypatch.setattr(self.utils, "entropy_from_logits", entropy_from_logits)
        with pytest.raises(rlk.Unsupported, match="Tried against rlk's it differs: call 0: the result.* differs by"):
            rlk.integrations.enable("trl")
        assert self.utils.entropy_from_logits is entropy_from_logits and not rlk.integrations.enabled()


# ---- what a new version could do to a function: rlk must not take it ---------------------------------------------

def changed(what):
    def wrap(original):
        function = what(original)
        function.__name__ = original.__name__
        return function
    return wrap


def half_the_loss(original):
    def function(*arguments, **named):
        loss, metrics = original(*arguments, **named)
        return loss * 0.5, metrics
    return function


def another_metric(original):
    def function(*arguments, **named):
        loss, metrics = original(*arguments, **named)
        return loss, {**metrics, "actor/more": 0.0}
    return function


def a_renamed_argument(original):
    return lambda token_rewards, response_mask, index: original(token_rewards, response_mask, index)


def other_returns(original):
    def function(*arguments, **named):
        advantages, returns = original(*arguments, **named)
        return advantages, returns * 1.01
    return function


@pytest.mark.parametrize("registry, entry, change, seen", [
    ("POLICY_LOSS_REGISTRY", "gspo", half_the_loss, r"the result\[0\] differs by"),
    ("POLICY_LOSS_REGISTRY", "sapo", another_metric, r"it gives .*actor/more"),
    ("ADV_ESTIMATOR_REGISTRY", "opo", a_renamed_argument, "the original raises TypeError"),
    ("ADV_ESTIMATOR_REGISTRY", "gae", other_returns, r"the result\[1\] differs by"),
    ("ADV_ESTIMATOR_REGISTRY", "rloo_vectorized", other_returns, r"the result\[1\] differs by"),
])
def test_a_function_of_verl_that_does_something_else_is_refused(unknown, monkeypatch, registry, entry, change, seen):
    core = pytest.importorskip("verl.trainer.ppo.core_algos", reason="verl is not whole here", exc_type=ImportError)
    entries = getattr(core, registry)
    monkeypatch.setitem(entries, entry, changed(change)(entries[entry]))
    with pytest.raises(rlk.Unsupported, match=seen):
        rlk.integrations.enable("verl")
    assert not rlk.integrations.enabled()
