"""SGLang with --attention-backend rlk: its own layers, pools and batches over several steps, beside its torch_native backend and
attention in fp64 over the same keys. No server runs."""
import argparse
import itertools
import types

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed here")
pytest.importorskip("sglang", reason="SGLang is not installed here")
registry = pytest.importorskip("sglang.srt.layers.attention.attention_registry", reason="this SGLang lacks a dependency",
                               exc_type=ImportError)
import rlk  # noqa: E402
import rlk.integrations  # noqa: E402
from paged_truth import History, within  # noqa: E402
from rlk.integrations import _serve  # noqa: E402
from sglang.srt import runtime_context  # noqa: E402
from sglang.srt.layers.radix_attention import AttentionType, RadixAttention  # noqa: E402
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, ReqToTokenPool  # noqa: E402
from sglang.srt.model_executor.forward_batch_info import ForwardBatch, ForwardMode  # noqa: E402
from sglang.srt.model_executor.forward_context import ForwardContext, forward_context  # noqa: E402
from sglang.srt.server_args import ServerArgs  # noqa: E402
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm  # noqa: E402
from trainers_truth import DTYPES, made, record  # noqa: E402

NAME, D, HKV, SLOTS = "ATTENTION_BACKENDS[rlk]", 16, 2, 64
STEPS = [("EXTEND", (5, 1, 7)), ("DECODE", (1, 1, 1)), ("DECODE", (1, 1, 1)), ("MIXED", (3, 1, 2)), ("DECODE", (1, 1, 1))]


@pytest.fixture(autouse=True)
def one_process(monkeypatch):
    monkeypatch.setattr(runtime_context, "get_parallel", lambda: types.SimpleNamespace(dcp_enabled=False, attn_cp_size=1))


@pytest.fixture
def enabled():
    with rlk.integrations.enable("sglang") as state:
        yield state


def layer_of(heads=4, **more):
    words = dict(num_heads=heads, head_dim=D, scaling=D**-0.5, num_kv_heads=HKV, layer_id=1)
    return RadixAttention(**words | more)


def runner_of(layer, kind=torch.float32, **more):
    pool = MHATokenToKVPool(SLOTS, 1, kind, HKV, D, 2, "cpu", False)
    words = dict(model=torch.nn.ModuleList([layer]), device="cpu", token_to_kv_pool=pool, is_draft_worker=False,
                 req_to_token_pool=ReqToTokenPool(8, 32, "cpu", False), use_mla_backend=False, attention_chunk_size=None,
                 spec_algorithm=SpeculativeAlgorithm.NONE, model_config=types.SimpleNamespace(is_encoder_decoder=False))
    return types.SimpleNamespace(**words | more)


class Requests:
    """Three requests of one runner: rows 4, 2 and 7 of its table, and slots in no order."""

    def __init__(self, runner):
        self.runner, self.rows, self.lengths = runner, torch.tensor([4, 2, 7]), torch.zeros(3, dtype=torch.int64)
        self.free = (torch.randperm(SLOTS, generator=torch.Generator().manual_seed(3)) + 1).tolist()  # 0 is for padding

    def batch(self, mode, new):
        prefix, self.lengths = self.lengths, self.lengths + torch.tensor(new)
        places, self.free = torch.tensor(self.free[:sum(new)]), self.free[sum(new):]
        for row, start, end, slots in zip(self.rows, prefix, self.lengths, places.split(new)):
            self.runner.req_to_token_pool.write((row, slice(start, end)), slots.to(torch.int32))
        found = ForwardBatch(ForwardMode[mode], 3, places, self.rows, self.lengths, places, int(self.lengths.sum()),
                             seq_lens_cpu=self.lengths.clone())
        if mode != "DECODE":
            found.extend_seq_lens, found.extend_seq_lens_cpu = torch.tensor(new), list(new)
            found.extend_prefix_lens = prefix
        return found


def run(backend, layer, batch, q, k, v):
    with torch.inference_mode(), forward_context(ForwardContext(attn_backend=backend)):
        backend.init_forward_metadata(batch)
        return layer(q.flatten(1), k.flatten(1), v.flatten(1), batch)


def parsed():
    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    return parser.parse_args(["--model-path", "made", "--attention-backend", "rlk"]).attention_backend


def test_enabled_the_backend_is_a_choice_and_disabled_it_is_gone():
    with rlk.integrations.enable("sglang") as state:
        assert parsed() == "rlk" and "rlk" in registry.ATTENTION_BACKENDS and NAME in str(state)
    assert "rlk" not in registry.ATTENTION_BACKENDS
    with pytest.raises(SystemExit):
        parsed()


@pytest.mark.parametrize("dtype", DTYPES)
def test_prefill_decoding_and_mixed_steps_are_attention_over_all_keys(enabled, dtype):
    kind = DTYPES[dtype]
    for heads, window, cap, scaling in itertools.product((2, 4), (-1, 3), (0.0, 2.0), (D**-0.5, 0.4)):
        layer = layer_of(heads, sliding_window_size=window, logit_cap=cap, scaling=scaling)
        names = ["rlk"] + ["torch_native"] * (cap == 0)  # torch_native has no cap
        runners = {name: runner_of(layer, kind) for name in names}
        backends = {name: registry.ATTENTION_BACKENDS[name](runner) for name, runner in runners.items()}
        requests, history = {name: Requests(runner) for name, runner in runners.items()}, History(3)
        for step, (mode, new) in enumerate(STEPS):
            q, k, v = (made(sum(new), h, D, dtype=kind, seed=10 * step + n) for n, h in enumerate((heads, HKV, HKV)))
            history.append(k, v, new)
            outs = [run(backends[name], layer, requests[name].batch(mode, new), q, k, v) for name in names]
            assert all((x.shape, x.dtype) == ((sum(new), heads * D), kind) for x in outs)
            truth = history.attention(q, new, scaling, window_left=window, softcap=cap)
            ratios = [within(x.view(q.shape), truth, kind) for x in outs]
            record("sglang", "--attention-backend rlk", "paged_attention", dtype, *ratios)
            assert ratios[0] <= 1, (heads, window, cap, scaling, mode, ratios)
            assert dtype != "f32" or max(ratios) <= 1, ratios  # the truth is SGLang's
    assert enabled.calls()[NAME] == {"rlk": 16 * len(STEPS)}


def test_an_encoder_sees_all_of_its_sequence(enabled):
    layer = layer_of(attn_type=AttentionType.ENCODER_ONLY)
    runner = runner_of(layer)
    q, k, v = (made(13, h, D, seed=n) for n, h in enumerate((4, HKV, HKV)))
    history = History(3)
    history.append(k, v, (5, 1, 7))
    out = run(registry.ATTENTION_BACKENDS["rlk"](runner), layer, Requests(runner).batch("EXTEND", (5, 1, 7)), q, k, v)
    assert within(out.view(q.shape), history.attention(q, (5, 1, 7), D**-0.5, causal=False), torch.float32) <= 1


def test_rows_that_fill_up_a_batch_are_zeros_and_idle_ranks_do_nothing(enabled):
    layer = layer_of()
    runner = runner_of(layer)
    backend, batch = registry.ATTENTION_BACKENDS["rlk"](runner), Requests(runner).batch("EXTEND", (2, 1, 3))
    q, k, v = (made(8, h, D, seed=n) for n, h in enumerate((4, HKV, HKV)))
    batch.out_cache_loc = torch.cat([batch.out_cache_loc, torch.zeros(2, dtype=torch.int64)])
    out = run(backend, layer, batch, q, k, v)
    assert out.shape == (8, 4 * D) and not out[6:].any() and out[:6].any(1).all()
    idle = ForwardBatch(ForwardMode.IDLE, 0, *(torch.zeros(0, dtype=torch.int64) for _ in range(4)), 0)
    assert run(backend, layer, idle, q[:0], k[:0], v[:0]).shape == (0, 4 * D)


def test_layers_that_share_keys_write_none(enabled):
    layer = layer_of()
    runner = runner_of(layer)
    backend, batch = registry.ATTENTION_BACKENDS["rlk"](runner), Requests(runner).batch("EXTEND", (2, 1, 3))
    q, k, v = (made(6, h, D, seed=n) for n, h in enumerate((4, HKV, HKV)))
    first = run(backend, layer, batch, q, k, v)
    with forward_context(ForwardContext(attn_backend=backend)):
        assert torch.equal(layer(q.flatten(1), None, None, batch), first)
        assert torch.equal(layer(q.flatten(1), k.flatten(1) + 1, v.flatten(1), batch, save_kv_cache=False), first)


# ---- refusals ----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("more, reason", [
    ({"is_cross_attention": True}, "cross attention"), ({"pos_encoding_mode": "ALIBI"}, "positions of the mode ALIBI"),
    ({"attn_type": AttentionType.DECODER_BIDIRECTIONAL}, "decoder_bidirectional"), ({"use_irope": True}, "use_irope"),
    ({"v_head_dim": 8}, "keys of 16 and values of 8"), ({"head_dim": 320}, "expected 256 at most"),
    ({"logit_cap": 3.0, "logit_capping_method": "sigmoid"}, "a sigmoid cap of 3.0"), ({"scaling": -1.0}, "a scaling of -1.0"),
    ({"attn_type": AttentionType.ENCODER_ONLY, "sliding_window_size": 4}, "a window of an encoder"),
])
def test_a_layer_that_rlk_does_not_serve_is_refused_when_the_backend_is_made(enabled, more, reason):
    with pytest.raises(rlk.Unsupported, match=f"{reason}.*another --attention-backend"):
        registry.ATTENTION_BACKENDS["rlk"](runner_of(layer_of(**more)))


def runners_refused():
    pool = MHATokenToKVPool(SLOTS, 1, torch.float8_e4m3fn, HKV, D, 2, "cpu", False)
    yield {"token_to_kv_pool": pool}, "float8_e4m3fn.*kv-cache-dtype auto"
    other = types.SimpleNamespace(is_quantized_kv_cache=False, dtype=torch.float32, store_dtype=torch.float32)
    yield {"token_to_kv_pool": other}, "a SimpleNamespace, expected MHATokenToKVPool"
    yield {"use_mla_backend": True}, "latent attention"
    yield {"spec_algorithm": SpeculativeAlgorithm.EAGLE}, "speculative decoding"
    yield {"attention_chunk_size": 8192}, "attention_chunk_size"
    yield {"model": types.SimpleNamespace(prepare_attn_masks=None)}, "prepare_attn_masks"
    yield {"model_config": types.SimpleNamespace(is_encoder_decoder=True)}, "an encoder and a decoder"


def test_a_server_that_rlk_does_not_serve_is_refused_when_the_backend_is_made(enabled, monkeypatch):
    for more, reason in runners_refused():
        with pytest.raises(rlk.Unsupported, match=reason):
            registry.ATTENTION_BACKENDS["rlk"](runner_of(layer_of(), **more))
    monkeypatch.setattr(runtime_context, "get_parallel", lambda: types.SimpleNamespace(dcp_enabled=True, attn_cp_size=1))
    with pytest.raises(rlk.Unsupported, match="spread over processes"):
        registry.ATTENTION_BACKENDS["rlk"](runner_of(layer_of()))
    assert not enabled.calls()[NAME]


def test_what_a_call_asks_for_beyond_the_operator_is_refused(enabled):
    layer = layer_of()
    runner = runner_of(layer)
    backend, batch = registry.ATTENTION_BACKENDS["rlk"](runner), Requests(runner).batch("DECODE", (1, 1, 1))
    q, k, v = (made(3, h, D, seed=n) for n, h in enumerate((4, HKV, HKV)))
    backend.init_forward_metadata(batch)
    with forward_context(ForwardContext(attn_backend=backend)):
        with pytest.raises(rlk.Unsupported, match="the argument sinks"):
            layer(q.flatten(1), k, v, batch, sinks=torch.zeros(4))
        with pytest.raises(rlk.Unsupported, match="queries of torch.float64 beside keys of torch.float32"):
            layer(q.flatten(1).double(), k, v, batch)
    batch.forward_mode = ForwardMode.TARGET_VERIFY
    for refused in (lambda: backend.init_forward_metadata(batch), lambda: backend.init_cuda_graph_state(8, 8),
                    lambda: backend.init_forward_metadata_out_graph(batch, in_capture=True)):
        with pytest.raises(rlk.Unsupported, match="TARGET_VERIFY|captured once"):
            refused()
    assert not enabled.calls()[NAME]


def test_a_device_without_a_plugin_is_refused_when_the_backend_is_made(enabled, monkeypatch):
    def nobody(*arguments):
        _serve.require(False, "tensors on cuda: no implementation here has paged_attention of such tensors on it")
    monkeypatch.setattr("rlk.integrations._sglang_attention.call", lambda *inputs, **words: nobody())
    with pytest.raises(rlk.Unsupported, match="no implementation here has paged_attention.*another --attention-backend"):
        registry.ATTENTION_BACKENDS["rlk"](runner_of(layer_of()))
