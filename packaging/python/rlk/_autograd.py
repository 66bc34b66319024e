"""An operator as torch knows it: torch.ops.rlk.NAME with a fake kernel, and a gradient through the operator's backward.

One kernel serves every device (CompositeExplicitAutograd): where it runs is rlk's to say. An operator returns a list, the
outputs of the bit mask `wanted` in declared order."""
import struct
from operator import is_
from typing import NamedTuple, Optional

import torch
from torch.autograd import forward_ad

from rlk import _abi, _autocast, _composed, _torch_library
from rlk._call import is_numpys_bool, key_of, remembered
from rlk._gradients import (Eager, Gradients, OfDispatcher, below_autograd, fakes, functions, is_compiled, is_eager, is_unwatched,
                            names_of_graph, refuse_tangents, saved_of_graph)
from rlk._tensors import Torch
from rlk.errors import ArgumentTypeError, Error, InvalidArgument

_library = torch.library.Library("rlk", "DEF")
_is_dynamo_compiling = torch.compiler.is_dynamo_compiling
Torch.fill()  # not at the first call: torch.compile may trace that one, and traces no change of what is global


def schema(operator, overload=""):
    """The operator's schema: inputs, the parameters that are numbers and those that are integers or words (by their place)
    in declared order, which outputs, and what must serve it. A list of parameters that ends early has defaults behind, so
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
    return f"{operator.name}{overload}({', '.join(arguments)}) -> {'Tensor[]' if made else '()'}"


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
        self.n_inputs, self.n_required = len(operator.inputs), required_inputs(operator)
        self.defaults = operator.codes([p.default for p in operator.params])
        self.enums = tuple([i for i, kind in enumerate(operator.kinds) if kind == "e"])
        # In-out tensors are changed where they are and are not among what the dispatcher gives back.
        self.made = [i for i, o in enumerate(operator.outputs) if o.must_alias is None]
        self.bits = {operator.outputs[i].name: 1 << i for i in self.made}
        self.shapes = {o.name: o.shapes for o in operator.outputs}
        self.pure = len(self.made) == len(operator.outputs)
        aliased = {o.must_alias for o in operator.outputs}
        self.changed = [i for i, a in enumerate(operator.inputs) if a.name in aliased]
        self.asked = [self.bits[o.name] for o in operator.outputs if o.optional and o.must_alias is None]
        self.plans, self.last = {}, ((object(),), None)
        self.gradients = Gradients(self)
        self.required = sum(self.bits[operator.outputs[i].name] for i in self.made if not operator.outputs[i].optional)
        _library.define(schema(operator))
        if self.pure:
            _library.define(schema(operator, ".kernel"))
        if not _torch_library.register(self, self.n_required):
            for overload in ("", ".kernel")[:1 + self.pure]:
                _library.impl(operator.name + overload, self.kernel, "CompositeExplicitAutograd")
        self.direct, self.whole = _torch_library.callables(operator.name) if self.pure else (None, _torch_library.unknown)
        self.address = _torch_library.address(operator.name)
        self.known = None  # of the last call, for the library
        torch.library.register_fake(f"rlk::{operator.name}", self.fake, lib=_library)
        entry = getattr(torch.ops.rlk, operator.name)
        self.overload = entry.default
        if self.pure:  # torch has no autograd for what changes its inputs
            torch.library.register_fake(f"rlk::{operator.name}.kernel", self.fake, lib=_library)
            _library.impl(operator.name, self.autograd, "Autograd", with_keyset=True)
            self.of_graphs = entry.kernel
            _torch_library.shorten(self.of_graphs, operator.name)
        name = operator.name
        self.fuses = name if name in _composed.FUSED.values() else _composed.FUSED.get(name)
        self.casts = _autocast.register(_library, self, self.overload)
        functions[operator.name] = self

    def __call__(self, inputs, params, flags, pin, numerics):
        if _is_dynamo_compiling():
            return self.dispatched(inputs, self.plan(params, self.bools(flags), pin, numerics))
        try:
            result = self.whole(self.known, inputs, params, flags, pin, numerics)
            if result is not None:
                return result
            return self.called(inputs, params, flags, pin, numerics, is_unwatched())
        except (RuntimeError, TypeError, AttributeError) as error:
            if isinstance(error, Error):
                raise
            self.refuse_no_tensor(inputs)
            if not isinstance(error, RuntimeError):
                raise
            _torch_library.raise_own(error)

    def called(self, inputs, params, flags, pin, numerics, unwatched):
        words, (known, plan) = (*params, *flags, pin, numerics), self.last
        if not all(map(is_, words, known)):  # the same objects, which are worth the same, are looked up nowhere
            plan = self.planned(params, self.bools(flags), pin, numerics)
        if self.pure and (unwatched or is_eager()):
            return self.eager(inputs, plan, unwatched)
        return self.dispatched(inputs, plan)

    def planned(self, params, flags, pin, numerics):
        values = key_of(params)
        if values is None:
            params = self.operator.plain(params)  # asked once: the plan is of the values in its key
            values = key_of(params)
        key = (values, flags, pin, numerics)
        try:
            plan = self.plans.get(key)
        except TypeError:  # numerics is a list
            return self.plan(params, flags, pin, numerics)
        if plan is None:
            plan = remembered(self.plans, key, self.plan(params, flags, pin, numerics))
        self.last = (*params, *flags, pin, numerics), plan
        if plan.request.packed is not None:
            kind = None if len(plan.names) == 1 else self.operator.kind(tuple(plan.names))
            self.known = self.last[0], plan.request.packed, kind, plan.known
        return plan

    def bools(self, flags):
        """What optional outputs were asked to be, as True and False; rlk.ops takes more."""
        for flag in flags:
            if flag is not False and flag is not True:
                break
        else:
            return flags
        names = [o.python for o in self.operator.outputs if o.optional and o.must_alias is None]
        for name, flag in zip(names, flags):
            if flag is not None and not isinstance(flag, bool) and not is_numpys_bool(flag):
                raise ArgumentTypeError(f"{self.operator.name}: {name} is {flag!r}, expected True or False: rlk.torch makes the "
                                        f"output of the first declared dtype. rlk.ops.{self.operator.name} takes a dtype or a "
                                        "tensor to write into, and has no gradients")
        return tuple([bool(flag) for flag in flags])

    def refuse_no_tensor(self, inputs):
        """After a failure, which then has words of torch's own."""
        for i, (a, x) in enumerate(zip(self.operator.inputs, inputs)):
            if x is None and i < self.n_required:
                raise InvalidArgument(f"{self.operator.name}: {a.python} is None, expected a tensor") from None
            if x is not None and not isinstance(x, torch.Tensor):
                raise ArgumentTypeError(f"{self.operator.name}: {a.python} is a {type(x).__name__}, expected a tensor of torch. "
                                        f"rlk.ops.{self.operator.name} takes others") from None
            if x is not None:
                Torch.refuse_nested(x, f"{self.operator.name}: {a.python}")

    def plan(self, params, flags, pin, numerics):
        wanted = self.required
        for bit, flag in zip(self.asked, flags):
            if flag:
                wanted |= bit
        if pin is not None or numerics is not None:
            numerics = ",".join(map(str, self.operator.demanded(pin, numerics)))
        # torch.compile guards every dictionary that it looks into: a new value in a plain call would compile a graph anew.
        codes = self.operator.checked(params) if torch.compiler.is_compiling() else self.operator.codes(params)
        demand = (pin, numerics or "")
        return Plan(codes, wanted, self.names(codes, wanted), demand, self.request(codes, wanted, demand), {}, {})

    def request(self, codes, wanted, demand, places=None, n_tensors=None):
        packed, (pin, numerics) = None, demand
        classes = [_abi.NUMERICS.get(name) for name in numerics.split(",")] if numerics else []
        # What the library cannot take at its word is the dispatcher's: a code of a graph, a class that does not exist.
        if (not _is_dynamo_compiling() and self.direct is not None and None not in classes
                and all(type(code) in (int, float) for code in codes)):
            op, order = self.operator, range(self.n_inputs) if places is None else places
            order = bytes([255 if place is None else place for place in order])
            packed = _torch_library.REQUEST.pack(wanted, sum(set(classes)), n_tensors or self.n_inputs, order)
            packed += op.packed_params.pack(op.packed_params.size, 0, *codes)
        # Never the default: before torch 2.12 the dispatcher drops trailing arguments that are, and then finds as many
        # gradients too many.
        return Request(packed, (*self.lists(codes), wanted, pin, numerics), places)

    def eager(self, inputs, plan, unwatched):
        """What torch.library registers for gradients and for autocast are hops through Python of some 20 us. Graphs need
        them; a plain call goes around them, with a Function of its own where there is a gradient."""
        shapes, given, differentiated = [], [], False
        if torch.is_grad_enabled():
            for x in inputs:
                if x is None:
                    shapes.append(None)
                else:
                    shapes.append(x.shape)
                    given.append(x)
                    if x.requires_grad:
                        differentiated = True
        if differentiated:
            function, own = (self, plan) if self.fuses is None else self.fused(inputs, plan)
            shapes = tuple(shapes)
            route = own.routes.get(shapes)
            if route is None:
                route = remembered(own.routes, shapes, function.gradients.route(inputs, own, plan.names))
                if self.fuses is None:  # else it depends on more
                    remembered(plan.known, b"".join(map(packed_shape, shapes)), (route, None))
            outputs = Eager.apply(route, unwatched, *given)
        else:
            outputs = self.below(inputs, plan.request, unwatched)[1]
        return outputs[0] if len(outputs) == 1 else self.operator.result(dict(zip(plan.names, outputs)))

    def dispatched(self, inputs, plan):
        if forward_ad._current_level >= 0:
            refuse_tangents(self.operator.name, inputs)
        differentiated = torch.is_grad_enabled() and any(getattr(x, "requires_grad", False) for x in inputs)
        wanted, names, request = plan.wanted, plan.names, plan.request
        if differentiated and self.operator.backward is not None:
            wanted |= self.saved(inputs, plan.codes, wanted)
            if wanted != plan.wanted:
                names, request = self.names(plan.codes, wanted), self.request(plan.codes, wanted, plan.demand)
        if not self.pure:
            self.note_change(inputs, differentiated)
        return self.result(inputs, plan, names, self.overload(*inputs, *request.arguments))

    def saved(self, inputs, codes, wanted):
        """The bits of the outputs that the backward will read."""
        if _is_dynamo_compiling():
            known = saved_of_graph(self.operator.name, tuple([x is not None for x in inputs]), self.words(codes), wanted)
            if known >= 0:
                return known
        return self.gradients.saved(inputs, codes, wanted)

    def fused(self, inputs, plan):
        """(function, plan) of a call with a gradient: those of what finds it on the way, of which this call's outputs are a
        part, or the same."""
        if self.fuses != self.operator.name:
            reduction = next(p.values[code] for p, code in zip(self.operator.params, plan.codes) if p.name == "reduction")
            if reduction == "none" or not _composed.is_fused_on(inputs[0].device):  # with none, only tokens have a loss
                return self, plan
        function = functions[self.fuses]
        needed = [f"grad_{a.name}" for a, x in zip(self.operator.inputs, inputs) if x is not None and x.requires_grad]
        asked = {*plan.names, *needed, "lse"}
        wanted = function.required | sum(bit for output, bit in function.bits.items() if output in asked)
        own = plan.routes.get(wanted)
        if own is None:
            own = plan._replace(wanted=wanted, names=function.names(plan.codes, wanted), request=None, routes={})
            own = remembered(plan.routes, wanted, own)
        return function, own

    def below(self, given, request, unwatched):
        """(the tensors given as autocast has them, outputs) of a call that records no gradient."""
        if unwatched and request.packed is not None:
            outputs = self.direct(request.packed, request.arguments[3], *given)
            if outputs is not None:
                return given, outputs
        if not torch._C._is_any_autocast_enabled():
            with below_autograd():
                return given, self.entry()(*request.inputs(given), *request.arguments)
        inputs = request.inputs(given)
        if self.casts is not None:
            inputs = self.casts(inputs)
            given = inputs if request.places is None else [x for x in inputs if x is not None]
        with below_autograd(), torch._C._DisableAutocast():
            return given, self.entry()(*inputs, *request.arguments)

    def entry(self):
        """Below autograd."""
        return self.of_graphs if is_compiled() else self.overload

    def note_change(self, inputs, differentiated):
        """Before inputs are changed where they are. Graphs note it by themselves."""
        if differentiated:
            raise InvalidArgument(f"{self.operator.name}: an input requires a gradient, and what is written into inputs has "
                                  "none. Pass x.detach(), or call under torch.no_grad()")
        if not torch.compiler.is_compiling():
            Torch.note_change([inputs[i] for i in self.changed])

    def result(self, inputs, plan, names, tensors):
        """One output alone, several as a named tuple, as rlk.ops gives them."""
        if len(names) == 1 and self.pure:
            return tensors[0]
        results = dict(zip(names, tensors or ()))
        if not self.pure:
            given = {a.name: x for a, x in zip(self.operator.inputs, inputs) if x is not None}
            results |= {o.name: given[o.must_alias] for o in self.operator.outputs if o.must_alias in given}
            results = {o.name: results[o.name] for o in self.operator.outputs if o.name in results}
        elif len(names) != len(plan.names):
            results = {name: results[name] for name in plan.names}
        if len(results) > 1 and torch.compiler.is_compiling():
            return getattr(Kinds, make_kind(self.operator.name, tuple(results)))(*results.values())
        return self.operator.result(results)

    def names(self, codes, wanted):
        """The outputs that the dispatcher gives, in order."""
        if _is_dynamo_compiling():
            names = names_of_graph(self.operator.name, self.words(codes), wanted)
            return names.split(",") if names else []
        form = self.operator.form_of(codes)
        return [name for name, bit in self.bits.items() if wanted & bit and form in self.shapes[name]]

    def lists(self, codes):
        """The parameters as the schema has them."""
        return self.of_kinds(codes, "f"), self.of_kinds(codes, "ie")

    def of_kinds(self, codes, kinds):
        # Not by places that are kept, which torch.compile would guard one by one in every call of a graph.
        return [code for code, kind in zip(codes, self.operator.kinds) if kind in kinds]

    def words(self, codes):
        """The enumerations among the parameters."""
        return tuple(self.of_kinds(codes, "e"))

    # ---- the dispatcher's side -----------------------------------------------------------------------------------

    def split(self, arguments):
        """(inputs, codes, wanted, pin, numerics) of the schema's arguments; the dispatcher leaves out what is default."""
        missing = ((None,) * self.n_inputs + ([], [], 0, None, None))[len(arguments):]
        *inputs, real, whole, wanted, pin, numerics = (*arguments, *missing)
        real, whole = iter(real), iter(whole)
        codes = [next(real if p.type == "f64" else whole, default) for p, default in zip(self.operator.params, self.defaults)]
        return inputs, codes, wanted or self.required, pin, numerics

    def autograd(self, keyset, *arguments):
        if torch.is_grad_enabled() and torch._C._any_requires_grad(*arguments):
            return list(OfDispatcher.apply(self, keyset, *arguments))
        return self.past_autograd(keyset, arguments)

    def past_autograd(self, keyset, arguments):
        """A compiled graph gets the overload without autograd, which would be a step through Python in each of its calls."""
        with below_autograd():
            if is_compiled():
                return self.of_graphs(*arguments)
            return self.overload.redispatch(keyset & torch._C._after_autograd_keyset, *arguments)

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
        for x in inputs:
            if x is not None and x.device != like.device:  # memory of a real one would be given back as it is
                raise InvalidArgument(f"{self.operator.name}: inputs are on {like.device} and on {x.device}. All of them must be "
                                      "on one device")
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


class Kinds:
    """Where graphs find the named tuples of outputs, each by a name of its own: what torch.compile looks up here it guards
    alone, and not all that is there."""


@torch.compiler.assume_constant_result
def make_kind(operator, names):
    """The name in Kinds of the named tuple of these outputs. torch.compile calls this and does not trace how a class is
    made."""
    name = "_of_".join((operator, *names))
    setattr(Kinds, name, functions[operator].operator.kind(names))
    return name


class Request(NamedTuple):
    """All of a call but its tensors. places: where each input is among the tensors given, None where it is absent; None: in
    order, and None itself where one is absent."""
    packed: Optional[bytes]  # for the library (rlk_torch.h); None: this call is the dispatcher's
    arguments: tuple  # of the schema, behind the inputs
    places: Optional[tuple]

    def inputs(self, given):
        """As the schema has them."""
        return given if self.places is None else [None if place is None else given[place] for place in self.places]


class Plan(NamedTuple):
    """What a call is by its parameters alone."""
    codes: list
    wanted: int
    names: list
    demand: tuple
    request: Optional[Request]
    routes: dict  # of calls with a gradient, by the shapes of their inputs
    known: dict  # the same for the library


def packed_shape(shape):
    """As the library writes it (rlk_torch.h)."""
    return struct.pack("=q", -1) if shape is None else struct.pack(f"={len(shape) + 1}q", len(shape), *shape)
