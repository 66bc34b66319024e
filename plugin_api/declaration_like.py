"""`like = "NAME"`, `forward = "NAME"` and `uses = ["PART"]`: a declaration that writes only what NAME, and the parts in
ops/shared, do not declare. The rule is in ops/README.md."""
from declaration_check import Checker
from declaration_schema import LISTS, TABLES

LINKS = ["like", "forward"]
# What a part in ops/shared may declare.
OF_PARTS = {"notes", "dtypes", "forms", *LISTS.values()}
# What two operators never share: texts and the error bound.
OWN = {"name", "revision", "summary", "formula", "notes", "sources", "backward", "slope_when", "autocast", "numerics"}
# What an input says of outputs: taken and written together.
OF_OUTPUTS = {"nan", "nan_when", "nan_text"}
# Tables of names, taken name by name.
NAMED = {"dtypes", "forms", "nan_conditions"}
# Kinds whose order is that of the ABI: of the arguments, and of the fields of the parameter struct.
PLACED = {"input", "output", "param"}
# What an output of the forward, and the gradient of an argument, has of it.
SHARED = {"dtype", "shape", "form"}


def name_of(row):
    return row.get("name", row.get("inout"))


class Extension(Checker):
    """Completes `op` by what `base` has. Each error names the file, the table and the key."""

    def __init__(self, file, op, base, parts):
        super().__init__(file, op)
        self.of = base["name"] if base else " and ".join(op["uses"])
        self.parts, self.base = parts, self.joined(base, parts)
        self.behind = {(key, name) for part in parts for key in NAMED & part.keys() for name in part[key].keys()
                       - base.get(key, {}).keys()}
        self.backward = "forward" in op

    def joined(self, base, parts):
        """What the declaration takes from: the other operator's declaration, changed by the parts."""
        whole, seen = dict(base), set()
        for part in parts:
            for key, rows in part.items():
                if key == "notes":
                    continue
                named = isinstance(rows, dict)
                new = rows if named else {row["name"]: row for row in rows}
                old = whole.get(key, {}) if named else {name_of(row): row for row in whole.get(key, [])}
                for name in new:
                    if (key, name) in seen:
                        self.fail("uses", f"{key} {name} is in two of {', '.join(self.op['uses'])}")
                    seen.add((key, name))
                whole[key] = old | new if named else list((old | new).values())
        return whole

    def extended(self):
        whole = {key: self.op[key] for key in [*LINKS, *OWN] if key in self.op}
        for part in self.parts:
            if "notes" in part:
                whole["notes"] = whole.get("notes", "") + part["notes"]
        for key in TABLES[""].keys() - OWN - set(LINKS) - LISTS.keys() - {"uses", "uses_form"}:
            if key in LISTS.values():
                value = self.rows_of(key)
            elif key in NAMED:
                value = self.changed(f"[{key}]", self.base.get(key, {}), self.op.get(key, {}))
                value = dict(sorted(value.items(), key=lambda item: (key, item[0]) in self.behind))
            else:
                value = self.changed("", self.base, {k: v for k, v in self.op.items() if k == key}).get(key)
            if value:
                whole[key] = value
        for name, part in zip(self.op.get("uses", []), self.parts):
            if not any(name_of(row) in map(name_of, whole.get(key, []))
                       for key in part.keys() - NAMED - {"notes"} for row in part[key]):
                self.fail("uses", f"takes nothing of {name}: leave it out")
        return whole

    def changed(self, where, taken, written):
        if OF_OUTPUTS & written.keys() and any(taken.get(key) != written.get(key) for key in OF_OUTPUTS):
            taken = {key: value for key, value in taken.items() if key not in OF_OUTPUTS}
        for key, value in written.items():
            if key != "name" and key in taken and taken[key] == value:
                self.fail(where, f"{key} is that of {self.of}: leave it out")
        return taken | written

    def rows_of(self, kind):
        """The rows that the operator has of one kind, in their order."""
        if self.backward and kind == "output":
            if "outputs" in self.op:
                self.fail("", "outputs stands beside forward, which gives none: write [[output]] alone")
            return list(self.written(kind, {}).values())
        left = OF_OUTPUTS if self.backward else set()
        taken = {name_of(row): {k: v for k, v in row.items() if k not in left} for row in self.base.get(kind, [])}
        both = taken | self.written(kind, taken)
        return [both[name] for name in self.order(kind, list(taken), list(both))]

    def written(self, kind, taken):
        """The rows that are written, by name, each with what it has of the base besides."""
        rows = {}
        for where, row in self.rows(kind):
            name = name_of(row) if isinstance(row, dict) else None
            if not isinstance(name, str):
                self.fail(where, "name is missing")
            if name in rows:
                self.fail(where, f"a second {kind} of this name")
            if name in taken and row.keys() == {"name"}:
                self.fail(where, f"changes nothing of {self.of}: leave it out")
            rows[name] = self.changed(where, taken.get(name, self.namesake(kind, name)) if "name" in row else {}, row)
        return rows

    def namesake(self, kind, name):
        """What a new argument has of the one in the forward that it is, or whose gradient it is."""
        if not self.backward or kind not in ("input", "output"):
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
        for a in self.base.get(where, []):
            if name_of(a) == of:
                return {key: a[key] for key in SHARED & a.keys()} | {"doc": doc} | more
        return {}

    def order(self, kind, taken, both):
        """The names of one kind: those of its list, or the base's and behind them the new ones."""
        key = next(key for key, listed in LISTS.items() if listed == kind)
        if key not in self.op:
            if kind in PLACED and taken and len(both) > len(taken):
                self.fail(f"[[{kind}]] {both[len(taken)]}", f"{self.of} has no {kind} of this name, so its place among "
                          f"them is not known: list all in {key} = [...]")
            return both
        names = self.op[key]
        for i, name in enumerate(names):
            if not isinstance(name, str):
                self.fail(key, f"{name!r} is not a name")
            self.known(key, name, both, kind, f"in {self.of} or here")
            if name in names[:i]:
                self.fail(key, f"{name!r} stands there twice")
        for where, row in self.rows(kind):
            if name_of(row) not in names:
                self.fail(where, f"{key} does not list it")
        if names == both and (kind not in PLACED or not taken or len(both) == len(taken)):
            self.fail("", f"{key} is what it would be without: leave it out")
        return names


def rank(op):
    """Where a declaration stands behind those that it takes from."""
    return 2 if "forward" in op else 1 if "like" in op else 0


def of_form(part, form):
    """What a part of several forms says of one of them, for an operator that has no other."""
    tables = {}
    for key in part.keys() - {"notes", "dtypes", "forms"}:
        rows = [{k: v for k, v in row.items() if k != "form"} for row in part[key]
                if row.get("form", form) == form and row["name"] != part["forms"]["param"]]
        tables[key] = [row | {"shape": row["shape"][form]} if "shape" in row else row for row in rows]
    return {key: rows for key, rows in tables.items() if rows}


def parts_of(checker, shared):
    """The parts that the declaration uses, each with the tables that a part may have."""
    form = checker.op.get("uses_form")
    parts = []
    for name in checker.op.get("uses", []):
        checker.known("uses", name, shared, "part", "in shared")
        for key in shared[name]:
            checker.known(f"uses {name}", key, OF_PARTS, "table", "of a part")
        if form is not None:
            checker.known("uses_form", form, shared[name].get("forms", {}).get("names", []), "form", f"in {name}")
        parts.append(shared[name] if form is None else of_form(shared[name], form))
    return parts


def extended(file, op, written, wholes, shared):
    """The declaration with all that it takes: `written` has every declaration by name, `wholes` those before it, `shared`
    the parts that several use."""
    if rank(op) == 0 and "uses" not in op:
        return op
    checker = Checker(file, op)
    checker.table("", op, TABLES[""], ["name"])
    parts = parts_of(checker, shared)
    if rank(op) == 0:
        return Extension(file, op, {}, parts).extended()
    if "like" in op and "forward" in op:
        checker.fail("", "has like and forward; expected one of them")
    link = "forward" if "forward" in op else "like"
    of = op[link]
    if of == op["name"]:
        checker.fail(link, "names the operator itself")
    checker.known(link, of, written, "operator")
    if rank(written[of]) >= rank(op):
        other = "forward" if "forward" in written[of] else "like"
        checker.fail(link, f"{of} itself says {other} = {written[of][other]!r}; expected one that does not")
    base = wholes[of]
    if link == "forward" and base.get("backward") != op["name"]:
        named = f"says backward = {base['backward']!r}" if "backward" in base else "names no backward"
        checker.fail(link, f"{of} {named}; expected {op['name']!r}")
    return Extension(file, op, base, parts).extended()
