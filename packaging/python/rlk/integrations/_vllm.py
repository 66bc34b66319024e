"""vLLM: log-probabilities of sampled, chosen and prompt tokens in both of its runners, greedy choices, and the attention backend
CUSTOM. What it draws stays its own: rlk's sample draws by other random numbers."""
import torch

from rlk.integrations import _example_calls
from rlk.integrations._hooks import Hook, Integration
from rlk.integrations._replace import require
from rlk.integrations._serve import NO_IGNORED_ID, call, require_dtype, require_ids


def _rows(logits):
    require_dtype(logits, "logits")
    require(logits.ndim == 2 and logits.shape[1] > 0, f"logits of the shape {tuple(logits.shape)}, expected rows of a vocabulary")
    require(not (logits.requires_grad and torch.is_grad_enabled()), "a gradient")


def _token_logprobs(module):
    def serve(original, logits, token_ids):
        _rows(logits)
        require(token_ids.ndim == 2 and token_ids.shape[1] > 0, "token ids that are no matrix")
        require_ids(token_ids[:, 0], logits.shape[:1], "token ids")
        ids = token_ids.to(torch.int64)
        found = call("logp", logits, ids[:, 0].contiguous(), lse=True, ignore_index=NO_IGNORED_ID)
        first = found.logp.to(torch.float32)[:, None]
        if ids.shape[1] == 1:
            return first
        # One pass over the logits, however many tokens of a row are asked for.
        others = logits.gather(1, ids[:, 1:]).to(found.lse.dtype) - found.lse[:, None]
        others = torch.where(ids[:, 1:] == ids[:, :1], first, others.to(torch.float32))  # a token has one number
        return torch.cat([first, others], 1)
    return serve


def _log_softmax(sampler):
    def serve(original, logits):
        _rows(logits)
        return call("log_softmax", logits.to(torch.float32))
    return serve


def _greedy(sampler):
    def serve(original, logits):
        _rows(logits)
        return call("argmax", logits)
    return serve


def _attention(registry):
    from rlk.integrations import _vllm_attention  # imports vLLM
    return _vllm_attention.registered()


_LOGPROB, _SAMPLER = "vllm/v1/worker/gpu/sample/logprob.py", "vllm/v1/sample/sampler.py"
_ATTENTION = tuple(f"vllm/{name}" for name in (
    "v1/attention/backends/registry.py register_backend", "v1/attention/backends/registry.py AttentionBackendEnum",
    "v1/attention/backend.py AttentionBackend", "v1/attention/backend.py AttentionMetadataBuilder",
    "v1/attention/backend.py AttentionImplBase", "v1/attention/backend.py AttentionImpl",
    "v1/attention/backend.py AttentionType", "v1/attention/backend.py CommonAttentionMetadata",
    "v1/attention/backends/flex_attention.py FlexAttentionImpl",
    "v1/attention/backends/triton_attn.py TritonAttentionImpl.__init__",
    "model_executor/layers/attention/attention.py Attention",
    "model_executor/layers/attention/attention.py unified_kv_cache_update",
    "model_executor/layers/attention/attention.py unified_attention_with_output", "v1/kv_cache_layout.py KVCacheLayout"))
INTEGRATION = Integration("vllm", "vllm", (
    Hook("vllm.v1.worker.gpu.sample.logprob", "compute_token_logprobs", "logp",
         (f"{_LOGPROB} compute_token_logprobs", f"{_LOGPROB} _topk_log_softmax_kernel"), _token_logprobs,
         calls=_example_calls.logits_and_columns),
    Hook("vllm.v1.sample.sampler", "Sampler.compute_logprobs", "log_softmax", (f"{_SAMPLER} Sampler.compute_logprobs",), _log_softmax,
         calls=_example_calls.rows),
    Hook("vllm.v1.sample.sampler", "Sampler.greedy_sample", "argmax", (f"{_SAMPLER} Sampler.greedy_sample",), _greedy,
         calls=_example_calls.rows),
    Hook("vllm.v1.attention.backends.registry", "_ATTN_OVERRIDES[AttentionBackendEnum.CUSTOM]", "paged_attention", _ATTENTION,
         _attention, adds=True),
))
