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


_transforms, _modes = torch._C._are_functorch_transforms_active, torch._C._len_torch_dispatch_stack
_is_traced, _function_mode = torch._C._is_tracing, torch._C._is_torch_function_mode_enabled
_PROXY = torch._C._TorchDispatchModeKey.PROXY
_casts, _is_profiled = torch._C._is_any_autocast_enabled, torch._C._autograd._profiler_enabled


def is_unwatched():
    """Nothing of torch is to see this call before its kernel: no compiler, transform, tracer, mode, autocast or profiler."""
    return not (torch.compiler.is_dynamo_compiling() or forward_ad._current_level >= 0 or _transforms() or _modes()
                or _function_mode() or _casts() or _is_profiled() or _is_traced())


def is_compiled():
    """Torch traces now what it will run itself: no export, whose graph others read."""
    return torch._C._get_dispatch_mode(_PROXY) is not None and not torch.compiler.is_exporting()


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
            views = fakes(self.forward.operator, inputs)
            there = [x is not None for x in inputs]
            return self.saved_of(there, wanted, codes, lambda form: self.forward.operator.symbols(views, form))

        return self.remembered(("saved", shapes(inputs), wanted), codes, answer)

    def saved_of(self, there, wanted, codes, symbols):
        """The same of inputs that are there or not; symbols(form): their sizes."""
        read = self.read_by_backward()
        present = {a.name for a, is_there in zip(self.forward.operator.inputs, there) if is_there}
        present |= {name for name, needed in read.items() if needed}
        present |= {f"grad_{name}" for name, bit in self.forward.bits.items() if wanted & bit}
        free = [name for name, needed in read.items() if not needed]
        more = self.completed(present, free, self.codes(codes), symbols)
        return sum(self.forward.bits[name] for name in read if name in present or name in more)

    def codes(self, codes):
        """The backward's parameters of the forward's."""
        given = dict(zip((p.name for p in self.forward.operator.params), codes))
        return [given.get(p.name, default) for p, default in zip(self.function.operator.params, self.function.defaults)]

    def completed(self, present, free, codes, symbols):
        """The fewest of the free names that the rules want beside what is present; gradients of 0 and outputs of its own,
        which change no result, are free too."""
        op = self.function.operator
        own = [a.name for a in op.inputs if a.optional and a.name.startswith("grad_") and a.name not in present]
        own += [o.name for o in op.outputs if o.optional and o.name not in present]
        choices = list(dict.fromkeys([*free, *own]))
        rules = [holds for names, holds in op.rules if set(names) & set(choices)]
        symbols = symbols(op.form_of(codes))
        params = dict(zip((p.name for p in op.params), codes))
        for count in range(len(choices) + 1):
            for more in itertools.combinations(choices, count):
                if all(holds(symbols, params, (present | set(more)).__contains__) for holds in rules):
                    return more
        return ()  # the call itself says which rule is broken

    # ---- the forward's side --------------------------------------------------------------------------------------

    def route(self, inputs, plan, given):
        """Of a plain call that gives back these outputs."""
        wanted, names = plan.wanted, plan.names
        if self.forward.operator.backward is not None:
            wanted |= self.saved(inputs, plan.codes, wanted)
            names = self.forward.names(plan.codes, wanted)
        route = self.routed(inputs, plan.codes, wanted, names, given, plan.demand)
        return route._replace(ways={}, library=self.library(route))

    def library(self, route):
        """What librlk_torch is to know of the route (rlk_torch.h), or None where the node is Python's."""
        if route.request.packed is None or (route.rule is None and route.backward is None):
            return None
        if route.rule is None:
            saved, idle = [*range(len(route.inputs)), *[len(route.inputs) + i for i in route.kept]], route.idle
        else:
            there = {name: i for i, name in enumerate((*route.inputs, *route.names))}
            saved = [there.get(name, 255) for name in route.rule[0]]
            idle = _composed.IDLE.get(self.forward.operator.name, ())
            idle = [i for i, name in enumerate(route.given) if name in idle]
        return (route.request.packed, None if route.places is None else bytes(route.places), bytes(saved), bytes(idle),
                {} if route.rule is None else None, route.demand[0])

    def routed(self, inputs, codes, wanted, names, given, demand):
        rule, kept, idle = _composed.rule_of(self.forward.operator, inputs), (), ()
        if rule is None and self.function is not None:
            kept, idle = self.remembered(("kept", *names, "of", *given), (), lambda: self.kept(names, given))
        there = [i for i, x in enumerate(inputs) if x is not None]
        places = tuple([None if x is None else there.index(i) for i, x in enumerate(inputs)])
        request, op = self.forward.request(codes, wanted, demand, places, len(there)), self.forward.operator
        words = {p.name: p.values[code] if p.type == "enum" else code for p, code in zip(op.params, codes)}
        return Route(None, self, self.function, request, codes, words, [op.inputs[i].name for i in there],
                     {op.inputs[i].name: inputs[i].shape for i in there}, names, given,
                     None if given == names else [names.index(name) for name in given], demand, rule, kept, idle)

    def keep(self, ctx, route, tensors, outputs, given, before):
        """Of a forward, for its backward. given: those of the outputs that the caller gets; before: what autocast made the
        tensors of."""
        ctx.kept = route, None if before is tensors and route.rule is None else [x.dtype for x in before]
        if route.rule is not None:
            reads = route.rule[0]
            if reads:
                there = dict(zip(route.inputs, tensors)) | dict(zip(route.names, outputs))
                ctx.save_for_backward(*[there.get(name) for name in reads])
            idle = _composed.IDLE.get(self.forward.operator.name, ())
            idle = [x for name, x in zip(route.given, given) if name in idle or not x.is_floating_point()]
            if idle:
                ctx.mark_non_differentiable(*idle)
        elif route.backward is not None:
            ctx.save_for_backward(*tensors, *[outputs[i] for i in route.kept])
            if route.idle:
                ctx.mark_non_differentiable(*[given[i] for i in route.idle])

    def kept(self, names, given):
        """The outputs that the backward reads, by place, and those without a gradient, by place among the given ones."""
        read, taken = self.read_by_backward(), {a.name for a in self.function.operator.inputs}
        return ([i for i, name in enumerate(names) if name in read],
                [i for i, name in enumerate(given) if f"grad_{name}" not in taken])

    def keep_of_dispatcher(self, ctx, arguments, outputs):
        tensors, codes, wanted, *demand = self.forward.split(arguments)
        names = self.forward.names(codes, wanted)
        route = self.routed(tensors, codes, wanted, names, names, tuple(demand))
        tensors = [x for x in tensors if x is not None]
        self.keep(ctx, route, tensors, outputs, outputs, tensors)

    def of_dispatcher(self, ctx, gradients, needs):
        """Of each argument that was given: the dispatcher leaves out what is default."""
        places = ctx.kept[0].request.places
        grads = self.of(ctx, gradients, tuple([needs[i] for i, place in enumerate(places) if place is not None]))
        grads = [None if place is None else grads[place] for place in places]
        return (*grads, *[None] * len(needs))[:len(needs)]

    # ---- the backward's side -------------------------------------------------------------------------------------

    def of(self, ctx, gradients, needs_gradient):
        """The gradients of the inputs given that need one."""
        route, dtypes = ctx.kept
        if route.rule is not None:
            return self.composed(ctx, gradients, needs_gradient)
        if route.backward is None:
            raise InvalidArgument(f"{self.forward.operator.name} has no gradient. Pass inputs that require none (x.detach())")
        tensors = ctx.saved_tensors
        question = (needs_gradient, *[g is None for g in gradients])
        way = None if route.ways is None else route.ways.get(question)
        if way is None:
            way = self.way(route, tensors, gradients, needs_gradient)
            if route.ways is not None:
                route.ways[question] = way
                if route.library is not None and way.packed is not None:
                    key = bytes([*needs_gradient, *question[1:]])
                    route.library[4][key] = way.packed, bytes([i for pair in way.results for i in pair]), route.backward.address
        if not tensors[0].is_cpu:
            gradients = map(dense, gradients)
        zeros = way.zeros and [self.zeros(name, route, tensors) for name in way.zeros]
        results = self.run(route.backward, (*tensors, *gradients, *zeros), way.request)
        grads = [None] * len(needs_gradient)
        for i, place in way.results:
            g, dtype = results[place], tensors[i].dtype if dtypes is None else dtypes[i]
            grads[i] = g if g.dtype is dtype else g.to(dtype)  # sums of 16-bit gradients come in fp32
        return grads

    def composed(self, ctx, gradients, needs_gradient):
        """The same by a rule of _composed.py."""
        grads = [None] * len(needs_gradient)
        if all([g is None for g in gradients]):
            return grads
        call = _composed.Call(self, ctx, [dense(g) for g in gradients], needs_gradient)
        results = call.route.rule[1](call)
        for i, name in enumerate(call.route.inputs):
            if needs_gradient[i]:
                if name not in results:
                    raise InvalidArgument(f"{self.forward.operator.name} has no gradient for {name}. Pass {name}.detach()")
                g, dtype = results[name], call.dtypes[name]
                grads[i] = g if g is None or g.dtype is dtype else g.to(dtype)
        return grads

    @staticmethod
    def named(name):
        return functions[name]

    def way(self, route, tensors, gradients, needs_gradient):
        """How a backward is called with what is there: the inputs of the forward, the outputs that were kept, gradients."""
        forward, function = self.forward.operator, self.function
        op = function.operator
        kept = [route.names[i] for i in route.kept]
        names = [*route.inputs, *kept, *(f"grad_{name}" for name in route.given)]
        given = {name: i for i, (name, x) in enumerate(zip(names, (*tensors, *gradients))) if x is not None}
        for name, needed in self.read_by_backward().items():
            if needed and name not in kept:
                raise InvalidArgument(f"the gradient of torch.ops.rlk.{forward.name} reads its output {name}, which "
                                      f"was not asked for: call rlk.torch.{forward.name}, or set the bit "
                                      f"{self.forward.bits[name]} of wanted")
        codes, views = self.codes(route.codes), fakes(forward, route.request.inputs(tensors))
        needing = [name for name, needs in zip(route.inputs, needs_gradient) if needs]
        needed = {f"grad_{name}" for name in needing}
        made = {o.name for o in op.outputs if not o.optional or o.name in needed}
        zeros = {a.name for a in op.inputs if not a.optional and a.name.startswith("grad_") and a.name not in given}
        # An optional output that was kept counts only where a rule asks for it.
        spare = [a.name for a in op.inputs if a.optional and a.name in kept]
        present = {a.name for a in op.inputs if a.name in given and a.name not in spare} | made | zeros
        more = self.completed(present, spare, codes, lambda form: forward.symbols(views, form))
        used = [a.name if a.name in present or a.name in more else None for a in op.inputs]
        zeros = [name for name in used if name is not None and name not in given]
        given |= {name: len(names) + i for i, name in enumerate(zeros)}
        places = tuple([None if name is None else given[name] for name in used])
        wanted = sum(bit for name, bit in function.bits.items() if name in made or name in more)
        results = {name: i for i, name in enumerate(function.names(codes, wanted))}
        for name in needing:
            if f"grad_{name}" not in results:
                raise InvalidArgument(f"{forward.name} has no gradient for {name}. Pass {name}.detach()")
        request = function.request(codes, wanted, route.demand, places, len(names) + len(zeros))
        return Way(zeros, request, [(i, results[f"grad_{name}"]) for i, name in enumerate(route.inputs) if needs_gradient[i]],
                   None if zeros else request.packed)

    @staticmethod
    def run(function, given, request):
        unwatched = is_unwatched()
        if not unwatched and (torch._C._is_any_autocast_enabled() or not is_eager()):
            return function.overload(*request.inputs(given), *request.arguments)
        try:
            if torch.is_grad_enabled():  # the caller wants a second derivative, and is told
                return function.overload(*request.inputs(given), *request.arguments)
            return function.below(given, request, unwatched)[1]
        except RuntimeError as error:
            if isinstance(error, Error):
                raise
            _torch_library.raise_own(error)

    def zeros(self, name, route, tensors):
        """A gradient of 0 for an output that was not used, or not asked for."""
        op, codes = self.forward.operator, route.codes
        views = fakes(op, route.request.inputs(tensors))
        output, form = next(o for o in op.outputs if f"grad_{o.name}" == name), op.form_of(codes)
        shape = self.forward.shape(output, form, op.symbols(views, form), views, codes, route.request.arguments[2])
        return tensors[0].new_zeros(shape, dtype=Torch.by_name[op.dtype(output.dtype, op.variables(views))])


class Unknown(Exception):
    """An answer depends on a size or a number, which may be symbolic."""


class Sizes(dict):
    def __missing__(self, name):
        raise Unknown


class Number(float):
    """A parameter that is compared or computed with."""

    def _unknown(self, *others):
        raise Unknown

    __bool__ = __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __hash__ = _unknown
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __neg__ = __abs__ = __truediv__ = __rtruediv__ = _unknown


@torch.compiler.assume_constant_result
def saved_of_graph(operator, there, words, wanted):
    """The bits of the outputs that a backward reads; -1 where that depends on sizes or numbers. torch.compile calls this and does
    not trace it: it would guard all that this looks into, which at every call costs more than the call."""
    function, codes = functions[operator], [Number()] * len(functions[operator].defaults)
    for i, word in zip(function.enums, words):
        codes[i] = word
    try:
        return function.gradients.saved_of(there, wanted, codes, lambda form: Sizes())
    except Unknown:
        return -1


@torch.compiler.assume_constant_result
def names_of_graph(operator, words, wanted):
    """Function.names, by commas."""
    function, codes = functions[operator], [0] * len(functions[operator].defaults)
    for i, word in zip(function.enums, words):
        codes[i] = word
    return ",".join(function.names(codes, wanted))


def dense(gradient):
    """sum() and mean() give one number for all elements, with strides of 0, which kernels of devices decline."""
    return gradient if gradient is None or gradient.is_cpu else gradient.contiguous()


def shapes(tensors):
    return tuple([None if x is None else x.shape for x in tensors])


class Route(NamedTuple):
    """A forward with a gradient: what the library knows of it or None, its backward or None, what it is, its parameters as
    numbers and by their words, the names and shapes of its inputs, the names of its outputs, those that the caller gets and
    their places (None: all), its pin and classes, the rule of _composed.py or None, the places of the outputs that the backward
    reads and of those given that have no gradient. Of a plain call also the ways of its backwards so far."""
    library: Optional[tuple]
    gradients: Gradients
    backward: object  # Function
    request: tuple
    codes: list
    params: dict
    inputs: list
    shapes: dict
    names: list
    given: list
    places: Optional[list]
    demand: tuple
    rule: Optional[tuple]
    kept: list
    idle: list
    ways: Optional[dict] = None


class Way(NamedTuple):
    """A backward, called with what was saved, the gradients of the outputs, and zeros for gradients that it must have and that
    are not there. results: the inputs given of the forward that need a gradient, and the places of those."""
    zeros: list
    request: tuple
    results: list
    packed: Optional[bytes]  # for the library, where there are no zeros to make


class Eager(torch.autograd.Function):
    """A call with a gradient, outside of graphs."""

    @staticmethod
    def forward(ctx, route, unwatched, *inputs):
        # Cast here and not before: a sum in fp32 that is the gradient of an fp32 weight is never rounded to 16 bits.
        tensors, outputs = route.gradients.forward.below(inputs, route.request, unwatched)
        given = outputs if route.places is None else [outputs[i] for i in route.places]
        ctx.set_materialize_grads(False)
        route.gradients.keep(ctx, route, tensors, outputs, given, inputs)
        return tuple(given)

    @staticmethod
    def backward(ctx, *gradients):
        return (None, None, *ctx.kept[0].gradients.of(ctx, gradients, ctx.needs_input_grad[2:]))


class OfDispatcher(torch.autograd.Function):
    """A call with a gradient that comes through the dispatcher, of a graph say."""

    @staticmethod
    def forward(ctx, function, keyset, *arguments):
        outputs = function.past_autograd(keyset, arguments)
        ctx.set_materialize_grads(False)  # zeros for what has no gradient would be a kernel more, and read
        function.gradients.keep_of_dispatcher(ctx, arguments, outputs)
        return tuple(outputs)

    @staticmethod
    def backward(ctx, *gradients):
        return (None, None, *ctx.kept[0].gradients.of_dispatcher(ctx, gradients, ctx.needs_input_grad[2:]))


class Known(torch.autograd.Function):
    """The same of a call that the library knows: its forward and what runs its backward are the library's."""

    @staticmethod
    def backward(ctx, *gradients):
        return tuple(ctx.kept[0].gradients.of(ctx, gradients, ctx.needs_input_grad))


def _apply_of(function):
    """Its apply without the part of it that is Python's before torch 2.15, which costs more than a call: it asks for transforms,
    and looks for tensors of one that has ended, which have no memory."""
    return torch._C._FunctionBase.__dict__["apply"].__get__(None, function)


apply = _apply_of(Eager)
_torch_library.introduce(
    watchers=(_transforms, _modes, _function_mode, _casts, _is_profiled, _is_traced), tangents=vars(forward_ad),
    records=torch.is_grad_enabled, apply=apply, node=_apply_of(Known), backward=Known.backward)
for _place, _method in zip(((Known, "forward"), (Known._backward_cls, "apply")),
                           _torch_library.node_methods(torch._C._FunctionBase)):
    setattr(*_place, _method)
