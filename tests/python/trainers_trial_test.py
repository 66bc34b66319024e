"""Functions of a trainer whose source rlk does not know: tried against rlk, taken when both agree, refused when they do not."""
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed here")
import rlk  # noqa: E402
import rlk.integrations  # noqa: E402
from rlk.integrations import _trial  # noqa: E402
from rlk.integrations._replace import Original  # noqa: E402


def mean_of(x, scale=1.0):
    return x.mean(-1) * scale


def test_what_agrees_in_results_and_gradients_is_no_difference():
    assert _trial.difference(mean_of, lambda original, x, scale=1.0: x.sum(-1) / x.shape[-1], _trial.logits()) is None


@pytest.mark.parametrize("serve, seen", [
    (lambda original, x: mean_of(x, 1.01), "result or gradient 0 differs by"),
    (lambda original, x: mean_of(x.detach()) + 0 * x.sum(-1), "result or gradient 1 differs by"),
    (lambda original, x: mean_of(x).double(), "torch.float32 .* rlk's torch.float64"),
    (lambda original, x: (mean_of(x), x), "2 results, rlk has 3"),
    (lambda original, x: mean_of(x) * float("nan"), "differs by nan"),
    (lambda original, x: 1 / 0, "rlk raises ZeroDivisionError"),
])
def test_what_differs_is_told(serve, seen):
    import re
    assert re.search(seen, _trial.difference(mean_of, serve, _trial.logits()))


def test_a_trial_in_which_rlk_serves_nothing_proves_nothing():
    def declines(original, x):
        raise Original("everything")
    assert _trial.difference(mean_of, declines, _trial.logits()) == "rlk serves none of the calls that it is tried with"


def test_an_original_that_cannot_be_called_so_is_no_agreement():
    def other(x, y):
        return x + y
    assert "the original raises TypeError" in _trial.difference(other, lambda original, x: x, _trial.logits())


class TestTrl:
    @pytest.fixture(autouse=True)
    def unknown(self, monkeypatch):
        self.utils = pytest.importorskip("trl.trainer.utils", reason="trl is not installed here")
        monkeypatch.setattr("rlk.integrations._hooks.digest", lambda text: "another")

    def test_functions_of_an_unknown_source_that_agree_are_taken_with_a_warning(self, caplog):
        with rlk.integrations.enable("trl") as state:
            assert len(state.replaced) == 4
        warned = [r.message for r in caplog.records if "whose source rlk does not know" in r.message]
        assert len(warned) == 4, caplog.text

    def test_strict_refuses_them_untried(self):
        with pytest.raises(rlk.Unsupported, match="is not the function that rlk knows"):
            rlk.integrations.enable("trl", strict=True)

    def test_one_that_computes_something_else_is_refused(self, monkeypatch):
        before = self.utils.entropy_from_logits

        def entropy_from_logits(logits, chunk_size=128):
            return before(logits, chunk_size) / 0.6931471805599453  # in bits

        monkeypatch.setattr(self.utils, "entropy_from_logits", entropy_from_logits)
        with pytest.raises(rlk.Unsupported, match="Tried against rlk's it differs: call 0: result or gradient . differs by"):
            rlk.integrations.enable("trl")
        assert self.utils.entropy_from_logits is entropy_from_logits and not rlk.integrations.enabled()
