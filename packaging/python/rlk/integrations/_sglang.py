"""SGLang: a sampler and an attention named "rlk", for servers started with --sampling-backend rlk and --attention-backend rlk, and
the log-probabilities of its speculative decoding. The sampler's other log-probabilities are written in the middle of its
functions, where nothing can be replaced."""
import torch

from rlk.integrations import _compare, _example_calls
from rlk.integrations._hooks import Hook, Integration
from rlk.integrations._replace import Replacement, require
from rlk.integrations._serve import NO_IGNORED_ID, call, require_dtype, require_ids
from rlk.integrations._sglang_attention import attention

# What SGLang's own sampler keeps: top-k and top-p of the same probabilities, min-p of what they leave.
_FILTERS = {"filter_order": "joint", "top_k_ties": "lowest_id", "top_p_boundary": "exceed", "min_p_order": "last"}


def _filters(info, rows):
    given = ((info.need_top_k_sampling, info.top_ks, torch.int64), (info.need_top_p_sampling, info.top_ps, torch.float32),
             (info.need_min_p_sampling, info.min_ps, torch.float32))
    return [x.reshape(rows).to(dtype) if wanted else None for wanted, x, dtype in given]


def _stream(info, positions, rows, device):
    """(row_ids, seeds, steps, seed) of Philox: of a request's own seed and place, or of one that torch's generator on the host
    draws, which is the same in processes with the same seed."""
    if info.sampling_seed is None:
        return torch.arange(rows, device=device), None, None, int(torch.randint(2**62, ()))
    seeds = info.sampling_seed.reshape(rows).to(torch.int64)
    return torch.zeros_like(seeds), seeds, positions.reshape(rows).to(torch.int64), 0


def _draw(sampling):
    def serve(original, sampler, probs, info, positions, simple_sampling_case):
        require_dtype(probs, "probabilities")
        rows, captured = probs.shape[0], info.sampling_mask_batch_indices
        row_ids, seeds, steps, seed = _stream(info, positions, rows, probs.device)
        top_ks, top_ps, min_ps = _filters(info, rows)
        scores = probs.to(torch.float32).log()
        found = call("sample", scores, row_ids, None, top_ks, top_ps, min_ps, None, None, None, None, None, None, seeds, steps,
                     seed=seed, keep_mask=captured is not None, **_FILTERS)
        if captured is None:
            return found.to(torch.int32), None
        kept = (probs * found.keep_mask)[captured]
        chosen = kept.gather(1, found.ids[captured].to(torch.int64)[:, None])[:, 0]
        return found.ids.to(torch.int32), sampling._SamplingMaskCapture(kept, None, chosen, captured)
    return serve


def _torchs(sampling):
    """SGLang's own drawing of calls that rlk does not serve."""
    def draw(sampler, probs, info, positions, simple_sampling_case):
        captured = info.sampling_mask_batch_indices
        if simple_sampling_case:
            return sampling.Sampler._sample_from_probs(sampler, probs, info, positions, simple_sampling_case)
        found = sampling.top_k_top_p_min_p_sampling_from_probs_torch(
            probs, info.top_ks, info.top_ps, info.min_ps, info.need_min_p_sampling, info.sampling_seed, positions,
            return_filtered_probs=captured is not None, max_top_k=info.max_top_k)
        if captured is None:
            return found, None
        ids, *others = found
        weights, token_ids, chosen = (x[captured] for x in others)
        return ids, sampling._SamplingMaskCapture(weights, token_ids, chosen, captured)
    return draw


def _sampler(sampling):
    draw = Replacement("SGLang's sampler rlk", _torchs(sampling), _draw(sampling))

    class Sampler(sampling.Sampler):
        """SGLang's sampler, but for the drawing."""
        _sample_from_probs = draw
        calls = draw.calls

    return Sampler


# ---- log-probabilities -------------------------------------------------------------------------------------------

def _token_logprobs(estimator):
    def serve(original, *, logits, row_indices, token_indices, per_row_temps, chunk_size):
        require_dtype(logits, "logits")
        require(logits.ndim == 2 and row_indices.ndim == 1 and row_indices.shape[0] > 0, "no rows")
        require_ids(token_indices, row_indices.shape, "tokens")
        require(not (logits.requires_grad and torch.is_grad_enabled()), "a gradient")
        found = []
        for start in range(0, row_indices.shape[0], chunk_size):
            part = slice(start, start + chunk_size)
            scores = logits[row_indices[part]].to(torch.float32) / per_row_temps[part, None]
            found.append(call("logp", scores, token_indices[part], ignore_index=NO_IGNORED_ID))
        return torch.cat(found)
    return serve


def _speculated():
    rows, ids = torch.tensor([4, 0, 0, 2, 1, 3, 3]), torch.arange(7) * 5
    temperatures = torch.tensor([1.0, 0.7, 0.7, 2.0, 1.0, 0.3, 0.3])
    return [_compare.Call(named=dict(logits=_example_calls.made(5, 37, seed=1, scale=3.0), row_indices=rows, token_indices=ids,
                                     per_row_temps=temperatures, chunk_size=chunk)) for chunk in (2, 100)]


_SAMPLER = "sglang/srt/layers/sampler.py"
_ESTIMATOR = "sglang/srt/speculative/dspark_components/dspark_block_accept_estimator.py"
_SOURCES = tuple(f"{_SAMPLER} {name}" for name in (
    "register_sampler_backend", "create_sampler", "Sampler.__init__", "Sampler.forward", "Sampler._sample_from_probs",
    "Sampler._build_sampling_mask_output", "_SamplingMaskCapture", "top_k_top_p_min_p_sampling_from_probs_torch"))
_ATTENTION = tuple(f"sglang/srt/{name}" for name in (
    "layers/attention/attention_registry.py register_attention_backend",
    "layers/attention/base_attn_backend.py AttentionBackend.forward",
    "layers/attention/base_attn_backend.py AttentionBackend.init_forward_metadata",
    "layers/attention/torch_native_backend.py TorchNativeAttnBackend", "layers/radix_attention.py RadixAttention",
    "layers/radix_attention.py AttentionType", "mem_cache/memory_pool.py KVWriteLoc",
    "mem_cache/memory_pool.py MHATokenToKVPool.__init__", "mem_cache/memory_pool.py MHATokenToKVPool.set_kv_buffer",
    "mem_cache/memory_pool.py MHATokenToKVPool._get_key_buffer", "mem_cache/memory_pool.py MHATokenToKVPool._get_value_buffer",
    "mem_cache/memory_pool.py ReqToTokenPool", "model_executor/forward_batch_info.py ForwardMode",
    "model_executor/forward_batch_info.py ForwardBatch"))
INTEGRATION = Integration("sglang", "sglang", (
    Hook("sglang.srt.layers.sampler", "_CUSTOM_SAMPLER_FACTORIES[rlk]", "sample", _SOURCES, _sampler, adds=True),
    Hook("sglang.srt.arg_groups.choices", "SAMPLING_BACKEND_CHOICES[rlk]", "sample", _SOURCES[:1], lambda choices: None, adds=True),
    Hook("sglang.srt.speculative.dspark_components.dspark_block_accept_estimator", "gather_chunked_token_logprobs", "logp",
         (f"{_ESTIMATOR} gather_chunked_token_logprobs",), _token_logprobs, calls=_speculated),
    Hook("sglang.srt.layers.attention.attention_registry", "ATTENTION_BACKENDS[rlk]", "paged_attention", _ATTENTION, attention,
         adds=True),
    Hook("sglang.srt.arg_groups.choices", "ATTENTION_BACKEND_CHOICES[rlk]", "paged_attention", _ATTENTION[:1],
         lambda choices: None, adds=True),
))
