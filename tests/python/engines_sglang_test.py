"""SGLang with rlk's sampler: what it keeps and draws, beside SGLang's own functions of the installed package. No server runs."""
import os
import subprocess
import sys
import types

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed here")
pytest.importorskip("sglang", reason="SGLang is not installed here")
sampling = pytest.importorskip("sglang.srt.layers.sampler", reason="this SGLang lacks a dependency", exc_type=ImportError)
import rlk.integrations  # noqa: E402
from rlk.integrations import _serve  # noqa: E402
from sglang.srt.arg_groups.choices import SAMPLING_BACKEND_CHOICES  # noqa: E402
from sglang.srt.layers.logits_processor import LogitsProcessorOutput  # noqa: E402
from sglang.srt.sampling.sampling_batch_info import SamplingBatchInfo  # noqa: E402
from sglang.srt.speculative.dspark_components import dspark_block_accept_estimator as estimator  # noqa: E402
from trainers_truth import DTYPES, Scores, made, ratio, record  # noqa: E402

V, FACTORY = 97, "_CUSTOM_SAMPLER_FACTORIES[rlk]"
GATHER = estimator.gather_chunked_token_logprobs


@pytest.fixture
def enabled():
    with rlk.integrations.enable("sglang") as state:
        yield state


@pytest.fixture
def server(monkeypatch):
    """What SGLang's sampler asks its server: one process, and which backend it was started with."""
    def start(backend):
        kernel = types.SimpleNamespace(sampling_backend=backend)
        own = types.SimpleNamespace(kernel=kernel, features=types.SimpleNamespace(sampling_mask_max_tokens=V),
                                    deterministic=types.SimpleNamespace(rl_on_policy_target=None,
                                                                        enable_deterministic_inference=False))
        group = types.SimpleNamespace(device_group=None)
        monkeypatch.setattr(sampling, "get_exec", lambda: own)
        monkeypatch.setattr(sampling, "get_parallel", lambda: types.SimpleNamespace(tp_group=group))
        monkeypatch.setattr(sampling, "get_server_args", lambda: own)
        monkeypatch.setattr(sampling, "is_dp_attention_enabled", lambda: False)
        return sampling.create_sampler()
    return start


def info(rows, top_k=None, top_p=None, min_p=None, seeds=None, temperature=1.0, captured=None):
    def of(value, default, dtype):
        return torch.full((rows,), default if value is None else value, dtype=dtype)
    return SamplingBatchInfo(
        temperatures=torch.full((rows, 1), temperature), top_ps=of(top_p, 1.0, torch.float32),
        top_ks=of(top_k, 1 << 30, torch.int32), min_ps=of(min_p, 0.0, torch.float32), is_all_greedy=False, is_any_greedy=False,
        need_top_p_sampling=top_p is not None, need_top_k_sampling=top_k is not None, need_min_p_sampling=min_p is not None,
        vocab_size=V, sampling_seed=seeds, sampling_mask_batch_indices=captured, device="cpu")


FILTERS = [{}, {"top_k": 5}, {"top_p": 0.8}, {"top_k": 7, "top_p": 0.7}, {"min_p": 0.1}, {"top_k": 9, "top_p": 0.9, "min_p": 0.05}]


def test_enabled_the_backend_is_there_and_disabled_it_is_gone(enabled, server):
    assert "rlk" in SAMPLING_BACKEND_CHOICES and estimator.gather_chunked_token_logprobs is not GATHER
    assert isinstance(server("rlk"), sampling.Sampler)
    rlk.integrations.disable("sglang")
    assert "rlk" not in SAMPLING_BACKEND_CHOICES and estimator.gather_chunked_token_logprobs is GATHER
    with pytest.raises(ValueError, match="Unknown sampling backend 'rlk'"):
        server("rlk")


@pytest.mark.parametrize("filters", FILTERS)
def test_it_keeps_the_tokens_that_sglangs_own_keeps(enabled, server, filters):
    sampler, rows = server("rlk"), torch.tensor([0, 2, 3])
    probs = made(5, V, scale=2.0).softmax(-1)
    ids, capture = sampler._sample_from_probs(probs.clone(), info(5, captured=rows, **filters), torch.arange(5), not filters)
    given = info(5, **filters)
    _, weights, order, _ = sampling.top_k_top_p_min_p_sampling_from_probs_torch(
        probs.clone(), given.top_ks, given.top_ps, given.min_ps, given.need_min_p_sampling, None, torch.arange(5),
        return_filtered_probs=True)
    theirs = torch.zeros_like(probs).scatter_(1, order.long(), weights)
    assert ids.dtype == torch.int32 and torch.equal(capture.weights, theirs[rows])
    assert (theirs.gather(1, ids.long()[:, None]) > 0).all()
    assert torch.equal(capture.selected_weight, theirs[rows].gather(1, ids.long()[rows, None])[:, 0])
    assert enabled.calls()[FACTORY] == {"rlk": 1}
    different = ((capture.weights > 0) != (theirs[rows] > 0)).double().max().item()
    record("sglang", "--sampling-backend rlk", "sample", "f32", different, 0.0)


@pytest.mark.parametrize("filters", [{}, {"top_k": 6, "top_p": 0.9}])
def test_it_draws_with_the_probabilities_of_what_is_kept(enabled, server, filters):
    """Chi-squared of 40000 draws, far inside what one draw in a million exceeds."""
    sampler, draws = server("rlk"), 40000
    torch.manual_seed(7)
    row = made(1, 24, scale=1.5).softmax(-1)
    given = info(draws, **filters)
    ids, _ = sampler._sample_from_probs(row.expand(draws, -1).contiguous(), given, torch.zeros(draws), not filters)
    _, weights, order, _ = sampling.top_k_top_p_min_p_sampling_from_probs_torch(
        row.clone(), given.top_ks[:1], given.top_ps[:1], given.min_ps[:1], False, None, None, return_filtered_probs=True)
    expected = torch.zeros_like(row).scatter_(1, order.long(), weights)[0].double()
    expected *= draws / expected.sum()
    seen, kept = torch.bincount(ids.long(), minlength=24).double(), expected > 0
    assert not seen[~kept].any()
    degrees = int(kept.sum()) - 1
    assert ((seen - expected)[kept] ** 2 / expected[kept]).sum() < degrees + 5 * (2 * degrees) ** 0.5 + 10


def test_a_requests_own_seed_draws_the_same_whatever_stands_beside_it(enabled, server):
    sampler, probs = server("rlk"), made(4, V).softmax(-1)
    seeds, places = torch.tensor([3, 4, 3, 5]), torch.tensor([10, 11, 12, 13])
    whole, _ = sampler._sample_from_probs(probs.clone(), info(4, top_k=50, seeds=seeds), places, False)
    turned, _ = sampler._sample_from_probs(probs.flip(0), info(4, top_k=50, seeds=seeds.flip(0)), places.flip(0), False)
    assert torch.equal(whole, turned.flip(0))
    found = [sampler._sample_from_probs(probs.clone(), info(4, top_k=50, seeds=seeds), places + n, False)[0] for n in range(9)]
    assert len({tuple(x.tolist()) for x in found}) > 5


def test_without_seeds_torchs_seed_is_the_stream(enabled, server):
    sampler, probs = server("rlk"), made(64, V).softmax(-1)
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        found.append(sampler._sample_from_probs(probs.clone(), info(64), torch.zeros(64), True)[0])
    assert torch.equal(found[0], found[1]) and not torch.equal(found[0], found[2])


@pytest.mark.parametrize("filters", [{}, {"top_k": 5, "top_p": 0.9}])
def test_a_step_of_the_sampler_gives_tokens_and_their_logprobs(enabled, server, filters):
    """SGLang's own forward around it; the logprobs are of its own softmax with the temperature, so SGLang's own sampler has them
    too."""
    logits = made(6, V, scale=2.0)
    output = LogitsProcessorOutput(next_token_logits=logits.clone())
    ids = server("rlk")(output, info(6, temperature=0.7, **filters), True, [0] * 6, [None] * 6, torch.arange(6))
    expected = (logits / 0.7).log_softmax(-1).gather(1, ids.long()[:, None])[:, 0]
    torch.testing.assert_close(output.next_token_logprobs, expected, rtol=1e-5, atol=1e-5)
    assert enabled.calls()[FACTORY] == {"rlk": 1}


@pytest.mark.parametrize("filters", [{}, {"top_k": 1}])
@pytest.mark.parametrize("captured", [None, torch.tensor([1])])
def test_what_rlk_cannot_serve_sglang_draws_itself(enabled, server, monkeypatch, filters, captured):
    sampler, probs = server("rlk"), made(3, V).softmax(-1)
    monkeypatch.setitem(_serve.__dict__, "DTYPES", ())
    ids, capture = sampler._sample_from_probs(probs.clone(), info(3, captured=captured, **filters), torch.arange(3), not filters)
    assert ids.shape == (3,) and (capture is None) == (captured is None)
    assert not filters or torch.equal(ids.long(), probs.argmax(-1))
    assert "rlk" not in enabled.calls()[FACTORY] and len(enabled.calls()[FACTORY]) == 1


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("chunk", [2, 100])
def test_logprobs_of_speculated_tokens(enabled, dtype, chunk):
    kind = DTYPES[dtype]
    logits, rows, ids = made(5, V, dtype=kind, scale=3.0), torch.tensor([4, 0, 0, 2, 1, 3, 3]), torch.arange(7) * 13
    temperatures = torch.tensor([1.0, 0.7, 0.7, 2.0, 1.0, 0.3, 0.3])
    words = dict(logits=logits, row_indices=rows, token_indices=ids, per_row_temps=temperatures, chunk_size=chunk)
    ours, theirs = estimator.gather_chunked_token_logprobs(**words), GATHER(**words)
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    scores = Scores(logits[rows].float() / temperatures[:, None], ids)
    ratios = [ratio(x, scores.logp, scores.conditions()[0], torch.float32) for x in (ours, theirs)]
    record("sglang", "gather_chunked_token_logprobs", "logp", dtype, *ratios)
    assert ratios[0] <= 1, ratios
    assert enabled.calls()["gather_chunked_token_logprobs"] == {"rlk": 1}


# ---- processes ---------------------------------------------------------------------------------------------------

LOAD = """
import sglang.srt.plugins, rlk.integrations
sglang.srt.plugins.load_plugins()
print("enabled:", rlk.integrations.enabled())
"""


@pytest.mark.parametrize("named, expected", [(None, "()"), ("other,rlk", "('sglang',)")])
def test_a_process_has_it_enabled_where_the_variable_names_rlk(tmp_path, named, expected):
    info = tmp_path / "made_plugin-1.0.dist-info"  # as the wheel of rlk has it
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: made-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[sglang.srt.plugins]\nrlk = rlk.integrations.sglang:register\n")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    environment |= {"SGLANG_PLUGINS": named} if named else {}
    done = subprocess.run([sys.executable, "-c", LOAD], env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert f"enabled: {expected}" in done.stdout, done.stderr[-2000:]
