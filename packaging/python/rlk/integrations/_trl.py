"""TRL: the fused projection that GRPO, RLOO, SFT, DPO and KTO use, and the functions over logits."""
import torch

from rlk.integrations import _example_calls
from rlk.integrations._hooks import Hook, Integration
from rlk.integrations._replace import require
from rlk.integrations._serve import NO_IGNORED_ID, call, entropy, logp, require_dtype, require_ids

_UTILS, _FILE, _CHUNKED = "trl.trainer.utils", "trl/trainer/utils.py", "trl/kernels/chunked_logprob.py"


def _chunked(utils):
    def serve(original, hidden, weight, bias, targets, temperature, chunk_size, final_logit_softcapping=None,
              logit_scale=1.0, outputs=("entropy", "log_sum_sq_probs", "mean_logits", "is_top1")):
        softcap = final_logit_softcapping
        more = set(outputs) & {"mean_logits", "is_top1"}
        require(not more, f"the outputs {', '.join(sorted(more))}, which linear_logp does not have")
        require(temperature > 0, f"a temperature of {temperature}, expected more than 0")
        require(logit_scale > 0, f"a logit_scale of {logit_scale}, expected more than 0")
        require(softcap is None or softcap > 0, f"a softcap of {softcap}, expected None or more than 0")
        require(hidden.ndim == 2 and weight.ndim == 2, "hidden or weight that are no matrices")
        require(not any(hasattr(x, "ds_status") for x in (weight, bias)), "a weight that DeepSpeed shards (ZeRO-3)")
        cast = torch.is_autocast_enabled(hidden.device.type)  # which rlk.torch does, and keeps the sums that gradients are in fp32
        for x, what in ((hidden, "hidden"), (weight, "weight"), (bias, "bias")):
            if x is not None:
                require_dtype(x, what)
                require(not cast or x.dtype != torch.float64, f"{what} of fp64 under autocast")
        require_ids(targets, hidden.shape[:1], "targets")
        # The scale is inside the cap and the temperature outside: cap(c, s x) = s cap(c / s, x).
        words = {"temperature": temperature / logit_scale, "softcap": 0.0 if softcap is None else softcap / logit_scale,
                 "ignore_index": NO_IGNORED_ID, "entropy": "entropy" in outputs, "sum_p2": "log_sum_sq_probs" in outputs}
        if not cast:
            hidden, weight, bias = (None if x is None else x.to(hidden.dtype) for x in (hidden, weight, bias))
        result = call("linear_logp", hidden, weight, targets, bias, **words)
        found = result._asdict() if hasattr(result, "_fields") else {"logp": result}
        sum_p2 = found.get("sum_p2")
        return (found["logp"].float(), found["entropy"].float() if "entropy" in found else None,
                None if sum_p2 is None else sum_p2.detach().log().float(), None, None)
    return serve


def _dtype(utils, logits, index=None, row_mask=None):
    """What the original's own path gives: Triton's fp32, or the dtype of the logits."""
    fused = utils.is_triton_available() and utils._supports_trl_loss_kernel(logits, index, row_mask)
    return torch.float32 if fused else logits.dtype


def _check(temperature, logits, index):
    require(temperature > 0, f"a temperature of {temperature}, expected more than 0")
    require(index.ndim < logits.ndim, "several ids for each row")


def _selective(utils):
    def serve(original, logits, index, temperature=1.0, row_mask=None):
        _check(temperature, logits, index)
        found, _ = logp(logits, index, row_mask, temperature)
        return found.to(_dtype(utils, logits, index, row_mask))
    return serve


def _with_entropy(utils):
    def serve(original, logits, index, entropy_requires_grad=True, temperature=1.0, row_mask=None):
        _check(temperature, logits, index)
        dtype = _dtype(utils, logits, index, row_mask)
        found, its_entropy = logp(logits, index, row_mask, temperature, entropy=True)
        return found.to(dtype), (its_entropy if entropy_requires_grad else its_entropy.detach()).to(dtype)
    return serve


def _entropy(utils):
    def serve(original, logits, chunk_size=128):
        return entropy(logits).to(_dtype(utils, logits))
    return serve


_SHARED = (f"{_FILE} _supports_trl_loss_kernel", "trl/kernels/logprob_entropy.py selective_log_softmax_and_entropy")
INTEGRATION = Integration("trl", "trl", (
    Hook(_UTILS, "_ChunkedLogProbFunction", "linear_logp",
         (f"{_CHUNKED} ChunkedLogProbFunction", f"{_CHUNKED} _torch_transform", f"{_CHUNKED} _forward_tile",
          f"{_CHUNKED} _backward_tile", f"{_FILE} add_fused_lm_head"), _chunked,
         calls=lambda: _example_calls.hidden(_example_calls.no_bias, _example_calls.ids_of, 0.7, 4, None, 1.0, ("entropy",))),
    Hook(_UTILS, "selective_log_softmax", "logp", (f"{_FILE} selective_log_softmax", *_SHARED), _selective,
         calls=_example_calls.logits_and_ids),
    Hook(_UTILS, "selective_log_softmax_and_entropy", "logp",
         (f"{_FILE} selective_log_softmax_and_entropy", *_SHARED), _with_entropy, calls=_example_calls.logits_and_ids),
    Hook(_UTILS, "entropy_from_logits", "logp", (f"{_FILE} entropy_from_logits", *_SHARED), _entropy,
         calls=_example_calls.logits),
))
