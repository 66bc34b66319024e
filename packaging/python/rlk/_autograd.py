"""An operator as torch knows it: torch.ops.rlk.NAME with a fake kernel, and a gradient through the operator's backward.

One kernel serves every device (CompositeExplicitAutograd): where it runs is rlk's to say. An operator returns a list, the
outputs of the bit mask `wanted` in declared order. What a backward reads of its forward is asked for with the forward,
which outputs that is follows from the backward's rules."""
import itertools
from typing import NamedTuple, Optional

import torch
from torch.autograd import forward_ad

from rlk import _torch_library
from rlk._call import remembered
from rlk._tensors import CPU, Torch, View
from rlk.errors import Error, InvalidArgument

_library = torch.library.Library("rlk", "DEF")
Torch.fill()  # not at the first call: torch.compile may trace that one, and traces no change of what is global


def schema(operator):
    """The operator's schema: inputs, the parameters that are numbers and those that are integers or words (by their place)
    in declared order, which outputs, and who must serve it. A list of parameters that ends early has defaults behind, so
    that graphs saved before a parameter was appended still load; torch allows 64 arguments, which one each would exceed."""
    arguments, n_required = [], required_inputs(operator)
    for i, a in enumerate(operator.inputs):
        required = i < n_required
        mutated = any(o.must_alias == a.name for o in operator.outputs)
        kind = "Tensor" + (f"({a.name}!)" if mutated else "")
        arguments.append(f"{kind} {a.python}" if required else f"{kind}? {a.python}=None")
    arguments += ["float[] real=[]", "int[] whole=[]", "int wanted=0", "str? pin=None", "str? numerics=None"]
    # torch.compile functionalizes what changes its inputs only where it gives back no list.
    made = any(o.must_alias is None for o in operator.outputs)
    return f"{operator.name}({', '.join(arguments)}) -> {'Tensor[]' if made else '()'}"


def required_inputs(operator):
    """How many of the first inputs every call has."""
    always = [not a.optional and len(a.shapes) == len(forms(operator)) for a in operator.inputs]
    return (*always, False).index(False)


def forms(operator):
    if operator.form is None:
        return ("",)
    return next(p.values for p in operator.params if p.name == operator.form)


class Function:
    """The call behind a function of rlk.torch."""

    def __init__(self, operator):
        self.operator = operator
        self.n_inputs = len(operator.inputs)
        self.defaults = operator.codes([p.default for p in operator.params])
        # In-out tensors are changed where they are and are not among what the dispatcher gives back.
        self.made = [i for i, o in enumerate(operator.outputs) if o.must_alias is None]
        self.bits = {operator.outputs[i].name: 1 << i for i in self.made}
        self.shapes = {o.name: o.shapes for o in operator.outputs}
        self.pure = len(self.made) == len(operator.outputs)
        self.asked = [self.bits[o.name] for o in operator.outputs if o.optional and o.must_alias is None]
        self.plans = {}
        self.required = sum(self.bits[operator.outputs[i].name] for i in self.made if not operator.outputs[i].optional)
        _library.define(schema(operator))
        if not _torch_library.register(self, required_inputs(operator)):
            _library.impl(operator.name, self.kernel, "CompositeExplicitAutograd")
        torch.library.register_fake(f"rlk::{operator.name}", self.fake, lib=_library)
        if self.pure:  # torch has no autograd for what changes its inputs
            torch.library.register_autograd(f"rlk::{operator.name}", self.backward, setup_context=self.keep, lib=_library)
        self.overload = getattr(torch.ops.rlk, operator.name).default
        functions[operator.name] = self

    def __call__(self, inputs, params, flags, pin, numerics):
        if torch.compiler.is_compiling():
            return self.result(inputs, *self.call(inputs, self.plan(params, flags, pin, numerics)))
        key = (params, (*map(type, params),), flags, pin, numerics)
        try:
            plan = self.plans.get(key)
        except TypeError:  # numerics is a list
            plan = key = None
        if plan is None:
            plan = self.plan(params, flags, pin, numerics)
            if key is not None:
                remembered(self.plans, key, plan)
        try:
            return self.result(inputs, *self.call(inputs, plan))
        except RuntimeError as error:
            if isinstance(error, Error):
                raise
            _torch_library.raise_own(error)

    def plan(self, params, flags, pin, numerics):
        """What a call is by its parameters alone."""
        wanted = self.required
        for bit, flag in zip(self.asked, flags):
            if flag:
                wanted |= bit
        if numerics is not None and not isinstance(numerics, str):
            numerics = ",".join(numerics)
        codes = self.operator.codes(params)
        # Never the default: before torch 2.12 the dispatcher drops trailing arguments that are, and then finds as many
        # gradients too many.
        return Plan(codes, *self.lists(codes), wanted, pin, numerics or "", self.names(codes, wanted))

    def call(self, inputs, plan):
        """(plan, the outputs' names, the outputs), of which those that a gradient needs may be more than asked for."""
        codes, real, whole, wanted, pin, numerics, names = plan
        if not (torch.is_grad_enabled() and any(getattr(x, "requires_grad", False) for x in inputs)):
            if self.pure and not torch.compiler.is_compiling() and forward_ad._current_level < 0:
                with torch._C._AutoDispatchBelowAutograd():  # spares the hop through Python that only gradients need
                    return plan, names, self.overload(*inputs, real, whole, wanted, pin, numerics)
        elif self.operator.backward is not None:
            every = wanted | self.saved(inputs, codes, wanted)
            if every != wanted:
                wanted, names = every, self.names(codes, every)
        return plan, names, self.overload(*inputs, real, whole, wanted, pin, numerics)

    def result(self, inputs, plan, names, tensors):
        """One output alone, several as a named tuple, as rlk.ops gives them."""
        results = dict(zip(names, tensors or ()))
        if not self.pure:
            given = {a.name: x for a, x in zip(self.operator.inputs, inputs) if x is not None}
            results |= {o.name: given[o.must_alias] for o in self.operator.outputs if o.must_alias in given}
            results = {o.name: results[o.name] for o in self.operator.outputs if o.name in results}
        elif len(names) != len(plan.names):
            results = {name: results[name] for name in plan.names}
        return self.operator.result(results)

    def names(self, codes, wanted):
        """The outputs that the dispatcher gives, in order."""
        form = self.operator.form_of(codes)
        return [name for name, bit in self.bits.items() if wanted & bit and form in self.shapes[name]]

    def lists(self, codes):
        """The parameters as the schema has them."""
        kinds = [p.type == "f64" for p in self.operator.params]
        return [c for c, real in zip(codes, kinds) if real], [c for c, real in zip(codes, kinds) if not real]

    # ---- the dispatcher's side -----------------------------------------------------------------------------------

    def split(self, arguments):
        """(inputs, codes, wanted, pin, numerics) of the schema's arguments; the dispatcher leaves out what is default."""
        missing = ((None,) * self.n_inputs + ([], [], 0, None, None))[len(arguments):]
        *inputs, real, whole, wanted, pin, numerics = (*arguments, *missing)
        real, whole = iter(real), iter(whole)
        codes = [next(real if p.type == "f64" else whole, default) for p, default in zip(self.operator.params, self.defaults)]
        return inputs, codes, wanted or self.required, pin, numerics

    def kernel(self, *arguments):
        inputs, codes, wanted, pin, numerics = self.split(arguments)
        outputs = {name: True for name, bit in self.bits.items() if wanted & bit}
        call = self.operator.arrange(inputs, None, outputs, None, pin, numerics.split(",") if numerics else None, codes)
        self.operator.run(call)
        return [tensor for name, tensor in call.results.items() if name in self.bits] if self.made else None

    def fake(self, *arguments):
        if not self.made:
            return None
        inputs, codes, wanted, _, _ = self.split(arguments)
        op = self.operator
        like = next(x for x in inputs if x is not None)
        views, form = fakes(op, inputs), op.form_of(codes)
        symbols, variables = op.symbols(views, form), op.variables(views)
        declared = {o.name: o for o in op.outputs}
        return [like.new_empty(self.shape(declared[name], form, symbols, views, codes, wanted),
                               dtype=Torch.by_name[op.dtype(declared[name].dtype, variables)])
                for name in self.names(codes, wanted)]

    def shape(self, output, form, symbols, views, codes, wanted):
        """Of an output, from sizes that may be symbolic."""
        if callable(output.shapes[form]):
            present = [name for name, bit in self.bits.items() if wanted & bit]
            return self.operator.shape(output.shapes[form], symbols, views, codes, dict.fromkeys(present))
        return torch.broadcast_shapes(*self.operator.named_shapes(output.shapes[form], views))

    # ---- gradients -----------------------------------------------------------------------------------------------

    def gradient(self):
        """The Function of the backward, or None."""
        return functions.get(self.operator.backward) if self.operator.backward else None

    def read_by_backward(self):
        """Outputs that the backward reads: {name: must it}."""
        own = {a.name for a in self.operator.inputs}
        return {a.name: not a.optional for a in self.gradient().operator.inputs if a.name in self.bits and a.name not in own}

    def saved(self, inputs, codes, wanted):
        """The bits of the outputs that the backward will read, all of the wanted ones having a gradient."""
        read, gradient = self.read_by_backward(), self.gradient()
        present = {a.name for a, x in zip(self.operator.inputs, inputs) if x is not None}
        present |= {name for name, needed in read.items() if needed}
        present |= {f"grad_{name}" for name, bit in self.bits.items() if wanted & bit}
        free = [name for name, needed in read.items() if not needed]
        more = gradient.completed(present, free, self.codes_of_backward(codes), fakes(self.operator, inputs), self.operator)
        return sum(self.bits[name] for name in read if name in present or name in more)

    def codes_of_backward(self, codes):
        given, gradient = dict(zip((p.name for p in self.operator.params), codes)), self.gradient()
        return [given.get(p.name, default) for p, default in zip(gradient.operator.params, gradient.defaults)]

    def completed(self, present, free, codes, views, sized_by):
        """The fewest of the free names that the rules want beside what is present; gradients of 0 and outputs of its own,
        which change no result, are free too."""
        op = self.operator
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

    def keep(self, ctx, inputs, output):
        """Of a forward, for its backward."""
        # torch takes an empty list for one of tensors, and wants a list of gradients for it.
        ctx.behind = [[] if x == [] else None for x in inputs[self.n_inputs:]]
        tensors, codes, wanted, *ctx.who = self.split(tuple(inputs))
        ctx.codes, ctx.names = codes, self.names(codes, wanted)
        ctx.sizes = {f"grad_{name}": (x.shape, x.dtype) for name, x in zip(ctx.names, output)}
        if self.gradient() is None:
            return
        read = self.read_by_backward()
        ctx.kept = [name for name in ctx.names if name in read]
        ctx.save_for_backward(*tensors, *(x for name, x in zip(ctx.names, output) if name in read))
        inputs_of_backward = {a.name for a in self.gradient().operator.inputs}
        ctx.mark_non_differentiable(*(x for name, x in zip(ctx.names, output) if f"grad_{name}" not in inputs_of_backward))

    def backward(self, ctx, gradients):
        gradient = self.gradient()
        if gradient is None:
            raise InvalidArgument(f"{self.operator.name} has no gradient. Pass inputs that require none (x.detach())")
        tensors, op = ctx.saved_tensors, gradient.operator
        given = {a.name: x for a, x in zip(self.operator.inputs, tensors)}
        given |= dict(zip(ctx.kept, tensors[self.n_inputs:]))
        given |= {f"grad_{name}": g for name, g in zip(ctx.names, gradients)}
        for name, needed in self.read_by_backward().items():
            if needed and name not in ctx.kept:
                raise InvalidArgument(f"the gradient of torch.ops.rlk.{self.operator.name} reads its output {name}, which "
                                      f"was not asked for: call rlk.torch.{self.operator.name}, or set the bit "
                                      f"{self.bits[name]} of wanted")
        codes, views = self.codes_of_backward(ctx.codes), fakes(self.operator, tensors[:self.n_inputs])

        needed = {f"grad_{a.name}" for a, needs in zip(self.operator.inputs, ctx.needs_input_grad) if needs}
        made = {o.name for o in op.outputs if not o.optional or o.name in needed}
        zeros = {a.name for a in op.inputs if not a.optional and a.name.startswith("grad_") and given.get(a.name) is None}
        # An optional output that was kept counts only where a rule asks for it.
        spare = [a.name for a in op.inputs if a.optional and a.name in ctx.kept]
        present = {a.name for a in op.inputs if given.get(a.name) is not None and a.name not in spare} | made | zeros
        more = gradient.completed(present, spare, codes, views, self.operator)
        arguments = []
        for a in op.inputs:
            x = given.get(a.name) if a.name in present or a.name in more else None
            if x is None and (a.name in zeros or a.name in more):
                x = self.zeros(a.name, ctx, views)
            arguments.append(x)
        wanted = sum(bit for name, bit in gradient.bits.items() if name in made or name in more)
        results = dict(zip(gradient.names(codes, wanted),
                           gradient.overload(*arguments, *gradient.lists(codes), wanted, *ctx.who)))
        grads = []
        for a, needs in zip(self.operator.inputs, ctx.needs_input_grad):
            g = results.get(f"grad_{a.name}") if needs else None
            if needs and g is None:
                raise InvalidArgument(f"{self.operator.name} has no gradient for {a.name}. Pass {a.name}.detach()")
            if g is not None and g.dtype != given[a.name].dtype:  # sums of 16-bit gradients come in fp32
                g = g.to(given[a.name].dtype)
            grads.append(g)
        return (*grads, *(None,) * (self.n_inputs - len(grads)), *ctx.behind)

    def zeros(self, name, ctx, views):
        """A gradient of 0 for an output that nobody used, or nobody asked for."""
        like = next(v.owner for v in views if v is not None)
        if name in ctx.sizes:
            shape, dtype = ctx.sizes[name]
        else:
            op, output = self.operator, next(o for o in self.operator.outputs if f"grad_{o.name}" == name)
            form = op.form_of(ctx.codes)
            shape = self.shape(output, form, op.symbols(views, form), views, ctx.codes, 0)
            dtype = Torch.by_name[op.dtype(output.dtype, op.variables(views))]
        return like.new_zeros(shape, dtype=dtype)


class Plan(NamedTuple):
    codes: list
    real: list
    whole: list
    wanted: int
    pin: Optional[str]
    numerics: str
    names: list


functions = {}


def fakes(operator, inputs):
    """Views of which only shapes and dtypes are asked, which may be symbolic."""
    return [None if x is None else View(0, Torch.dtypes.get(x.dtype), tuple(x.shape), (), (CPU, 0), False, Torch, x)
            for x in inputs]
