"""What the functions of slime's paths share: slime's source as rlk knows it, its layout of tokens, refusals that say why."""
import functools
import itertools

import torch

from rlk.errors import InvalidArgument, Unsupported
from rlk.integrations._hooks import Installed
from rlk.integrations._replace import Original
from rlk.integrations._serve import call, require_dtype

_CP = "slime/backends/megatron_utils/cp_utils.py"
LAYOUT = tuple(f"{_CP} {name}" for name in ("get_sum_of_sample_mean", "slice_log_prob_with_cp", "all_gather_with_cp",
                                            "get_logits_and_tokens_offset_with_cp"))
_held = set()


def path(option, sources):
    """A function that slime calls by a path: it refuses another slime than rlk knows, and what it cannot serve exactly."""
    def refusing(function):
        name = f"rlk.integrations.slime.{function.__name__}"

        @functools.wraps(function)
        def served(*arguments, **named):
            if sources not in _held:
                from rlk.integrations._slime import INTEGRATION
                Installed(INTEGRATION).check(sources, f"{name} computes nothing")
                _held.add(sources)
            with refusals(name, option):
                return function(*arguments, **named)
        return served
    return refusing


class refusals:
    """A function of a path has no original to fall back to: what it does not serve is an error."""

    def __init__(self, name, option):
        self.name, self.option = name, option

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if isinstance(error, Original):
            raise Unsupported(f"{self.name} does not serve {error}. Change that, or start slime without {self.option}: "
                              "its own function serves it") from None


class Samples:
    """The response tokens of every sample that lie in this process, one sample behind the other: all of them, or with context
    parallelism what slime's zigzag gives this rank."""

    def __init__(self, total_lengths, response_lengths, loss_masks):
        from megatron.core import mpu
        self.loss_masks, self.total_lengths, self.response_lengths = loss_masks, total_lengths, response_lengths
        parts = self.own(loss_masks)
        self.lengths, self.masks = [len(part) for part in parts], torch.cat(parts)
        self.whole = mpu.get_context_parallel_world_size() == 1  # of every rank alike: gathering is a collective
        self.cu_seqlens, self.cu_seqlens_of_all = _cu_seqlens(self.lengths), _cu_seqlens(response_lengths)

    def own(self, samples):
        """What of each sample's response lies on this rank."""
        from slime.backends.megatron_utils.cp_utils import slice_log_prob_with_cp
        return [slice_log_prob_with_cp(x, *lengths)
                for x, *lengths in zip(samples, self.total_lengths, self.response_lengths, strict=True)]

    @functools.cached_property
    def places(self):
        """Where this rank's tokens are among those of all ranks."""
        of_all = torch.arange(sum(self.response_lengths), device=self.masks.device)
        return torch.cat(self.own(of_all.split(list(self.response_lengths))))

    @property
    def active(self):
        """Tokens of each sample on this rank whose mask is not 0."""
        return torch.stack([(mask != 0).sum() for mask in self.masks.split(self.lengths)])

    def spread(self, x):
        """This rank's numbers among those of all ranks, 0 for the others'."""
        return x.new_zeros(sum(self.response_lengths)).index_copy(0, self.places, x)

    def gathered(self, x):
        """The numbers of all ranks, with slime's gradient."""
        from slime.backends.megatron_utils.cp_utils import all_gather_with_cp
        parts = zip(x.split(self.lengths), self.total_lengths, self.response_lengths)
        return torch.cat([all_gather_with_cp(*part) for part in parts])

    def weights(self, denominators=None):
        """1 / denominator of each sample; without denominators that of its own mask, as slime's reducer has it."""
        if denominators is None:
            denominators = [mask.sum() for mask in self.loss_masks]
        denominators = [torch.as_tensor(x, device=self.masks.device).double() for x in denominators]
        return 1 / torch.clamp_min(torch.stack(denominators), 1)

    def sum(self, x, weights=None):
        """The sum over samples of weight times the sum over tokens of mask times x; without weights every sample's is 1.
        A token of mask 0 is never read. policy_loss of kind gpg is -advantage x, summed."""
        require_dtype(x, "numbers of tokens")
        if x.shape != self.masks.shape:
            raise InvalidArgument(f"rlk.integrations.slime: numbers of the shape {tuple(x.shape)}, expected "
                                  f"[{len(self.masks)}], one for each response token of this process")
        kind = torch.promote_types(x.dtype, self.masks.dtype)  # as x times the mask has it
        wide = x.to(torch.promote_types(kind, torch.float32))
        weights = wide.new_ones(len(self.lengths)) if weights is None else weights.to(wide.dtype)
        masks = None if self.masks.dtype == torch.bool else self.masks.to(wide.dtype)
        found = call("policy_loss", wide, wide.new_zeros(1).expand_as(wide), None, self.masks != 0, None, None, None, masks,
                     -weights, self.cu_seqlens, layout="packed", kind="gpg", aggregation="token_sum")
        return found[0].to(kind)


def _cu_seqlens(lengths):
    return torch.tensor([0, *itertools.accumulate(lengths)])  # policy_loss reads it on the host
