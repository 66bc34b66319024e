"""The verbs that ask questions, on a machine with the built-in CPU alone; and command lines that are wrong."""
import contextlib
import fcntl
import glob
import os
import pty
import struct
import subprocess
import termios
import tomllib

import command

OPERATORS = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "plugin_api/ops")


class List(command.Case):
    def test_the_cpu_is_registered_and_verified(self):
        document = self.json("list")
        # Whether there is a default folder beside the plugins' own, which is not searched, is this machine's business.
        self.assertEqual(set(document) - {"search"}, {"schema", "host", "plugins"})
        self.assertEqual(document["host"]["abi"], "1.0")
        [cpu] = document["plugins"]
        for key in ("id", "backend", "version", "abi", "state", "reason_code", "reason", "hint", "path", "source",
                    "tried", "devices", "evidence", "ops"):
            self.assertIn(key, cpu)
        self.assertEqual((cpu["id"], cpu["backend"], cpu["state"]), ("cpu", "cpu", "registered"))
        self.assertEqual(cpu["reason_code"], "", cpu["reason"])
        self.assertEqual(cpu["ops"]["partial"], 0)
        self.assertGreaterEqual(cpu["ops"]["verified"], 4)
        self.assertEqual(cpu["devices"][0]["index"], 0)
        self.assertGreater(cpu["devices"][0]["memory_bytes"], 0)

    def test_people_get_one_aligned_line_per_plugin(self):
        lines = self.output("list").splitlines()
        self.assertTrue(lines[0].startswith("plugin"), lines[0])
        self.assertTrue(lines[1].startswith("cpu"), lines[1])
        self.assertEqual(lines[0].index("state"), lines[1].index("registered"))
        self.assertNotIn("\x1b", "".join(lines))

    def test_a_named_folder_that_is_missing_is_told_and_counts_as_broken(self):
        document = self.json("list", code=1, RLK_PLUGIN_PATH="/nonexistent/plugins")
        self.assertEqual([plugin["id"] for plugin in document["plugins"]], ["cpu"], "no plugin is called plugins")
        [missing] = [place for place in document["search"] if place["broken"]]
        self.assertEqual(missing["reason_code"], "FOLDER_MISSING")
        self.assertIn("/nonexistent/plugins", missing["path"] + missing["reason"])
        self.assertIn("/nonexistent/plugins", self.output("list", code=1, RLK_PLUGIN_PATH="/nonexistent/plugins"))

    def test_what_nobody_understands_in_a_policy_file_is_a_problem(self):
        for name, text in (("plain", "attentoin = cpu\nlogp = cpu\nadd = a b\n"),
                           ("toml", "[dispatch]\nattentoin = 'cpu'\nlogp = 'cpu'\nadd = 'a b'\n")):
            with self.subTest(name):
                with open(self.path(name), "w") as file:
                    file.write(text)
                checks = self.json("doctor", code=1, RLK_CONFIG=self.path(name))["checks"]
                problems = [c["text"] for c in checks if c["status"] == "problem"]
                self.assertEqual(len(problems), 2, problems)
                self.assertTrue(any("attentoin" in problem for problem in problems), problems)
                self.assertTrue(any("a b" in problem for problem in problems), problems)

    def test_files_that_the_name_rule_passes_over_are_told(self):
        open(os.path.join(self.plugins, "acme.so"), "w").close()
        [passed] = [place for place in self.json("list")["search"] if place["reason_code"] == "NAME_IGNORED"]
        self.assertIn("acme.so", passed["reason"])
        self.assertIn("librlk_plugin_", passed["hint"])
        self.assertIn("acme.so", self.output("list"))
        [check] = [c for c in self.json("doctor")["checks"] if "acme.so" in c["reason"]]
        self.assertEqual(check["status"], "warning")


class FirstStart(command.Case):
    KNOWS_THE_CPU = False

    def test_a_canary_is_tried_and_fresh_tries_everything_in_the_long_run(self):
        def tried():
            [cpu] = self.json("list")["plugins"]
            return cpu["tried"]

        def scope():
            document = self.json("scope", "cpu")
            return document["tried"], {tuple(unit[key] for key in ("op", "implementation", "dtype", "feature", "variant")):
                                       unit for unit in document["units"]}

        def words(*verb):
            return " ".join(self.output(*verb).split())

        note = "tried on this machine: a canary, one call of each operator and dtype; the rest when rlk was built"
        self.assertEqual(tried(), "canary")
        for verb in ("list", "inspect", "scope"):
            arguments = () if verb == "list" else ("cpu",)
            self.assertIn(note, words(verb, *arguments))
        how, canary = scope()
        self.assertEqual(how, "canary")
        for unit in canary.values():
            self.assertEqual((unit["verdict"], unit["reason_code"]), ("verified", "CANARY"))
            self.assertIn("when rlk was built", unit["reason"])
            self.assertEqual(unit["worst_error_ratio"] is None, unit["cases"] == 0)
        [taken] = self.json("explain", "logp")["candidates"]
        self.assertEqual((taken["verdict"], taken["reason_code"]), ("taken", "CANARY"))
        self.assertIn("verified when rlk was built", words("explain", "logp"))
        if not command.LONG:  # 100 seconds; conformance_cpu_test compares the canary with everything in one process
            return

        said = self.output("probe", "--fresh", "cpu")
        self.assertNotIn("remembered", said)
        self.assertNotIn("canary", said)
        [cpu] = self.json("list")["plugins"]
        self.assertEqual((cpu["tried"], cpu["state"]), ("everything", "registered"))
        self.assertNotIn("canary", words("list"))
        how, everything = scope()
        self.assertEqual(how, "everything")
        self.assertEqual(list(canary), list(everything))
        for unit, result in everything.items():
            self.assertEqual(result["numerics"], canary[unit]["numerics"], unit)
            self.assertGreater(result["cases"], 0, unit)
        self.assertNotIn("canary", words("explain", "logp"))


class Questions(command.Case):
    def test_inspect_tells_the_way_of_the_cpu(self):
        document = self.json("inspect", "cpu")
        self.assertEqual(document["state"], "registered")
        states = [change["state"] for change in document["history"]]
        self.assertEqual(states[0], "discovered")
        self.assertEqual(states[-1], "registered")
        self.assertTrue(document["units"])
        text = self.output("inspect", "cpu")
        for part in ("backend", "evidence", "logp_backward", "verified"):
            self.assertIn(part, text)

    def test_scope_is_a_matrix_of_verified_units(self):
        units = self.json("scope", "cpu")["units"]
        for unit in units:
            self.assertEqual(list(unit), ["op", "implementation", "dtype", "feature", "variant", "verdict", "numerics",
                                          "cases", "worst_error_ratio", "worst_error_ulp", "reason_code", "reason"])
            if unit["verdict"] == "verified":
                self.assertIn("accurate", unit["numerics"])
        plain = {(u["op"], u["dtype"]) for u in units if u["verdict"] == "verified" and u["feature"] == ""}
        for op in ("logp", "logp_backward", "attention", "add"):
            for dtype in ("f32", "bf16", "f16", "f64"):
                self.assertIn((op, dtype), plain)
        text = self.output("scope", "cpu")
        self.assertIn("(plain call)", text)
        self.assertIn("softcap", text)

    def test_the_log_tells_the_search_to_a_file_with_process_and_rank(self):
        log = self.path("log-%p.txt")
        self.output("list", RLK_LOG="debug", RLK_LOG_FILE=log, RANK="3")
        texts = {}
        for name in os.listdir(self.folder):
            if name.startswith("log-"):
                with open(self.path(name)) as file:
                    texts[name[4:-4]] = file.read()
        [(pid, text)] = [(pid, text) for pid, text in texts.items() if "is searched" in text]
        self.assertIn(f"[{pid} rank 3]", text)
        self.assertIn("RLK_PLUGIN_PATH is " + self.plugins, text)
        self.assertRegex(text, r"plugin cpu: (remembered|probed now): .*key probe-[0-9a-f-]+ in " + self.cache)
        pipe = self.path("pipe")
        os.mkfifo(pipe)
        self.assertIn("RLK_LOG_FILE", self.run_command("list", RLK_LOG="debug", RLK_LOG_FILE=pipe).stderr)

    def test_probe_remembers(self):
        self.output("probe")
        self.assertIn("remembered", self.output("probe"))
        self.assertEqual(len(self.json("probe", "cpu")["plugins"]), 1)

    def test_explain_names_every_candidate(self):
        document = self.json("explain", "logp", "--dtype", "bf16", "--shape", "N=64,V=1000", "--with", "entropy")
        self.assertEqual(document["op"], "logp")
        self.assertEqual(document["chosen"]["plugin"], "cpu")
        self.assertTrue(document["candidates"])
        for candidate in document["candidates"]:
            for key in ("plugin", "implementation", "verdict", "reason_code", "reason", "numerics", "cost_us"):
                self.assertIn(key, candidate)
            self.assertIn(candidate["verdict"], ("taken", "declined", "failed", "filtered"))
            self.assertIn("accurate", candidate["numerics"])
        self.assertIn("taken", [candidate["verdict"] for candidate in document["candidates"]])
        self.assertIn("chosen: cpu/", self.output("explain", "attention", "--param", "layout=packed"))

    def test_domains_of_inputs_are_the_declared_ones(self):
        ops, compared = {op["name"]: op for op in self.json("ops")["ops"]}, 0
        for path in glob.glob(os.path.join(OPERATORS, "*.toml")):
            with open(path, "rb") as file:
                declared = tomllib.load(file)
            told = {entry["name"]: entry["domain"] for entry in ops[declared["name"]]["inputs"]}
            for entry in declared.get("input", []):
                if "kind" in entry.get("domain", {}):
                    self.assertEqual(told[entry["name"]], entry["domain"]["kind"], declared["name"])
                    compared += 1
        self.assertGreater(compared, 100)

    def test_ops_are_the_declarations(self):
        ops = {op["name"]: op for op in self.json("ops")["ops"]}
        self.assertLessEqual({"logp", "logp_backward", "attention", "add"}, set(ops))
        logp = ops["logp"]
        for key in ("revision", "family", "summary", "differentiable", "backward", "inputs", "outputs", "params",
                    "dtypes"):
            self.assertIn(key, logp)
        self.assertEqual((logp["differentiable"], logp["backward"]), (True, "logp_backward"))
        self.assertEqual([entry["name"] for entry in logp["inputs"]],
                         ["logits", "ids", "bias", "mask", "row_indices", "keep_mask"])
        self.assertEqual([op["name"] for op in self.json("ops", "add")["ops"]], ["add"])
        self.assertEqual([r["name"] for r in ops["attention_backward"]["rounded"]], ["weights", "score gradients", "gradients of heads"])
        self.assertEqual(ops["linear_logp"]["rounded"], [])
        self.assertIn("may be rounded to a 16-bit T: weights", self.output("ops", "attention"))
        text = self.output("ops", "attention")
        for part in ("bottom_right", "cu_seqlens_q", "head_size", "host readable", "dtype T: f32 bf16 f16 f64"):
            self.assertIn(part, text)
        q, k, v = ops["attention"]["inputs"][:3]
        self.assertEqual(q["nan"], [{"when": None, "output": None, "reach": "row"}])
        self.assertIn({"when": None, "output": "lse", "reach": "none"}, v["nan"])
        self.assertEqual(k["hidden_by"], ["key_mask"])
        self.assertNotIn("nan", ops["logp"]["inputs"][1])  # ids
        self.assertIn("v: out head, lse none; where partial: undefined", " ".join(text.split()))
        for name in ops:
            self.assertIn(name, self.output("ops"))
            lines = self.output("ops", name).splitlines()
            self.assertLessEqual(max(map(len, lines)), 130, name)
            for entry in ops[name]["params"] + ops[name]["inputs"] + ops[name]["outputs"]:
                self.assertTrue(entry["meaning"], f"{name}.{entry['name']} is not explained")

    def test_a_call_can_be_pinned_as_it_is_shown(self):
        shown = self.json("explain", "logp")["chosen"]
        for pin in ("{plugin}/{implementation}", "{plugin}:{implementation}", "{plugin}"):
            self.assertEqual(self.json("explain", "logp", "--backend", pin.format(**shown))["chosen"], shown)

    def test_a_pin_that_no_name_can_be_is_refused(self):
        for length in (61, 100, 5000):
            text = self.usage_error("explain", "logp", "--backend", "cpu:" + "x" * length)
            self.assertIn(f"{length + 4} characters long; expected at most 64", text)

    def test_a_variable_that_asks_for_a_plugin_in_vain_is_warned_of(self):
        done = self.run_command("explain", "logp", RLK_OP_LOGP="vaporware/fast")
        self.assertIn("RLK_OP_LOGP asks for vaporware/fast", done.stderr)
        self.assertIn("chosen: cpu/", done.stdout)

    def test_doctor_judges_the_values_of_variables(self):
        for name, value, status in (("RLK_NUM_THREADS", "9999", "problem"),
                                    ("RLK_LOG_DISPATCH", "yes", "problem"), ("RLK_WATCH", "often", "problem"),
                                    ("RLK_WATCH", "0.001", "note"), ("RLK_PROBE", "of", "problem"),
                                    ("RLK_PROBER", "/nonexistent", "problem"), ("RLK_BACKEND", "cpu:simd", "note"),
                                    ("RLK_BACKEND", "vaporware", "warning"), ("RLK_OP_LOGP", "vaporware", "warning")):
            with self.subTest(name=name, value=value):
                checks = self.json("doctor", code=1 if status == "problem" else 0, **{name: value})["checks"]
                self.assertIn(status, [check["status"] for check in checks if check["subject"] == name])
                self.assertIn(value, "".join(check["text"] for check in checks if check["subject"] == name))

    def test_doctor_says_one_thing_of_a_variable_of_no_operator(self):
        checks = self.json("doctor", RLK_OP_NOSUCH="cuda")["checks"]
        self.assertEqual([c["text"] for c in checks if c["subject"] == "RLK_OP_NOSUCH"],
                         ["is set, but rlk reads no such variable"])

    def test_every_verb_tells_a_misspelt_value(self):
        for words in (("list",), ("ops", "add"), ("explain", "add"), ("cache", "ls")):
            with self.subTest(words=words):
                text = self.run_command(*words, RLK_FALLBACK="strikt").stderr
                self.assertIn("RLK_FALLBACK is 'strikt', did you mean 'strict'?", text)
        self.assertNotIn("warning", self.run_command("ops", "add", RLK_FALLBACK="strict").stderr)

    def test_a_wrong_policy_file_is_no_wrong_command_line(self):
        with open(self.path("policy.toml"), "w") as file:
            file.write('fallbak = "strict"\n')
        for words in (("list",), ("explain", "add")):
            text = self.run_command(*words, code=1, RLK_CONFIG=self.path("policy.toml")).stderr
            self.assertIn("policy.toml:1: 'fallbak' is not known here", text)
            self.assertNotIn("--help", text)

    def lines_on_a_terminal(self, columns, *words):
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        environment = {**os.environ, "RLK_CACHE_DIR": self.cache, "RLK_PLUGIN_PATH": self.plugins, "NO_COLOR": "1"}
        with subprocess.Popen([command.COMMAND, *words], env=environment, stdout=theirs) as running:
            os.close(theirs)
            text = b""
            with contextlib.suppress(OSError):  # the other end is closed
                while piece := os.read(ours, 65536):
                    text += piece
        os.close(ours)
        self.assertEqual(running.returncode, 0)
        return text.decode().splitlines()

    def test_a_list_stays_within_a_terminal_of_80_columns(self):
        self.add_plugin("golden")
        lines = self.lines_on_a_terminal(80, "list")
        self.assertIn("golden", "".join(lines))
        self.assertEqual([line for line in lines if len(line) > 80], [])

    def test_operators_stay_within_a_terminal_of_80_columns(self):
        for words in (("ops",), ("ops", "add"), ("ops", "softmax"), ("ops", "logp")):
            with self.subTest(words):
                lines = self.lines_on_a_terminal(80, *words)
                self.assertIn(words[-1] if len(words) > 1 else "whiten", "".join(lines))
                self.assertEqual([line for line in lines if len(line) > 80], [])

    def test_a_misspelt_value_is_told_once(self):
        for name, value in (("RLK_PROBE", "of"), ("RLK_PROBE_TIMEOUT", "1 min"), ("RLK_PROBE_TIMEOUT", "inf"),
                            ("RLK_FALLBACK", "strikt"), ("RLK_NUM_THREADS", "0"), ("RLK_LOG", "x")):
            for words in (("list",), ("explain", "add"), ("doctor",)):
                with self.subTest(name=name, words=words):
                    done = self.run_command(*words, code=int(words[0] == "doctor"), **{name: value})
                    self.assertEqual((done.stdout + done.stderr).count(f"'{value}'"), 1, done.stderr)
                    self.assertNotIn(f'"{value}"', done.stderr)
        self.assertEqual(self.run_command("list", RLK_ALLOW="", RLK_PROBE="").stderr, "", "empty is unset")
        # A user who asked for an allow-list gets no plugin without one.
        self.add_plugin("golden")
        refused = self.json("list", code=1, RLK_ALLOW="requir")["plugins"][1]
        self.assertEqual(refused["reason_code"], "ALLOW_LIST_UNUSABLE", refused)

    def test_doctor_finds_nothing_wrong(self):
        self.assertIn("no problems", self.output("doctor"))
        subjects = [check["subject"] for check in self.json("doctor")["checks"]]
        for subject in ("rlk", "prober", "cache", "plugin cpu"):
            self.assertIn(subject, subjects)

    def test_the_prober_is_found_however_the_command_was_called(self):
        folder, name = os.path.split(command.COMMAND)
        path = folder + os.pathsep + os.environ["PATH"]
        self.assertIn("no problems", self.output("doctor", program=name, PATH=path))

    def test_doctor_finds_what_is_wrong(self):
        text = self.output("doctor", code=1, RLK_PROBE="isolate", RLK_BAKEND="cuda", RLK_REQUIRE="vaporware")
        self.assertIn("did you mean 'isolated'?", text)
        self.assertIn("did you mean RLK_BACKEND?", text)
        self.assertIn("no usable plugin for the backend vaporware", text)

    def test_cache_is_listed_and_cleared(self):
        self.output("list")
        before = self.json("cache", "ls")
        self.assertEqual(before["folder"], self.cache)
        verdicts = [entry["plugin"] for entry in before["entries"] if entry["name"].startswith("probe-")]
        self.assertIn("cpu", verdicts)
        self.assertNotIn("", verdicts)
        self.assertRegex(self.output("cache", "ls"), r"probe-\S+ +cpu ")
        self.assertEqual(self.json("cache", "clear")["removed"], len(before["entries"]))
        self.assertEqual(self.json("cache", "ls")["entries"], [])

    def test_bench_measures_random_data(self):
        [row] = self.json("bench", "logp", "--shape", "N=16,V=500", "--seconds", "0.05")["rows"]
        for key in ("case", "op", "shape", "dtype", "impl", "median_us", "min_us", "bytes", "flops", "extra_bytes",
                    "ratio_to_limit"):
            self.assertIn(key, row)
        self.assertEqual(row["shape"], {"N": 16, "R": 16, "V": 500})
        self.assertEqual(row["bytes"], 16 * 500 * 4 + 16 * 8 + 16 * 4)
        self.assertGreater(row["min_us"], 0)
        self.assertLessEqual(row["min_us"], row["median_us"])
        self.assertTrue(row["impl"].startswith("cpu/"))

    def test_bench_makes_the_inputs_that_another_operator_computes(self):
        for words in (("logp_backward", "--with", "grad_entropy,entropy,row_indices,mask", "--shape", "N=9,R=12,V=50"),
                      ("attention", "--param", "layout=packed", "--shape", "B=3,Tq=20,Tk=31"),
                      ("add", "--dtype", "f16", "--shape", "a=8x1,b=5")):
            self.assertEqual(len(self.json("bench", *words, "--seconds", "0.02")["rows"]), 1)


class Conformance(command.Case):
    def test_the_built_in_plugin_is_judged_like_a_file(self):
        document = self.json("conformance", "cpu", "--op", "add", "--dtype", "f32")
        self.assertFalse(document["full"])
        plugin = document["plugin"]
        self.assertEqual((plugin["id"], plugin["source"], plugin["state"]), ("cpu", "built-in", "smoke_tested"))
        self.assertEqual({(u["op"], u["dtype"], u["verdict"]) for u in plugin["units"]}, {("add", "f32", "verified")})
        text = self.output("conformance", "cpu", "--op", "add", "--dtype", "f32", "--full")
        self.assertIn("all cases", text)
        self.assertIn("passed", text)


class Usage(command.Case):
    def test_help_of_every_verb_has_an_example(self):
        text = self.output("--help")
        verbs = [line.split()[0] for line in text.splitlines() if line.startswith("  ") and line[2] != " "]
        verbs = [verb for verb in verbs if verb != "rlk-plugins"]
        self.assertGreaterEqual(len(verbs), 12)
        for verb in verbs:
            help_text = self.output(verb, "--help")
            self.assertIn(f"rlk-plugins {verb}", help_text)
            self.assertIn("example:", help_text)
            self.assertIn("--json", help_text)
            self.assertEqual(self.output("help", verb), help_text)

    def test_wrong_command_lines_say_what_would_be_right(self):
        for words, text in (
            (("lsit",), "did you mean 'list'?"),
            (("list", "--jsn"), "did you mean '--json'?"),
            (("list", "more"), "unexpected word 'more'"),
            (("inspect",), "missing ID"),
            (("inspect", "cuda"), "no plugin is called 'cuda'"),
            (("explain", "lgop"), "did you mean 'logp'?"),
            (("explain", "logp", "--shape", "V=0"), "V"),
            (("explain", "logp", "--numerics", "exact"), "no numerics class"),
            (("ops", "rotary"), "no operator is called 'rotary'"),
            (("cache", "burn"), "expected ls, clear or export"),
            (("lint", "/nonexistent.so"), "no such file"),
            (("conformance", "/nonexistent.so"), "no such file"),
            (("conformance", "cpo"), "no such file"),
            (("bench", "logp", "--seconds", "-1"), "expected a positive number"),
            (("explain", "sum", "--param", "x=1"), "sum has no parameter 'x'; there is none"),
            (("run", "logp"), "--input logits=FILE.npy --input ids=FILE.npy"),
            (("run", "logp", "--input", "logit=x.npy"), "did you mean 'logits'?"),
            (("run", "logp", "--input", "logits"), "expected NAME=VALUE"),
            (("run", "logp", "--input", "logits=x.npy:bfloat16"), "no dtype is called 'bfloat16'"),
            (("run", "logp", "--param", "softcap=1", "--param", "softcap=2"), "softcap was given twice"),
            (("run", "logp", "--output", "logp=x.npy", "--output", "lse=x.npy"), "the outputs logp and lse"),
            (("run", "logp", "--output", "logp=/nonexistent/x.npy"), "/nonexistent/x.npy: cannot be created"),
            (("explain", "logp", "--backend", "vaporware/fast"), "no plugin is called 'vaporware'"),
            (("run", "logp", "--input", "logits=/nonexistent.npy"), "/nonexistent.npy"),
            (("conformance", "cpu", "--op", ""), "--op '': expected OP, only this operator"),
            (("explain", "logp", "--backend", ""), "--backend '': expected"),
            (("new", "zenith", "--folder", ""), "--folder '': expected PATH"),
            (("new", "zenith", "--folder", "/dev/null/x"), "/dev/null/x: the folder cannot be made: Not a directory"),
        ):
            with self.subTest(words=words):
                self.assertIn(text, self.usage_error(*words))

    def test_without_a_verb_the_verbs_are_told(self):
        done = self.run_command(code=2)
        self.assertIn("explain", done.stderr)

    def test_version(self):
        self.assertRegex(self.output("--version"), r"^rlk \d+\.\d+\.\d+, plugin ABI 1\.0\n$")

    def test_output_that_cannot_be_written_is_an_error(self):
        environment = dict(os.environ, RLK_CACHE_DIR=self.cache, RLK_PLUGIN_PATH=self.plugins)
        for words in (["ops"], ["ops", "--json"], ["report"], ["ops", "--help"], ["--help"], ["--version"], ["help", "--json"]):
            with self.subTest(words=words), open("/dev/full", "w") as full:
                done = subprocess.run([command.COMMAND, *words], env=environment, stdout=full, stderr=subprocess.PIPE)
                self.assertEqual(done.returncode, 1)
                self.assertIn("standard output was not written whole: No space left on device", done.stderr.decode())


if __name__ == "__main__":
    command.main()
