"""The operators for torch: rlk.torch.NAME takes what rlk.ops.NAME takes and has gradients, fake kernels for torch.compile and
export, and torch's current stream.

Each is torch.ops.rlk.NAME, one dispatcher entry for every device. Gradients go through the operator's backward, or are calls
of other operators (_composed.py); where there is neither, a gradient that reaches it raises. A second derivative is not
offered through a backward, and raises. Optional outputs come when their name is True; output dtypes are the declaration's
first choice. vocab_parallel_logp is linear_logp over the processes of torch.distributed, neighborhood_attention
is attention with a window over every dilation-th token.

The kernels are those of librlk_torch, on torch's stable ABI: outputs come from torch's allocator, work goes to torch's
current stream, and torch.cuda.graph captures it. `served_by` says so; with a torch before 2.10 they are Python's. Plain
calls go around the dispatcher, unless a mode, a profiler or a transform of torch's is to see them."""
from rlk import _torch_functions
from rlk._neighborhood import neighborhood_attention
from rlk._torch_functions import *  # noqa: F403
from rlk._torch_library import served_by
from rlk._vocab_parallel import vocab_parallel_logp

__all__ = [*_torch_functions.__all__, "neighborhood_attention", "served_by", "vocab_parallel_logp"]
