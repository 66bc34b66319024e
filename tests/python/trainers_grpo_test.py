"""examples/grpo_trl.py: 20 steps of GRPO with TRL on the CPU, with and without rlk."""
import importlib.util
import math
import pathlib

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed here")
pytest.importorskip("trl", reason="trl is not installed here (pip install trl==1.16.0)")
import rlk.integrations  # noqa: E402
import rlk.torch  # noqa: E402
from rlk.integrations import _trl  # noqa: E402

torch.set_num_threads(1)
EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples/grpo_trl.py"
STEPS, AGREE = 20, {"loss": 1e-5, "grad_norm": 1e-4, "entropy": 1e-4, "kl": 1e-5}


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("grpo_trl", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def plain(example):
    log, calls = example.train(STEPS, False)
    assert len(log) == STEPS and not calls
    return log


def furthest(a, b):
    """The worst difference of a step as a fraction of what agreement allows."""
    return max(abs(x[key] - y[key]) / allowed for x, y in zip(a, b, strict=True) for key, allowed in AGREE.items())


def test_losses_gradients_entropies_and_samples_agree(example, plain):
    log, calls = example.train(STEPS, True)
    assert calls["_ChunkedLogProbFunction"] == {"rlk": 2 * STEPS}  # the policy and the reference; nothing went to the original
    assert not any(calls[name] for name in calls if name != "_ChunkedLogProbFunction")
    assert furthest(plain, log) <= 1
    assert [x.get("reward") for x in plain] == [x.get("reward") for x in log]
    assert sum(abs(x["loss"]) > 1e-3 for x in plain) > STEPS // 2 and all(math.isfinite(x["loss"]) for x in log)


def test_with_rlks_attention_too_they_agree(example, plain):
    with rlk.integrations.enable("transformers") as attention:
        log, _ = example.train(STEPS, True, model_init_kwargs={"attn_implementation": "rlk"})
        (calls,) = attention.calls().values()
    assert furthest(plain, log) <= 1 and set(calls) == {"rlk"} and calls["rlk"] > 4 * STEPS  # two layers of two models


def test_a_temperature_that_is_one_percent_off_would_show(example, plain, monkeypatch):
    def off(operator, *inputs, temperature, **words):
        return getattr(rlk.torch, operator)(*inputs, temperature=temperature * 1.01, **words)
    monkeypatch.setattr(_trl, "call", off)
    assert furthest(plain, example.train(STEPS, True)[0]) > 10
