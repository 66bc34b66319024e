"""Mutants of a C++ file by rule: each changes one place of its syntax tree, as clang prints it.

The rules are the usual ones of mutation testing: relational, arithmetic and logical operators replaced, conditions
and choices by masks decided, constants changed, statements deleted, and functions replaced by their neighbour (min by max,
Add by Sub).
"""
import json
import re
import shutil
import subprocess
from typing import NamedTuple

CLANGS = ("clang++-16", "clang++-14", "clang++")
BINARY = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "+": "-", "-": "+", "*": "/", "/": "*",
          "%": "/", "&&": "||", "||": "&&", "&": "|", "|": "&", "+=": "-=", "-=": "+=", "*=": "/=", "/=": "*=",
          "|=": "&=", "&=": "|="}
# Of the standard library, of Highway and of the kernels' own small set of functions.
FUNCTIONS = {"min": "max", "max": "min", "Min": "Max", "Max": "Min", "Add": "Sub", "Sub": "Add", "Mul": "Add",
             "Div": "Mul", "MulAdd": "NegMulAdd", "NegMulAdd": "MulAdd", "MulSub": "MulAdd", "Lt": "Le", "Le": "Lt",
             "Gt": "Ge", "Ge": "Gt", "Eq": "Ne", "Ne": "Eq", "And": "Or", "Or": "And", "floor": "ceil",
             "ceil": "floor", "abs": "", "exp": "", "log": "", "sqrt": "", "Abs": "", "Neg": ""}
# Of those that choose a number by a mask, or hold it inside of bounds: which of their arguments may take their place.
CHOICES = {"IfThenElse": (1, 2), "IfThenElseZero": (1,), "IfThenZeroElse": (1,), "CopySign": (0,), "if_kept": (2,),
           "at_least": (2,), "at_most": (2,), "clamped": (1,), "clamped_slope": (1,)}
DELETED = {"BinaryOperator", "CompoundAssignOperator", "CallExpr", "CXXMemberCallExpr", "CXXOperatorCallExpr",
           "ExprWithCleanups", "ContinueStmt", "BreakStmt", "UnaryOperator"}


class Edit(NamedTuple):
    start: int  # bytes of the file
    end: int
    text: str
    rule: str
    scope: tuple | None = None  # (start, end) of the expression or statement that it changes; None: a constant's


class Unreadable(Exception):
    """clang is missing or does not understand the file."""


def find_clang():
    for name in CLANGS:
        if shutil.which(name):
            return name
    raise Unreadable(f"none of {', '.join(CLANGS)} is installed: packaging/install-deps.sh --tools brings one")


def tree_of(words, source, folder):
    """The declarations of rlk::cpu that a compilation of `source` by `words` (options without -o and -c) sees."""
    command = [find_clang(), *words, "-w", "-fsyntax-only", "-Xclang", "-ast-dump=json", "-Xclang",
               "-ast-dump-filter=rlk::cpu", source]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        raise Unreadable(f"{source}: {done.stderr[:2000]}")
    decoder, at, roots = json.JSONDecoder(), 0, []
    while (at := done.stdout.find("{", at)) >= 0:
        root, at = decoder.raw_decode(done.stdout, at)
        roots.append(root)
    return roots


class Walk:
    """Collects the edits of one file from the trees of a source that includes it."""

    def __init__(self, path, roots):
        self.path, self.source = str(path), path.read_bytes()
        self.file = None  # clang names the file of a place only where it differs from that of the place before
        self.edits = {}
        for root in roots:
            self.visit(root, None, frozen=False, constant=False)

    def place(self, location):
        """(offset, length of the token) in our file, or None: elsewhere, or inside a macro."""
        inner = location.get("expansionLoc", location)
        for part in (location.get("spellingLoc"), location.get("expansionLoc"), location):
            if part and "file" in part:
                self.file = part["file"]
        if "expansionLoc" in location or self.file != self.path or "offset" not in inner:
            return None
        return inner["offset"], inner["tokLen"]

    def text(self, start, end):
        return self.source[start:end].decode()

    def add(self, start, end, text, rule, scope):
        if self.text(start, end) != text:
            self.edits.setdefault((start, end, text), Edit(start, end, text, rule, None if self.constant else scope))

    def visit(self, node, parent, frozen, constant):
        if not isinstance(node, dict) or "kind" not in node:
            return
        if "loc" in node:
            self.place(node["loc"])
        begin, end = (self.place(node.get("range", {}).get(side, {})) for side in ("begin", "end"))
        node["span"] = (begin[0], end[0] + end[1]) if begin and end and begin[0] <= end[0] else None
        # The sizes of blocks and what only the compiler looks at: no caller can see them.
        frozen = frozen or node["kind"] in ("StaticAssertDecl", "TemplateArgument", "EnumConstantDecl") or (
            node["kind"] == "VarDecl" and node.get("constexpr", False) and node.get("name", "").startswith("k"))
        # The operator() of a lambda is said to be constexpr wherever it could be. A member's default may be a constant's.
        constant = constant or node["kind"] == "FieldDecl" or (
            node.get("constexpr", False) and node.get("name") != "operator()")
        children = [child for child in node.get("inner", []) if isinstance(child, dict)]
        for child in children:
            is_first = child is children[0]
            self.visit(child, node, frozen or is_first and node["kind"] == "CaseStmt",
                       constant or is_first and node.get("isConstexpr", False))
        self.constant = constant or node.get("isConstexpr", False)
        if node["span"] and not frozen:
            start, end = node["span"]
            rules = getattr(self, "of_" + node["kind"], None)
            if rules:
                rules(node, children)
            if self.is_statement(node, parent) and self.text(end, end + 1) == ";":
                self.add(start, end, "", "statement deleted", (start, end + 1))

    @staticmethod
    def is_statement(node, parent):
        if node["kind"] not in DELETED and not (node["kind"] == "ReturnStmt" and not node.get("inner")):
            return False
        if parent is None or parent["kind"] not in ("CompoundStmt", "IfStmt", "ForStmt", "CXXForRangeStmt", "WhileStmt"):
            return False
        siblings = [child for child in parent["inner"] if isinstance(child, dict)]
        if parent["kind"] == "IfStmt":
            return node is not siblings[0]
        return parent["kind"] == "CompoundStmt" or node is siblings[-1]  # the others are conditions and steps

    def of_BinaryOperator(self, node, children):
        opcode = node.get("opcode")
        if opcode not in BINARY or len(children) != 2 or not (children[0].get("span") and children[1].get("span")):
            return
        start, end = children[0]["span"][1], children[1]["span"][0]
        at = self.text(start, end).find(opcode)
        if at >= 0:
            self.add(start + at, start + at + len(opcode), BINARY[opcode], "operator replaced", node["span"])

    of_CompoundAssignOperator = of_BinaryOperator

    def of_UnaryOperator(self, node, children):
        start, end = node["span"]
        opcode = node.get("opcode")
        if opcode in ("!", "-") and not node.get("isPostfix"):
            self.add(start, start + 1, "", "operator deleted", node["span"])
        if opcode in ("++", "--"):
            other = {"++": "--", "--": "++"}[opcode]
            at = end - 2 if node.get("isPostfix") else start
            self.add(at, at + 2, other, "operator replaced", node["span"])

    def of_ConditionalOperator(self, node, children):
        start, end = node["span"]
        for child, which in zip(children[1:], ("first", "second")):
            if child.get("span"):
                self.add(start, end, f"({self.text(*child['span'])})", f"always the {which}", node["span"])

    def of_IfStmt(self, node, children):
        conditions = [c for c in children if c.get("span")]
        if node.get("hasInit") or node.get("hasVar") or not conditions:
            return
        for value in ("true", "false"):
            self.add(*conditions[0]["span"], value, "condition decided", conditions[0]["span"])

    def of_CXXBoolLiteralExpr(self, node, children):
        self.add(*node["span"], "false" if node["value"] else "true", "constant changed", node["span"])

    def of_IntegerLiteral(self, node, children):
        self.add(*node["span"], f"({self.text(*node['span'])} + 1)", "constant changed", node["span"])

    def of_FloatingLiteral(self, node, children):
        self.add(*node["span"], f"({self.text(*node['span'])} + 1)", "constant changed", node["span"])

    def of_CallExpr(self, node, children):
        if not children or not children[0].get("span"):
            return
        start, end = children[0]["span"]
        found = re.search(r"(\w+)$", self.text(start, end))
        for i in CHOICES.get(found[1] if found else "", ()):
            if len(children) > 1 + i and children[1 + i].get("span"):
                self.add(*node["span"], self.text(*children[1 + i]["span"]), "choice decided", node["span"])
        if not found or found[1] not in FUNCTIONS:
            return
        replacement = FUNCTIONS[found[1]]
        self.add(start if replacement == "" else start + found.start(), end, replacement, "function replaced", node["span"])


def edits_of(path, words, source, folder):
    """Every edit of the file at `path`, which `source` is or includes, in the order of the file."""
    return sorted(Walk(path, tree_of(words, source, folder)).edits.values())
