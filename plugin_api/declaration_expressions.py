"""The expressions of a declaration as C++ over Values: symbols, parameters, has(argument) and `ceil(a / b)`."""
import json
import re

from declaration_schema import DeclarationError

def arguments_of(source, at):
    """The text between the parenthesis that opens at `at` and the one that closes it, and where that one stands."""
    depth = 0
    for end in range(at, len(source)):
        depth += {"(": 1, ")": -1}.get(source[end], 0)
        if depth == 0:
            return source[at + 1:end], end
    raise DeclarationError(f"a parenthesis of {source!r} is not closed")


def top_level(source, operators):
    """Where one of the operators stands outside of parentheses."""
    depth, found = 0, []
    for i, c in enumerate(source):
        depth += {"(": 1, ")": -1}.get(c, 0)
        if depth == 0 and c in operators:
            found.append(i)
    return found


def without_ceil(source):
    """`ceil(a / b)` as C++: core/declaration/declaration.hpp has ceil_divide."""
    match = re.search(r"\bceil\s*\(", source)
    if not match:
        return source
    inner, end = arguments_of(source, match.end() - 1)
    divisions = top_level(inner, "/")
    if len(divisions) != 1 or top_level(inner, "+-%<>=?:"):
        raise DeclarationError(f"ceil({inner}): expected ceil(a / b); put sums into parentheses")
    above, below = inner[:divisions[0]].strip(), inner[divisions[0] + 1:].strip()
    call = f"ceil_divide({without_ceil(above)}, {without_ceil(below)})"
    return source[:match.start()] + call + without_ceil(source[end + 1:])


def check_divisors(source, positive):
    """Every divisor is a number other than 0, a name of `positive` (whose declared minimum is at least 1), or guarded
    by `name == 0 ||` or `name > 0 &&`."""
    for match in re.finditer(r"[/%]\s*(\w+|\S)", source):
        divisor = match.group(1)
        guard = rf"\b{divisor}\s*(==\s*0\s*\|\||>\s*0\s*(&&|\?))" if divisor.isidentifier() else None
        guarded = divisor in positive or (guard and re.search(guard, source[:match.start()]))
        if not guarded and not (divisor.isdigit() and int(divisor) > 0):
            raise DeclarationError(f"{source!r} divides by {divisor!r}, which may be 0 or less: expected a number, or "
                                   "a symbol or integer parameter with min = 1 or more")


def text(value):
    return json.dumps(value.strip() if isinstance(value, str) else value, ensure_ascii=True)


def multiple(size, symbols):
    """(2, "H") of the size "2 * H", from which H is known; (0, None) of any other."""
    match = re.fullmatch(r"(\d+) \* (\w+)", str(size))
    return (int(match.group(1)), match.group(2)) if match and int(match.group(1)) > 0 and match.group(2) in symbols else (0, None)


class Expressions:
    """The names of one operator, and what expressions over them come to."""

    def __init__(self, op):
        self.op, self.name = op, op["name"]
        self.symbols = {s["name"]: i for i, s in enumerate(op["symbol"])}
        self.params = {p["name"]: i for i, p in enumerate(op["param"])}
        self.inputs = {a["name"]: i for i, a in enumerate(op["input"])}
        self.outputs = {a["name"]: i for i, a in enumerate(op["output"])}
        positive = [s["name"] for s in op["symbol"] if s.get("min", 0) >= 1]
        positive += [p["name"] for p in op["param"] if p["type"] == "i64" and p.get("min", 0) >= 1]
        self.positive = {*positive, *(p["name"] for p in op["param"] if p.get("min_exclusive", -1) >= 0)}

    def bit(self, name):
        if name in self.inputs:
            return self.inputs[name]
        if name in self.outputs:
            return 32 + self.outputs[name]
        raise DeclarationError(f"{self.name}: no argument {name!r}")

    def name_values(self, source):
        """Values of enumerations, compared by name or number: by name in the text, by number in the code."""
        texts, codes, end = [], [], 0
        for match in re.finditer(r"\b([a-z]\w*)\s*(==|!=|<=|>=|<|>)\s*(\w+)", source):
            param = self.op["param"][self.params[match.group(1)]] if match.group(1) in self.params else {}
            if "values" not in param:
                continue
            values = param["values"]
            right = match.group(3)
            number = values.index(right) if right in values else int(right)
            texts += [source[end:match.start(3)], values[number]]
            codes += [source[end:match.start(3)], str(number)]
            end = match.end(3)
        return "".join(texts) + source[end:], "".join(codes) + source[end:]

    def fail(self, text):
        raise DeclarationError(f"{self.name}.toml: {text}")

    def expr(self, source, size=False):
        """An Expr; with `size` the size of a dimension, computed so widely that nothing overflows."""
        source = str(source)

        def has(match):
            return f"v.has({self.bit(match.group(1))})"

        source, code = self.name_values(source)
        try:
            check_divisors(source, self.positive)
            code = without_ceil(code)
        except DeclarationError as error:
            self.fail(error)
        code = re.sub(r"has\((\w+)\)", has, code)
        parts = re.split(r"(v\.has\(\d+\))", code)

        def identifier(match):
            word = match.group(0)
            if word == "ceil_divide":
                return word
            if word in self.symbols:
                return f"Wide(v.symbol({self.symbols[word]}))" if size else f"v.symbol({self.symbols[word]})"
            if word in self.params:
                kind = "f64" if self.op["param"][self.params[word]]["type"] == "f64" else "i64"
                if size and kind == "f64":
                    self.fail(f"{word!r} in {source!r} is no integer")
                value = f"v.{kind}(offsetof(rlk_{self.name}_params, {word}))"
                return f"Wide({value})" if size else value
            self.fail(f"{word!r} in {source!r} is neither a symbol nor a parameter")

        code = "".join(p if p.startswith("v.has") else re.sub(r"[A-Za-z_]\w*", identifier, p) for p in parts)
        unused = "[[maybe_unused]] "
        code = f"size_from({code})" if size else code
        return f"{{{text(source)}, []({unused}const Values& v) -> int64_t {{ return {code}; }}}}"
