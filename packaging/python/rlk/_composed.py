"""Gradients that are calls of other operators: of operators without a backward of their own, whose declarations say so in
words, and of products and quotients of two shapes. Each reads some inputs and outputs of its forward."""
import torch

from rlk.errors import InvalidArgument

RULES = {}  # {operator: (the names of what it reads, function)}
# Outputs that have no gradient.
IDLE = {"fused_linear_cross_entropy": {"lse", "z_loss", "grad_hidden", "grad_weight", "grad_bias"}}
# What finds the gradients of its loss on the way, for what would compute the scores once more in its backward.
FUSED = {"linear_cross_entropy": "fused_linear_cross_entropy"}
SCALED_NUMBERS = 1 << 26  # of a gradient that are held in fp32 beside it while it is multiplied


def is_fused_on(device):
    """On the CPU that computes no less, and the gradients would be held from forward to backward."""
    return device.type != "cpu"


def rule(name, *reads):
    def take(function):
        RULES[name] = reads, function
        return function
    return take


def rule_of(operator, inputs):
    """(reads, function), or None where the operator's own backward serves, or nothing does."""
    if operator.backward is not None and (operator.name not in RULES or inputs[0].shape == inputs[1].shape):
        return None
    return RULES.get(operator.name)


class Call:
    """A forward, of which some outputs have gradients: params by their words, shapes and dtypes of inputs and which of them
    need a gradient, grads of outputs and the tensors saved for the rule by name."""

    def __init__(self, gradients, ctx, grads, needs_gradient):
        self.gradients, (self.route, dtypes) = gradients, ctx.kept
        inputs, reads = self.route.inputs, self.route.rule[0]
        self.params, self.shapes, self.dtypes = self.route.params, self.route.shapes, dict(zip(inputs, dtypes))
        self.needed = [name for name, needs in zip(inputs, needs_gradient) if needs]
        self.grads = dict(zip(self.route.given, grads))
        self.saved = dict(zip(reads, ctx.saved_tensors)) if reads else {}

    def run(self, name, *inputs, outputs=(), **params):
        """The outputs of an operator: the required ones and those named."""
        function = self.gradients.named(name)
        codes = function.operator.codes([params.get(p.name, p.default) for p in function.operator.params])
        wanted = function.required | sum(function.bits[output] for output in outputs)
        # The pinned plugin has this operator, and perhaps no other.
        demand = self.route.demand if function is self.gradients.forward else (None, self.route.demand[1])
        inputs += (None,) * (function.n_inputs - len(inputs))
        return self.gradients.run(function, inputs, function.request(codes, wanted, demand))

    def summed(self, **grads):
        """Over what the inputs repeat."""
        return {name: grads[name] if grads[name].shape == self.shapes[name] else grads[name].sum_to_size(self.shapes[name])
                for name in self.needed if name in grads}


def times(number, g):
    return g if number == 1 else number * g


@rule("add")
def add(call):
    g = call.grads["out"]
    return call.summed(a=g, b=times(call.params["alpha"], g))


@rule("sub")
def sub(call):
    g = call.grads["out"]
    return call.summed(a=g, b=times(-call.params["alpha"], g))


@rule("mul", "a", "b")
def mul(call):
    g = call.grads["out"]
    return call.summed(a=g * call.saved["b"], b=g * call.saved["a"])


@rule("div", "a", "b")
def div(call):
    of_a = call.grads["out"] / call.saved["b"]
    return call.summed(a=of_a, b=-of_a * (call.saved["a"] / call.saved["b"]))


@rule("where", "condition")
def where(call):
    g, holds = call.grads["out"], call.saved["condition"] != 0
    return call.summed(a=g.masked_fill(~holds, 0), b=g.masked_fill(holds, 0))


@rule("copy")
@rule("cast")
def copy(call):
    return {"x": call.grads["y"]}


@rule("cat")
def cat(call):
    g, columns = call.grads["y"], call.shapes["a"][-1]
    return {"a": g[:, :columns], "b": g[:, columns:]}


@rule("sum")
@rule("moe_sum")
def sum_over_dimension_1(call):
    return {"x": call.grads["y"].unsqueeze(1).expand(call.shapes["x"])}


@rule("mean")
def mean(call):
    columns = call.shapes["x"][1]
    return {"x": (call.grads["y"] / max(columns, 1)).unsqueeze(1).expand(call.shapes["x"])}


@rule("max", "x")
def max_of_rows(call):
    x = call.saved["x"]
    index, = call.run("argmax", x)
    return {"x": call.run("gather_backward", call.grads["y"].unsqueeze(1), x, index.unsqueeze(1))[0]}


@rule("sort", "x", "index")
@rule("top_k", "x", "index")
def moved(call):
    return {"x": call.run("gather_backward", call.grads["y"], call.saved["x"], call.saved["index"])[0]}


@rule("topk_softmax", "x", "ids")
def topk_softmax(call):
    x, ids = call.saved["x"], call.saved["ids"]
    x = x if x.element_size() >= 4 else x.float()  # shares of 16 bits would lose what the weights have
    g = call.grads["weights"].to(x.dtype)
    if call.params["renormalize"] == "on":  # the softmax of what was chosen
        shares, = call.run("softmax", *call.run("gather", x, ids))
        return {"x": call.run("gather_backward", call.run("softmax_backward", g, shares)[0], x, ids)[0]}
    shares, = call.run("softmax", x)
    return {"x": call.run("softmax_backward", *call.run("gather_backward", g, x, ids), shares)[0]}


@rule("gemm", "a", "b")
def gemm(call):
    a, b = call.saved["a"], call.saved["b"]
    swaps_a, swaps_b = (call.params["transpose"] in (which, "both") for which in "ab")
    g, alpha = call.grads["y"], call.params["alpha"]
    of_a, = call.run("gemm", g, b if swaps_b else b.mT, alpha=alpha)
    of_b, = call.run("gemm", a if swaps_a else a.mT, g, alpha=alpha)
    return {"a": of_a.mT if swaps_a else of_a, "b": of_b.mT if swaps_b else of_b, "c": call.params["beta"] * g}


def turned_back(call, name, arguments):
    """The call with the gradients and the other inverse; arguments(gradient of query, of key or None)."""
    query, key = call.grads["query_out"], call.grads.get("key_out")
    if query is None:
        query = key.new_zeros(call.shapes["query"])
    params = {**call.params, "inverse": "off" if call.params["inverse"] == "on" else "on"}
    grads = call.run(name, *arguments(query, key), outputs=() if key is None else ("key_out",), **params)
    return {"query": grads[0], "key": grads[1] if key is not None else None}


@rule("rotary_embedding", "positions", "cos_sin_cache")
def rotary_embedding(call):
    positions, cache = call.saved["positions"], call.saved["cos_sin_cache"]
    return turned_back(call, "rotary_embedding", lambda query, key: (positions, query, key, cache))


@rule("apply_rotary_pos_emb", "cos", "sin")
def apply_rotary_pos_emb(call):
    cos, sin = call.saved["cos"], call.saved["sin"]
    # Of each pair the one has the other's sine: the transposed matrix also where the two differ.
    pairs = (2, -1) if call.params["style"] == "neox" else (-1, 2)
    sin = sin.unflatten(1, pairs).flip(1 if call.params["style"] == "neox" else 2).flatten(1)
    return turned_back(call, "apply_rotary_pos_emb", lambda query, key: (query, key, cos, sin))


def scaled(x, factor, dtype):
    """factor x, rounded to dtype once. On an H200 torch.mul by a number of another shape, into another dtype, took 3.2 ms for
    grad_weight of 128256 x 4096, nearly four times as long as its conversion alone: so it is two passes, of some rows at a
    time, the first by a kernel for many tensors and a number of the device."""
    if x.dtype != factor.dtype:
        return torch.mul(x, factor, out=torch.empty_like(x, dtype=dtype))
    factor = factor.reshape(())
    if x.dtype == dtype:
        return torch._foreach_mul([x], factor)[0]
    y = torch.empty_like(x, dtype=dtype)
    rows = max(1, SCALED_NUMBERS * x.shape[0] // max(x.numel(), 1))
    for part, to in zip(x.split(rows), y.split(rows)):
        to.copy_(torch._foreach_mul([part], factor)[0])
    return y


@rule("fused_linear_cross_entropy", "hidden", "weight", "ids", "bias", "class_weight", "mask", "lse",
      "grad_hidden", "grad_weight", "grad_bias")
def fused_linear_cross_entropy(call):
    of_loss, of_tokens, saved = call.grads["loss"], call.grads.get("token_loss"), call.saved
    names = [name for name in call.needed if name in ("hidden", "weight", "bias")]
    # Where the caller asks for a gradient of gradients, linear_cross_entropy_backward says that it has none.
    if of_tokens is not None or torch.is_grad_enabled():
        return linear_cross_entropy_gradients(call, of_loss, of_tokens)
    missing = [f"grad_{name}" for name in names if saved[f"grad_{name}"] is None]
    if missing:
        raise InvalidArgument(f"the gradient of torch.ops.rlk.fused_linear_cross_entropy is its output {missing[0]}, which was "
                              "not asked for: call rlk.torch.fused_linear_cross_entropy, or set its bit of wanted")
    return {name: scaled(saved[f"grad_{name}"], of_loss, call.dtypes[name]) for name in names}


def linear_cross_entropy_gradients(call, of_loss, of_tokens):
    """With the scores computed anew: rows have gradients of their own."""
    saved = call.saved
    if saved["lse"] is None:
        raise InvalidArgument("the gradient of torch.ops.rlk.fused_linear_cross_entropy reads its output lse here, which was not "
                              "asked for: call rlk.torch.fused_linear_cross_entropy, or set its bit of wanted")
    if of_loss is None:
        of_loss = saved["lse"].new_zeros(1)
    optional = [f"grad_{name}" for name in ("weight", "bias") if name in call.needed]
    results = call.run("linear_cross_entropy_backward", *(saved[name] for name in ("hidden", "weight", "ids", "lse")), of_loss,
                       of_tokens, *(saved[name] for name in ("bias", "class_weight", "mask")), outputs=optional, **call.params)
    return dict(zip(("hidden", *(name[len("grad_"):] for name in optional)), results))
