"""rlk.integrations.enable("transformers"): attn_implementation="rlk" beside torch's and transformers' own attention."""
import itertools
import types

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed here")
transformers = pytest.importorskip("transformers", reason="transformers is not installed here (pip install transformers==5.23.0)")
import rlk.integrations  # noqa: E402
from trainers_truth import DTYPES, attention_truth, made, ratio, record  # noqa: E402
from transformers.integrations.sdpa_attention import sdpa_attention_forward  # noqa: E402
from transformers.masking_utils import AttentionMaskInterface  # noqa: E402
from transformers.modeling_utils import AttentionInterface  # noqa: E402

torch.set_num_threads(1)
NAME = "AttentionInterface._global_mapping[rlk]"


@pytest.fixture
def enabled():
    with rlk.integrations.enable("transformers") as state:
        yield state


@pytest.mark.parametrize("dtype", DTYPES)
def test_attention_with_every_option(enabled, dtype):
    kind = DTYPES[dtype]
    # tolerance: the softmax weights may be rounded to the tensors' dtype
    weights = 0.5 * torch.finfo(kind).eps / (8 * 2.0**-24) if kind in (torch.bfloat16, torch.float16) else 0.0
    forward = AttentionInterface()["rlk"]
    for heads, (queries, keys), causal, scaling, softcap, padded in itertools.product(
            (2, 4), ((7, 7), (1, 9), (4, 9)), (True, False), (None, 0.3), (None, 2.0), (False, True)):
        module = types.SimpleNamespace(is_causal=causal, num_key_value_groups=heads // 2)
        q = made(2, heads, queries, 16, dtype=kind)
        k, v = (made(2, 2, keys, 16, dtype=kind, seed=seed) for seed in (2, 3))
        g = made(2, queries, heads, 16, dtype=kind, seed=4)
        mask = torch.arange(keys) >= torch.tensor([0, 2])[:, None] if padded else None
        more = {} if softcap is None else {"softcap": softcap}
        found = []
        theirs_is_there = softcap is None and (mask is None) and (queries == keys or not causal or queries == 1)
        for function in (forward, sdpa_attention_forward) if theirs_is_there else (forward,):
            leaves = [x.clone().requires_grad_() for x in (q, k, v)]
            out, nothing = function(module, *leaves, mask, scaling=scaling, **more)
            assert nothing is None and out.shape == g.shape and out.dtype == kind and out.is_contiguous()
            found.append([out.detach(), *torch.autograd.grad(out, leaves, g)])
        truths = attention_truth(q, k, v, mask, causal and queries > 1, scaling, softcap, g)
        ratios = [max(ratio(x, t, c * (2 + weights), kind) for x, (t, c) in zip(one, truths)) for one in found]
        record("transformers", 'attn_implementation="rlk"', "attention", dtype, *ratios)
        assert max(ratios) <= 1, (heads, queries, keys, causal, scaling, softcap, padded, ratios)
    assert set(enabled.calls()[NAME]) == {"rlk"}


PACKED = [((0, 3, 3, 7), (0, 3, 3, 7)), ((0, 1, 2, 3), (0, 4, 6, 9)), ((0, 7), (0, 7))]


@pytest.mark.parametrize("masked", [False, True])  # with a mask, here one that hides nothing, torch's attention serves
@pytest.mark.parametrize("lengths", PACKED)
@pytest.mark.parametrize("causal", [True, False])
def test_packed_sequences_see_only_themselves(enabled, lengths, causal, masked):
    cu_q, cu_k = (torch.tensor(x, dtype=torch.int32) for x in lengths)
    module = types.SimpleNamespace(is_causal=causal, num_key_value_groups=2)
    q = made(1, 4, lengths[0][-1], 16)
    k, v = (made(1, 2, lengths[1][-1], 16, seed=seed) for seed in (2, 3))
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    mask = torch.ones(1, 1, lengths[0][-1], lengths[1][-1], dtype=torch.bool) if masked else None
    out, _ = AttentionInterface()["rlk"](module, *leaves, mask, cu_seq_lens_q=cu_q, cu_seq_lens_k=cu_k, max_length_q=4,
                                         max_length_k=4)
    for a, b, c, d in zip(lengths[0], lengths[0][1:], lengths[1], lengths[1][1:]):
        if a < b:
            alone = attention_truth(q[:, :, a:b], k[:, :, c:d], v[:, :, c:d], None, causal, None, None,
                                    torch.zeros(1, b - a, 4, 16))
            torch.testing.assert_close(out[:, a:b].double(), alone[0][0], atol=1e-5, rtol=1e-5)
    out.sum().backward()
    assert all(torch.isfinite(x.grad).all() for x in leaves)
    assert set(enabled.calls()[NAME]) == {"a mask that is more than causality and padding" if masked else "rlk"}


def model(name, implementation, **more):
    config_class = getattr(transformers, f"{name}Config")
    sizes = dict(vocab_size=61, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                 num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0, eos_token_id=None, bos_token_id=1)
    if name in ("Gemma2",):
        sizes |= dict(head_dim=8, query_pre_attn_scalar=8)
    transformers.set_seed(5)
    return getattr(transformers, f"{name}ForCausalLM")(config_class(**sizes | more, attn_implementation=implementation)).eval()


def batch(left):
    ids = (torch.arange(24) * 7 % 60 + 1).view(2, 12)
    keep = torch.ones_like(ids)
    keep[1, :5 if left else 0] = 0
    if not left:
        keep[1, 7:] = 0
    return ids, keep


@pytest.mark.parametrize("name, more, rlks", [
    ("Qwen2", {}, True), ("Llama", {"attention_bias": True}, True), ("Gemma2", {"sliding_window": 64}, True),
    ("Mistral", {"sliding_window": 4}, False), ("Mistral", {"sliding_window": 20}, True),
    ("Gemma2", {"sliding_window": 4, "layer_types": ["sliding_attention"] * 2}, False),
])
@pytest.mark.parametrize("left", [True, False])
def test_a_models_logits_and_gradients_are_those_of_eager_attention(enabled, name, more, rlks, left):
    ids, keep = batch(left)
    results = []
    for implementation in ("eager", "rlk"):
        one = model(name, implementation, **more)
        logits = one(input_ids=ids, attention_mask=keep).logits.where(keep[..., None] > 0, 0)
        logits.square().sum().backward()
        results.append([logits.detach(), *(p.grad for p in one.parameters())])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, atol=2e-5, rtol=1e-4)
    calls = enabled.calls()[NAME]
    assert set(calls) == ({"rlk"} if rlks else {"a mask that is more than causality and padding"}) and sum(calls.values()) == 2


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name, more", [("Qwen2", {}), ("Gemma2", {"sliding_window": 64}), ("Mistral", {"sliding_window": 6})])
def test_generation_draws_the_same_tokens(enabled, name, more, cache):
    ids, keep = batch(True)
    words = dict(input_ids=ids, attention_mask=keep, max_new_tokens=8, do_sample=False, cache_implementation=cache,
                 disable_compile=True)
    ours, theirs = (model(name, implementation, **more).generate(**words) for implementation in ("rlk", "eager"))
    assert torch.equal(ours, theirs)
    if cache == "dynamic" and name != "Mistral":
        assert set(enabled.calls()[NAME]) == {"rlk"}


def test_under_autocast_attention_is_rlks_too(enabled):
    ids, keep = batch(True)
    results = []
    for implementation in ("sdpa", "rlk"):
        one = model("Llama", implementation)
        with torch.autocast("cpu", torch.bfloat16):
            logits = one(input_ids=ids, attention_mask=keep, use_cache=False).logits  # a cache would widen the values
            loss = logits.where(keep[..., None] > 0, 0).float().square().mean()
        loss.backward()
        results.append([loss.detach(), *(p.grad for p in one.parameters())])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, atol=2e-3, rtol=5e-2)
    assert enabled.calls()[NAME] == {"rlk": 2}


def test_packed_sequences_keep_to_themselves(enabled):
    ids, _ = batch(False)
    positions = torch.tensor([[0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 6]] * 2)
    ours, theirs = (model("Qwen2", implementation)(input_ids=ids, position_ids=positions).logits
                    for implementation in ("rlk", "eager"))
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("options", [{"dropout": 0.5}, {"position_bias": made(1, 2, 7, 9)}])
def test_what_rlk_does_not_have_is_torchs_with_padding_and_causality(enabled, options):
    module = types.SimpleNamespace(is_causal=True, num_key_value_groups=1)
    q, k, v = made(2, 2, 7, 16), made(2, 2, 9, 16, seed=2), made(2, 2, 9, 16, seed=3)
    mask = torch.arange(9) >= torch.tensor([0, 2])[:, None]
    seen = torch.ones(7, 9, dtype=torch.bool).tril(2) & mask[:, None, None, :]
    forward = AttentionInterface()["rlk"]
    for given, whole in ((mask, seen), (None, torch.ones(7, 9, dtype=torch.bool).tril(2)[None, None])):
        torch.manual_seed(1)
        ours = forward(module, q, k, v, given, **options)[0]
        torch.manual_seed(1)
        assert torch.equal(ours, sdpa_attention_forward(module, q, k, v, whole, **options)[0])
    assert enabled.calls()[NAME] == {f"a dropout of {options['dropout']}" if "dropout" in options else "position_bias": 2}


@pytest.mark.parametrize("options", [{"dropout": 0.5}, {"position_bias": made(1, 2, 7, 9)}])
def test_a_softcap_that_nobody_has_is_refused(enabled, options):
    module = types.SimpleNamespace(is_causal=True, num_key_value_groups=1)
    with pytest.raises(rlk.Unsupported, match="softcap.* that rlk does not serve.*nor types. Make .*another attn_impl"):
        AttentionInterface()["rlk"](module, made(1, 2, 7, 16), made(1, 2, 9, 16), made(1, 2, 9, 16), None, softcap=2.0, **options)


def test_with_dropout_a_softcap_is_the_models_own(enabled):
    ids, keep = batch(True)
    results = []
    for implementation in ("eager", "rlk"):
        one = model("Gemma2", implementation, sliding_window=64, attention_dropout=0.5).train()
        for mask in (None, keep):
            torch.manual_seed(3)
            results.append(one(input_ids=ids, attention_mask=mask).logits.where(keep[..., None] > 0, 0))
    torch.testing.assert_close(results[:2], results[2:], atol=2e-5, rtol=1e-4)
    assert enabled.calls()[NAME] == {"a dropout of 0.5": 4}


def test_sinks_are_refused():
    with rlk.integrations.enable("transformers"), pytest.raises(rlk.Unsupported, match="sinks.*another attn_implementation"):
        AttentionInterface()["rlk"](types.SimpleNamespace(), made(1, 2, 3, 16), made(1, 2, 3, 16), made(1, 2, 3, 16), None,
                                    s_aux=torch.zeros(2))


def test_the_padding_of_a_compiled_model_breaks_no_graph(enabled):
    mask = AttentionMaskInterface()["rlk"]
    keep = batch(True)[1] > 0
    compiled = torch.compile(lambda keep: mask(batch_size=2, q_length=12, kv_length=12, attention_mask=keep), fullgraph=True,
                             backend="eager")
    for given in (keep, torch.ones_like(keep)):
        assert torch.equal(compiled(given), given)
    assert mask(batch_size=2, q_length=12, kv_length=12, attention_mask=torch.ones_like(keep)) is None


def test_disabled_the_name_is_gone():
    with rlk.integrations.enable("transformers"):
        assert "rlk" in AttentionInterface._global_mapping and "rlk" in AttentionMaskInterface._global_mapping
    assert "rlk" not in AttentionInterface._global_mapping and "rlk" not in AttentionMaskInterface._global_mapping
