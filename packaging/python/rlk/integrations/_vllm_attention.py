"""vLLM's attention by rlk: the backend CUSTOM, for engines started with --attention-backend CUSTOM. reshape_and_cache writes the
keys and values into vLLM's blocks and paged_attention reads them there; encoders, which keep none, have attention. There is no
original to go to: what rlk does not serve exactly is refused when layers and metadata builders are made, or at the call."""
import collections
from typing import NamedTuple

import torch
from vllm.v1.attention.backend import AttentionBackend, AttentionImpl, AttentionMetadataBuilder, AttentionType, MultipleOf

from rlk.errors import Unsupported
from rlk.integrations._replace import Original
from rlk.integrations._serve import DTYPES, call

_CACHES = {"auto": None, "float16": torch.float16, "bfloat16": torch.bfloat16}  # --kv-cache-dtype; auto is the model's
_calls = collections.Counter()


def _refuse(reasons):
    for holds, what in reasons:
        if holds:
            raise Unsupported(f"rlk.integrations: vLLM's --attention-backend CUSTOM, which is rlk's, does not serve {what}. Start "
                              "vLLM with another --attention-backend")


def _operator(name, *inputs, **words):
    try:
        return call(name, *inputs, **words)
    except Original as why:  # there is none
        _refuse(((True, why),))


class Registered(str):
    """The path of the backend's class, as vLLM's registry keeps it. calls counts over all layers of this process."""
    calls = _calls


def registered():
    _calls.clear()
    return Registered(f"{__name__}.RlkAttentionBackend")


class RlkAttentionBackend(AttentionBackend):
    supported_dtypes = list(DTYPES)
    supported_kv_cache_dtypes = list(_CACHES)
    forward_includes_kv_cache_update = False

    @staticmethod
    def get_name():
        return "CUSTOM"

    @staticmethod
    def get_impl_cls():
        return RlkAttentionImpl

    @staticmethod
    def get_builder_cls():
        return RlkMetadataBuilder

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec=None):
        return [MultipleOf(16)]

    @classmethod
    def supports_head_size(cls, head_size):
        return 0 < head_size <= 256

    @classmethod
    def supports_sliding_window(cls):
        return True

    @classmethod
    def supports_attn_type(cls, attn_type):
        return attn_type in (AttentionType.DECODER, AttentionType.ENCODER_ONLY)

    @classmethod
    def supports_device_cpu_query_lens_mismatch(cls):
        return False  # the host's lengths cut off the rows that fill up a batch

    @classmethod
    def supports_combination(cls, head_size, dtype, kv_cache_dtype, *more):
        cache = _CACHES.get(kv_cache_dtype)
        return None if cache in (None, dtype) else f"keys of {cache} beside queries of {dtype} not supported"


class RlkMetadata(NamedTuple):
    """Where a batch's queries, keys and blocks are."""
    queries: int                # tokens, without those that fill up the batch
    longest: int                # of all query sequences
    starts: torch.Tensor        # [sequences + 1], of the queries
    lengths: torch.Tensor       # [sequences], of the keys
    blocks: torch.Tensor        # [sequences, blocks of one at most]
    causal: bool


class RlkMetadataBuilder(AttentionMetadataBuilder[RlkMetadata]):
    def __init__(self, kv_cache_spec, layer_names, vllm_config, device):
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        layers = vllm_config.compilation_config.static_forward_context
        for impl in (layers[name].impl for name in layer_names if name in layers):
            impl.attempt(kv_cache_spec.dtype, device)

    def build(self, common_prefix_len, common_attn_metadata, fast_build=False):
        given = common_attn_metadata
        _refuse((
            (common_prefix_len != 0, "a prefix that is attended to apart"),
            (given.mm_req_doc_ranges is not None, "bidirectional attention within images"),
            (given.rswa_prefix_lens is not None, "windows beside a prefix that stays visible (R-SWA)"),
            (given.dcp_local_seq_lens is not None, "a context that is spread over processes"),
            (not isinstance(given.causal, bool), "sequences that are causal and others that are not in a batch"),
        ))
        sequences = given.num_reqs
        starts, lengths, blocks = (x.to(torch.int32) for x in (given.query_start_loc[:sequences + 1], given.seq_lens[:sequences],
                                                               given.block_table_tensor[:sequences]))
        return RlkMetadata(int(given.query_start_loc_cpu[sequences]), given.max_query_len, starts, lengths, blocks, given.causal)


class RlkAttentionImpl(AttentionImpl[RlkMetadata]):
    def __init__(self, num_heads, head_size, scale, num_kv_heads=None, alibi_slopes=None, sliding_window=None,
                 kv_cache_dtype="auto", logits_soft_cap=None, attn_type=AttentionType.DECODER, kv_sharing_target_layer_name=None,
                 **more):
        self.num_heads, self.num_kv_heads = num_heads, num_heads if num_kv_heads is None else num_kv_heads
        self.head_size, self.scale, self.softcap = head_size, float(scale), float(logits_soft_cap or 0.0)
        self.kv_cache_dtype, self.attn_type = kv_cache_dtype, attn_type
        self.sliding_window, self.kv_sharing_target_layer_name = sliding_window, kv_sharing_target_layer_name
        self.encoder = attn_type == AttentionType.ENCODER_ONLY
        asked = [name for name, value in more.items() if value is not None and not (isinstance(value, int) and value in (0, -1))]
        _refuse((
            (alibi_slopes is not None, "ALiBi"),
            (bool(asked), f"the argument {', '.join(asked)}"),
            (not RlkAttentionBackend.supports_attn_type(attn_type), f"attention of the type {AttentionType(attn_type).value}"),
            (kv_cache_dtype not in _CACHES, f"a cache of {kv_cache_dtype}, expected one of {', '.join(_CACHES)}"),
            (not RlkAttentionBackend.supports_head_size(head_size), f"heads of {head_size} elements, expected 1 to 256"),
            (self.num_heads % self.num_kv_heads != 0, f"{num_heads} heads of queries over {num_kv_heads} of keys"),
            (not self.scale > 0, f"a scale of {scale}, expected more than 0"),
            (not self.softcap >= 0, f"a softcap of {logits_soft_cap}, expected 0 or more"),
            (sliding_window is not None and sliding_window < 1, f"a window of {sliding_window} tokens, expected 1 or more"),
            (self.dcp_world_size > 1 or self.pcp_world_size > 1, "a context that is spread over processes"),
        ))
        left = -1 if sliding_window is None else sliding_window - 1  # vLLM counts the query's own position
        self.words = {"causal": "off" if self.encoder else "on", "window_left": left, "window_right": left if self.encoder else -1,
                      "scale": self.scale, "softcap": self.softcap}

    def attempt(self, dtype, device):
        """A call of one token: whether a plugin here serves this layer is known before the first request."""
        _refuse(((dtype not in DTYPES, f"keys of {dtype}"),))
        q, k = (torch.zeros(1, n, self.head_size, dtype=dtype, device=device) for n in (self.num_heads, self.num_kv_heads))
        starts = torch.tensor([0, 1], dtype=torch.int32, device=device)
        cache = torch.zeros(1, 16, self.num_kv_heads, 2 * self.head_size, dtype=dtype, device=device).transpose(1, 2)
        self.do_kv_cache_update(None, k, k, cache, starts[:1].to(torch.int64))
        self.attend(q, k, k, cache, RlkMetadata(1, 1, starts, starts[1:], starts[:1, None], not self.encoder))

    def caches(self, kv_cache, dtype):
        """(keys, values) [block, token, head, element] of vLLM's [block, head, token, keys then values], in any memory order."""
        size = self.head_size
        _refuse(((kv_cache.ndim != 4 or kv_cache.shape[3] != 2 * size,
                  f"a cache of the shape {tuple(kv_cache.shape)}, expected [blocks, heads, tokens, {2 * size}]"),
                 (kv_cache.dtype != dtype, f"keys of {kv_cache.dtype} beside queries of {dtype}")))
        return kv_cache.transpose(1, 2).split(size, -1)

    def do_kv_cache_update(self, layer, key, value, kv_cache, slot_mapping):
        if not self.encoder:
            _operator("reshape_and_cache", key, value, *self.caches(kv_cache, key.dtype), slot_mapping[:key.shape[0]])

    def forward(self, layer, query, key, value, kv_cache, attn_metadata, output, output_scale=None, output_block_scale=None):
        if attn_metadata is None:  # vLLM looks how much memory a step takes
            return output.fill_(0)
        places = attn_metadata
        _refuse(((output_scale is not None or output_block_scale is not None, "outputs that are quantized"),
                 (getattr(layer, "logical_mask_mod", None) is not None, "a mask of the layer's own (logical_mask_mod)"),
                 (not self.encoder and not places.causal, "a decoder that is not causal")))
        output[:places.queries].copy_(self.attend(query, key, value, kv_cache, places))
        _calls["rlk"] += 1
        return output

    def attend(self, query, key, value, kv_cache, places):
        rows = slice(places.queries)
        if self.encoder:
            return _operator("attention", query[rows], key[rows], value[rows], places.starts, places.starts, layout="packed",
                             **self.words)
        starts = None if places.queries == places.lengths.shape[0] and places.longest == 1 else places.starts
        return _operator("paged_attention", query[rows], *self.caches(kv_cache, query.dtype), places.blocks, places.lengths, starts,
                         **self.words)
