"""SGLang's attention as rlk's paged_attention: a backend named "rlk", for servers started with --attention-backend rlk. Keys and
values stay where SGLang's pool puts them, a slot for each token; the slots of a request are its blocks of one token each. There
is no original to go to: what rlk does not serve exactly is refused when the backend is made, or at the call that asks for it."""
import collections

import torch

from rlk.errors import Unsupported
from rlk.integrations._replace import Original
from rlk.integrations._serve import DTYPES, call

_ADVICE = "Start SGLang with another --attention-backend"
_GRAPHS = ("graphs that are captured once and replayed (--cuda-graph-backend-decode=disabled --cuda-graph-backend-prefill=disabled "
           "goes without them)")


def _refuse(reasons):
    for holds, what in reasons:
        if holds:
            raise Unsupported(f"rlk.integrations: SGLang's --attention-backend rlk does not serve {what}. {_ADVICE}")


def _check_layer(layer):
    size, cap, kind = layer.qk_head_dim, layer.logit_cap or 0.0, layer.attn_type.name
    _refuse((
        (layer.is_cross_attention, "cross attention"),
        (kind not in ("DECODER", "ENCODER_ONLY"), f"attention of the type {layer.attn_type.value}"),
        (kind == "ENCODER_ONLY" and layer.sliding_window_size > -1, "a window of an encoder"),
        (layer.use_irope, "attention within chunks (use_irope)"),
        (layer.pos_encoding_mode != "NONE", f"positions of the mode {layer.pos_encoding_mode}"),
        (layer.xai_temperature_len > 0, "a temperature that depends on the position (xai_temperature_len)"),
        (size != layer.v_head_dim, f"keys of {size} and values of {layer.v_head_dim} elements"),
        (size > 256, f"heads of {size} elements, expected 256 at most"),
        (layer.scaling is not None and not layer.scaling > 0, f"a scaling of {layer.scaling}, expected more than 0"),
        (cap < 0 or (cap > 0 and layer.logit_capping_method != "tanh"), f"a {layer.logit_capping_method} cap of {cap}"),
    ))


def _check_runner(runner, pool, plain_pool, parallel):
    layout = getattr(pool, "kv_cache_layout", "unknown")
    _refuse((
        (runner.use_mla_backend, "multi-head latent attention"),
        (not runner.spec_algorithm.is_none() or runner.is_draft_worker, "speculative decoding"),
        (runner.attention_chunk_size is not None, "attention within chunks (attention_chunk_size)"),
        (runner.model_config.is_encoder_decoder, "models of an encoder and a decoder"),
        (hasattr(runner.model, "prepare_attn_masks"), "a model with masks of its own (prepare_attn_masks)"),
        (parallel.dcp_enabled or parallel.attn_cp_size > 1, "a context that is spread over processes"),
        (type(pool) is not plain_pool,
         f"a {type(pool).__name__}, expected MHATokenToKVPool (--disable-hybrid-swa-memory keeps models with windows on it)"),
        (layout != "nhd", f"keys and values in the layout {layout}, expected nhd"),
        (pool.is_quantized_kv_cache or pool.dtype not in DTYPES or pool.store_dtype != pool.dtype,
         f"keys and values of {pool.dtype}, expected one of f32, bf16, f16, f64 (--kv-cache-dtype auto)"),
    ))


def _check_batch(batch, more):
    asked = [name for name, value in more.items() if value is not None and value is not False]
    _refuse((
        (batch.forward_mode.name not in ("EXTEND", "MIXED", "DECODE"), f"the mode {batch.forward_mode.name}"),
        (batch.spec_info is not None, "speculative decoding"),
        (batch.encoder_lens is not None, "encoders' lengths"),
        (batch.multi_item_delimiter_indices is not None, "several items in a sequence"),
        (batch.mha_return_lse, "log-sum-exps of the scores"),
        (bool(asked), f"the argument {', '.join(asked)}"),
    ))


def _attend(layer, q, keys, values, block_table, context_lens, cu_seqlens_q):
    try:
        return call("paged_attention", q, keys, values, block_table, context_lens, cu_seqlens_q,
                    causal="off" if layer.attn_type.name == "ENCODER_ONLY" else "on",
                    window_left=max(layer.sliding_window_size, -1), scale=layer.scaling or 0.0, softcap=layer.logit_cap or 0.0)
    except Original as why:  # there is none
        raise Unsupported(f"rlk.integrations: SGLang's --attention-backend rlk has {why}. {_ADVICE}") from None


def _try(layer, dtype, device):
    """A call of one token as the layer will make them: whether a plugin serves it is known before the first request."""
    q = torch.zeros(1, layer.tp_q_head_num, layer.qk_head_dim, dtype=dtype, device=device)
    cache = torch.zeros(1, 1, layer.tp_k_head_num, layer.qk_head_dim, dtype=dtype, device=device)
    one = torch.ones(1, dtype=torch.int32, device=device)
    _attend(layer, q, cache, cache, torch.zeros(1, 1, dtype=torch.int32, device=device), one, None)


class _Factory:
    """What ATTENTION_BACKENDS["rlk"] is. calls counts over all backends that it makes."""

    def __init__(self, backend_class):
        self.backend_class, self.calls = backend_class, collections.Counter()

    def __call__(self, runner):
        return self.backend_class(runner, self.calls)


def attention(registry):
    from sglang.srt.layers.attention.base_attn_backend import AttentionBackend

    class RlkAttnBackend(AttentionBackend):
        """Causal and encoder-only attention over the pool's slots, with grouped heads, windows and softcap."""

        def __init__(self, runner, calls):
            from sglang.srt.layers.radix_attention import RadixAttention
            from sglang.srt.mem_cache.memory_pool import KVWriteLoc, MHATokenToKVPool
            from sglang.srt.runtime_context import get_parallel
            super().__init__()
            self.calls, self.write_loc = calls, KVWriteLoc
            self.req_to_token_pool, self.token_to_kv_pool = runner.req_to_token_pool, runner.token_to_kv_pool  # models read them
            _check_runner(runner, self.token_to_kv_pool, MHATokenToKVPool, get_parallel())
            for layer in runner.model.modules():
                if isinstance(layer, RadixAttention):
                    _check_layer(layer)
                    _try(layer, self.token_to_kv_pool.dtype, runner.req_to_token_pool.req_to_token.device)

        def init_cuda_graph_state(self, max_bs, max_num_tokens):
            _refuse(((True, _GRAPHS),))

        def init_cpu_graph_state(self, *sizes, **more):
            _refuse(((True, _GRAPHS),))

        def init_forward_metadata_out_graph(self, forward_batch, in_capture=False):
            """The slots of each sequence, their lengths and where its queries begin: once for all layers."""
            batch = forward_batch
            _refuse(((in_capture, _GRAPHS),))
            if batch.forward_mode.is_idle():
                self.forward_metadata = None
                return
            _check_batch(batch, {})
            lengths = batch.seq_lens_cpu if batch.seq_lens_cpu is not None else batch.seq_lens.cpu()
            longest = int(lengths.max()) if lengths.numel() else 0
            table = self.req_to_token_pool.req_to_token[batch.req_pool_indices, :longest].to(torch.int32)
            starts, queries = None, table.shape[0]
            if not batch.forward_mode.is_decode():
                starts = torch.nn.functional.pad(batch.extend_seq_lens.cumsum(0), (1, 0)).to(torch.int32)
                queries = sum(batch.extend_seq_lens_cpu) if batch.extend_seq_lens_cpu is not None else int(starts[-1])
            self.forward_metadata = queries, (table, batch.seq_lens.to(torch.int32), starts)

        def forward_extend(self, q, k, v, layer, forward_batch, save_kv_cache=True, **more):
            pool = self.token_to_kv_pool
            _check_layer(layer)
            _check_batch(forward_batch, more)
            _refuse(((q.dtype != pool.dtype, f"queries of {q.dtype} beside keys of {pool.dtype}"),))
            if save_kv_cache and k is not None and v is not None:
                pool.set_kv_buffer(layer, self.write_loc.for_batch(forward_batch), k, v)
            queries, places = self.forward_metadata
            heads = q.reshape(-1, layer.tp_q_head_num, layer.qk_head_dim)
            keys, values = (x(layer.layer_id).unsqueeze(1) for x in (pool.get_key_buffer, pool.get_value_buffer))
            out = _attend(layer, heads[:queries], keys, values, *places)
            if heads.shape[0] > queries:  # rows that fill up a batch
                out = torch.cat([out, out.new_zeros(heads.shape[0] - queries, *out.shape[1:])])
            self.calls["rlk"] += 1
            return out.reshape(heads.shape[0], -1)

        forward_decode = forward_extend

        def support_triton(self):
            return False

    return _Factory(RlkAttnBackend)
