"""transformers: an attention named "rlk", for models made with attn_implementation="rlk". It replaces nothing."""
import inspect
import sys

import torch

from rlk.errors import Unsupported
from rlk.integrations._hooks import Hook, Integration
from rlk.integrations._replace import Original, Replacement, require
from rlk.integrations._serve import DTYPES, call, require_dtype


def _mask(masking):
    """None or the padding of the keys [sequences, keys] where causality and padding are all there is, else torch's mask."""
    def mask(batch_size, q_length, kv_length, q_offset=0, kv_offset=0, mask_function=masking.causal_mask_function,
             attention_mask=None, local_size=None, allow_is_causal_skip=True, **more):
        short = local_size is not None and kv_length < local_size  # a window that is longer than the sequence
        plain = mask_function is masking.causal_mask_function or short
        last_is_last = q_offset + q_length == kv_offset + kv_length
        covered = attention_mask is None or (attention_mask.ndim == 2 and attention_mask.shape[1] == kv_length)
        if plain and allow_is_causal_skip and last_is_last and covered and not kv_offset:
            if attention_mask is None or torch.compiler.is_compiling():  # a graph asks no tensor what it holds
                return attention_mask
            attention_mask = attention_mask != 0  # here, once for all layers
            return None if bool(attention_mask.all()) else attention_mask
        return masking.sdpa_mask(batch_size=batch_size, q_length=q_length, kv_length=kv_length, q_offset=q_offset,
                                 kv_offset=kv_offset, mask_function=mask_function, attention_mask=attention_mask,
                                 local_size=local_size, allow_is_causal_skip=False, **more)
    return mask


def _causal(module, is_causal, query):
    return bool(getattr(module, "is_causal", True) if is_causal is None else is_causal) and query.shape[2] > 1


def _same_sequence(cu_seqlens_q, cu_seqlens_k, query, key, causal):
    """[queries, keys]: whether both are of one packed sequence, and the key not behind the query, counted from their ends."""
    if cu_seqlens_q is None or cu_seqlens_k is None:
        raise Unsupported("rlk.integrations: attention with only one of cu_seq_lens_q and cu_seq_lens_k. Pass both")
    if query.shape[0] != 1 or key.shape[0] != 1:
        raise Unsupported(f"rlk.integrations: attention of packed sequences in {query.shape[0]} rows with a mask. Pass one row, "
                          "with the sequences one behind the other")

    def places(cu_seqlens, count):  # of each token its sequence, and how far it is from its end
        ends = torch.cat([cu_seqlens[1:], cu_seqlens.new_full((1,), count)])  # what is behind the last is by itself
        token = torch.arange(count, device=ends.device, dtype=ends.dtype)
        own = torch.searchsorted(ends[:-1].contiguous(), token, right=True)
        return own, ends[own] - token
    (of_q, q_left), (of_k, k_left) = places(cu_seqlens_q, query.shape[2]), places(cu_seqlens_k, key.shape[2])
    same = of_q[:, None] == of_k[None, :]
    return same & (k_left[None, :] >= q_left[:, None]) if causal else same


def _capped(module, query, attention_mask, more):
    """The attention of the model's own file, which has the softcap that torch's does not, and the mask as it adds it."""
    eager = getattr(sys.modules.get(type(module).__module__), "eager_attention_forward", None)
    lost = [name for name in ("position_bias", "cache") if more.get(name) is not None]
    if eager is None or lost or "softcap" not in inspect.signature(eager).parameters:
        raise Unsupported(f"rlk.integrations: attention with a softcap{''.join(f' and {name}' for name in lost)} that rlk does "
                          f"not serve, as the warning of rlk.integrations says, nor torch, nor {type(module).__module__}. Make "
                          "the model with another attn_implementation")
    if attention_mask is not None and attention_mask.dtype == torch.bool:
        hidden = torch.finfo(query.dtype).min  # not -inf: a row without a key stays a number
        attention_mask = torch.zeros_like(attention_mask, dtype=query.dtype).masked_fill(~attention_mask, hidden)
    return eager, attention_mask


def _torchs(modeling):
    """The attention for calls that rlk does not serve: torch's, with the padding of the keys as torch takes it, or, with a
    softcap, the model's own."""
    def attention(module, query, key, value, attention_mask, dropout=0.0, scaling=None, is_causal=None, **more):
        if more.get("s_aux") is not None:
            raise Unsupported("rlk.integrations: attention with sinks (s_aux), which neither rlk nor torch has. Make the model "
                              "with another attn_implementation")
        queries, keys = query.shape[2], key.shape[2]
        if attention_mask is not None and attention_mask.ndim == 2:
            attention_mask = attention_mask[:, None, None, :] != 0
        cu_seqlens_q, cu_seqlens_k = more.pop("cu_seq_lens_q", None), more.pop("cu_seq_lens_k", None)
        if cu_seqlens_q is not None or cu_seqlens_k is not None:  # which torch's attention ignores
            seen = _same_sequence(cu_seqlens_q, cu_seqlens_k, query, key, _causal(module, is_causal, query))[None, None]
            if attention_mask is None or attention_mask.dtype == torch.bool:
                attention_mask = seen if attention_mask is None else attention_mask & seen
            else:
                attention_mask = attention_mask.masked_fill(~seen, torch.finfo(attention_mask.dtype).min)
        own, capped = attention_mask is None or attention_mask.shape[2] == 1, more.get("softcap") is not None
        if own and _causal(module, is_causal, query) and (attention_mask is not None or keys != queries or capped):
            seen = torch.ones(queries, keys, dtype=torch.bool, device=query.device).tril(keys - queries)
            attention_mask = seen if attention_mask is None else attention_mask & seen
        if capped:
            eager, attention_mask = _capped(module, query, attention_mask, more)
            return eager(module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **more)[0], None
        return modeling.sdpa_attention_forward(module, query, key, value, attention_mask, dropout=dropout, scaling=scaling,
                                               is_causal=is_causal, **more)
    return attention


def _attention(modeling):
    def serve(original, module, query, key, value, attention_mask, dropout=0.0, scaling=None, is_causal=None, softcap=None,
              sliding_window=None, cu_seq_lens_q=None, cu_seq_lens_k=None, **more):
        if more:
            for name in ("position_bias", "cache", "s_aux"):
                require(more.get(name) is None, name)
        require(attention_mask is None or attention_mask.ndim == 2, "a mask that is more than causality and padding")
        require(sliding_window is None or key.shape[2] <= sliding_window, "a window shorter than the sequence")
        # Each layer of each token comes here: a reason is made of what it names only where it is one.
        if dropout != 0:
            raise Original(f"a dropout of {dropout}")
        if scaling is not None and not scaling > 0:
            raise Original(f"a scaling of {scaling}")
        if softcap is not None and not softcap > 0:
            raise Original(f"a softcap of {softcap}")
        packed = cu_seq_lens_q is not None or cu_seq_lens_k is not None
        if packed:
            require(cu_seq_lens_q is not None and cu_seq_lens_k is not None, "only one of cu_seq_lens_q and cu_seq_lens_k")
            require(attention_mask is None, "a mask beside cu_seq_lens")
            require(cu_seq_lens_q.dtype == cu_seq_lens_k.dtype and cu_seq_lens_q.dtype in (torch.int32, torch.int64),
                    f"cu_seq_lens of {cu_seq_lens_q.dtype} and {cu_seq_lens_k.dtype}, expected int32 or int64")
        dtype = query.dtype
        if dtype not in DTYPES or key.dtype != dtype or value.dtype != dtype:
            require_dtype(query, "queries")
            # Rotary embeddings leave fp32 under autocast, and values not: rlk.torch casts them.
            dtypes = {dtype, key.dtype, value.dtype}
            if not torch.is_autocast_enabled(query.device.type) or not dtypes.issubset(DTYPES) or torch.float64 in dtypes:
                raise Original(f"{dtype}, {key.dtype} and {value.dtype} side by side")
        require(query.shape[3] == key.shape[3] == value.shape[3] <= 256, "heads of different sizes, or of more than 256")
        options = {"causal": "on" if _causal(module, is_causal, query) else "off", "scale": scaling or 0.0,
                   "softcap": softcap or 0.0}
        if packed:
            rows = (x.transpose(1, 2).flatten(0, 1) for x in (query, key, value))
            out = call("attention", *rows, cu_seq_lens_q, cu_seq_lens_k, None, layout="packed", **options)
            return out.unflatten(0, (query.shape[0], query.shape[2])), None
        if attention_mask is not None and attention_mask.dtype != torch.bool:
            attention_mask = attention_mask != 0
        out = call("attention", query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), None, None, attention_mask,
                   **options)
        return out, None
    return Replacement("transformers attention rlk", _torchs(modeling), serve)


_SDPA, _MASKING = "transformers/integrations/sdpa_attention.py", "transformers/masking_utils.py"
INTEGRATION = Integration("transformers", "transformers", (
    Hook("transformers.modeling_utils", "AttentionInterface._global_mapping[rlk]", "attention",
         (f"{_SDPA} sdpa_attention_forward",), _attention, adds=True),
    Hook("transformers.masking_utils", "AttentionMaskInterface._global_mapping[rlk]", "attention",
         (f"{_MASKING} sdpa_mask", f"{_MASKING} causal_mask_function", f"{_MASKING} create_causal_mask",
          f"{_MASKING} _preprocess_mask_arguments"), _mask, adds=True),
))
