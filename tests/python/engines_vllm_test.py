"""vLLM's functions with rlk in their place. Its V2 runner has a Triton kernel: the original runs here by Triton's interpreter."""
import importlib.util
import os
import subprocess
import sys
import types

import pytest

os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is first imported
torch = pytest.importorskip("torch", reason="torch is not installed here")
pytest.importorskip("vllm", reason="vLLM is not installed here")
sampler = pytest.importorskip("vllm.v1.sample.sampler", reason="this vLLM lacks a dependency", exc_type=ImportError)
import rlk  # noqa: E402
import rlk.integrations  # noqa: E402
import vllm.v1.worker.gpu.sample.logprob as logprob  # noqa: E402
from trainers_truth import DTYPES, Scores, made, ratio, record  # noqa: E402

V = 131
ORIGINAL = {name: vars(sampler.Sampler)[name] for name in ("compute_logprobs", "greedy_sample")}


@pytest.fixture
def enabled():
    with rlk.integrations.enable("vllm") as state:
        yield state


@pytest.fixture(scope="module")
def interpreted():
    """The original's own module over Triton's interpreter."""
    triton = pytest.importorskip("triton", reason="Triton is not installed here")
    patch = pytest.MonkeyPatch()
    utils = types.ModuleType("vllm.triton_utils")
    utils.triton, utils.tl = triton, importlib.import_module("triton.language")
    patch.setitem(sys.modules, "vllm.triton_utils", utils)
    spec = importlib.util.spec_from_file_location("vllm_logprob_interpreted", logprob.__file__)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    patch.undo()


def logits_of(kind, rows=6):
    x = made(rows, V, dtype=kind, scale=3.0)
    x[1, 7:] = -torch.inf  # what a grammar leaves
    x[2] += 40
    return x


def test_enabled_says_what_it_replaced_and_disable_puts_it_back():
    before = logprob.compute_token_logprobs
    with rlk.integrations.enable("vllm") as state:
        assert [(r.function.split(".")[-1], r.operator) for r in state.replaced] == [
            ("compute_token_logprobs", "logp"), ("compute_logprobs", "log_softmax"), ("greedy_sample", "argmax"),
            ("CUSTOM]", "paged_attention")]
        import vllm.v1.worker.gpu.sample.prompt_logprob as prompt  # has it by name
        assert prompt.compute_token_logprobs is logprob.compute_token_logprobs is not before
    assert prompt.compute_token_logprobs is logprob.compute_token_logprobs is before
    assert all(vars(sampler.Sampler)[name] is function for name, function in ORIGINAL.items())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("ids_dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("columns", [1, 2, 5])
def test_logprobs_of_tokens(enabled, interpreted, dtype, ids_dtype, columns):
    kind = DTYPES[dtype]
    whole = made(6, 2 * V, dtype=kind, scale=3.0)
    for logits in (logits_of(kind), logits_of(kind, 3), whole[:, :V]):  # the last: rows of a wider matrix
        rows = logits.shape[0]
        ids = (torch.arange(rows * columns).view(rows, columns) * 11 % V).to(ids_dtype)
        ids[:, -1] = ids[:, 0]  # the sampled token is often among the largest
        ours = logprob.compute_token_logprobs(logits, ids)
        theirs = interpreted.compute_token_logprobs(logits, ids)
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape) == (torch.float32, ids.shape)
        assert torch.equal(ours[:, -1], ours[:, 0])
        for column in range(columns):
            scores = Scores(logits, ids[:, column])
            ratios = [ratio(y[:, column], scores.logp, scores.conditions()[0].where(scores.logp.isfinite(), 0), kind)
                      for y in (ours, theirs)]
            record("vllm", "compute_token_logprobs", "logp", dtype, *ratios)
            assert ratios[0] <= 1, (column, ratios)
    assert set(enabled.calls()["compute_token_logprobs"]) == {"rlk"}


def test_the_sampled_tokens_number_is_the_trainers_to_the_bit(enabled):
    logits, ids = made(64, V, dtype=torch.bfloat16, scale=3.0), torch.arange(64)[:, None]
    assert torch.equal(logprob.compute_token_logprobs(logits, ids)[:, 0], rlk.torch.logp(logits, ids[:, 0]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_logprobs_of_the_whole_vocabulary(enabled, dtype):
    logits = logits_of(DTYPES[dtype])
    ours, theirs = (function(logits) for function in (sampler.Sampler.compute_logprobs, ORIGINAL["compute_logprobs"]))
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape) == (torch.float32, logits.shape)
    truth = logits.float().double().log_softmax(-1)
    size = (truth.abs() + logits.abs() * 2 + 1).where(truth.isfinite(), 0).amax(-1, keepdim=True).expand_as(truth)
    ratios = [ratio(y, truth, size, torch.float32) for y in (ours, theirs)]
    record("vllm", "Sampler.compute_logprobs", "log_softmax", dtype, *ratios)
    assert ratios[0] <= 1, ratios
    assert enabled.calls()["Sampler.compute_logprobs"] == {"rlk": 1}


@pytest.mark.parametrize("dtype", DTYPES)
def test_greedy_choices_are_those_of_torch(enabled, dtype):
    logits = logits_of(DTYPES[dtype])
    logits[3, 50] = logits[3, 90] = 60.0  # two largest
    ours = sampler.Sampler.greedy_sample(logits)
    assert ours.dtype == torch.int64 and torch.equal(ours, logits.argmax(-1)) and ours[3] == 50
    different = (ours != ORIGINAL["greedy_sample"](logits)).double().max().item()
    record("vllm", "Sampler.greedy_sample", "argmax", dtype, different, 0.0)
    assert not different
    assert enabled.calls()["Sampler.greedy_sample"] == {"rlk": 1}


def metadata(**words):
    from vllm.v1.sample.logits_processor import LogitsProcessors
    given = dict(temperature=None, all_greedy=True, all_random=False, top_p=None, top_k=None, generators={}, max_num_logprobs=3,
                 no_penalties=True, prompt_token_ids=None, frequency_penalties=torch.zeros(6), presence_penalties=torch.zeros(6),
                 repetition_penalties=torch.ones(6), output_token_ids=[[] for _ in range(6)], allowed_token_ids_mask=None,
                 bad_words_token_ids={}, logitsprocs=LogitsProcessors())
    return sampler.SamplingMetadata(**(given | words))


def test_a_step_of_the_v1_sampler_has_the_same_tokens_and_logprobs(enabled):
    """Greedy, with the logprobs of the three likeliest: vLLM's own module around rlk's functions."""
    with torch._dynamo.config.patch(disable=True):
        step = sampler.Sampler()
        logits = made(6, V, dtype=torch.bfloat16, scale=3.0)
        ours = step(logits.clone(), metadata())
        rlk.integrations.disable("vllm")
        theirs = step(logits.clone(), metadata())
        rlk.integrations.enable("vllm")
    assert torch.equal(ours.sampled_token_ids, theirs.sampled_token_ids)
    assert torch.equal(ours.logprobs_tensors.logprob_token_ids, theirs.logprobs_tensors.logprob_token_ids)
    assert torch.equal(ours.logprobs_tensors.selected_token_ranks, theirs.logprobs_tensors.selected_token_ranks)
    torch.testing.assert_close(ours.logprobs_tensors.logprobs, theirs.logprobs_tensors.logprobs, rtol=1e-6, atol=2e-6)


def test_what_the_operators_do_not_take_is_vllms(enabled):
    logits = made(3, V).requires_grad_()
    assert torch.equal(sampler.Sampler.compute_logprobs(logits), ORIGINAL["compute_logprobs"](logits))
    assert enabled.calls()["Sampler.compute_logprobs"] == {"a gradient": 1}


# ---- processes ---------------------------------------------------------------------------------------------------

LOAD = """
import vllm.plugins, rlk.integrations
vllm.plugins.load_general_plugins()
print("enabled:", rlk.integrations.enabled())
"""


@pytest.mark.parametrize("named, expected", [(None, "()"), ("other,rlk", "('vllm',)")])
def test_a_process_has_it_enabled_where_the_variable_names_rlk(tmp_path, named, expected):
    info = tmp_path / "made_plugin-1.0.dist-info"  # as the wheel of rlk has it
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: made-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[vllm.general_plugins]\nrlk = rlk.integrations.vllm:register\n")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    environment |= {"VLLM_PLUGINS": named} if named else {}
    done = subprocess.run([sys.executable, "-c", LOAD], env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert f"enabled: {expected}" in done.stdout, done.stderr[-2000:]
