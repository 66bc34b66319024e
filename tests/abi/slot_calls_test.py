"""The host calls a plugin's functions through its guards alone (core/declaration/plugin_call.hpp and what is built on
it): an exception that leaves one of them becomes a status there, and nowhere else.

Reads the host's sources: wherever an expression names a function in one of the ABI's tables, that function must be an
argument of a guard, or be compared with NULL. The names of functions and tables come from the ABI's headers.

usage: slot_calls_test.py SOURCE_ROOT
"""
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(sys.argv.pop(1))
ABI = ROOT / "plugin_api/include/rlk/abi"
# core/cpu is a plugin itself.
HOST = [path for folder in ("core", "loader") for path in sorted((ROOT / folder).rglob("*.[ch]pp"))
        if not path.is_relative_to(ROOT / "core/cpu")]
# "call" is that of Releases (core/conformance/releases.hpp), "ask" that of Stream; "required" asks whether the function
# is there (loader/probe/slots.cpp).
GUARDS = {"call_plugin", "call_of", "release_by", "ask", "call", "required"}


def without_comments(text):
    text = re.sub(r'"(?:[^"\\\n]|\\.)*"', '""', text)
    text = re.sub(r"//[^\n]*", "", text)
    return re.sub(r"/\*.*?\*/", lambda found: "\n" * found.group().count("\n"), text, flags=re.S)


def tables():
    """{"rlk_stream_api": {"create", ...}, ...}: structs whose functions a plugin implements."""
    found = {}
    for path in ABI.rglob("*.h"):
        if path.name == "host.h":  # the host implements those
            continue
        text = without_comments(path.read_text())
        for body, name in re.findall(r"typedef struct \w+ \{(.*?)\}\s*(\w+);", text, flags=re.S):
            slots = set(re.findall(r"\(\*(\w+)\)\s*\(", body))
            if slots and name != "rlk_evidence_sink":
                found[name] = slots
    return found


TABLES = tables()
SLOTS = set().union(*TABLES.values())
# The fields of a plugin's table that are tables.
PARTS = {"device": "rlk_device_api", "stream": "rlk_stream_api", "event": "rlk_event_api"}


def declared(text):
    """{name: {table, ...}}: variables, members and functions that are declared as one of the tables."""
    kinds = "|".join(TABLES)
    found = re.findall(rf"\b({kinds})\b(?:\s+const)?\s*[&*]\s*(?:const\s+)?(\w+)\s*(?=[;,=){{(\[:])", text)
    found += re.findall(rf"\b({kinds})\s+(\w+)\s*[;={{]", text)
    found += [(kind, name) for name, kind in
              re.findall(rf"\bauto\s*[&*]*\s*(\w+)\s*=\s*static_cast<const\s+({kinds})\s*\*>", text)]
    names = {}
    for kind, name in found:
        if name != "rlk_plugin_entry_v1":
            names.setdefault(name, set()).add(kind)
    return names


def calls_of_entries(text):
    return [f"line {text.count(chr(10), 0, found.start()) + 1}: {entry} is called directly; call it through call_plugin"
            for entry in re.findall(r"\brlk_plugin_entry_v1_fn\s+(\w+)\s*[;=,)]", text)
            for found in re.finditer(rf"(?<![\w.>]){entry}\s*\(", text)]


MENTION = re.compile(rf"((?:\w+(?:\(\))?(?:\[[^\]]*\])?(?:\.|->)\s*)+)({'|'.join(sorted(SLOTS))})\b")


def scan(text, shared, own_header=""):
    """([problems], how many functions were named) of one file's text. A name that begins an expression is the file's
    own, its header's, or a member's; behind another name it may be any member that a header declares."""
    text = without_comments(text)
    problems, count = calls_of_entries(text), 0
    if not MENTION.search(text):
        return problems, count
    first = declared(text + without_comments(own_header))
    for name, kinds in shared.items():
        if name.endswith("_"):
            first.setdefault(name, set()).update(kinds)

    def kinds_of(chain):
        if not chain:
            return set()
        if len(chain) == 1:
            return first.get(chain[0], set())
        if chain[-1] in PARTS and "rlk_plugin" in kinds_of(chain[:-1]):
            return {PARTS[chain[-1]]}
        return shared.get(chain[-1], set()) | (first.get(chain[-1], set()) if chain[0] == "this" else set())

    changed = True
    while changed:  # auto& streams = *owner.stream; auto& more = streams;
        changed = False
        for name, value in re.findall(r"\bauto\s*[&*]*\s*(\w+)\s*(?:=|\{)\s*([\w.\->*&()\[\]\s]+?)[;}]", text):
            kinds = kinds_of(re.findall(r"\w+", value))
            if not kinds <= first.get(name, set()):
                first.setdefault(name, set()).update(kinds)
                changed = True
    for found in MENTION.finditer(text):
        kinds = kinds_of(re.findall(r"\w+", re.sub(r"\[[^\]]*\]", "", found.group(1))))
        if not any(found.group(2) in TABLES[kind] for kind in kinds):
            continue
        count += 1
        where = f"line {text.count(chr(10), 0, found.start()) + 1}: {found.group(0).strip()}"
        behind = text[found.end():]
        if re.match(r"\s*\(", behind):
            problems.append(f"{where} is called directly; call it through call_plugin, call_of or release_by")
        elif not re.match(r"\s*[!=]=\s*nullptr", behind) and function_around(text, found.start()) not in GUARDS:
            problems.append(f"{where} is taken out of its table; give it to call_plugin, call_of or release_by there")
    return problems, count


def function_around(text, at):
    """The name of the function in whose arguments the place is, "" outside of any."""
    depth = 0
    while at > 0:
        at -= 1
        if text[at] in ")]}":
            depth += 1
        elif text[at] in "([{":
            if depth == 0:
                name = re.search(r"(\w+)\s*$", text[:at])
                return name.group(1) if name and text[at] == "(" else ""
            depth -= 1
        elif text[at] == ";" and depth == 0:
            return ""
    return ""


class SlotCalls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        headers = "\n".join(without_comments(path.read_text()) for path in HOST if path.suffix == ".hpp")
        cls.shared = declared(headers)

    def test_the_headers_are_understood(self):
        self.assertEqual(set(TABLES), {"rlk_plugin", "rlk_device_api", "rlk_stream_api", "rlk_event_api",
                                       "rlk_graph_api", "rlk_implementation"})
        for slot in ("create", "plan_destroy", "deallocate", "elapsed_ms", "get_extension", "launch"):
            self.assertIn(slot, SLOTS)

    def test_every_function_of_a_plugin_is_called_through_a_guard(self):
        total, wrong = 0, []
        for path in HOST:
            header = path.with_suffix(".hpp")
            own = header.read_text() if header.exists() else ""
            problems, count = scan(path.read_text(), self.shared, own)
            total += count
            wrong += [f"{path.relative_to(ROOT)}: {problem}" for problem in problems]
        self.assertEqual(wrong, [], "\n".join(wrong))
        # What finds nothing says nothing.
        self.assertGreater(total, 90)

    def test_a_call_beside_the_guards_is_found(self):
        for wrong in ("implementation_.plan_destroy(plan, nullptr);",
                      "if (plan_ != nullptr) candidate.implementation->plan_destroy(plan_, nullptr);",
                      "device_.api.device->deallocate(device, kind, memory, &error);",
                      "candidate->plugin->api->stream->destroy(handle, nullptr);",
                      "const rlk_stream_api& streams = *api.stream; streams.query(s, nullptr, nullptr);",
                      "const auto& streams = *api.stream; streams.query(s, nullptr, nullptr);",
                      "const auto slot = api.stream->destroy; slot(handle, nullptr);",
                      "auto* graphs = static_cast<const rlk_graph_api*>(found); graphs->destroy(graph, nullptr);",
                      "run([&] { return api_.device_close(handle, nullptr); });",
                      "f(api.event->record);",
                      "rlk_plugin_entry_v1_fn entry = find(); entry(&host, &error);"):
            with self.subTest(wrong=wrong):
                problems, _ = scan("struct S { const rlk_plugin& api; const rlk_implementation& implementation; };"
                                   "void f() { " + wrong + " }", self.shared)
                self.assertTrue(problems)

    def test_a_call_through_a_guard_passes(self):
        for right in ("call_plugin(implementation_.plan_destroy, plan, nullptr);",
                      "release_by(api_, \"\", api_.device->deallocate, device_, kind_, memory);",
                      "if (api.stream->copy_peer != nullptr && call_of(api, \"\", api.stream->copy_peer, s) == 0) {}",
                      "stream.query(error); memory.allocate(1); std::copy(a, b, c); // api.device->deallocate(x)"):
            with self.subTest(right=right):
                problems, _ = scan("const rlk_plugin& api; void f() { " + right + " }", self.shared)
                self.assertEqual(problems, [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
