"""Calls of rlk's operators as trainers make them: rows of any shape, masks, a device that may have no plugin."""
import torch

from rlk import _devices, _questions, errors
from rlk._gradients import functions
from rlk._questions import explain
from rlk._tensors import Torch
from rlk.integrations._replace import log, require

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
# No id is ignored: trainers pass a mask, and an id of -100 is as wrong with rlk as it is with them.
NO_IGNORED_ID = -2**62
_LONGEST_SECONDS = 300
_served = {}


def require_dtype(x, what):
    require(x.dtype in DTYPES, f"{what} of {x.dtype}, expected one of f32, bf16, f16, f64")


def require_ids(ids, shape, what="ids"):
    require(ids.dtype in (torch.int64, torch.int32), f"{what} of {ids.dtype}, expected int64 or int32")
    require(tuple(ids.shape) == tuple(shape), f"{what} of another shape than the rows they belong to")


def call(operator, *inputs, **arguments):
    """rlk.torch.NAME of tensors, where a plugin here serves it on the device that they lie on."""
    from rlk import torch as operators
    device = next(x for x in inputs if x is not None).device
    if device.type != "cpu":
        require_native(operator, device, inputs, arguments)
    return getattr(operators, operator)(*inputs, **arguments)


def require_native(operator, device, inputs, arguments):
    """Not through the CPU and back: a trainer that has its data on a device has a function for it. Asked once for each
    operator, device, dtypes and options; what changes later is rlk's fallback, which is logged and counted."""
    anywhere = torch._C._is_any_autocast_enabled()
    cast = anywhere and torch.is_autocast_enabled(device.type) and torch.get_autocast_dtype(device.type)
    gradient = torch.is_grad_enabled() and any([x is not None and x.requires_grad for x in inputs])
    key = (operator, device, gradient, cast, tuple([x is not None and x.dtype for x in inputs]), *arguments.items())
    if key not in _served:
        try:
            given = [None if x is None else x.detach() for x in inputs]
            if cast and functions[operator].casts is not None:
                given = functions[operator].casts(given)
            candidates = explain(operator, *given, **arguments)["candidates"]
            if any(c.get("reason_code") == "WAITING" for c in candidates):
                wait_for(operator, given)
                candidates = explain(operator, *given, **arguments)["candidates"]
            taken = [c for c in candidates if c["verdict"] == "taken"]
            _served[key] = ("" if taken and not taken[0]["staged"]
                            else f"no implementation here has {operator} of such tensors on it")
            if gradient and not _served[key] and functions[operator].operator.backward is not None:
                wait_for(functions[operator].operator.backward, given)
        except errors.Error as error:
            _served[key] = str(error)
        if len(_served) > 1024:  # what is forgotten is asked again
            _served.clear()
            return require_native(operator, device, inputs, arguments)
    require(not _served[key], f"tensors on {device.type}: {_served[key]}")


def wait_for(operator, inputs):
    """Until the device's plugin has its verdict on the operator: an answer of before would be remembered, and leave a whole
    training to the original. Raises where the device has no such operator."""
    tensor = next(x for x in inputs if x is not None)
    wanted = f"{_devices.backend_of(Torch.device_of(tensor), tensor.data_ptr())}:{operator}"
    log.info("waiting for the verdict on %s, at most %d s", wanted, _LONGEST_SECONDS)
    _questions.require(wanted, timeout=_LONGEST_SECONDS)


def rows_of(logits, *beside):
    """[(logits [N, V], [x [N], ...]), ...]: one piece where the leading dimensions are one by their strides, else a piece
    for each first index. Nothing is copied."""
    vocabulary = logits.shape[-1]
    try:
        return [(logits.view(-1, vocabulary), [None if x is None else x.reshape(-1) for x in beside])]
    except RuntimeError:
        pieces = zip(logits.unbind(0), *(x.unbind(0) if x is not None else [None] * len(logits) for x in beside))
        return [(part.reshape(-1, vocabulary), [None if x is None else x.reshape(-1) for x in others])
                for part, *others in pieces]


def joined(pieces, shape):
    """The pieces' outputs as one tensor again."""
    return (pieces[0] if len(pieces) == 1 else torch.cat(pieces)).view(shape)


def logp(logits, ids, mask=None, temperature=1.0, entropy=False):
    """(logp, entropy or None) of logits [..., V] and ids [...], in fp32 (fp64 of fp64)."""
    require_dtype(logits, "logits")
    require(logits.ndim >= 2 and logits.shape[-1] > 0,
            f"logits of the shape {tuple(logits.shape)}, expected rows of a vocabulary")
    require_ids(ids, logits.shape[:-1])
    if mask is not None:
        require(tuple(mask.shape) == tuple(ids.shape), "a mask of another shape than the ids")
        mask = mask != 0
    if not ids.numel():
        empty = logits.sum(-1).to(torch.float64 if logits.dtype == torch.float64 else torch.float32)
        return empty, empty.clone() if entropy else None
    words = {"temperature": float(temperature), "ignore_index": NO_IGNORED_ID, **({"entropy": True} if entropy else {})}
    results = [call("logp", rows, own, None, kept, **words) for rows, (own, kept) in rows_of(logits, ids, mask)]
    if not entropy:
        return joined(results, ids.shape), None
    return joined([r.logp for r in results], ids.shape), joined([r.entropy for r in results], ids.shape)


def entropy(logits):
    """The entropy of each row of logits [..., V], in fp32 (fp64 of fp64)."""
    ids = torch.zeros(logits.shape[:-1], dtype=torch.int64, device=logits.device)
    return logp(logits, ids, entropy=True)[1]


def policy_loss(log_probs, old_log_probs, advantages, mask, weight=None, **words):
    """(loss, {metric: tensor}) of [sequences, tokens], in the dtype of the log-probabilities."""
    given = {"old log-probabilities": old_log_probs, "advantages": advantages, "weights": weight}
    require_dtype(log_probs, "log-probabilities")
    require(log_probs.ndim == 2, "log-probabilities that are no matrix of sequences and tokens")
    for name, x in given.items():
        if x is not None:
            require(x.dtype == log_probs.dtype, f"{name} of {x.dtype} beside log-probabilities of {log_probs.dtype}")
            require(not x.requires_grad, f"a gradient of the {name}")
            given[name] = x.expand(log_probs.shape)
    if mask is not None:
        require(not mask.is_floating_point(), f"a mask of {mask.dtype}, which may be a weight")
        require(mask.shape == log_probs.shape, "a mask of another shape than the log-probabilities")
        mask = mask != 0
    result = call("policy_loss", log_probs, given["advantages"], given["old log-probabilities"], mask, None, None, None,
                  given["weights"], metrics=True, **words)
    return result.loss[0].to(log_probs.dtype), dict(zip(METRICS, result.metrics.unbind()))


METRICS = ("active_tokens", "kl", "ppo_kl", "clip_fraction", "clip_fraction_lower", "clip_ratio_low", "clip_ratio_high")
