"""The sources that each operator of a plugin is compiled from, as one hash an operator: what a report from hardware was
made of is kept beside it (h200.sources beside h200.json), and an operator whose sources are others today is `earlier`.
An operator's sources are its kernels, its host half and all that they include below plugins/ and of rlk/formula,
without comments and white space. The .cpp files that all operators share (plugins/simt/host) are not among them."""
import hashlib
import pathlib
import re

API = pathlib.Path(__file__).resolve().parent.parent / "plugin_api" / "include"
# The files of plugins/simt/host that serve an operator of plugins/simt/operators, by the macros it is written in.
HALVES = {"ROWS": "rows?", "MAP": "maps?", "MAPS": "maps?", "PART": "maps?", "MOVES": "move", "SCAN": "scan",
          "GROUPS": "groups?", "TOKENS": "tokens?"}
NOTHING = re.compile(r'("(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\])\')|//[^\n]*|/\*.*?\*/|\\\n|\s+', re.S)


def bare(text):
    """Without comments and white space."""
    return NOTHING.sub(lambda found: found.group(1) or "", text)


class Sources:
    def __init__(self, plugins, vendor):
        self.plugins, self.vendor = plugins.resolve(), (plugins / vendor).resolve()
        self.texts, self.bares, self.indices, self.brought = {}, {}, {}, {}
        kernels = [*self.plugins.glob("simt/kernels/*.cu"), *self.vendor.glob("kernels/*.cu")]
        self.images = {path.stem: path for path in kernels}
        self.has_programs = "composed::" in self.text(self.vendor / "plugin.cpp")

    def text(self, path):
        if path not in self.texts:
            self.texts[path] = path.read_text()
        return self.texts[path]

    def naming(self, pattern, *globs):
        """{what the pattern's group finds: files}."""
        found = self.indices.get((pattern, globs))
        if found is None:
            found = self.indices[pattern, globs] = {}
            for path in (path for one in globs for path in sorted(self.plugins.glob(one))):
                for name in set(re.findall(pattern, self.text(path), re.M)):
                    found.setdefault(name, []).append(path)
        return found

    def roots(self, name):
        """Where the class of an implementation is defined, and its host half."""
        vendor = self.vendor.name
        if self.has_programs:
            programs = self.naming(r"^RLK_COMPOSED_\w+\(\s*(\w+)", "composed/operators/*.hpp").get(name, [])
            return programs + sorted(self.vendor.glob("*.cpp"))
        own = self.naming(r"\b(\w+)::plan\(", f"{vendor}/*.cpp", "simt/host/*.cpp").get(name, [])
        mapped = self.naming(r"^RLK_SIMT_\w+\(\s*(\w+)", "simt/operators/*.cuh").get(name, [])
        words = {word for path in mapped for word in re.findall(r"^RLK_SIMT_(\w+)\(", self.text(path), re.M)}
        halves = {HALVES[part] for word in words for part in word.split("_") if part in HALVES}
        host = [path for path in sorted(self.plugins.glob("simt/host/*.[ch]pp")) for half in halves
                if re.fullmatch(rf"{half}(_\w+)?\.[ch]pp", path.name)]
        operators = self.naming(r"\bops::(\w+)", "products/*.cpp")
        products = operators.get(name, [])
        if products:  # and what those of all operators share
            serving = {path for paths in operators.values() for path in paths}
            products = products + [path for path in sorted(self.plugins.glob("products/*.cpp")) if path not in serving]
            products += self.naming(r"^const (?:rlk::)?products::Library& .*(library)\(\)", f"{vendor}/*.cpp")["library"]
        if not (own or mapped and host or products):
            raise SystemExit(f"sources.py: no source of {vendor} defines {name}")
        return own + mapped + host + products

    def beside(self, path):
        """What one source brings: what it includes, the .cpp of its header, the kernels that it names."""
        text = self.text(path)
        yield from ((path.parent / name).resolve() for name in re.findall(r'^\s*#\s*include "([^"]+)"', text, re.M))
        yield from (API / name for name in re.findall(r"^\s*#\s*include <(rlk/formula/[^>]+)>", text, re.M))
        if path.suffix == ".hpp" and path.parent != self.plugins / "simt" / "host":
            yield path.with_suffix(".cpp")
        if path.suffix == ".cpp":
            yield from (self.images[name] for name in re.findall(r'"(\w+)"', text) if name in self.images)

    def files(self, names):
        found, next_ones = set(), [path for name in sorted(names) for path in self.roots(name)]
        while next_ones:
            path = next_ones.pop()
            if path not in found and path.exists() and (self.plugins in path.parents or API in path.parents):
                found.add(path)
                if path not in self.brought:
                    self.brought[path] = list(self.beside(path))
                next_ones += self.brought[path]
        return found

    def hash(self, names):
        for path in (files := self.files(names)):
            if path not in self.bares:
                self.bares[path] = hashlib.sha256(bare(self.text(path)).encode()).hexdigest()
        return hashlib.sha256("".join(sorted(self.bares[path] for path in files)).encode()).hexdigest()[:16]


def hashes(plugins, vendor, classes):
    """{operator: hash}. classes: {operator: names of its implementations' classes}."""
    sources = Sources(plugins, vendor)
    return {op: sources.hash(names) for op, names in sorted(classes.items())}


def record(report, found):
    report.with_suffix(".sources").write_text("".join(f"{op} {one}\n" for op, one in found.items()))


def changed(report, found):
    """The operators whose sources are not those that the report was made of."""
    path = report.with_suffix(".sources")
    if not path.exists():
        raise SystemExit(f"support.py: {path} is missing: python3 plugins/support.py --record {report}")
    made_of = dict(line.split() for line in path.read_text().splitlines())
    return {op for op, one in found.items() if made_of.get(op) != one}
