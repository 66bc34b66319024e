"""Calls of every operator made from its declaration, for tests that hold for all of them."""
import pathlib
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "plugin_api"))
from declaration_load import load  # noqa: E402
from generate_python import python_expression  # noqa: E402

OPERATORS = {op["name"]: op for op in load(ROOT / "plugin_api/ops")}


class Case:
    """One call: sizes by their place in the declaration's lists, parameters at their defaults but for the form."""

    def __init__(self, name, place=0, form="", optional=False, seed=0):
        self.op, self.form, self.optional = OPERATORS[name], form, optional
        self.random = np.random.default_rng(seed)
        self.params = {p["name"]: p["values"].index(p["default"]) if p["type"] == "enum" else p["default"]
                       for p in self.op["param"]}
        if form:
            self.params[self.op["forms"]["param"]] = self.op["form_names"].index(form)
        self.wanted = [a["name"] for a in self.op["output"]
                       if optional and a.get("optional") and a.get("form", form) == form]
        self.inputs = {}
        for a in self.op["input"]:
            if a.get("form", form) == form and (optional or not a.get("optional")):
                self.inputs[a["name"]] = None
        self.symbols, self.sound = {}, True
        for s in self.op["symbol"]:
            if s.get("form", form) == form:
                self.symbols[s["name"]] = max(int(self.value(s["sizes"][min(place, len(s["sizes"]) - 1)])), s.get("min", 0))
        # What its forward computes comes last, and where nothing else is wrong.
        for last in (False, True):
            for a in self.op["input"]:
                if a["name"] in self.inputs and (a["domain"]["kind"] == "forward") == last and (not last or self.is_legal()):
                    self.inputs[a["name"]] = self.contents(a)

    def value(self, expression):
        return eval(python_expression(self.op, expression),
                    {"s": self.symbols, "p": self.params, "has": lambda name: name in self.inputs or name in self.wanted})

    def is_legal(self):
        return self.sound and all(self.value(rule["holds"]) for rule in self.op["rule"])

    def words(self):
        """The form, as a parameter by its word."""
        return {self.op["forms"]["param"]: self.form} if self.form else {}

    def shape(self, a):
        shape = a["shape"][self.form] if isinstance(a["shape"], dict) else a["shape"]
        if isinstance(shape, str):  # *A; others are broadcast with it, but where a backward takes one shape alone
            return (3, 4) if shape == self.op["input"][0]["shape"] or self.op.get("backward") else (4,)
        return tuple(int(self.value(d)) for d in shape)

    def dtype(self, a):
        """Of the first choice of each variable."""
        name = a["dtype"]
        while name not in NUMPY:
            name = name[4:-1] if name.startswith("acc(") else self.op["dtypes"][name][0]
        return NUMPY[name]

    def contents(self, a):
        domain, shape, dtype = a["domain"], self.shape(a), self.dtype(a)
        kind = domain["kind"]
        if kind == "real":
            x = self.random.standard_normal(shape) * domain["scale"]
        elif kind == "uniform":
            x = self.random.uniform(domain["min"], domain["max"], shape)
        elif kind in ("integer", "id"):
            low, high = int(self.value(domain["low"])), int(self.value(domain["high"]))
            x = self.random.integers(low, max(high, low + 1), shape)
        elif kind == "mask":
            x = self.random.integers(0, 2, shape)
            x.flat[:1] = 1
            ids = next((b for b in self.op["input"]
                        if b["domain"]["kind"] == "id" and b.get("form", self.form) == self.form), None)
            if ids is not None and len(shape) > len(self.shape(ids)):  # of scores: each row keeps one
                x[..., :1] = 1
        elif kind == "row_index":
            x = np.arange(shape[0])
        elif kind == "cu_seqlens":
            total = self.symbols[domain["total"]]
            x = np.sort(self.random.integers(0, total + 1, shape))
            x[-1], x[0] = total, 0
            self.sound &= len(x) > 1 or total == 0  # no sequence holds no token
        elif kind == "length":
            x = self.random.integers(0, int(self.value(domain["high"])) + 1, shape)
        elif kind == "block_table":
            x = self.random.integers(0, int(self.value(domain["high"])), shape)
        elif kind == "owner":  # one shard has the token, the others -inf
            x = np.full(shape, -np.inf)
            x[0] = -1.0
        elif kind == "forward":
            x = self.forward(domain["op"], domain["output"])
        else:
            raise AssertionError(f"{self.op['name']}: no contents for a domain of kind {kind}")
        return np.asarray(x).astype(dtype)

    def forward(self, name, output):
        import rlk
        op = OPERATORS[name]
        given = {a["name"]: self.inputs[a["name"]] for a in op["input"] if self.inputs.get(a["name"]) is not None}
        params = {p["name"]: p["values"][self.params[p["name"]]] if p["type"] == "enum" else self.params[p["name"]]
                  for p in op["param"] if p["name"] in self.params}
        result = getattr(rlk.ops, name)(**given, **params, outputs=[output])
        return getattr(result, output, result)


NUMPY = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "i8": np.int8, "i16": np.int16, "i32": np.int32,
         "i64": np.int64, "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64, "bool": np.bool_}


def cases(name):
    """Every form, three places of sizes, with and without what is optional: what the declaration's rules allow."""
    for form in OPERATORS[name]["form_names"]:
        for place in range(3):
            for optional in (False, True):
                case = Case(name, place, form, optional)
                if case.is_legal():
                    yield case
