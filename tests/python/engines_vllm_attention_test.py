"""vLLM with --attention-backend CUSTOM enabled: its own Attention layers, specs and metadata over several steps, beside its
FlexAttention (without a compiler, over the keys that rlk wrote) and attention in fp64 over the same keys. No server runs."""
import itertools
import types

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed here")
pytest.importorskip("vllm", reason="vLLM is not installed here")
attention = pytest.importorskip("vllm.model_executor.layers.attention.attention", reason="this vLLM lacks a dependency",
                                exc_type=ImportError)
import rlk  # noqa: E402
import rlk.integrations  # noqa: E402
import vllm.v1.attention.backends.flex_attention as flex  # noqa: E402
from paged_truth import History, within  # noqa: E402
from rlk.integrations import _replace, _vllm_attention  # noqa: E402
from torch.nn.attention.flex_attention import create_block_mask, flex_attention  # noqa: E402
from trainers_truth import DTYPES, made, record  # noqa: E402
from vllm.config import AttentionConfig, DeviceConfig, VllmConfig, set_current_vllm_config  # noqa: E402
from vllm.forward_context import set_forward_context  # noqa: E402
from vllm.v1.attention.backend import AttentionType, CommonAttentionMetadata  # noqa: E402
from vllm.v1.attention.backends.registry import AttentionBackendEnum  # noqa: E402
from vllm.v1.kv_cache_interface import FullAttentionSpec  # noqa: E402
from vllm.v1.kv_cache_layout import KVCacheLayout  # noqa: E402

NAME, LAYER, D, HKV, BLOCK, BLOCKS = "_ATTN_OVERRIDES[AttentionBackendEnum.CUSTOM]", "model.layers.1.attn", 16, 2, 16, 13
STEPS = [(20, 1, 37), (1, 1, 1), (3, 1, 12), (1, 1, 1)]
LAYOUTS = (KVCacheLayout.LBNHC, KVCacheLayout.LBHNC, KVCacheLayout.BLHNC)


@pytest.fixture
def enabled():
    with rlk.integrations.enable("vllm") as state:
        yield state


def layer_of(heads=4, **more):
    """(layer, config) as a model makes it."""
    config = VllmConfig(device_config=DeviceConfig("cpu"))
    words = dict(head_size=D, scale=D**-0.5, num_kv_heads=HKV, prefix=LAYER, attn_backend=AttentionBackendEnum.CUSTOM.get_class())
    with set_current_vllm_config(config):
        return attention.Attention(heads, **words | more), config


def builder_of(layer, config, kind):
    spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=HKV, head_size=D, dtype=kind)
    return layer.attn_backend.get_builder_cls()(spec, [LAYER], config, torch.device("cpu"))


def cache_of(layout, kind):
    """A layer's view of vLLM's cache, full of NaN."""
    shape, order = (2, BLOCKS, HKV, BLOCK, 2 * D), layout.stride_order
    whole = torch.full([shape[axis] for axis in order], torch.nan, dtype=kind)
    return whole.permute([order.index(axis) for axis in range(5)])[1]


class Requests:
    """Three requests, in blocks in no order; of a table's row behind them anything may stand."""

    def __init__(self):
        self.lengths = torch.zeros(3, dtype=torch.int32)
        self.table = torch.full((3, 8), 9999, dtype=torch.int32)
        blocks = torch.randperm(BLOCKS - 1, generator=torch.Generator().manual_seed(3)) + 1  # 0 is vLLM's null block
        self.table[:, :4] = blocks.view(3, 4)

    def step(self, new, padding):
        """CommonAttentionMetadata, with a request without tokens and two tokens without slots where a batch is filled up."""
        starts, before = torch.tensor([0, *itertools.accumulate(new)], dtype=torch.int32), self.lengths
        self.lengths = before + torch.tensor(new, dtype=torch.int32)
        places = [torch.arange(a, b) for a, b in zip(before, self.lengths)]
        slots = torch.cat([self.table[n, at // BLOCK].long() * BLOCK + at % BLOCK for n, at in enumerate(places)])
        lengths, table, tokens = self.lengths.clone(), self.table, sum(new)
        if padding:
            starts, lengths = torch.cat([starts, starts[-1:]]), torch.cat([lengths, lengths.new_zeros(1)])
            slots, tokens = torch.cat([slots, slots.new_full((2,), -1)]), tokens + 2
            table = torch.cat([table, table.new_full((1, 8), -1)])
        return CommonAttentionMetadata(starts, starts.clone(), lengths, len(lengths), tokens, max(new), int(lengths.max()), table,
                                       slots)


def run(layer, config, builder, cache, common, q, k, v):
    layer.kv_cache = cache
    metadata = {LAYER: builder.build(0, common)}
    with torch.inference_mode(), set_forward_context(metadata, config, slot_mapping={LAYER: common.slot_mapping}):
        return layer(q.flatten(1), k.flatten(1), v.flatten(1)).view(q.shape)


def flexs(heads, window, scale):
    """FlexAttention's step over a cache that is written already."""
    none = types.SimpleNamespace
    model = none(get_num_attention_heads=lambda _: heads, get_num_kv_heads=lambda _: HKV, get_head_size=lambda: D,
                 max_model_len=128, rswa_window=None)
    blocks = dict.fromkeys(("flex_attn_q_block_size", "flex_attn_block_m", "flex_attn_kv_block_size", "flex_attn_block_n"))
    config = none(model_config=model, parallel_config=None, cache_config=none(num_gpu_blocks=BLOCKS),
                  attention_config=none(**blocks), scheduler_config=none(max_num_seqs=4, max_num_batched_tokens=64),
                  compilation_config=none(cudagraph_mode=None))

    def step(kind, cache, common, q):
        spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=HKV, head_size=D, dtype=kind)
        metadata = flex.FlexAttentionMetadataBuilder(spec, [LAYER], config, torch.device("cpu")).build(0, common)
        impl = flex.FlexAttentionImpl(heads, D, scale, HKV, None, window, "auto")
        return impl.forward(none(), q, None, None, cache, metadata, torch.empty_like(q))
    return step


@pytest.fixture
def uncompiled(monkeypatch):
    monkeypatch.setattr("vllm.utils.torch_utils.PIN_MEMORY", False)
    monkeypatch.setattr(flex, "flex_attention_compiled", flex_attention)
    monkeypatch.setattr(flex, "create_block_mask_compiled", create_block_mask)


def test_enabled_the_backend_is_customs_and_disabled_it_is_gone():
    with rlk.integrations.enable("vllm"):
        assert AttentionConfig(backend="custom").backend.get_class() is _vllm_attention.RlkAttentionBackend
    with pytest.raises(ValueError, match="CUSTOM must be registered"):
        AttentionBackendEnum.CUSTOM.get_class()


@pytest.mark.parametrize("dtype", DTYPES)
def test_prefill_decoding_and_mixed_steps_are_attention_over_all_keys(enabled, uncompiled, dtype):
    kind, layouts = DTYPES[dtype], itertools.cycle(LAYOUTS)
    for heads, window, cap, scale in itertools.product((2, 4), (None, 5), (None, 2.0), (D**-0.5, 0.4)):
        layer, config = layer_of(heads, per_layer_sliding_window=window, logits_soft_cap=cap, scale=scale)
        builder, cache, requests, history = builder_of(layer, config, kind), cache_of(next(layouts), kind), Requests(), History(3)
        original = flexs(heads, window, scale) if cap is None else None  # FlexAttention has no cap
        for step, new in enumerate(STEPS):
            common, real = requests.step(new, padding=step % 2 == 0), sum(new)
            q, k, v = (made(common.num_actual_tokens, h, D, dtype=kind, seed=10 * step + n)
                       for n, h in enumerate((heads, HKV, HKV)))
            history.append(k[:real], v[:real], new)
            out = run(layer, config, builder, cache, common, q, k, v)
            assert (out.dtype, out.shape) == (kind, q.shape)
            truth = history.attention(q[:real], new, scale, window_left=-1 if window is None else window - 1, softcap=cap or 0.0)
            ratios = [within(out[:real], truth, kind)]
            if original:
                plain = cache.transpose(1, 2).contiguous().nan_to_num().transpose(1, 2)
                ratios.append(within(original(kind, plain, common.unpadded(real, 3), q[:real]), truth, kind))
            record("vllm", "--attention-backend CUSTOM", "paged_attention", dtype, *ratios)
            assert ratios[0] <= 1, (heads, window, cap, scale, new, ratios)
            assert dtype != "f32" or max(ratios) <= 1, ratios  # the truth is vLLM's
        assert cache.isnan().any()  # nothing else was written
    assert enabled.calls()[NAME] == {"rlk": 16 * len(STEPS)}


@pytest.mark.parametrize("window", [None, 3])
def test_an_encoder_sees_its_sequence_within_the_window_and_keeps_nothing(enabled, window):
    layer, config = layer_of(attn_type=AttentionType.ENCODER_ONLY, per_layer_sliding_window=window)
    cache, common, new = cache_of(KVCacheLayout.LBNHC, torch.float32), Requests().step((5, 1, 7), padding=True), (5, 1, 7)
    q, k, v = (made(15, h, D, seed=n) for n, h in enumerate((4, HKV, HKV)))
    out = run(layer, config, builder_of(layer, config, torch.float32), cache, common.replace(causal=False), q, k, v)
    history, side = History(3), -1 if window is None else window - 1
    history.append(k[:13], v[:13], new)
    truth = history.attention(q[:13], new, D**-0.5, causal=False, window_left=side, window_right=side)
    assert within(out[:13], truth, torch.float32) <= 1 and cache.isnan().all()


def test_a_layer_that_shares_keys_reads_the_others_and_writes_none(enabled):
    first, config = layer_of()
    with set_current_vllm_config(config):
        second = attention.Attention(4, D, D**-0.5, HKV, prefix="model.layers.2.attn", kv_sharing_target_layer_name=LAYER,
                                     attn_backend=first.attn_backend)
    cache, common = cache_of(KVCacheLayout.LBNHC, torch.float32), Requests().step((5, 1, 7), padding=False)
    q, k, v = (made(13, h, D, seed=n) for n, h in enumerate((4, HKV, HKV)))
    builder = builder_of(first, config, torch.float32)
    out = run(first, config, builder, cache, common, q, k, v)
    second.kv_cache = cache
    with set_forward_context({second.layer_name: builder.build(0, common)}, config, slot_mapping={second.layer_name: None}):
        assert torch.equal(second(q.flatten(1), k.flatten(1) + 1, v.flatten(1) + 1).view(q.shape), out)


def test_a_step_that_only_measures_memory_gives_zeros(enabled):
    layer, config = layer_of()
    with set_forward_context(None, config, slot_mapping={}):
        assert not layer(made(3, 4 * D), made(3, HKV * D), made(3, HKV * D)).any()
    assert not enabled.calls()[NAME]


# ---- refusals ----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("more, reason", [
    ({"alibi_slopes": [0.5] * 4}, "ALiBi"), ({"sinks": torch.zeros(4)}, "the argument sinks"),
    ({"attn_type": AttentionType.ENCODER_DECODER}, "the type encoder_decoder"), ({"head_size": 320}, "expected 1 to 256"),
    ({"scale": 0.0}, "a scale of 0.0"), ({"logits_soft_cap": -2.0}, "a softcap of -2.0"),
    ({"cache_config": types.SimpleNamespace(sliding_window=None, cache_dtype="fp8", kv_cache_dtype_skip_layers=[],
                                            enable_prefix_caching=False, calculate_kv_scales=False)}, "a cache of fp8"),
])
def test_a_layer_that_rlk_does_not_serve_is_refused_when_it_is_made(enabled, more, reason):
    with pytest.raises(rlk.Unsupported, match=f"{reason}.*another --attention-backend"):
        layer_of(**more)


@pytest.mark.parametrize("asked, reasons", [
    ({}, []), ({"has_sliding_window": True, "dtype": torch.float32, "head_size": 40}, []),
    ({"attn_type": AttentionType.ENCODER_ONLY}, []), ({"head_size": 264}, ["head_size not supported"]),
    ({"kv_cache_dtype": "fp8"}, ["kv_cache_dtype not supported"]), ({"use_mla": True}, ["MLA not supported"]),
    ({"kv_cache_dtype": "float16"}, ["keys of torch.float16 beside queries of torch.bfloat16 not supported"]),
    ({"has_sink": True}, ["attention sinks not supported"]), ({"use_dcp": True}, ["DCP not supported"]),
    ({"use_mm_prefix": True}, ["partial multimodal token full attention not supported"]),
    ({"use_non_causal": True}, ["non-causal attention not supported"]), ({"use_rswa": True}, ["R-SWA not supported"]),
    ({"use_batch_invariant": True}, ["batch invariance not supported"]),
    ({"attn_type": AttentionType.ENCODER_DECODER}, ["attention type AttentionType.ENCODER_DECODER not supported"]),
])
def test_vllms_choice_of_a_backend_gets_the_reasons(asked, reasons):
    words = dict(head_size=128, dtype=torch.bfloat16, kv_cache_dtype="auto", block_size=16, use_mla=False, has_sink=False,
                 use_sparse=False, use_mm_prefix=False, use_per_head_quant_scales=False, device_capability=None,
                 attn_type=AttentionType.DECODER)
    assert _vllm_attention.RlkAttentionBackend.validate_configuration(**words | asked) == reasons


def test_what_a_batch_or_a_call_asks_for_beyond_the_operator_is_refused(enabled):
    layer, config = layer_of()
    builder, common = builder_of(layer, config, torch.float32), Requests().step((1, 1, 1), padding=False)
    q, k, v = (made(3, h, D, seed=n) for n, h in enumerate((4, HKV, HKV)))
    for more, reason in (({"mm_req_doc_ranges": {}}, "within images"), ({"rswa_prefix_lens": common.seq_lens}, "R-SWA"),
                         ({"causal": torch.ones(3)}, "causal and others"), ({"causal": False}, "a decoder that is not causal")):
        with pytest.raises(rlk.Unsupported, match=reason):
            run(layer, config, builder, cache_of(LAYOUTS[0], torch.float32), common.replace(**more), q, k, v)
    for cache, reason in ((cache_of(LAYOUTS[0], torch.bfloat16), "keys of torch.bfloat16 beside queries of torch.float32"),
                          (cache_of(LAYOUTS[0], torch.float32)[..., :D + 8], r"expected \[blocks, heads, tokens, 32\]")):
        with pytest.raises(rlk.Unsupported, match=reason):
            run(layer, config, builder, cache, common, q, k, v)
    with pytest.raises(rlk.Unsupported, match="quantized"):
        layer.impl.forward(layer, q, k, v, None, builder.build(0, common), q, output_scale=torch.ones(1))
    layer.logical_mask_mod = lambda *where: True
    with pytest.raises(rlk.Unsupported, match="logical_mask_mod"):
        run(layer, config, builder, cache_of(LAYOUTS[0], torch.float32), common, q, k, v)
    assert not enabled.calls()[NAME]


def test_a_device_without_a_plugin_is_refused_when_the_builder_is_made(enabled, monkeypatch):
    layer, config = layer_of()

    def nobody(*inputs, **words):
        _replace.require(False, "tensors on cuda: no implementation here has paged_attention of such tensors on it")
    monkeypatch.setattr(_vllm_attention, "call", nobody)
    with pytest.raises(rlk.Unsupported, match="no implementation here has paged_attention.*another --attention-backend"):
        builder_of(layer, config, torch.float32)
