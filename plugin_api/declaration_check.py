"""Checks declarations against declaration_schema.py; each error names the file, the table and the key."""
import math
import re

from declaration_expressions import multiple
from declaration_schema import (CROSSING, DOMAINS, DTYPES, FLOATING, LIMITS, LISTS, MAX_NDIM, NAN_WORDS, REQUIRED,
                                 SUB_BYTE, TABLES, DeclarationError, names_in, near, type_text)


class Checker:
    """Checks one declaration. Each error names the file, the table and the key."""

    def __init__(self, file, op):
        self.file, self.op = file, op

    def fail(self, where, text):
        raise DeclarationError(f"{self.file}: {where + ': ' if where else ''}{text}")

    def table(self, where, table, keys, required=()):
        if not isinstance(table, dict):
            self.fail(where, f"is {table!r}; expected a table")
        for key, value in table.items():
            if key not in keys:
                self.fail(where, f"unknown key {key!r}{near(key, keys)}")
            kind = keys[key]
            if isinstance(kind, set):
                fits = isinstance(value, str) and value in kind
            else:
                accepted = kind if isinstance(kind, tuple) else (kind,)
                fits = isinstance(value, accepted) and (not isinstance(value, bool) or bool in accepted)
            if not fits:
                self.fail(where, f"{key} is {value!r}; expected {type_text(kind)}")
        for key in required:
            if key not in table:
                self.fail(where, f"{key} is missing")

    def known(self, where, name, names, what, place=""):
        if name not in names:
            self.fail(where, f"no {what} {name!r}{' ' + place if place else ''}{near(str(name), names)}")

    def rows(self, kind):
        """(where, row) of every [[kind]]."""
        for i, row in enumerate(self.op.get(kind, [])):
            name = row.get("name", row.get("inout")) if isinstance(row, dict) else None
            yield f"[[{kind}]] {name or i + 1}", row

    def names(self, kind):
        return [row["name"] if "name" in row else row["inout"] for row in self.op.get(kind, [])]

    def argument(self, kind, name):
        return next(row for row in self.op.get(kind, []) if row.get("name") == name)

    def check(self):
        self.table("", self.op, TABLES[""], REQUIRED[""])
        for key in LISTS:
            if key in self.op:
                self.fail("", f"{key} stands beside uses, like or forward, and none is there")
        for kind in ("numerics", "forms"):
            if kind in self.op:
                self.table(f"[{kind}]", self.op[kind], TABLES[kind], REQUIRED[kind])
        if "combines_rows" in self.op["numerics"] and not self.op["numerics"].get("batch_invariant", True):
            self.fail("[numerics]", "combines_rows stands beside batch_invariant = false; expected one of them")
        for i, row in enumerate(self.op["numerics"].get("rounded", [])):
            where = f"[[numerics.rounded]] {i + 1}"
            self.table(where, row, TABLES["numerics.rounded"], REQUIRED["numerics.rounded"])
            for symbol in row["over"]:
                self.known(where, symbol, self.names("symbol"), "symbol")
        for kind in ("symbol", "input", "output", "param", "feature", "rule"):
            for where, row in self.rows(kind):
                inout = kind == "output" and isinstance(row, dict) and "inout" in row
                self.table(where, row, TABLES[kind], () if inout else REQUIRED[kind])
        self.limits()
        self.unique()
        self.forms = self.op.get("forms", {}).get("names", [])
        if self.forms:
            self.check_form_param()
        self.check_dtypes()
        for where, row in self.rows("symbol"):
            self.check_form(where, row)
            if not row["sizes"]:
                self.fail(where, "sizes is empty; expected the ordinary size and others")
        for kind in ("input", "output"):
            for where, row in self.rows(kind):
                if row.get("list"):
                    self.fail(where, "lists of tensors are not supported by this host yet: the ABI has a place for "
                                     "them (rlk_call_desc.input_lists), but nothing fills it")
                if "inout" not in row or kind == "input":
                    self.check_argument(where, row)
        self.check_in_place()
        self.check_sizes()
        self.check_production()
        self.check_factor()
        for where, row in self.rows("param"):
            self.check_param(where, row)
        for where, row in self.rows("feature"):
            self.check_values(where, row.get("set", {}), row.get("present", []))
        for where, row in self.rows("rule"):
            violate = row.get("violate", {})
            self.table(f"{where} violate", violate, TABLES["rule.violate"])
            self.check_values(f"{where} violate", violate.get("params", {}), violate.get("present", []))
            for name in violate.get("symbols", {}):
                self.known(f"{where} violate", name, self.names("symbol"), "symbol")
        free = self.free_shapes()
        for i, case in enumerate(self.op.get("shape_case", [])):
            shapes = len(case) - ("production" in case)
            if shapes != len(free):
                self.fail(f"[[shape_case]] {i + 1}", f"{shapes} shapes; expected one for each of {', '.join(free)}")

    def free_shapes(self):
        """The names of shapes that may be any ("*A"), each by the first input that has it, which every call has."""
        free = []
        for where, a in self.rows("input"):
            shape = a["shape"]
            if not isinstance(shape, str) or shape in free:
                continue
            if not re.fullmatch(r"\*[A-Z]\w*", shape):
                self.fail(where, f"shape is {shape!r}; expected a list of sizes, or a name for any shape (\"*A\")")
            if a.get("optional"):
                self.fail(where, f"is optional and the first of shape {shape}: where it is absent nothing says the shape")
            free.append(shape)
        for where, a in self.rows("output"):
            shape = a.get("shape")
            if isinstance(shape, str) and shape not in free and not shape.startswith("broadcast("):
                self.fail(where, f"shape is {shape!r}, which no input has; expected one of {', '.join(free) or 'none'}")
        return free

    def limits(self):
        for kind, most in LIMITS.items():
            count = len(self.op.get(kind, []))
            if count > most:
                self.fail(f"[{kind}]" if kind == "dtypes" else f"[[{kind}]]",
                          f"{count} of them; the tables of core/declaration hold {most}. Raise the limit there and in "
                          "declaration_schema.py")

    def unique(self):
        for kind in ("symbol", "input", "output", "param", "feature", "rule"):
            seen = set()
            for (where, _), name in zip(self.rows(kind), self.names(kind)):
                if name in seen:
                    self.fail(where, f"a second {kind} of this name")
                seen.add(name)
        for name in set(self.names("symbol")) & set(self.names("param")):
            self.fail(f"[[symbol]] {name}", "a parameter has the same name: expressions could not tell them apart")

    def check_param(self, where, row):
        kind, default = row["type"], row["default"]
        if kind == "enum":
            self.known(where, default, row.get("values", []), "value")
        elif "values" in row:
            self.fail(where, f"has values, but type is {kind!r}; expected 'enum'")
        elif isinstance(default, str) or (kind == "i64" and not isinstance(default, int)):
            self.fail(where, f"default is {default!r}; expected {'an integer' if kind == 'i64' else 'a number'}")
        if "min" in row and "min_exclusive" in row:
            self.fail(where, "has min and min_exclusive; expected one of them")
        if "finite" in row and kind != "f64":
            self.fail(where, f"has finite, but type is {kind!r}; expected 'f64'")
        numbers = [n for n in [default, *row.get("try", [])] if isinstance(n, float)]
        if any(math.isnan(n) or math.isinf(n) and row.get("finite", True) for n in numbers):
            self.fail(where, f"has the numbers {numbers}; expected finite ones, or infinities with finite = false")

    def check_form_param(self):
        self.known("[forms]", self.op["forms"]["param"], self.names("param"), "parameter")
        param = next(p for p in self.op["param"] if p["name"] == self.op["forms"]["param"])
        if param.get("values") != self.forms:
            self.fail("[forms]", f"names is {self.forms}; expected {param.get('values')}, as {param['name']} has them")

    def check_form(self, where, row):
        if "form" in row:
            self.known(where, row["form"], self.forms, "form")

    def check_dtypes(self):
        variables = []
        for name, choices in self.op.get("dtypes", {}).items():
            if not isinstance(choices, list) or not choices:
                self.fail("[dtypes]", f"{name} is {choices!r}; expected a list of dtypes")
            for choice in choices:
                self.check_dtype(f"[dtypes] {name}", choice, variables)
                if not variables and choice not in DTYPES:
                    self.fail(f"[dtypes] {name}", f"{choice!r}: the first variable's choices are dtypes")
            variables.append(name)

    def check_dtype(self, where, dtype, variables):
        if dtype in CROSSING:
            self.fail(where, f"{dtype}: elements that cross bytes are not supported by this host yet; declare the "
                             "packed bytes as u8")
        inner = dtype[4:-1] if dtype.startswith("acc(") and dtype.endswith(")") else None
        self.known(where, dtype if inner is None else inner, (DTYPES if inner is None else []) + list(variables),
                   "dtype or dtype variable" if inner is None else "dtype variable")

    def check_argument(self, where, a):
        self.check_form(where, a)
        self.check_dtype(where, a["dtype"], self.op.get("dtypes", {}))
        shapes = a["shape"].items() if isinstance(a["shape"], dict) else [("", a["shape"])]
        for form, shape in shapes:
            if form:
                self.known(f"{where} shape", form, self.forms, "form")
            if isinstance(shape, list) and len(shape) > MAX_NDIM:
                self.fail(where, f"{len(shape)} dimensions; a tensor has at most {MAX_NDIM}")
        choices = self.op.get("dtypes", {}).get(a["dtype"], [a["dtype"]])
        if a.get("host") and any(choice in SUB_BYTE for choice in choices):
            self.fail(where, "host is true: values of less than a byte are not copied to the host")
        if "domain" in a:
            self.known(f"{where} domain", a["domain"].get("kind"), DOMAINS, "kind of domain")
            self.table(f"{where} domain", a["domain"], DOMAINS[a["domain"]["kind"]] | {"kind": str, "hidden_by": list})
            for name in a["domain"].get("hidden_by", []):
                self.known(f"{where} domain", name, self.names("input"), "input")
            if "close_to" in a["domain"]:
                self.known(f"{where} domain", a["domain"]["close_to"], self.names("input"), "input")
            if "ignore" in a["domain"]:
                self.known(f"{where} domain", a["domain"]["ignore"], self.names("param"), "parameter")
            if a["domain"]["kind"] == "block_table":
                self.check_block_table(where, a["domain"])
        for name in a.get("may_alias", []):
            self.known(where, name, self.names("input"), "input")
        if "at_least_when" in a and "at_least" not in a:
            self.fail(where, "at_least_when says where at_least holds, and there is no at_least")
        if "domain" in a:
            self.check_nan(where, a)

    def check_block_table(self, where, domain):
        for key in ("high", "block", "lengths"):
            if key not in domain:
                self.fail(f"{where} domain", f"{key} is missing")
        self.known(f"{where} domain", domain["block"], self.names("symbol"), "symbol")
        self.known(f"{where} domain", domain["lengths"], self.names("input"), "input")
        if self.argument("input", domain["lengths"]).get("domain", {}).get("kind") != "length":
            self.fail(f"{where} domain", f"lengths names {domain['lengths']}, whose domain is not of the kind length")

    def is_floating(self, a):
        dtype = a["dtype"]
        while dtype not in DTYPES:
            dtype = dtype[4:-1] if dtype.startswith("acc(") else self.op["dtypes"][dtype][0]
        return dtype in FLOATING

    def check_nan(self, where, a):
        """What a NaN in each input gives is never left open."""
        if not self.is_floating(a):
            for key in ("nan", "nan_when", "nan_text"):
                if key in a:
                    self.fail(where, f"{key} says what a NaN gives, and its dtype {a['dtype']} has none")
            return
        if "nan" not in a:
            self.fail(where, f"nan is missing: say what a NaN in it gives, one of {', '.join(NAN_WORDS)}")
        outputs = self.names("output")
        words = set()
        for i, case in enumerate(a.get("nan_when", []) + [{"is": a["nan"]}]):
            if "when" in case:
                self.table(f"{where} nan_when {i + 1}", case, TABLES["nan_when"], ["when", "is"])
            named = case["is"] if isinstance(case["is"], dict) else {None: case["is"]}
            for output, word in named.items():
                self.known(f"{where} nan", word, NAN_WORDS, "word")
                if output is not None:
                    self.known(f"{where} nan", output, outputs, "output")
                words.add(word)
        if isinstance(a["nan"], dict) and (missing := [name for name in outputs if name not in a["nan"]]):
            self.fail(where, f"nan does not say what becomes of {', '.join(missing)}")
        if words & {"text", "undefined"} and not a.get("nan_text"):
            self.fail(where, f"nan is {' and '.join(sorted(words & {'text', 'undefined'}))}: say it in nan_text")

    def check_in_place(self):
        """In-out arguments stand once in each list, and what must lie in an input's memory is shaped like it."""
        named = {row["inout"] for row in self.op.get("output", []) if "inout" in row}
        for where, a in self.rows("input"):
            if a.get("inout") and a["name"] not in named:
                self.fail(where, f"is in-out: say at which place of the outputs it stands by [[output]] inout = "
                                 f"\"{a['name']}\"")
        for where, a in self.rows("output"):
            name = a.get("inout", a.get("must_alias"))
            if name is None:
                continue
            self.known(where, name, self.names("input"), "input")
            over = self.argument("input", name)
            if "inout" in a:
                if len(a) > 1:
                    self.fail(where, f"has more than inout: the rest is declared at [[input]] {name}")
                if not over.get("inout"):
                    self.fail(where, f"the input {name} does not say inout = true")
                continue
            for key in ("dtype", "shape", "optional", "form"):
                if a.get(key) != over.get(key):
                    self.fail(where, f"{key} is {a.get(key)!r}; expected {over.get(key)!r}, as of {name}, whose memory "
                                     "it must have")

    def check_sizes(self):
        """A symbol is known from a dimension that is nothing else or a multiple, in an argument that every call has."""
        symbols = set(self.names("symbol"))
        for form in self.forms or [""]:
            known, used = set(), []
            for kind in ("input", "output"):
                for where, a in self.rows(kind):
                    shape = a.get("shape", [])
                    shape = shape.get(form, []) if isinstance(shape, dict) else shape
                    if isinstance(shape, str) or a.get("form", form) != form:
                        continue
                    for size in map(str, shape):
                        plain = re.fullmatch(r"(\w+)(\s*\+\s*\d+)?", size)
                        name = plain.group(1) if plain else multiple(size, symbols)[1]
                        if name and not a.get("optional"):
                            known.add(name)
                        if not plain:
                            used += [(where, size, name) for name in names_in(size) & symbols]
            for where, size, name in used:
                if name not in known:
                    self.fail(where, f"{name} of {size!r} cannot be known: no required argument"
                                     f"{' of form ' + form if form else ''} has a dimension that is {name} alone, or a multiple of it")

    def check_production(self):
        """What can grow says how large it is where the operator is run: cases are made of these sizes."""
        symbols = set(self.names("symbol"))
        for where, row in self.rows("symbol"):
            tied = str(row["sizes"][0]) in symbols
            follows = bool(names_in(str(row["sizes"][0])) & symbols)  # grows with another, or also alone
            if tied == ("production" in row) and not (follows and not tied):
                self.fail(where, "production has no place: the symbol has the size of another" if tied else
                          "production is missing: the sizes at which the operator is really run, the usual one first")
        cases = self.op.get("shape_case", [])
        if cases and not any("production" in case for case in cases):
            self.fail("[[shape_case]]", "production is missing in all of them: the sizes that the first and the last "
                                        "dimension of the result have where the operator is really run")
        for where, row in [*self.rows("symbol"), *((f"[[shape_case]] {i + 1}", c) for i, c in enumerate(cases))]:
            for size in row.get("production", [1]):
                if type(size) is not int or size < 1:
                    self.fail(where, f"production has {size!r}; expected positive integers")
            if row.get("production") == []:
                self.fail(where, "production is empty; expected sizes")

    def check_factor(self):
        """Where an output is a floating number its error bound is declared; integers are compared exactly."""
        def floating(dtype):
            return dtype.startswith("acc(") or dtype in FLOATING or any(map(floating, self.op["dtypes"].get(dtype, [])))

        self.op.setdefault("dtypes", {})
        over = {a["name"]: a for a in self.op.get("input", [])}
        outputs = [over[a["inout"]] if "inout" in a else a for a in self.op.get("output", [])]
        if any(floating(a["dtype"]) for a in outputs):
            for key in ("factor", "reason"):
                if key not in self.op["numerics"]:
                    self.fail("[numerics]", f"{key} is missing: an output is a floating number")

    def check_values(self, where, params, present):
        for name in params:
            self.known(where, name, self.names("param"), "parameter")
        for name in present:
            self.known(where, name, self.names("input") + self.names("output"), "argument")


def check(file, op):
    Checker(file, op).check()


def check_together(ops):
    """What a declaration says of other operators."""
    by_name = {op["name"]: op for op in ops}
    for op in ops:
        checker = Checker(f"{op['name']}.toml", op)
        if op.get("backward"):
            checker.known("", op["backward"], by_name, "operator")
        for where, a in checker.rows("input"):
            if a.get("domain", {}).get("kind") != "forward":
                continue
            for key in ("op", "output"):
                if key not in a["domain"]:
                    checker.fail(f"{where} domain", f"{key} is missing")
            checker.known(f"{where} domain", a["domain"]["op"], by_name, "operator")
            of = Checker("", by_name[a["domain"]["op"]])
            outputs = of.names("output")
            own = checker.names("input")
            missing = [b["name"] for _, b in of.rows("input") if not b.get("optional") and b["name"] not in own]
            if missing:
                checker.fail(f"{where} domain", f"is an output of {a['domain']['op']}, which cannot be computed here: there is no "
                                                f"{', '.join(missing)}. Say its values by a domain of its own")
            checker.known(f"{where} domain", a["domain"]["output"], outputs, "output")
