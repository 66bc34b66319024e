"""Trainers that use rlk by one line.

    import rlk.integrations
    print(rlk.integrations.enable("trl"))       # which functions it replaced, of which file and version
    ...                                          # train as ever
    rlk.integrations.disable("trl")              # puts everything back

or, for a part of a program, `with rlk.integrations.enable("trl"):`. A function whose source is
not the one that rlk was compared with is tried first: where it gives other results than rlk nothing is replaced, and
strict=True refuses it untried. What rlk cannot serve exactly (a dtype, an option, a device without a
plugin) goes to the original; the logger rlk.integrations says so once for each reason, and calls() counts."""
import importlib
import threading

from rlk.errors import NotFound

_NAMES = ("openrlhf", "sglang", "slime", "transformers", "trl", "verl", "vllm")
_active = {}
_lock = threading.RLock()


class Enabling:
    """What enable() gives: prints as what was replaced, and ends with its `with` what it began."""

    def __init__(self, name, state, began):
        self.name, self._state, self._began = name, state, began

    @property
    def replaced(self):
        """[(function, file, version, operator)]"""
        return list(self._state.replaced)

    @property
    def active(self):
        return self._state.active

    def calls(self):
        """{function: {"rlk": how often rlk served it, reason: how often the original did, and why}}"""
        return self._state.calls()

    def disable(self):
        disable(self.name)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self._began:
            disable(self.name)

    def __repr__(self):
        return repr(self._state)


def names():
    """What enable() knows."""
    return _NAMES


def integration(name):
    """The declaration of an integration: its package, the version that is known, its hooks."""
    if name not in _NAMES:
        raise NotFound(f"rlk.integrations knows no {name!r}; there are {', '.join(_NAMES)}")
    return importlib.import_module(f"rlk.integrations._{name}").INTEGRATION


def enable(name, strict=False):
    """Replaces the trainer's functions by rlk's. Enabled already, it changes nothing and says what was replaced. strict
    refuses functions of another source than rlk was compared with; otherwise they are tried, and accepted with a warning."""
    with _lock:
        known = integration(name)
        began = name not in _active
        if began:
            from rlk.integrations._hooks import Enabled
            _active[name] = Enabled(known, strict)
        return Enabling(name, _active[name], began)


def disable(name):
    """Puts the trainer's own functions back. Does nothing where none were replaced."""
    with _lock:
        integration(name)
        if name in _active:
            _active.pop(name).disable()


def enabled():
    """The names that are enabled."""
    return tuple(sorted(_active))
