"""Attention to the neighbours of each token, from `attention` with a window: of dilation d, the tokens of one remainder by d are
a sequence of their own, in which the neighbours are adjacent."""
import torch

from rlk._torch_functions import attention
from rlk.errors import InvalidArgument

_NAME = "neighborhood_attention"


def neighborhood_attention(q, k, v, kernel_size=7, dilation=1, *, scale=0.0, pin=None, numerics=None):
    """Token i of q [B, L, Hq, D] attends to the tokens j of k and v [B, L, Hkv, D] with |i - j| <= dilation (kernel_size // 2) and
    i - j a multiple of dilation: kernel_size tokens, fewer at both ends of the sequence, as in Liger's
    fused_neighborhood_attention (whose tensors are [B, H, L, D]). NATTEN is another function: it moves the windows of the
    first and last tokens inwards, so that each has kernel_size tokens.

    Gives out [B, L, Hq, D], with gradients. kernel_size is odd; scale 0 means 1 / sqrt(D); pin and numerics are those of
    rlk.torch.attention, which does the work on every device that has it. No matrix of L x L exists.

    Raises InvalidArgument for shapes, a kernel_size or a dilation that are not as above, and what rlk.torch.attention raises."""
    if kernel_size < 1 or kernel_size % 2 == 0:
        raise InvalidArgument(f"{_NAME}: kernel_size is {kernel_size}, expected an odd number from 1: the token itself and as many "
                              "on either side")
    if dilation < 1:
        raise InvalidArgument(f"{_NAME}: dilation is {dilation}, expected 1 or more")
    if q.dim() != 4 or k.shape != v.shape or (*q.shape[:2], q.shape[3]) != (*k.shape[:2], *k.shape[3:]):
        raise InvalidArgument(f"{_NAME}: q is {tuple(q.shape)}, k {tuple(k.shape)} and v {tuple(v.shape)}; expected [B, L, Hq, D], and "
                              "[B, L, Hkv, D] of the two others")
    half = kernel_size // 2
    words = {"window_left": half, "window_right": half, "scale": scale, "pin": pin, "numerics": numerics}
    if dilation == 1:
        return attention(q, k, v, **words)
    batch, length = q.shape[:2]
    if length % dilation == 0:
        parts = [x.unflatten(1, (length // dilation, dilation)).transpose(1, 2).flatten(0, 1) for x in (q, k, v)]
        return attention(*parts, **words).unflatten(0, (batch, dilation)).transpose(1, 2).flatten(1, 2)
    return _of_unequal_parts((q, k, v), dilation, words)


def _of_unequal_parts(tensors, dilation, words):
    """The tokens of each remainder as a packed sequence. Places are computed on the device: nothing waits for it."""
    batch, length = tensors[0].shape[:2]
    short, n_longer = divmod(length, dilation)
    # The parts before that of remainder r have r * short + min(r, n_longer) tokens.
    token = torch.arange(length, device=tensors[0].device)
    part = token % dilation
    begin = torch.arange(batch, device=token.device)[:, None] * length
    place = (begin + (part * short + part.clamp(max=n_longer) + token // dilation)).flatten()
    order = torch.empty_like(place).scatter_(0, place, (begin + token).flatten())
    part = torch.arange(dilation, device=token.device)
    starts = (begin + (part * short + part.clamp(max=n_longer))).flatten()
    bounds = torch.cat([starts, starts.new_full((1,), batch * length)])
    packed = attention(*(x.flatten(0, 1).index_select(0, order) for x in tensors), bounds, bounds, layout="packed", **words)
    return packed.index_select(0, place).unflatten(0, (batch, length))
