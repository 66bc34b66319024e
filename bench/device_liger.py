"""Liger-Kernel beside the cases of bench/device_torch.py, where it has the operator and can be imported."""
import dataclasses
import importlib.metadata
from typing import Callable

import torch

from device_case import Backward, Case, Gradient
from device_losses import group_scores


@dataclasses.dataclass
class Peer:
    """function(**inputs) of a case; of_torch: what of torch's result it gives."""
    function: Callable
    of_torch: Callable = lambda out: out
    note: str = ""
    overwrites: bool = False  # its inputs


def version():
    """Raises ImportError where there is none."""
    import liger_kernel.ops  # noqa: F401
    try:
        import cutlass  # noqa: F401  where it is, Liger prefers kernels in CuTe DSL
        return f"{importlib.metadata.version('liger-kernel')}, with CuTe DSL"
    except ImportError:
        return f"{importlib.metadata.version('liger-kernel')}, Triton alone"


def rms_norm(x, w):
    from liger_kernel.ops import LigerRMSNormFunction
    return LigerRMSNormFunction.apply(x, w, 1e-6, 0.0, "llama", False)


def layer_norm(x, w, b):
    from liger_kernel.ops import LigerLayerNormFunction
    return LigerLayerNormFunction.apply(x, w, b, 1e-5)


def add_rms_norm(x, r, w):
    from liger_kernel.ops import LigerFusedAddRMSNormFunction
    return LigerFusedAddRMSNormFunction.apply(x, r, w, 1e-6, 0.0, "llama", False)


def swiglu(a, b):
    from liger_kernel.ops import LigerSiLUMulFunction
    return LigerSiLUMulFunction.apply(b, a)


def softmax(x):
    from liger_kernel.ops import LigerSoftmaxFunction
    return LigerSoftmaxFunction.apply(x)


def cross_entropy(x, y):
    from liger_kernel.ops import LigerCrossEntropyFunction
    return LigerCrossEntropyFunction.apply(x, y, None)[0]


def linear_cross_entropy(h, w, y):
    from liger_kernel.ops import LigerFusedLinearCrossEntropyFunction
    return LigerFusedLinearCrossEntropyFunction.apply(h, w, y)[0]


def jsd(x, t):
    from liger_kernel.ops import LigerJSDFunction
    return LigerJSDFunction.apply(torch.log_softmax(x.float(), -1), torch.log_softmax(t.float(), -1), None, 0.5)


def linear_jsd(h, w, g, u):
    from liger_kernel.ops import LigerFusedLinearJSDFunction
    return LigerFusedLinearJSDFunction.apply(h, w, g, u, None, 0.5)


def grpo_loss(x, y, old, rewards):
    """Liger takes the logits of one position more than it has tokens: of the case's it takes all tokens but the last."""
    from liger_kernel.ops import GrpoLossFunction
    some = x.shape[1] - 1
    return GrpoLossFunction.apply(x, old[:, :some].contiguous(), None, y[:, :some].contiguous(), group_scores(rewards), None,
                                  1.0, 0.0, 0.2, 0.2, True, "bnpo", None, True)[0]


def grpo_gradient(**inputs):
    return Gradient(grpo_loss, "x")(**inputs)[1]


PEERS = {"rms_norm": Peer(rms_norm), "rms_norm_backward": Peer(Backward(rms_norm, "x", "w")), "layer_norm": Peer(layer_norm),
         "layer_norm_backward": Peer(Backward(layer_norm, "x", "w", "b")), "add_rms_norm": Peer(add_rms_norm),
         "swiglu": Peer(swiglu), "softmax": Peer(softmax),
         "cross_entropy": Peer(Gradient(cross_entropy, "x"), overwrites=True,
                               note="writes the gradient over the logits, and waits for the host"),
         "linear_cross_entropy": Peer(Gradient(linear_cross_entropy, "h", "w"), note="sums grad_weight in bf16"),
         "jsd": Peer(jsd, of_torch=lambda loss: loss.mean(), note="behind torch's log_softmax, and with its gradient"),
         "linear_jsd": Peer(Gradient(linear_jsd, "h", "w"), note="sums grad_weight in bf16"),
         "grpo_loss": Peer(grpo_gradient, overwrites=True, of_torch=lambda out: out[1],
                           note="without each sequence's last token; writes the gradient over the logits")}


def peer(case: Case):
    """Of its own for each case, since Backward keeps what a case's forward gave."""
    if case.op not in PEERS:
        return None
    found = PEERS[case.op]
    function = found.function
    if isinstance(function, Backward):
        function = Backward(function.forward, *function.names)
    return dataclasses.replace(found, function=function)
