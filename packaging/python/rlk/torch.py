"""The operators for torch: rlk.torch.NAME takes what rlk.ops.NAME takes and has gradients, fake kernels for torch.compile and
export, and torch's current stream.

Each is torch.ops.rlk.NAME, one dispatcher entry for every device. Gradients go through the operator's backward; an
operator without one raises when a gradient reaches it. A second derivative is not offered and raises. Optional outputs
come when their name is True; output dtypes are the declaration's first choice."""
from rlk._torch_functions import *  # noqa: F403
from rlk._torch_functions import __all__  # noqa: F401
