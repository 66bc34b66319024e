"""Puts rlk's functions where a trainer's were, and the trainer's back. Replaced are functions of a known source, and of an
unknown one where both give the same for made-up calls; what rlk only adds to a registry depends on no source."""
import importlib
import importlib.metadata
import importlib.util
import json
import operator
import pathlib
import sys
from typing import Callable, NamedTuple, Tuple

from rlk.errors import NotFound, Unsupported
from rlk.integrations import _served
from rlk.integrations._replace import Replacement, log
from rlk.integrations._source import definitions, digest


class Hook(NamedTuple):
    """A function that rlk replaces."""
    module: str                 # where the package defines or uses it
    name: str                   # its name there: "function", "Class.method", or "REGISTRY[key]" of a mapping, set or list
    operator: str               # rlk's
    sources: Tuple[str, ...]    # "file name" of the function and of what it depends on, as known.json has them
    make: Callable              # (the original's module) -> serve(original, *arguments)
    adds: bool = False          # a new entry of a registry: there is no original
    calls: Callable = None      # () -> calls by which an original of another source is tried (_compare.py); None: refused


class Replaced(NamedTuple):
    """A line of what enable() did."""
    function: str
    file: str
    version: str
    operator: str


class Integration(NamedTuple):
    package: str                # as pip calls it
    root: str                   # as Python imports it
    hooks: Tuple[Hook, ...]
    source: str = ""            # where it is got, of what no package index has: pip would install another one's

    @property
    def known(self):
        """{"version": what the functions were read in, "functions": {file: {name: digest}}}"""
        return json.loads((pathlib.Path(__file__).parent / "known.json").read_text())[self.package]


class Installed:
    """A package as it is installed here, beside what rlk knows of it."""

    def __init__(self, integration):
        self.package, self.record = integration.package, integration.known
        spec = importlib.util.find_spec(integration.root)
        try:
            self.version = importlib.metadata.version(self.package)
        except importlib.metadata.PackageNotFoundError:
            spec = None
        if spec is None:
            wanted = f"{self.package}=={self.record['version']}"
            how = (f"No package index has it: install it from {integration.source}" if integration.source
                   else f"Run: pip install {wanted}")
            raise NotFound(f"rlk.integrations: {self.package} is not installed in {sys.prefix}; expected {wanted}. {how}")
        self.site = pathlib.Path(spec.submodule_search_locations[0]).parent
        self._texts = {}

    def file(self, hook):
        return str(self.site / hook.sources[0].split(" ")[0])

    def check(self, sources, consequence):
        """Refuses when a source is not what rlk knows."""
        known = self.record["version"]
        for source in sources:
            file, name = source.split(" ")
            expected = self.record["functions"][file][name]
            path = self.site / file
            if path not in self._texts:
                self._texts[path] = definitions(path.read_text()) if path.is_file() else {}
            text = self._texts[path].get(name)
            if text is None or digest(text) != expected:
                seen = "no such function" if text is None else f"the digest {digest(text)}"
                raise Unsupported(f"rlk.integrations: {name} in {path} of {self.package} {self.version} is not the function that "
                                  f"rlk knows: {seen}, expected {expected} ({self.package} {known}). {consequence}. Install "
                                  f"{self.package}=={known}, or an rlk that knows {self.package} {self.version}")


class Enabled:
    """What enable() did. Ends with disable(), or with the `with` that began it."""

    def __init__(self, integration, strict):
        self.integration, self.strict = integration, strict
        self.replaced, self.functions, self._undo, self.active = [], {}, [], False
        self.put()

    # ---- before anything is replaced -----------------------------------------------------------------------------

    def original(self, hook, module):
        """What stands there now; refuses when it is not what the file defines."""
        container, key = place_of(module, hook.name)
        if hook.adds:
            if key in container:
                raise Unsupported(f"rlk.integrations: {hook.module}.{hook.name} is taken already; nothing was replaced. "
                                  "Unregister it first")
            return None
        found = container.get(key)
        expected = hook.sources[0].split(" ")[1].split(".")[-1]
        owner = getattr(found, "__self__", found)  # Function.apply belongs to its class
        if found is None or isinstance(found, Replacement) or getattr(owner, "__name__", "") != expected:
            raise Unsupported(f"rlk.integrations: {hook.module}.{hook.name} is {found!r}, which another library put there; "
                              f"expected {expected} as the package has it. Nothing was replaced. Enable rlk before the "
                              "other, or not at all")
        return found

    # ---- there and back ------------------------------------------------------------------------------------------

    def put(self):
        installed = Installed(self.integration)
        self.version = installed.version
        unknown = {}  # hook: what is said of its sources
        for hook in self.integration.hooks:
            try:
                installed.check(hook.sources, "Nothing was replaced")
            except Unsupported as error:
                if self.strict or not (hook.adds or hook.calls):
                    raise
                unknown[hook] = error
        plan = []
        for hook in self.integration.hooks:
            try:
                module = importlib.import_module(hook.module)
            except ImportError as error:
                raise Unsupported(f"rlk.integrations: {hook.module} cannot be imported here ({error}). Nothing was replaced. "
                                  f"Install what {self.integration.package} needs") from error
            original, serve = self.original(hook, module), hook.make(module)
            if hook in unknown and not self.accept(hook, original, serve, unknown[hook]):
                continue
            plan.append((hook, installed.file(hook), module, original, serve))
        try:
            for hook, file, module, original, serve in plan:
                self.replace(hook, module, original, serve)
                self.replaced.append(Replaced(f"{hook.module}.{hook.name}", file, self.version, hook.operator))
        except BaseException:  # a trainer that is replaced in part is of no use
            self.undo()
            raise
        self.active = True

    def accept(self, hook, original, serve, error):
        """Whether a function of another source than the known is replaced: it is tried; where rlk's only stands beside it, the log
        says so. One that cannot be tried on this machine stays the package's own."""
        name, package = f"{hook.module}.{hook.name}", f"{self.integration.package} {self.version}"
        if hook.adds:
            log.warning("%s: added to %s, whose functions beside it are not those that rlk was compared with (%s)", name, package,
                        self.integration.known["version"])
            return True
        from rlk.integrations._compare import Untried, difference
        plain = original.__func__ if isinstance(original, staticmethod) else original
        try:
            found = difference(getattr(plain, "apply", plain), serve, hook.calls())
        except Untried as needs:
            log.warning("%s: of %s, whose source rlk does not know, and which cannot be tried here without %s; it stays the "
                        "original", name, package, needs)
            return False
        except Exception as reason:  # a class that its arguments are made of has changed too
            found = f"its arguments cannot be made: {type(reason).__name__}: {reason}"
        if found is not None:
            raise Unsupported(f"{error}. Tried against rlk's it differs: {found}")
        log.warning("%s: of %s, whose source rlk does not know; rlk replaces it because both gave the same in trial calls. "
                    "enable(..., strict=True) refuses it", name, package)
        return True

    def replace(self, hook, module, original, serve):
        static = isinstance(original, staticmethod)
        new = serve if hook.adds else Replacement(f"{hook.module}.{hook.name}", original.__func__ if static else original, serve)
        self.functions[hook.name] = new
        container, key = place_of(module, hook.name)
        if hook.adds:
            container[key] = new
            self._undo.append(lambda: container.pop(key, None))
            return
        if container is not vars(module):
            container[key] = staticmethod(new) if static else new
            self._undo.append(lambda: container.__setitem__(key, original))
        self._undo.append(lambda: exchange(self.integration.root, new, original))
        exchange(self.integration.root, original, new)

    def undo(self):
        while self._undo:
            self._undo.pop()()
        for function in self.functions.values():
            if isinstance(function, Replacement):
                function.active = False

    def disable(self):
        """Puts everything back. Once more does nothing."""
        if self.active:
            self.active = False
            self.undo()

    def calls(self):
        """{function: {"rlk": how often rlk served it, reason: how often the original did, and why}}"""
        return {name: dict(f.calls) for name, f in self.functions.items() if hasattr(f, "calls")}

    def __repr__(self):
        head = f"{self.integration.package} {self.version}" + ("" if self.active else " (put back)")
        replaced = [f"  {r.function} ({r.file}) -> rlk.torch.{r.operator}" for r in self.replaced]
        return "\n".join([head, *replaced, *_served.lines([(r.function.rpartition(".")[2], r.operator) for r in self.replaced])])


class _Attributes:
    """A class's attributes as a mapping."""

    def __init__(self, owner):
        self.owner = owner

    def get(self, key):
        return vars(self.owner).get(key)

    def __setitem__(self, key, value):
        setattr(self.owner, key, value)


class _Members:
    """The members of a set or list as the keys of a mapping."""

    def __init__(self, members):
        self.members = members

    def __contains__(self, key):
        return key in self.members

    def __setitem__(self, key, value):
        (self.members.add if isinstance(self.members, set) else self.members.append)(key)

    def pop(self, key, default=None):
        if key in self.members:
            self.members.remove(key)


def place_of(module, name):
    """(mapping, key) of a module's function, of a class's method, or of an entry of a registry."""
    if "[" in name:
        path, key = name.rstrip("]").split("[")
        registry = operator.attrgetter(path)(module)
        key = operator.attrgetter(key)(module) if "." in key else key  # a member of an enumeration
        return (_Members(registry) if isinstance(registry, (set, list)) else registry), key
    *classes, key = name.split(".")
    for part in classes:
        module = getattr(module, part)
    return (_Attributes(module) if classes else vars(module)), key


def exchange(root, old, new):
    """Everywhere in the package that a module has bound it by name: `from a import f` made such a binding. Other packages'
    modules are left alone: what they hold may be meant to be the original."""
    for name, module in list(sys.modules.items()):
        if module is None or (name != root and not name.startswith(root + ".")):
            continue
        bindings = getattr(module, "__dict__", None)
        for key in [key for key, value in (bindings or {}).items() if value is old]:
            bindings[key] = new
