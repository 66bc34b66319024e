"""The gradient of an operator, through its backward, or composed of other operators (_composed.py). What a backward reads
of its forward is asked for with the forward; which outputs that is follows from the backward's rules."""
import itertools

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

    def keep(self, ctx, tensors, codes, names, who, outputs, given=None):
        """Of a forward, for its backward. given: what autocast made the tensors of, where it did."""
        ctx.codes, ctx.names, ctx.who = codes, names, who
        given = tensors if given is None else given
        ctx.given = [(None, None) if x is None else (x.shape, x.dtype) for x in given]
        ctx.sizes = [(x.shape, x.dtype) for x in outputs]
        ctx.rule = _composed.rule_of(self.forward.operator, tensors)
        if ctx.rule is not None:
            there = {a.name: x for a, x in zip(self.forward.operator.inputs, tensors)} | dict(zip(names, outputs))
            ctx.save_for_backward(*(there[name] for name in ctx.rule[0]))
            ctx.mark_non_differentiable(*(x for x in outputs if not x.is_floating_point()))
        if ctx.rule is not None or self.function is None:
            return
        kept, idle = self.remembered(("kept", *names), (), lambda: self.kept(names))
        ctx.kept = [names[i] for i in kept]
        ctx.save_for_backward(*tensors, *(outputs[i] for i in kept))
        ctx.mark_non_differentiable(*(outputs[i] for i in idle))

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
        self.keep(ctx, tensors, codes, self.forward.names(codes, wanted), who, output)

    def of_graph(self, ctx, gradients):
        grads = self.of(ctx, gradients, tuple(ctx.needs_input_grad[:self.forward.n_inputs]))
        return (*grads, *ctx.behind)

    # ---- the backward's side -------------------------------------------------------------------------------------

    def of(self, ctx, gradients, needs_gradient):
        """The gradients of the inputs that need one."""
        if ctx.rule is not None:
            return self.composed(ctx, gradients, needs_gradient)
        op, function = self.forward.operator, self.function
        if function is None:
            raise InvalidArgument(f"{op.name} has no gradient. Pass inputs that require none (x.detach())")
        tensors = ctx.saved_tensors
        given = {a.name: x for a, x in zip(op.inputs, tensors)}
        given |= dict(zip(ctx.kept, tensors[len(op.inputs):]))
        given |= {f"grad_{name}": dense(g) for name, g in zip(ctx.names, gradients)}
        inputs = tensors[:len(op.inputs)]
        there = tuple(name for name, x in given.items() if x is not None)
        sources, lists, wanted, names = self.remembered(
            ("of", shapes(inputs), there, needs_gradient, *ctx.kept), ctx.codes,
            lambda: self.arranged(ctx, given, inputs, needs_gradient))
        arguments = [x if name is None else self.zeros(name, ctx, inputs) if x is None else x
                     for name, x in ((name, given.get(name)) for name in sources)]
        results = dict(zip(names, self.run(function, arguments, lists, wanted, ctx.who)))
        grads = []
        for a, needs, (_, dtype) in zip(op.inputs, needs_gradient, ctx.given):
            g = results.get(f"grad_{a.name}") if needs else None
            if needs and g is None:
                raise InvalidArgument(f"{op.name} has no gradient for {a.name}. Pass {a.name}.detach()")
            if g is not None and g.dtype != dtype:  # sums of 16-bit gradients come in fp32
                g = g.to(dtype)
            grads.append(g)
        return grads

    def composed(self, ctx, gradients, needs_gradient):
        """The same by a rule of _composed.py."""
        if all(g is None for g in gradients):
            return [None] * len(needs_gradient)
        reads, function = ctx.rule
        grads = dict(zip(ctx.names, map(dense, gradients)))
        results = function(_composed.Call(self, ctx, grads, dict(zip(reads, ctx.saved_tensors))))
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

    def arranged(self, ctx, given, inputs, needs_gradient):
        """(for each input of the backward its name in what is given, or None; its parameters; wanted; what it gives)."""
        forward, function = self.forward.operator, self.function
        op = function.operator
        for name, needed in self.read_by_backward().items():
            if needed and name not in ctx.kept:
                raise InvalidArgument(f"the gradient of torch.ops.rlk.{forward.name} reads its output {name}, which "
                                      f"was not asked for: call rlk.torch.{forward.name}, or set the bit "
                                      f"{self.forward.bits[name]} of wanted")
        codes, views = self.codes(ctx.codes), fakes(forward, inputs)
        needed = {f"grad_{a.name}" for a, needs in zip(forward.inputs, needs_gradient) if needs}
        made = {o.name for o in op.outputs if not o.optional or o.name in needed}
        zeros = {a.name for a in op.inputs if not a.optional and a.name.startswith("grad_") and given.get(a.name) is None}
        # An optional output that was kept counts only where a rule asks for it.
        spare = [a.name for a in op.inputs if a.optional and a.name in ctx.kept]
        present = {a.name for a in op.inputs if given.get(a.name) is not None and a.name not in spare} | made | zeros
        more = self.completed(present, spare, codes, views)
        sources = [a.name if a.name in present or a.name in more else None for a in op.inputs]
        wanted = sum(bit for name, bit in function.bits.items() if name in made or name in more)
        return sources, function.lists(codes), wanted, function.names(codes, wanted)

    @staticmethod
    def run(function, arguments, lists, wanted, who):
        overload = function.overload
        if not is_plain():
            return overload(*arguments, *lists, wanted, *who)
        try:
            if torch.is_grad_enabled():  # somebody wants a second derivative, and is told
                return overload(*arguments, *lists, wanted, *who)
            with below_autograd():
                return overload(*arguments, *lists, wanted, *who)
        except RuntimeError as error:
            if isinstance(error, Error):
                raise
            _torch_library.raise_own(error)

    def zeros(self, name, ctx, inputs):
        """A gradient of 0 for an output that nobody used, or nobody asked for."""
        like = next(x for x in inputs if x is not None)
        sizes = {f"grad_{name}": size for name, size in zip(ctx.names, ctx.sizes)}
        if name in sizes:
            shape, dtype = sizes[name]
        else:
            op, views = self.forward.operator, fakes(self.forward.operator, inputs)
            output, form = next(o for o in op.outputs if f"grad_{o.name}" == name), op.form_of(ctx.codes)
            shape = self.forward.shape(output, form, op.symbols(views, form), views, ctx.codes, 0)
            dtype = Torch.by_name[op.dtype(output.dtype, op.variables(views))]
        return like.new_zeros(shape, dtype=dtype)


def dense(gradient):
    """sum() and mean() give one number for all elements, with strides of 0, which kernels of devices decline."""
    return gradient if gradient is None or gradient.device.type == "cpu" else gradient.contiguous()


def shapes(tensors):
    return tuple([None if x is None else x.shape for x in tensors])


class Eager(torch.autograd.Function):
    """A call with a gradient, outside of graphs."""

    @staticmethod
    def forward(ctx, function, codes, names, real, whole, wanted, pin, numerics, *inputs):
        # Cast here and not before: a sum in fp32 that is the gradient of an fp32 weight is never rounded to 16 bits.
        tensors, outputs = function.below(inputs, real, whole, wanted, pin, numerics)
        ctx.gradients = function.gradients
        ctx.set_materialize_grads(False)
        function.gradients.keep(ctx, tensors, codes, names, (pin, numerics), outputs, inputs)
        return tuple(outputs)

    @staticmethod
    def backward(ctx, *gradients):
        return (*(None,) * 8, *ctx.gradients.of(ctx, gradients, ctx.needs_input_grad[8:]))
