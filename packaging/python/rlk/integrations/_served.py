"""Which operators do the plugins of this machine have, for which device? Asked of rlk-plugins in a process of its own: this
one loads no plugin and opens no device for it."""
import functools
import json
import subprocess

from rlk import _location

_LONGEST_SECONDS = 300  # a first start verifies the plugins


def _ask(*words):
    done = subprocess.run([_location.command(), *words, "--json"], capture_output=True, text=True, check=False,
                          timeout=_LONGEST_SECONDS)
    return json.loads(done.stdout)


@functools.lru_cache(maxsize=None)
def by_backend():
    """{backend: operators that are verified there for any dtype}, of the backends that have a device here."""
    found = {}
    for plugin in _ask("list")["plugins"]:
        if not plugin.get("devices") and plugin["backend"] != "cpu":
            continue
        if plugin.get("ops", {}).get("verified", 0) == 0:
            continue
        units = _ask("scope", plugin["id"])["units"]
        found.setdefault(plugin["backend"], set()).update(u["op"] for u in units if u["verdict"] == "verified")
    return found


def lines(replaced):
    """Of [(function, operator)]: a line for each backend that says which of the functions rlk serves there."""
    try:
        backends = by_backend()
    except (OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
        return [f"  by device: not known here, rlk-plugins did not answer ({error})"]
    with_gradient = {name for operators in backends.values() for name in operators if f"{name}_backward" in operators}
    out = []
    for backend in sorted(backends, key=lambda name: (name == "cpu", name)):
        operators = backends[backend]
        served, lacking = [], {}
        for function, operator in replaced:
            missing = [name for name in (operator, *([f"{operator}_backward"] if operator in with_gradient else []))
                       if name not in operators]
            if not missing:
                served.append(function)
            else:
                lacking.setdefault(missing[0], []).append(function)
        text = f"  on {backend}: rlk serves {', '.join(served) if served else 'none of them'}"
        for name, functions in lacking.items():
            if name.endswith("_backward") and name[:-len("_backward")] in operators:
                text += f"; {', '.join(functions)} only without gradients: nothing here has {name} for it"
            else:
                text += f"; the original serves {', '.join(functions)}: nothing here has {name} for it"
        out.append(text)
    return out
