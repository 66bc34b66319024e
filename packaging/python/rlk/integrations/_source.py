"""The source of functions of installed packages, read and never imported: which function is it, and does rlk know it?

A function counts as it is written, without its docstring, lines of comment and blank lines."""
import ast
import hashlib
import textwrap


def definitions(text):
    """The source of every function and class of a module by its qualified name."""
    lines = text.splitlines()
    found = {}

    def visit(node, prefix):
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                continue
            name = prefix + child.name
            skipped = set()
            for part in ast.walk(child):
                if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and ast.get_docstring(part):
                    skipped.update(range(part.body[0].lineno, part.body[0].end_lineno + 1))
            own = [lines[n - 1].rstrip() for n in range(child.lineno, child.end_lineno + 1) if n not in skipped]
            own = [line for line in own if line and not line.lstrip().startswith("#")]
            found[name] = textwrap.dedent("\n".join(own))
            visit(child, name + ".")

    visit(ast.parse(text), "")
    return found


def digest(source):
    return hashlib.sha256(source.encode()).hexdigest()[:16]
