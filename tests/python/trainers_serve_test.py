"""rlk.integrations on devices: a trainer's tensors never go through the CPU and back. Without a device: what explain answers is
made here."""
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed here")
import rlk  # noqa: E402
import rlk.torch  # noqa: E402, F401
from rlk.integrations import _serve  # noqa: E402
from rlk.integrations._replace import Original, Replacement  # noqa: E402

LOGITS, IDS = torch.randn(3, 5), torch.arange(3)


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(_serve, "_served", {})


def asked(monkeypatch, answer):
    calls = []

    def explain(operator, *inputs, **arguments):
        calls.append(operator)
        if isinstance(answer, Exception):
            raise answer
        return {"candidates": [{"verdict": "declined", "staged": False}, *answer]}
    monkeypatch.setattr(_serve, "explain", explain)
    return calls


def require(inputs=(LOGITS, IDS), **arguments):
    _serve.require_native("logp", torch.device("cuda"), inputs, arguments)


def test_who_computes_on_the_device_serves_and_is_asked_once(monkeypatch):
    calls = asked(monkeypatch, [{"verdict": "taken", "staged": False}])
    require(temperature=0.7)
    require(temperature=0.7)
    assert calls == ["logp"]
    require((LOGITS.bfloat16(), IDS), temperature=0.7)  # another dtype, and another option, are another question
    require(temperature=0.7, entropy=True)
    assert calls == ["logp"] * 3


def required(monkeypatch, error=None):
    calls = []

    def require_of_rlk(wanted, timeout):
        calls.append(wanted)
        if error is not None:
            raise error
    monkeypatch.setattr(_serve._questions, "require", require_of_rlk)
    return calls


def test_an_operator_that_waits_for_its_verdict_is_waited_for_and_not_left_to_the_original_for_good(monkeypatch):
    answers = [[{"verdict": "declined", "staged": False, "reason_code": "WAITING"}, {"verdict": "taken", "staged": True}],
               [{"verdict": "taken", "staged": False}]]
    monkeypatch.setattr(_serve, "explain", lambda *_, **__: {"candidates": answers.pop(0)})
    waited = required(monkeypatch)
    require()
    assert waited == ["cpu:logp"] and not answers
    require()  # and is not asked again


def test_with_a_gradient_that_the_device_does_not_have_the_original_serves(monkeypatch):
    asked(monkeypatch, [{"verdict": "taken", "staged": False}])
    waited = required(monkeypatch, rlk.Unsupported("no plugin here has logp_backward"))
    with pytest.raises(Original, match="tensors on cuda: no plugin here has logp_backward"):
        require((LOGITS.clone().requires_grad_(), IDS))
    assert waited == ["cpu:logp_backward"]
    require()  # without a gradient it is another question


@pytest.mark.parametrize("answer, reason", [
    ([{"verdict": "taken", "staged": True}], "tensors on cuda: no implementation here has logp of such tensors on it"),
    ([], "tensors on cuda: no implementation here has logp"),
    (rlk.Unsupported("no plugin here serves that"), "tensors on cuda: no plugin here serves that"),
])
def test_what_the_cpu_would_have_to_do_is_the_originals(monkeypatch, answer, reason):
    calls = asked(monkeypatch, answer)
    for _ in range(2):
        with pytest.raises(Original, match=reason):
            require()
    assert calls == ["logp"]


def test_what_is_remembered_is_bounded(monkeypatch):
    calls = asked(monkeypatch, [])
    for n in range(1100):
        with pytest.raises(Original):
            require(temperature=1.0 + n)
    assert len(calls) == 1101 and len(_serve._served) < 1024  # the one that was forgotten is asked again


def test_tensors_of_a_device_that_rlk_cannot_reach_are_the_originals():
    replaced = Replacement("f", lambda x, ids: "the original's", lambda original, x, ids: _serve.logp(x, ids))
    assert replaced(LOGITS.to("meta"), IDS.to("meta")) == "the original's"
    assert any("tensors on meta" in reason for reason in replaced.calls)


@pytest.mark.parametrize("logits, ids, reason", [
    (LOGITS.long(), IDS, "logits of torch.int64"), (LOGITS, IDS.float(), "ids of torch.float32"), (LOGITS[0], IDS[0], "the shape"),
    (LOGITS, IDS[:2], "ids of another shape"), (LOGITS[:, :0], IDS, "the shape"),
])
def test_what_the_operator_does_not_take_is_the_originals(logits, ids, reason):
    with pytest.raises(Original, match=reason):
        _serve.logp(logits, ids)
