"""`forward = "NAME"`: a declaration that writes only what it does not share with NAME. The rule is in ops/README.md."""
from declaration_schema import LISTS, TABLES, Checker

# What two operators never share: texts, the error bound and outputs, with what a NaN in an input makes of these.
OWN = {"name", "revision", "summary", "formula", "notes", "sources", "backward", "numerics", "output"}
OF_OUTPUTS = {"nan", "nan_when", "nan_text"}
# Tables of names, taken name by name.
NAMED = {"dtypes", "forms", "nan_conditions"}
# Kinds whose order is that of the ABI: of the arguments, and of the fields of the parameter struct.
PLACED = {"input", "param"}
# What an output of the forward, and the gradient of an argument, has of it.
SHARED = {"dtype", "shape", "form"}


class Extension(Checker):
    """Completes `op` by what its forward has. Each error names the file, the table and the key."""

    def __init__(self, file, op, forward):
        super().__init__(file, op)
        self.forward, self.of = forward, forward["name"]

    def extended(self):
        whole = {key: self.op[key] for key in ["forward", *OWN] if key in self.op}
        for key in TABLES[""].keys() - OWN - {"forward"} - LISTS.keys():
            if key in LISTS.values():
                value = self.rows_of(key)
            elif key in NAMED:
                value = self.changed(f"[{key}]", self.forward.get(key, {}), self.op.get(key, {}))
            else:
                value = self.changed("", self.forward, {k: v for k, v in self.op.items() if k == key}).get(key)
            if value:
                whole[key] = value
        if "output" in self.op:
            whole["output"] = list(self.written("output", {}).values())
        return whole

    def changed(self, where, taken, written):
        for key, value in written.items():
            if key != "name" and key in taken and taken[key] == value:
                self.fail(where, f"{key} is that of {self.of}: leave it out")
        return taken | written

    def rows_of(self, kind):
        """The rows that the operator has of one kind, in their order."""
        taken = {row["name"]: {k: v for k, v in row.items() if k not in OF_OUTPUTS}
                 for row in self.forward.get(kind, [])}
        both = taken | self.written(kind, taken)
        return [both[name] for name in self.order(kind, list(taken), list(both))]

    def written(self, kind, taken):
        """The rows that are written, by name, each with what it has of the forward besides."""
        rows = {}
        for where, row in self.rows(kind):
            name = row.get("name", row.get("inout")) if isinstance(row, dict) else None
            if not isinstance(name, str):
                self.fail(where, "name is missing")
            if name in rows:
                self.fail(where, f"a second {kind} of this name")
            if name in taken and row.keys() == {"name"}:
                self.fail(where, f"changes nothing of {self.of}: leave it out")
            base = taken.get(name, self.namesake(kind, name)) if "name" in row else {}
            rows[name] = self.changed(where, base, row)
        return rows

    def namesake(self, kind, name):
        """What a new argument has of the one in the forward that it is, or whose gradient it is."""
        if kind not in ("input", "output"):
            return {}
        of, doc, more = name, f"{name} of {self.of}", {}
        where = "output" if kind == "input" else "input"
        if name.startswith("grad_"):
            of = name.removeprefix("grad_")
            doc = f"gradient of {of}"
        elif kind == "input":
            more = {"domain": {"kind": "forward", "op": self.of, "output": name}}
        else:
            return {}
        for a in self.forward.get(where, []):
            if a.get("name") == of:
                return {key: a[key] for key in SHARED & a.keys()} | {"doc": doc} | more
        return {}

    def order(self, kind, taken, both):
        """The names of one kind: those of its list, or the forward's and behind them the new ones."""
        key = next(key for key, listed in LISTS.items() if listed == kind)
        if key not in self.op:
            if kind in PLACED and len(both) > len(taken):
                self.fail(f"[[{kind}]] {both[len(taken)]}", f"{self.of} has no {kind} of this name, so its place among "
                          f"them is not known: list all in {key} = [...]")
            return both
        names = self.op[key]
        for i, name in enumerate(names):
            if not isinstance(name, str):
                self.fail(key, f"{name!r} is not a name")
            if name not in both:
                self.known(key, name, both, kind, f"in {self.of} or here")
            if name in names[:i]:
                self.fail(key, f"{name!r} stands there twice")
        for where, row in self.rows(kind):
            if row["name"] not in names:
                self.fail(where, f"{key} does not list it")
        if names == both and (kind not in PLACED or len(both) == len(taken)):
            self.fail("", f"{key} is what it would be without: leave it out")
        return names


def extended(file, op, written):
    """The declaration with all that it takes from its forward; `written` has every declaration by name."""
    checker = Checker(file, op)
    checker.table("", op, TABLES[""], ["name"])
    checker.known("forward", op["forward"], written.keys() - {op["name"]}, "operator")
    forward = written[op["forward"]]
    if "forward" in forward:
        checker.fail("forward", f"{op['forward']} itself has a forward; expected one that is whole")
    named = f"says backward = {forward['backward']!r}" if "backward" in forward else "names no backward"
    if forward.get("backward") != op["name"]:
        checker.fail("forward", f"{op['forward']} {named}; expected {op['name']!r}")
    return Extension(file, op, forward).extended()
