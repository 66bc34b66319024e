"""The gradient of an operator, through its backward, or composed of other operators (_composed.py). What a backward reads
of its forward is asked for with the forward; which outputs that is follows from the backward's rules."""
import itertools
from typing import NamedTuple, Optional

import torch
from torch.autograd import forward_ad

from rlk import _composed, _torch_library
from rlk._call import remembered
from rlk._tensors import CPU, Torch, View
from rlk.errors import Error, InvalidArgument, Unsupported

functions = {}  # {name: Function} of every operator
below_autograd = torch._C._AutoDispatchBelowAutograd


def is_eager():
    """No compiler traces this call, no torch.func transforms it, and no tangents go forward."""
    return (not torch.compiler.is_compiling() and forward_ad._current_level < 0
            and torch._C._functorch.maybe_current_level() is None)


def is_plain():
    """Nor does autocast cast."""
    return is_eager() and not torch._C._is_any_autocast_enabled()


def refuse_tangents(name, inputs):
    """torch would go on without them."""
    if any(isinstance(x, torch.Tensor) and forward_ad.unpack_dual(x).tangent is not None for x in inputs):
        raise Unsupported(f"{name}: an input has a tangent, and rlk's operators have no derivatives in forward mode. Use "
                          "backward(), or detach the input")


def fakes(operator, inputs):
    """Views of which only shapes and dtypes are asked, which may be symbolic."""
    return [None if x is None else View(0, Torch.dtypes.get(x.dtype), tuple(x.shape), (), (CPU, 0), False, Torch, x)
            for x in inputs]


class Gradients:
    """Of one operator, the forward."""

    def __init__(self, function):
        self.forward = function
        self.answers = {}

    @property
    def function(self):
        """The Function of the backward, or None."""
        return functions.get(self.forward.operator.backward) if self.forward.operator.backward else None

    def remembered(self, question, codes, answer):
        """What follows from sizes, presence and parameters alone; symbolic sizes and parameters are no key. torch.compile
        would guard what is remembered, and compile anew after every plain call that adds to it."""
        if torch.compiler.is_compiling() or any(type(code) not in (int, float) for code in codes):
            return answer()
        question = (*question, *codes, *[str(code) for code in codes if code == 0])  # 0.0 and -0.0 are equal
        try:
            known = self.answers.get(question)
        except TypeError:
            return answer()
        return remembered(self.answers, question, answer()) if known is None else known

    def read_by_backward(self):
        """Outputs that the backward reads: {name: must it}."""
        own, bits = {a.name for a in self.forward.operator.inputs}, self.forward.bits
        return {a.name: not a.optional for a in self.function.operator.inputs if a.name in bits and a.name not in own}

    def saved(self, inputs, codes, wanted):
        """The bits of the outputs that the backward will read, all of the wanted ones having a gradient."""
        def answer():
            read = self.read_by_backward()
            present = {a.name for a, x in zip(self.forward.operator.inputs, inputs) if x is not None}
            present |= {name for name, needed in read.items() if needed}
            present |= {f"grad_{name}" for name, bit in self.forward.bits.items() if wanted & bit}
            free = [name for name, needed in read.items() if not needed]
            more = self.completed(present, free, self.codes(codes), fakes(self.forward.operator, inputs))
            return sum(self.forward.bits[name] for name in read if name in present or name in more)

        return self.remembered(("saved", shapes(inputs), wanted), codes, answer)

    def codes(self, codes):
        """The backward's parameters of the forward's."""
        given = dict(zip((p.name for p in self.forward.operator.params), codes))
        return [given.get(p.name, default) for p, default in zip(self.function.operator.params, self.function.defaults)]

    def completed(self, present, free, codes, views):
        """The fewest of the free names that the rules want beside what is present; gradients of 0 and outputs of its own,
        which change no result, are free too."""
        op, sized_by = self.function.operator, self.forward.operator
        own = [a.name for a in op.inputs if a.optional and a.name.startswith("grad_") and a.name not in present]
        own += [o.name for o in op.outputs if o.optional and o.name not in present]
        choices = list(dict.fromkeys([*free, *own]))
        rules = [holds for names, holds in op.rules if set(names) & set(choices)]
        symbols = sized_by.symbols(views, op.form_of(codes))
        params = dict(zip((p.name for p in op.params), codes))
        for count in range(len(choices) + 1):
            for more in itertools.combinations(choices, count):
                if all(holds(symbols, params, (present | set(more)).__contains__) for holds in rules):
                    return more
        return ()  # the call itself says which rule is broken

    # ---- the forward's side --------------------------------------------------------------------------------------

    def route(self, inputs, plan):
        """Of a plain call: found once for a plan and shapes."""
        key = shapes(inputs)
        known = plan.routes.get(key)
        if known is None:
            wanted, names = plan.wanted, plan.names
            if self.forward.operator.backward is not None:
                wanted |= self.saved(inputs, plan.codes, wanted)
                names = self.forward.names(plan.codes, wanted)
            found = self.routed(inputs, plan.codes, wanted, names, (plan.pin, plan.numerics))
            known = remembered(plan.routes, key, found._replace(real=plan.real, whole=plan.whole, ways={}))
        return known

    def routed(self, inputs, codes, wanted, names, who):
        rule, kept, idle = _composed.rule_of(self.forward.operator, inputs), (), ()
        if rule is None and self.function is not None:
            kept, idle = self.remembered(("kept", *names), (), lambda: self.kept(names))
        return Route(codes, names, wanted, who, rule, kept, idle)

    def keep(self, ctx, tensors, route, outputs, given=None):
        """Of a forward, for its backward. given: what autocast made the tensors of, where it did."""
        ctx.route = route
        ctx.sizes = [(x.shape, x.dtype) for x in outputs]
        ctx.given = None
        if given is not None or route.rule is not None:
            ctx.given = [(None, None) if x is None else (x.shape, x.dtype) for x in (given or tensors)]
        if route.rule is not None:
            there = {a.name: x for a, x in zip(self.forward.operator.inputs, tensors)} | dict(zip(route.names, outputs))
            ctx.save_for_backward(*(there.get(name) for name in route.rule[0]))
            idle = _composed.IDLE.get(self.forward.operator.name, ())
            ctx.mark_non_differentiable(*(x for name, x in zip(route.names, outputs)
                                          if name in idle or not x.is_floating_point()))
        elif self.function is not None:
            ctx.save_for_backward(*tensors, *[outputs[i] for i in route.kept])
            ctx.mark_non_differentiable(*[outputs[i] for i in route.idle])

    def kept(self, names):
        """The outputs that the backward reads, and those without a gradient, by place."""
        read, taken = self.read_by_backward(), {a.name for a in self.function.operator.inputs}
        return ([i for i, name in enumerate(names) if name in read],
                [i for i, name in enumerate(names) if f"grad_{name}" not in taken])

    def keep_of_graph(self, ctx, inputs, output):
        """What torch.library wants: inputs are the schema's arguments."""
        # torch takes an empty list for one of tensors, and wants a list of gradients for it.
        ctx.behind = [[] if x == [] else None for x in inputs[self.forward.n_inputs:]]
        tensors, codes, wanted, *who = self.forward.split(tuple(inputs))
        self.keep(ctx, tensors, self.routed(tensors, codes, wanted, self.forward.names(codes, wanted), who), output)

    def of_graph(self, ctx, gradients):
        grads = self.of(ctx, gradients, tuple(ctx.needs_input_grad[:self.forward.n_inputs]))
        return (*grads, *ctx.behind)

    # ---- the backward's side -------------------------------------------------------------------------------------

    def of(self, ctx, gradients, needs_gradient):
        """The gradients of the inputs that need one."""
        route = ctx.route
        if route.rule is not None:
            return self.composed(ctx, gradients, needs_gradient)
        if self.function is None:
            raise InvalidArgument(f"{self.forward.operator.name} has no gradient. Pass inputs that require none (x.detach())")
        tensors = ctx.saved_tensors
        there = (*tensors, *gradients)
        question = (needs_gradient, *[x is not None for x in gradients])
        way = None if route.ways is None else route.ways.get(question)
        if way is None:
            way = self.way(route, there, needs_gradient)
            if route.ways is not None:
                route.ways[question] = way
        n_saved = len(tensors)
        arguments = [None if place is None else
                     self.zeros(place, ctx, tensors) if isinstance(place, str) else
                     dense(there[place]) if place >= n_saved else there[place] for place in way.sources]
        results = self.run(self.function, arguments, way.lists, way.wanted, route.who)
        grads = [None if place is None else results[place] for place in way.results]
        for i, g in enumerate(grads):
            if g is None:
                continue
            dtype = tensors[i].dtype if ctx.given is None else ctx.given[i][1]
            if g.dtype != dtype:  # sums of 16-bit gradients come in fp32
                grads[i] = g.to(dtype)
        return grads

    def composed(self, ctx, gradients, needs_gradient):
        """The same by a rule of _composed.py."""
        if all(g is None for g in gradients):
            return [None] * len(needs_gradient)
        reads, function = ctx.route.rule
        grads = dict(zip(ctx.route.names, map(dense, gradients)))
        results = function(_composed.Call(self, ctx, grads, dict(zip(reads, ctx.saved_tensors)), needs_gradient))
        answer = []
        for a, needs, (_, dtype) in zip(self.forward.operator.inputs, needs_gradient, ctx.given):
            if needs and a.name not in results:
                raise InvalidArgument(f"{self.forward.operator.name} has no gradient for {a.name}. Pass {a.name}.detach()")
            g = results[a.name] if needs else None
            answer.append(g if g is None or g.dtype == dtype else g.to(dtype))
        return answer

    @staticmethod
    def named(name):
        return functions[name]

    def way(self, route, there, needs_gradient):
        """How a backward is called with what is there: the inputs of the forward, the outputs that were kept, gradients."""
        forward, function = self.forward.operator, self.function
        op = function.operator
        kept = [route.names[i] for i in route.kept]
        names = [*(a.name for a in forward.inputs), *kept, *(f"grad_{name}" for name in route.names)]
        given = {name: i for i, (name, x) in enumerate(zip(names, there)) if x is not None}
        for name, needed in self.read_by_backward().items():
            if needed and name not in kept:
                raise InvalidArgument(f"the gradient of torch.ops.rlk.{forward.name} reads its output {name}, which "
                                      f"was not asked for: call rlk.torch.{forward.name}, or set the bit "
                                      f"{self.forward.bits[name]} of wanted")
        codes, views = self.codes(route.codes), fakes(forward, there[:len(forward.inputs)])
        needed = {f"grad_{a.name}" for a, needs in zip(forward.inputs, needs_gradient) if needs}
        made = {o.name for o in op.outputs if not o.optional or o.name in needed}
        zeros = {a.name for a in op.inputs if not a.optional and a.name.startswith("grad_") and a.name not in given}
        # An optional output that was kept counts only where a rule asks for it.
        spare = [a.name for a in op.inputs if a.optional and a.name in kept]
        present = {a.name for a in op.inputs if a.name in given and a.name not in spare} | made | zeros
        more = self.completed(present, spare, codes, views)
        # Of what is used and not there, a gradient of 0.
        sources = [given.get(a.name, a.name) if a.name in present or a.name in more else None for a in op.inputs]
        wanted = sum(bit for name, bit in function.bits.items() if name in made or name in more)
        results = {name: i for i, name in enumerate(function.names(codes, wanted))}
        for a, needs in zip(forward.inputs, needs_gradient):
            if needs and f"grad_{a.name}" not in results:
                raise InvalidArgument(f"{forward.name} has no gradient for {a.name}. Pass {a.name}.detach()")
        return Way(sources, function.lists(codes), wanted,
                   [results[f"grad_{a.name}"] if needs else None for a, needs in zip(forward.inputs, needs_gradient)])

    @staticmethod
    def run(function, arguments, lists, wanted, who):
        overload = function.overload
        if not is_plain():
            return overload(*arguments, *lists, wanted, *who)
        try:
            if torch.is_grad_enabled():  # the caller wants a second derivative, and is told
                return overload(*arguments, *lists, wanted, *who)
            with below_autograd():
                return overload(*arguments, *lists, wanted, *who)
        except RuntimeError as error:
            if isinstance(error, Error):
                raise
            _torch_library.raise_own(error)

    def zeros(self, name, ctx, inputs):
        """A gradient of 0 for an output that was not used, or not asked for."""
        like = next(x for x in inputs if x is not None)
        sizes = {f"grad_{name}": size for name, size in zip(ctx.route.names, ctx.sizes)}
        if name in sizes:
            shape, dtype = sizes[name]
        else:
            op, codes = self.forward.operator, ctx.route.codes
            views = fakes(op, inputs[:len(op.inputs)])
            output, form = next(o for o in op.outputs if f"grad_{o.name}" == name), op.form_of(codes)
            shape = self.forward.shape(output, form, op.symbols(views, form), views, codes, 0)
            dtype = Torch.by_name[op.dtype(output.dtype, op.variables(views))]
        return like.new_zeros(shape, dtype=dtype)


def dense(gradient):
    """sum() and mean() give one number for all elements, with strides of 0, which kernels of devices decline."""
    return gradient if gradient is None or gradient.device.type == "cpu" else gradient.contiguous()


def shapes(tensors):
    return tuple([None if x is None else x.shape for x in tensors])


class Route(NamedTuple):
    """A forward with a gradient: its parameters, what the outputs are called and which they are, who serves it, the rule of
    _composed.py or None, the places of the outputs that the backward reads and of those without a gradient. Of a plain
    call also the parameters as the schema has them, and the ways of its backwards so far."""
    codes: list
    names: list
    wanted: int
    who: tuple
    rule: Optional[tuple]
    kept: list
    idle: list
    real: list = ()
    whole: list = ()
    ways: Optional[dict] = None


class Way(NamedTuple):
    """A backward. sources: for each input its place in what is there, its name where it is a gradient of 0, or None; results:
    for each input of the forward the place of its gradient, or None."""
    sources: list
    lists: tuple
    wanted: int
    results: list


class Eager(torch.autograd.Function):
    """A call with a gradient, outside of graphs."""

    @staticmethod
    def forward(ctx, function, route, *inputs):
        # Cast here and not before: a sum in fp32 that is the gradient of an fp32 weight is never rounded to 16 bits.
        tensors, outputs = function.below(inputs, route.real, route.whole, route.wanted, *route.who)
        ctx.gradients = function.gradients
        ctx.set_materialize_grads(False)
        function.gradients.keep(ctx, tensors, route, outputs, None if tensors is inputs else inputs)
        return tuple(outputs)

    @staticmethod
    def backward(ctx, *gradients):
        return (None, None, *ctx.gradients.of(ctx, gradients, ctx.needs_input_grad[2:]))
