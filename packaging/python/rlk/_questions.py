"""What rlk knows, as data: list, explain, counters, doctor; and reload. A Report is a dict that prints as a table, in a terminal and in
a notebook; rlk.documents has its form."""
import ctypes
import html
import inspect
import json
import subprocess
import typing

from rlk import _entry_points, _location, _runtime, errors

if typing.TYPE_CHECKING:
    from rlk import documents

_Rows = list  # the name is a question's below


class Report(dict):
    """The document of a question. print() shows its rows as a table; notebooks do by themselves."""

    def __init__(self, document, columns, rows, title=""):
        super().__init__(document)
        self._columns, self._rows, self._title = columns, [[_text(c) for c in row] for row in rows], title

    def __repr__(self):
        widths = [max(len(c) for c in column) for column in zip(self._columns, *self._rows)]
        lines = [self._title] if self._title else []
        for row in (self._columns, *self._rows):
            lines.append("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
        return "\n".join(lines)

    __str__ = __repr__

    def _repr_html_(self):
        row = lambda cells, tag: "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in cells) + "</tr>"
        title = f"<caption>{html.escape(self._title)}</caption>" if self._title else ""
        return f"<table>{title}<thead>{row(self._columns, 'th')}</thead><tbody>" + "".join(
            row(r, "td") for r in self._rows) + "</tbody></table>"


def _text(cell):
    if isinstance(cell, (_Rows, tuple)):
        return ", ".join(map(str, cell))
    if isinstance(cell, float):
        return f"{cell:g}"
    return "" if cell is None else str(cell).replace("\n", " ")


def _document(function, *arguments):
    text = ctypes.c_void_p()
    errors.check(function, *arguments, text)
    return json.loads(_runtime.c_text(text))


def list(runtime=None) -> "documents.List":
    """Every plugin that was found, and why one is not used."""
    document = _document(_runtime.library().rlk_list_json, (runtime or _runtime.runtime())._alive())
    rows = [[p["id"], p["backend"], p["version"], p["state"], len(p.get("devices", [])), p.get("ops", {}).get("verified", 0),
             p["source"], p["reason"], p.get("hint", "")] for p in document["plugins"]]
    host = document["host"]
    return Report(document, ["id", "backend", "version", "state", "devices", "verified", "source", "reason", "hint"], rows,
                  f"rlk {host['version']}, plugin ABI {host['abi']}")


def require(wanted, timeout=None, runtime=None):
    """Waits until backends, or operators of them, can be used: require("cuda:logp,attention"). Operators of a large plugin
    are tried when a call first asks for them, and behind; until then the next implementation serves. Raises NotFound for a
    backend without a device, Unsupported for an operator that is not there or did not pass its test, Timeout after
    `timeout` seconds (None: no limit)."""
    errors.check(_runtime.library().rlk_runtime_require, (runtime or _runtime.runtime())._alive(), errors.word(wanted, "require"),
                 float(timeout or 0))


def reload(runtime=None):
    """Takes plugins whose files were replaced (by renaming a new file over the old one) into use: each is verified and then
    serves new calls; a new file that is refused changes nothing. A stream that you made, rlk.runtime().stream(...), stays
    with the plugin that it was made with. Returns what changed."""
    document = _document(_runtime.library().rlk_runtime_reload, (runtime or _runtime.runtime())._alive())
    if document["changes"]:
        _runtime.note_reload()
    columns = ["plugin", "change", "version", "path", "reason_code", "reason"]
    return Report(document, columns, [[change[c] for c in columns] for change in document["changes"]])


def ops_json():
    """The declarations of all operators, as rlk-plugins ops --json has them."""
    return _document(_runtime.library().rlk_ops_json)


def counters(runtime=None) -> "documents.Counters":
    """Calls, plan-cache hits and misses, staged calls and fallbacks of every operator since the start. The table has those
    that were called."""
    document = _document(_runtime.library().rlk_counters_json, (runtime or _runtime.runtime())._alive())
    columns = [*document["ops"][0]]
    rows = [row for row in document["ops"] if any(row[c] for c in columns if c != "name")]
    return Report(document, columns, [[_counted(row.get(c)) for c in columns] for row in rows])


def _counted(cell):
    if isinstance(cell, _Rows) and cell and isinstance(cell[0], dict):
        return "; ".join(", ".join(f"{k} {v}" for k, v in item.items()) for item in cell)
    return cell


def explain(op, *inputs, **arguments) -> "documents.Explain":
    """Where a call of the operator would go and why: explain("logp", logits, ids, temperature=0.7), or with rlk.ops.logp
    instead of the name. Takes what the operator takes and runs nothing."""
    from rlk import ops
    name = op if isinstance(op, str) else op.__name__
    if name not in ops.operators:
        errors.check(_runtime.library().rlk_op_find, errors.word(name, "explain"), ctypes.c_void_p())
        raise errors.NotFound(f"rlk.ops has no operator {name!r}; it was generated for another librlk")
    operator = ops.operators[name]
    bound = inspect.signature(getattr(ops, name)).bind(*inputs, **arguments)
    bound.apply_defaults()
    given = bound.arguments
    call = operator.arrange([given[a.python] for a in operator.inputs], [given[p.python] for p in operator.params],
                            {o.name: given[o.python] for o in operator.outputs if o.python is not None}, given["outputs"],
                            given["pin"], given["numerics"])
    stream = operator.stream_for(call, given["stream"])
    document = _document(_runtime.library().rlk_explain_json, stream.handle, operator.handle, call.params, call.inputs,
                         len(operator.inputs), call.outputs, len(operator.outputs), call.options)
    rows = [[c["plugin"], c["implementation"], c["verdict"], c["reason_code"], c["reason"], c["numerics"],
             *(c[us] or "-" for us in ("cost_us", "measured_us"))] for c in document["candidates"]]
    title = f"{name}: refused: {document['refused']}" if document.get("refused") else name
    return Report(document, ["plugin", "implementation", "verdict", "reason code", "reason", "numerics", "cost us", "timed us"],
                  rows, title)


def doctor() -> "documents.Doctor":
    """Is this installation in order, and if not, what is to be done? Asks the rlk-plugins of this package, in a process of
    its own; wheels of vendors are checked here."""
    _entry_points.add_to_environment()
    done = subprocess.run([_location.command(), "doctor", "--json"], capture_output=True, text=True, check=False)
    try:
        document = json.loads(done.stdout)
    except ValueError:
        raise errors.Internal(f"rlk-plugins doctor ended with {done.returncode} and: "
                              + (done.stderr or done.stdout).strip()) from None
    for name, file, wrong in _entry_points.found():
        document["checks"].append({"status": "problem" if wrong else "ok", "subject": f"wheel {name}",
                                   "text": wrong or file, "reason": "",
                                   "hint": "reinstall the wheel that declares it" if wrong else ""})
    rows = [[c["status"], c["subject"], c["text"], c["hint"]] for c in document["checks"]]
    return Report(document, ["status", "subject", "text", "hint"], rows)
