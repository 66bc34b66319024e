"""--custom-pg-loss-reducer-function-path rlk.integrations.slime.pg_loss_reducer"""
from rlk.integrations._slime_paths import LAYOUT, Samples, path, refusals

_OPTION = "--custom-pg-loss-reducer-function-path"


@path(_OPTION, ("slime/backends/megatron_utils/loss.py policy_loss_function", *LAYOUT))
def pg_loss_reducer(total_lengths, response_lengths, loss_masks, calculate_per_token_loss=False):
    """What slime's get_sum_of_sample_mean gives for these arguments: a function from the policy loss of every token to the sum
    over samples of their masked means, or to the sum over tokens.

    slime gives this path no rollout_mask_sums, by which its own reducer divides: they are the same numbers where a rollout is
    one sample. Where it is several (agents, branches) or TIS takes tokens out of the masks, a sample's mean is of its own mask
    here. A token of mask 0 is never read, so that a NaN there stays out; slime multiplies it by 0."""
    samples = Samples(total_lengths, response_lengths, loss_masks)
    weights = None if calculate_per_token_loss else samples.weights()

    def reduce(x):
        with refusals("rlk.integrations.slime.pg_loss_reducer", _OPTION):
            return samples.sum(x, weights)
    return reduce
