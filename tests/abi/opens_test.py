# Whatever librlk opens is moved out of the numbers of standard input, output and error (sdk/descriptor.hpp): in its
# sources nothing is opened but through the few functions that do so. (rlk-plugins and rlk-prober have those numbers
# taken before they begin.)
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# What gives a descriptor, or opens a file without showing it.
OPENERS = (
    "open openat openat2 creat mkostemp mkstemp mkostemps mkstemps socket socketpair accept accept4 pipe pipe2 dup "
    "memfd_create epoll_create epoll_create1 eventfd timerfd_create inotify_init inotify_init1 signalfd pidfd_open "
    "shm_open fopen freopen fdopen tmpfile popen opendir fdopendir posix_openpt"
).split()
CALL = re.compile(r"(?<![\w.>:])(?:::|std::)?(" + "|".join(OPENERS) + r")\((?!\))")  # none of them goes without arguments
STREAM = re.compile(r"\b(?:[io]?fstream|filebuf|directory_iterator|recursive_directory_iterator|basic_file_sink\w*)\b")
MOVED = re.compile(r"(?:above_standard|UniqueFd(?: \w+)?)\($")

# (file, what): and why it need not be moved where it stands.
ALLOWED = {
    ("loader/store/file.cpp", "fdopendir"): "of a descriptor that was moved",
    ("loader/probe/process.cpp", "socketpair"): "each end is moved up at once",
    ("loader/probe/process.cpp", "pipe2"): "each end is moved up at once",
    ("core/conformance/device_extension_checks.cpp", "pipe2"): "each end is moved at once",
    ("loader/screen/closure.cpp", "accept"): "a function of its own, of that name",
    ("loader/api/policy_files.cpp", "directory_iterator"): "closed before anything else is opened",
    ("plugin_api/include/rlk/sdk/symbols.hpp", "open"): "a function of its own, of that name: dlopen",
}


def sources():
    for part in ("core", "loader", "plugin_api/include"):
        for path in sorted((ROOT / part).rglob("*")):
            name = path.relative_to(ROOT).as_posix()
            if path.suffix in (".cpp", ".hpp", ".h") and not name.startswith("loader/cli/"):
                yield name, path.read_text()


def opened(text):
    """(line, what) of everything in the text that is opened and not moved."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", lambda comment: "\n" * comment.group(0).count("\n"), text, flags=re.DOTALL)
    for number, line in enumerate(text.splitlines(), 1):
        for call in CALL.finditer(line):
            declared = re.search(r"\b(?:void|bool|int|rlk_status|auto|Failure>|Seed>)\s+\w*(?:::)?$", line[: call.start()])
            if not declared and not MOVED.search(line[: call.start()]):
                yield number, call.group(1)
        if not line.startswith("#include"):
            for stream in STREAM.finditer(line):
                yield number, stream.group(0)


class Opens(unittest.TestCase):
    def test_nothing_is_opened_but_through_what_moves_it(self):
        found, used = [], set()
        for name, text in sources():
            for line, what in opened(text):
                if (name, what) in ALLOWED:
                    used.add((name, what))
                else:
                    found.append(f"{name}:{line}: {what}")
        self.assertEqual(found, [])
        self.assertEqual(used, set(ALLOWED), "what is allowed and stands nowhere")

    def test_what_is_opened_is_seen(self):
        for line in ('const int fd = open("a", O_RDONLY);', "int ends[2]; pipe2(ends, 0);", 'std::ifstream file("a");',
                     'FILE* f = std::fopen("a", "r");', "if (::socket(AF_UNIX, 0, 0) < 0) return;"):
            self.assertEqual(len(list(opened(line))), 1, line)
        for line in ("gate.open();", "device->open(&out);", "Seed::open(path);", "UniqueFd fd(open(path, 0));",
                     "sdk::above_standard(open(path, 0));", "// std::ifstream"):
            self.assertEqual(list(opened(line)), [], line)


unittest.main()
