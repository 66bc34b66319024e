"""linear_logp where each process has some rows of the vocabulary projection: shards are computed apart, one gather brings
their answers together, and logp_merge makes one of them."""
import collections

import torch
import torch.distributed as dist

from rlk import _autocast, ops
from rlk.errors import InvalidArgument

VocabParallelLogp = collections.namedtuple("VocabParallelLogp", ("logp", "lse", "entropy"))
_LARGEST = 2**24  # places travel beside the answers, as fp32
_known = set()


class _Shard:
    """Which process has which part, and the words that the operators take of it."""

    def __init__(self, weight, group, vocab_start, global_vocab, words):
        if not (dist.is_available() and dist.is_initialized()):
            raise InvalidArgument("vocab_parallel_logp: torch.distributed is not initialized. Call "
                                  "torch.distributed.init_process_group first, or rlk.torch.linear_logp for a whole vocabulary")
        if (vocab_start is None) != (global_vocab is None):
            raise InvalidArgument("vocab_parallel_logp: pass vocab_start and global_vocab together, or neither for equal shards")
        self.group, self.ranks, self.size = group, dist.get_world_size(group), weight.shape[0]
        self.start = dist.get_rank(group) * self.size if vocab_start is None else vocab_start
        self.vocabulary = self.ranks * self.size if global_vocab is None else global_vocab
        if self.vocabulary > _LARGEST:
            raise InvalidArgument(f"vocab_parallel_logp: a vocabulary of {self.vocabulary}; at most {_LARGEST} are possible")
        self.words = {**words, "vocab_start": self.start, "global_vocab": self.vocabulary}

    def gathered(self, answers):
        """[shards, answers, rows] of what each process has, by one collective."""
        rows = answers[0].shape[0]
        place = answers[0].new_tensor([self.start, self.size])
        own = torch.cat([*answers, place])
        every = own if self.ranks == 1 else own.new_empty(self.ranks * own.numel())
        if self.ranks > 1:
            dist.all_gather_into_tensor(every, own, group=self.group)
        every = every.view(self.ranks, -1)
        key = (self.start, self.size, self.vocabulary, self.ranks)
        if key not in _known or every.device.type == "cpu":  # elsewhere looking costs a wait: once for each shard
            self.check([tuple(map(int, x)) for x in every[:, -2:].tolist()])
            _known.add(key)
        return every[:, :-2].unflatten(1, (len(answers), rows))

    def check(self, places):
        end = 0
        for start, size in sorted(places):
            if start != end:
                break
            end += size
        else:
            if end == self.vocabulary:
                return
        seen = ", ".join(f"{start} to {start + size}" for start, size in places)
        raise InvalidArgument(f"vocab_parallel_logp: the processes have the entries {seen}, expected every entry from 0 to "
                              f"{self.vocabulary} once. Where shards are not equal and in order, pass vocab_start and "
                              "global_vocab")


class _Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden, weight, ids, bias, mask, shard, entropy):
        ctx.dtypes = [None if x is None else x.dtype for x in (hidden, weight, bias)]
        device = hidden.device.type
        if torch.is_autocast_enabled(device):  # as rlk.torch.linear_logp, which is a product of matrices
            hidden, weight, bias = _autocast.cast((hidden, weight, bias), range(3), torch.get_autocast_dtype(device))
        # All rows at once: in chunks, whose gathers would overlap, rows would lose the bits that they have in one call
        # where the implementation is not batch_invariant.
        parts = ops.linear_logp(hidden, weight, ids, bias, mask, lse=True, entropy=entropy, **shard.words)
        every = shard.gathered(list(parts)).unbind(1)
        merged = ops.logp_merge(*every, lse=True, entropy=entropy)
        ctx.shard = shard
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(hidden, weight, ids, bias, mask, merged.lse, merged.entropy if entropy else None)
        return merged.logp, merged.lse, merged.entropy if entropy else None

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_logp, grad_lse, grad_entropy):
        hidden, weight, ids, bias, mask, lse, entropy = ctx.saved_tensors
        of_hidden, of_weight, _, of_bias = ctx.needs_input_grad[:4]
        if grad_logp is None:
            grad_logp = torch.zeros_like(lse)
        grads = ops.linear_logp_backward(
            hidden, weight, ids, lse, grad_logp, grad_lse, grad_entropy, None if grad_entropy is None else entropy, bias, mask,
            grad_weight=of_weight, grad_bias=of_bias, outputs={"grad_hidden": lse.dtype}, **ctx.shard.words)
        found = grads._asdict() if hasattr(grads, "_fields") else {"grad_hidden": grads}
        # NCCL sums on its own stream, in fp32, while this one rounds the gradients that no other process has a part of.
        # One call computes grad_hidden and grad_weight: grad_weight in a second one, during the sum, would compute the
        # scores again.
        whole = found["grad_hidden"] if of_hidden else None
        summing = None
        if of_hidden and ctx.shard.ranks > 1:
            summing = dist.all_reduce(whole, group=ctx.shard.group, async_op=True)
        own = (found.get("grad_weight") if of_weight else None, found.get("grad_bias") if of_bias else None)
        of_weight, of_bias = (None if g is None else g.to(dtype) for g, dtype in zip(own, ctx.dtypes[1:]))
        if summing is not None:
            summing.wait()  # with NCCL the current stream waits, not this thread
        whole = None if whole is None else whole.to(ctx.dtypes[0])  # rounded after the sum
        return whole, of_weight, None, of_bias, None, None, None


@torch.compiler.disable
def vocab_parallel_logp(hidden, weight_shard, ids, group=None, bias_shard=None, mask=None, *, temperature=1.0, softcap=0.0,
                        ignore_index=-100, vocab_start=None, global_vocab=None, lse=False, entropy=False):
    """rlk.torch.linear_logp of a vocabulary whose rows are spread over the processes of a torch.distributed group.

    hidden [N, D], ids [N] (over the whole vocabulary) and mask are the same in every process; weight_shard [V, D] and
    bias_shard [V] are its own. Process r has the entries from r V on; other shards say where they begin (vocab_start) and
    how many there are in all (global_vocab). Every process gets the logp of the whole vocabulary, or with lse or entropy a
    named tuple, and of the gradient of hidden the whole: it computes the same loss as the others.

    One gather of 2 or 3 numbers a row forward, one sum of hidden's gradient in fp32 backward, during which the shard's own
    gradients are rounded to their dtypes; neither logits nor weights travel. Under torch.compile it is a graph break."""
    shard = _Shard(weight_shard, group, vocab_start, global_vocab,
                   {"temperature": temperature, "softcap": softcap, "ignore_index": ignore_index})
    found = _Function.apply(hidden, weight_shard, ids, bias_shard, mask, shard, entropy)
    return VocabParallelLogp(*found) if lse or entropy else found[0]
