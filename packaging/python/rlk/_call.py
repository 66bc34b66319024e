"""A call of an operator: what it is given becomes the C API's arrays, and what it gives is allocated like the inputs."""
import collections
import ctypes
import operator
import re
import struct
import sys
from typing import Any, Iterable, Mapping, NamedTuple, Sequence, Tuple, Union

from rlk import _abi, _devices, _runtime, errors
from rlk._tensors import Torch, dtype_name, view
from rlk.errors import ArgumentTypeError, InvalidArgument

Wanted = Any  # False, True, a dtype, or an array to write into
Outputs = Union[Mapping[str, Wanted], Iterable[str]]
Numerics = Union[str, Sequence[str]]


class Input(NamedTuple):
    name: str
    python: str
    dtype: str
    shapes: dict  # {form: dimensions}; a form that is not there has no such input
    optional: bool


class Output(NamedTuple):
    name: str
    python: Any  # by which an optional output is asked for
    dtype: str
    shapes: dict  # {form: sizes from symbols and parameters}
    optional: bool
    must_alias: Any  # the input in whose memory it is


class Param(NamedTuple):
    name: str
    python: str
    type: str
    default: Any
    values: Tuple[str, ...]


_BOOL = _abi.DTYPES["bool"]


class Symbols(dict):
    def __missing__(self, name):
        raise _Unknown(name)


class _Unknown(Exception):
    """The inputs given do not fix a size or a dtype. The C API says so in its own words."""


class Arranged(NamedTuple):
    """A call as the C API takes it. memory holds what the addresses lead to, owners the tensors."""
    memory: bytearray
    params: int
    inputs: int
    outputs: int
    options: int
    device: Tuple[int, int]
    address: int  # of an input on the device, 0 where none has memory
    kind: Any
    results: dict
    owners: Any
    changed: list  # torch's tensors that the caller has and the call writes


class Operator:
    """What Python knows of an operator; the functions of rlk.ops are made of it."""

    def __init__(self, name, inputs, outputs, params, dtypes, form, backward, rules=(), is_product=False):
        self.is_product = is_product  # of matrices, as torch.autocast takes it
        self.name, self.inputs, self.outputs, self.params = name, inputs, outputs, params
        self.dtypes, self.form, self.backward, self.rules = dtypes, form, backward, rules
        self.kinds = "".join({"f64": "f", "enum": "e"}.get(p.type, "i") for p in params)
        self.packed_params = struct.Struct("=II" + "".join("d" if p.type == "f64" else "q" for p in params))
        self._handle = None
        self._tuples, self._codes, self._inferred = {}, {}, {}
        places = len(inputs) + len(outputs)
        # In one block: params, options, pointers to inputs and outputs, the tensors, then each one's shape and strides.
        self._at_options = self.packed_params.size
        self._at_pointers = self._at_options + _abi.PACKED_OPTIONS.size
        self._at_tensors = self._at_pointers + 8 * places
        self._at_sizes = self._at_tensors + places * _abi.PACKED_TENSOR.size
        self._bytes = self._at_sizes + places * 16 * _abi.MAX_NDIM
        self._pointers = struct.Struct(f"={places}Q")

    def __call__(self, inputs, params, wanted, outputs, stream, pin, numerics):
        call = self.arrange(inputs, params, wanted, outputs, pin, numerics)
        for v in call.owners[0]:
            if v is not None and v.kind is Torch:
                Torch.refuse_gradient(v.owner, self.name)
        if call.changed:
            self.note_change(call.changed)
        return self.run(call, stream)

    def note_change(self, tensors):
        """Before memory of torch's that the caller has is written."""
        for x in tensors:
            if Torch.records(x):
                raise InvalidArgument(f"{self.name}: an output that is written into requires a gradient, and gets none here. "
                                      "Pass x.detach(), or call under torch.no_grad()")
        Torch.note_change(tensors)

    def run(self, call, stream=None):
        stream = self.stream_for(call, stream)
        library, error = _runtime.library(), errors.fresh()
        status = library.rlk_call(stream.handle, self.handle, call.params, call.inputs, len(self.inputs), call.outputs,
                                  len(self.outputs), call.options, error)
        if status < 0:
            errors.raise_for(status, error)
        if stream.backend == "cpu":  # the work is done: rlk reports bad values now
            status = library.rlk_stream_query(stream.handle, error)
            if status < 0:
                errors.raise_for(status, error)
        return self.result(call.results)

    @property
    def handle(self):
        if self._handle is None:
            handle = ctypes.c_void_p()
            errors.check(_runtime.library().rlk_op_find, self.name.encode(), handle)
            self._handle = handle.value
        return self._handle

    def stream_for(self, call, stream):
        if stream is None:
            return _devices.stream_for(call.device, call.address, call.kind)
        _devices.check_stream(stream, call.device, self.name)
        return stream

    def result(self, results):
        """One output alone, several as a named tuple, in declared order."""
        if len(results) == 1:
            return next(iter(results.values()))
        return self.kind(tuple(results))(*results.values())

    def kind(self, names):
        """The named tuple of these outputs."""
        kind = self._tuples.get(names)
        if kind is None:
            title = "".join(part.capitalize() for part in self.name.split("_")) + "Result"
            kind = self._tuples[names] = collections.namedtuple(title, names)
            kind.__reduce__ = lambda result: (unpickled, (self.name, names, tuple(result)))  # pickle finds no such class
        return kind

    # ---- the call as C arrays ------------------------------------------------------------------------------------

    def arrange(self, inputs, params, wanted, outputs=None, pin=None, numerics=None, codes=None):
        views = [None if x is None else view(x, f"{self.name}: {declared.python}")
                 for x, declared in zip(inputs, self.inputs)]
        for i, declared in enumerate(self.inputs):
            if declared.dtype == "u8" and views[i] is not None and views[i].dtype == _BOOL:
                views[i] = views[i]._replace(dtype=_abi.DTYPES["u8"])  # the same byte, 0 or 1
        first = next((v for v in views if v is not None), None)
        if first is None:
            raise InvalidArgument(f"{self.name}: every input is absent; {self.inputs[0].python} is required")
        codes = self.codes(params) if codes is None else codes
        given = self.wanted(wanted, outputs)
        results, made, changed = self.make(views, codes, given, first)
        every = views + made
        for v, declared in zip(every, (*self.inputs, *self.outputs)):
            if v is not None and v.device != first.device:
                raise InvalidArgument(f"{self.name}: {declared.name} is on {_devices.text(v.device)}, other arguments on "
                                      f"{_devices.text(first.device)}. All of them must be on one device")

        memory = bytearray(self._bytes)
        base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self.packed_params.pack_into(memory, 0, self.packed_params.size, 0, *codes)
        options, held = self.options(pin, numerics)
        if options is not None:
            _abi.PACKED_OPTIONS.pack_into(memory, self._at_options, *options)
        pointers, at, sizes = [], self._at_tensors, self._at_sizes
        for v in every:
            if v is None:
                pointers.append(0)
                continue
            address, ndim, (code, bits) = v.address, len(v.shape), v.dtype
            if ndim > _abi.MAX_NDIM:
                raise InvalidArgument(f"{self.name}: a tensor of {ndim} dimensions; at most {_abi.MAX_NDIM} are possible")
            alignment = min(address & -address, 4096) if address else 4096
            _abi.PACKED_TENSOR.pack_into(memory, at, _abi.PACKED_TENSOR.size, alignment, address, 0, base + sizes,
                                         base + sizes + 8 * ndim, ndim, code, bits, 1)
            struct.pack_into(f"={2 * ndim}q", memory, sizes, *v.shape, *v.strides)
            pointers.append(base + at)
            at += _abi.PACKED_TENSOR.size
            sizes += 16 * ndim
        self._pointers.pack_into(memory, self._at_pointers, *pointers)
        return Arranged(memory, base, base + self._at_pointers, base + self._at_pointers + 8 * len(self.inputs),
                        base + self._at_options if options is not None else None, first.device,
                        next((v.address for v in views if v is not None and v.address), 0), first.kind, results,
                        (views, made, held), changed)

    def codes(self, params):
        """The parameters as numbers, enumerations by their words; those of calls before are remembered."""
        key = key_of(params)
        if key is None:
            return self.checked(params)
        codes = self._codes.get(key)
        if codes is None:
            codes = remembered(self._codes, key, self.checked(params))
        return codes

    def plain(self, params):
        """The parameters as Python's own numbers and words: what a tensor of one element is worth now, say."""
        return tuple([p.values[code] if p.type == "enum" else code for p, code in zip(self.params, self.checked(params))])

    def checked(self, params):
        # By their kinds: torch.compile guards all that this looks into, in every call of a graph.
        codes = []
        for i, (kind, value) in enumerate(zip(self.kinds, params)):
            if not isinstance(value, (int, float, str)) and Torch.records(value):
                python = self.params[i].python
                raise InvalidArgument(f"{self.name}: {python} requires a gradient, and no operator has one for a parameter. "
                                      f"Pass {python}.item()")
            if kind == "e":
                p = self.params[i]
                if not isinstance(value, str) or value not in p.values:
                    raise InvalidArgument(f"{self.name}: {p.python} is {told(value)}, expected one of {', '.join(p.values)}")
                value = p.values.index(value)
            elif kind == "i":
                try:
                    value = int(operator.index(value))
                except (TypeError, ValueError, RuntimeError):
                    raise ArgumentTypeError(f"{self.name}: {self.params[i].python} is {told(value)}, expected an integer") from None
                if not -2**63 <= value < 2**63:
                    raise InvalidArgument(f"{self.name}: {self.params[i].python} is {told(value)}, which 64 bits do not hold")
            else:
                try:
                    if isinstance(value, (str, bytes, bytearray)):  # float would read them
                        raise TypeError
                    value = float(value)
                except (TypeError, ValueError, RuntimeError):  # the last is torch's for a tensor of several elements
                    raise ArgumentTypeError(f"{self.name}: {self.params[i].python} is {told(value)}, expected a number") from None
                except OverflowError:
                    raise InvalidArgument(f"{self.name}: {self.params[i].python} is {told(value)}, which 64 bits do not hold") from None
            codes.append(value)
        return codes

    def wanted(self, flags, outputs):
        """{output: what is asked for}; required ones that the caller does not name are made."""
        given = {name: flag for name, flag in flags.items() if flag is not False and flag is not None}
        for name in [name for name, flag in given.items() if flag is not True and is_numpys_bool(flag)]:
            if given.pop(name):
                given[name] = True
        if outputs is not None:
            if isinstance(outputs, str):
                outputs = [outputs]
            try:
                named = dict(outputs) if isinstance(outputs, Mapping) else {name: True for name in outputs}
            except TypeError:
                raise InvalidArgument(f"{self.name}: outputs is {outputs!r}, expected names of outputs, or a mapping of them to "
                                      "True, dtypes or arrays to write into") from None
            known = [o.name for o in self.outputs]
            for name, flag in named.items():
                if name not in known:
                    raise InvalidArgument(f"{self.name}: outputs names {name!r}; there are {', '.join(known)}")
                flag = bool(flag) if is_numpys_bool(flag) else flag
                if flag is not False and flag is not None:
                    given[name] = flag
        return given

    def options(self, pin, numerics):
        """The fields of rlk_call_options, or None when all are at their defaults, and what must live as long."""
        if pin is None and numerics is None:
            return None, None
        classes = 0
        for name in self.demanded(pin, numerics):
            if not isinstance(name, str) or name not in _abi.NUMERICS:
                raise InvalidArgument(f"{self.name}: numerics names {name!r}; there are {', '.join(_abi.NUMERICS)}")
            classes |= _abi.NUMERICS[name]
        held = ctypes.c_char_p(None if pin is None else pin.encode())
        address = ctypes.cast(held, ctypes.c_void_p).value or 0
        return (_abi.PACKED_OPTIONS.size, classes, address, 0, 0, 0), held

    def demanded(self, pin, numerics):
        """The names of the classes of numerics; refuses a pin that is no word."""
        if pin is not None and not isinstance(pin, str):
            raise InvalidArgument(f"{self.name}: pin is {pin!r}, expected a backend or backend:implementation, a word")
        if pin is not None:
            errors.word(pin, f"{self.name}: pin")
        try:
            return (numerics,) if isinstance(numerics, str) else tuple(numerics or ())
        except TypeError:
            raise InvalidArgument(f"{self.name}: numerics is {numerics!r}, expected one or several of "
                                  f"{', '.join(_abi.NUMERICS)}") from None

    # ---- outputs -------------------------------------------------------------------------------------------------

    def form_of(self, codes):
        if self.form is None:
            return ""
        place = next(i for i, p in enumerate(self.params) if p.name == self.form)
        return self.params[place].values[codes[place]]

    def make(self, views, codes, given, first):
        """({output: array} of what is wanted, [View or None of every output], torch's tensors that are the caller's)."""
        form = self.form_of(codes)
        inferred = None
        results, made, changed = {}, [], []
        for declared in self.outputs:
            requested = given.get(declared.name)
            if (requested is None and declared.optional) or (requested is None and form not in declared.shapes):
                made.append(None)
                continue
            if declared.must_alias is not None:
                place = next(i for i, a in enumerate(self.inputs) if a.name == declared.must_alias)
                made.append(views[place])
                if views[place] is not None:
                    self.writable(views[place], declared)
                    owner = views[place].owner
                    results[declared.name] = owner[1] if isinstance(owner, tuple) else owner
                    if views[place].kind is Torch:
                        changed.append(owner)
                continue
            dtype = None
            if requested is not None and requested is not True:
                dtype = dtype_name(requested)
                if dtype is None and isinstance(requested, str):
                    raise ArgumentTypeError(f"{self.name}: the output {declared.name} shall have the dtype {requested!r}; "
                                            f"expected one of {', '.join(_abi.DTYPES)}, or an array to write into")
                if dtype is None:  # an array to write into
                    out = view(requested, f"{self.name}: the output {declared.name}")
                    self.writable(out, declared)
                    made.append(out)
                    results[declared.name] = requested
                    if out.kind is Torch:
                        changed.append(requested)
                    continue
            if inferred is None:
                key = (*codes, *given, *[v and (v.dtype, v.shape) for v in views])
                inferred = self._inferred.get(key)
                if inferred is None:
                    inferred = remembered(self._inferred, key, self.infer(views, codes, given, form))
            shape, name = inferred[declared.name]
            name = dtype or name
            try:
                array = first.kind.empty(shape, name, first.owner)
            except (ValueError, OverflowError) as e:  # memory that is merely not there is the library's own error
                raise InvalidArgument(f"{self.name}: no {declared.name} of the shape {tuple(shape)} can be made ({e}); "
                                      "its sizes come from the inputs' shapes and the parameters") from None
            made.append(view(array, declared.name)._replace(device=first.device))
            results[declared.name] = array
        return results, made, changed

    def infer(self, views, codes, given, form):
        """{output: (shape, dtype's name)} of a form's outputs."""
        symbols, variables, inferred = self.symbols(views, form), self.variables(views), {}
        for declared in self.outputs:
            # Of wrong inputs each is nothing but a place: the C API looks at the inputs first and says what is wrong.
            shape, name = (), "f32"
            try:
                name = self.dtype(declared.dtype, variables)
                known = self.shape(declared.shapes[form], symbols, views, codes, given)
                shape = () if known and min(known) < 0 else known
            except (_Unknown, KeyError, ZeroDivisionError):
                pass
            inferred[declared.name] = shape, name
        return inferred

    def writable(self, out, declared):
        if out.readonly:
            raise InvalidArgument(f"{self.name}: the output {declared.name} is read-only memory; pass an array that may be "
                                  "written")

    def symbols(self, views, form):
        """The sizes that plain dimensions and multiples of the inputs fix."""
        symbols = Symbols()
        for v, declared in zip(views, self.inputs):
            dims = declared.shapes.get(form)
            if v is None or not isinstance(dims, tuple) or len(dims) != len(v.shape):
                continue
            for dim, size in zip(dims, v.shape):
                if isinstance(dim, str):
                    symbols.setdefault(dim, size)
                elif isinstance(dim, tuple):
                    symbols.setdefault(dim[0], (size - dim[1]) // dim[2])
        return symbols

    def variables(self, views):
        """The dtypes that the inputs fix; T before acc(T)."""
        variables = {}
        for v, declared in zip(views, self.inputs):
            if v is not None and declared.dtype in self.dtypes:
                variables.setdefault(declared.dtype, _abi.DTYPE_NAMES.get(v.dtype))
        return variables

    def dtype(self, declared, variables):
        if declared in _abi.DTYPES:
            return declared
        if declared.startswith("acc("):
            return accumulator(self.dtype(declared[4:-1], variables))
        known = variables.get(declared)
        if known is None and declared in self.dtypes:
            known = self.dtype(self.dtypes[declared][0], variables)
        if known is None:
            raise _Unknown(declared)
        return known

    def shape(self, sizes, symbols, views, codes, given):
        if callable(sizes):
            present = {a.name for a, v in zip(self.inputs, views) if v is not None} | given.keys()
            return sizes(symbols, {p.name: code for p, code in zip(self.params, codes)}, present.__contains__)
        return self.broadcast(sizes, views)

    def named_shapes(self, sizes, views):
        names = re.findall(r"\*\w+", sizes)
        return [v.shape for v, a in zip(views, self.inputs) if v is not None and set(a.shapes.values()) & set(names)]

    def broadcast(self, sizes, views):
        """The common shape of the inputs that are named: of *A, or of broadcast(*A, *B)."""
        shapes = self.named_shapes(sizes, views)
        ndim = max(map(len, shapes), default=0)
        out = []
        for axis in range(-ndim, 0):
            present = {shape[axis] for shape in shapes if len(shape) >= -axis} - {1}
            if len(present) > 1:
                raise _Unknown(sizes)
            out.append(present.pop() if present else 1)
        return tuple(out)


def unpickled(operator, names, values):
    """A result that was pickled, of the class that this process has for it."""
    from rlk import ops
    return ops.operators[operator].result(dict(zip(names, values)))


def told(value):
    """A value in a text; of a huge integer its size, since Python refuses some thousands of digits."""
    if isinstance(value, int) and value.bit_length() > 256:
        return f"an integer of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."


def key_of(params):
    """What parameters are worth, as the key of a cache; None where one is not Python's own number or word. Such a thing, a
    tensor of one element say, is equal to nothing but itself, may be worth something else at the next call, and would be
    kept alive. 1, 1.0 and True are equal and have one hash, 0.0 and -0.0 too: types and the texts of zeros tell them apart."""
    types, plain = (*map(type, params),), (int, float, str, bool)  # a tuple: torch.compile traces looking into one
    for kind in types:
        if kind not in plain:
            return None
    return (*params, *types, *[str(p) for p in params if p == 0])


def is_numpys_bool(flag):
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(flag, numpy.bool_)


def remembered(cache, key, value):
    """Bounded: what is forgotten is found again."""
    if len(cache) >= 1024:
        cache.clear()
    cache[key] = value
    return value


def accumulator(dtype):
    """acc(T): sums of 16-bit and 8-bit floats are fp32."""
    return "f64" if dtype == "f64" else "f32"



