"""The functions that rlk replaces in a step of grpo_trl.py: their calls recorded, then both ways timed and held against fp64."""
import statistics
import sys
import time
from pathlib import Path
from typing import NamedTuple

import torch
import trl.trainer.utils
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/python"))
from trainers_truth import FACTOR, Scores, attention_truth, ratio  # noqa: E402

PROJECTION, ATTENTION = "_ChunkedLogProbFunction", "attention"
TURNS, TURN_SECONDS, ROWS_OF_TRUTH = 7, 0.03, 256


class Recorded(NamedTuple):
    function: str
    arguments: tuple
    named: dict
    gradient: bool


class Recorder:
    """While it is on, keeps the tensors of a call of each kind that goes to a replaced function: one with a gradient, one
    without, and of attention one of decoding, the last."""

    def __init__(self):
        self.replaced = {PROJECTION: trl.trainer.utils._ChunkedLogProbFunction, ATTENTION: AttentionInterface()["rlk"]}
        self.on, self.calls = False, {}

    def __enter__(self):
        for name, replacement in self.replaced.items():
            replacement.serve = self.recording(name, replacement.serve)
        return self

    def __exit__(self, *_):
        for replacement in self.replaced.values():
            replacement.serve = replacement.serve.of

    def recording(self, name, serve):
        def record(original, *arguments, **named):
            if self.on:
                self.keep(name, arguments, named)
            return serve(original, *arguments, **named)
        record.of = serve
        return record

    def keep(self, name, arguments, named):
        tensors = [x for x in arguments if isinstance(x, torch.Tensor)]
        gradient = torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
        kind = "with gradient" if gradient else "forward"
        if name == ATTENTION and arguments[1].shape[2] == 1:
            kind = "decoding"
        if kind == "decoding" or (name, kind) not in self.calls:
            self.calls[name, kind] = Recorded(name, tuple(x.detach() if isinstance(x, torch.Tensor) else x for x in arguments),
                                              dict(named), gradient)


def seconds(function, calls):
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(calls):
        function()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return (time.perf_counter() - begin) / calls


def beside(ours, theirs):
    """Median seconds of both, which take turns: what a step waits, host and device."""
    once = min(max(seconds(f, 1), seconds(f, 1)) for f in (ours, theirs))
    calls = max(1, min(200, int(TURN_SECONDS / once)))
    turns = [(seconds(ours, calls), seconds(theirs, calls)) for _ in range(TURNS)]
    return [statistics.median(x) for x in zip(*turns)]


def autocast(tensors, bf16):
    return torch.autocast(tensors[0].device.type, torch.bfloat16, enabled=bf16)


def run(function, call, places, gradients, bf16):
    """(outputs, gradients of the arguments at places) of a call as the step makes it."""
    arguments = list(call.arguments)
    if not call.gradient:
        with torch.no_grad(), autocast([arguments[places[0]]], bf16):
            return function(*arguments, **call.named), ()
    leaves = [arguments[i].requires_grad_() for i in places]
    with autocast(leaves, bf16):
        out = function(*arguments, **call.named)
    return out, torch.autograd.grad(out[0], leaves, gradients)


def gradient_of(out, seed):
    generator = torch.Generator(out.device).manual_seed(seed)
    return torch.randn(out.shape, generator=generator, device=out.device, dtype=torch.float32).to(out.dtype)


def torchs_attention(module, query, key, value, attention_mask, **named):
    """As transformers has it with attn_implementation="sdpa"; a mask is made once for all layers there, and outside of this."""
    return sdpa_attention_forward(module, query, key, value, attention_mask, **named)


def whole_mask(query, key, padding):
    """What transformers gives torch's attention for the padding of the keys."""
    if padding is None:
        return None
    queries, keys = query.shape[2], key.shape[2]
    causal = torch.ones(queries, keys, dtype=torch.bool, device=key.device).tril(keys - queries)
    return causal & (padding != 0)[:, None, None, :]


def compare(recorder, bf16):
    """A row of each kind of call: microseconds both ways, and the worst error as a fraction of its bound."""
    rows = []
    for (name, kind), call in recorder.calls.items():
        replacement = recorder.replaced[name]
        compared = compared_projection if name == PROJECTION else compared_attention
        try:
            rows.append(compared(replacement, kind, call, bf16))
        except Exception as error:  # one row must not hide the others
            rows.append({"name": f"{name}, {kind}", "refused": f"{type(error).__name__}: {error}"})
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    return rows


def row_of(name, ours, theirs, errors):
    rlk_s, original_s = beside(ours, theirs)
    return {"name": name, "rlk_us": 1e6 * rlk_s, "original_us": 1e6 * original_s, "rlk_error": errors[0],
            "original_error": errors[1]}


def worst(ratios):
    """The largest; infinite where a result is finite and fp64's is not, or the other way round."""
    try:
        return max([ratio(*x) for x in ratios])
    except AssertionError:
        return float("inf")


# ---- TRL's projection --------------------------------------------------------------------------------------------

def compared_projection(replacement, kind, call, bf16):
    serve = lambda *a, **n: replacement.serve.of(replacement.original, *a, **n)  # noqa: E731
    hidden, weight, bias, ids, temperature = call.arguments[:5]
    gradients = gradient_of(hidden[:, 0].float(), 1)
    both = [lambda f=f: run(f, call, (0, 1), gradients, bf16) for f in (serve, replacement.original)]
    some = call._replace(arguments=(hidden[:ROWS_OF_TRUTH], weight, bias, ids[:ROWS_OF_TRUTH], *call.arguments[4:]))
    errors = [projection_error(run(f, some, (0, 1), gradients[:ROWS_OF_TRUTH], bf16), some, gradients[:ROWS_OF_TRUTH], bf16)
              for f in (serve, replacement.original)]
    name = f"{PROJECTION} {hidden.shape[0]} x {hidden.shape[1]} x {weight.shape[0]}, {kind}"
    return row_of(name, *both, errors)


def projection_error(found, call, g, bf16):
    """Of logp, entropy and gradients; the bound is that of tests/python/trainers_trl_test.py, and the gradient of a score may be
    rounded to 16 bits, as linear_logp_backward declares."""
    outputs, gradients = found
    hidden, weight, _, ids, temperature = call.arguments[:5]
    dtype = torch.bfloat16 if bf16 else hidden.dtype
    h, w = (x.detach().to(dtype).double() for x in (hidden, weight))
    scores = Scores(h @ w.T, ids, temperature=temperature, condition=h.abs() @ w.abs().T)
    of_logp, of_entropy = scores.conditions()
    ratios = [(outputs[0].detach(), scores.logp, of_logp, dtype)]
    if outputs[1] is not None:
        ratios.append((outputs[1].detach(), scores.entropy, of_entropy, dtype))
    if gradients:
        dx, size = scores.grad(g)
        rounded = torch.finfo(dtype).eps / 2 / (FACTOR * 2.0**-24) if bf16 else 0.0
        ratios += [(gradients[0].to(dtype), dx @ w, size @ w.abs() + rounded * (dx.abs() @ w.abs()), dtype),
                   (gradients[1], dx.T @ h, size.T @ h.abs() + rounded * (dx.T.abs() @ h.abs()), dtype)]
    return worst(ratios)


# ---- attention ---------------------------------------------------------------------------------------------------

def compared_attention(replacement, kind, call, bf16):
    module, query, key, value, padding = call.arguments[:5]
    mask = whole_mask(query, key, padding)
    rlks = lambda *a, **n: replacement.serve.of(replacement.original, *a, **n)  # noqa: E731
    theirs = call._replace(arguments=(module, query, key, value, mask, *call.arguments[5:]))
    dtype = torch.bfloat16 if bf16 else query.dtype
    out = query.new_empty(query.shape, dtype=dtype).transpose(1, 2)
    gradients = gradient_of(out, 2)
    if padding is not None:  # what a query of the padding gives is no result
        gradients = gradients * (padding[:, -query.shape[2]:] != 0)[:, :, None, None].to(dtype)
    pairs = ((rlks, call), (torchs_attention, theirs))
    both = [lambda f=f, c=c: run(f, c, (1, 2, 3), gradients, bf16) for f, c in pairs]
    errors = [attention_error(run(f, c, (1, 2, 3), gradients, bf16), call, gradients, dtype) for f, c in pairs]
    name = f"attention {'x'.join(map(str, query.shape[:3]))} over {key.shape[2]} x {key.shape[1]}, {kind}"
    return row_of(name + (", padded" if padding is not None else ""), *both, errors)


def attention_error(found, call, g, dtype):
    """The bound of tests/python/trainers_transformers_test.py: softmax weights, and in the gradients those of the scores, may be
    rounded to the tensors' 16 bits."""
    (out, *_), gradients = found
    module, query, key, value, padding = call.arguments[:5]
    queries = query.shape[2]
    truths = attention_truth(*(x.detach().to(dtype) for x in (query, key, value)), None if padding is None else padding != 0,
                             queries > 1, call.named.get("scaling"), None, g)
    weights = 0.5 * torch.finfo(dtype).eps / (FACTOR * 2.0**-24) if dtype in (torch.bfloat16, torch.float16) else 0.0
    kept = torch.ones(out.shape[:2], dtype=torch.bool, device=out.device) if padding is None else padding[:, -queries:] != 0
    ratios = [(out.detach()[kept], truths[0][0][kept], truths[0][1][kept] * (2 + weights), dtype)]
    ratios += [(seen.to(dtype), truth, condition * (2 + weights), dtype)
               for seen, (truth, condition) in zip(gradients, truths[1:])]
    return worst(ratios)
