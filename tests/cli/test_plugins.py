"""The command beside plugins that are good, wrong, crashing or hanging."""
import json
import os
import shutil
import subprocess
import time
import unittest

import command


class Good(command.Case):
    def test_a_good_plugin_is_registered_and_passes(self):
        path = self.add_plugin("golden")
        plugins = {plugin["id"]: plugin for plugin in self.json("list")["plugins"]}
        self.assertEqual(plugins["golden"]["state"], "registered", plugins["golden"])
        self.assertEqual(plugins["golden"]["source"], "RLK_PLUGIN_PATH")
        document = self.json("conformance", path, "--op", "logp", "--dtype", "f32")
        units = document["plugin"]["units"]
        self.assertTrue(units)
        self.assertEqual({unit["op"] for unit in units}, {"logp"})
        self.assertIn("passed", self.output("conformance", path, "--op", "add"))
        self.assertEqual(self.json("lint", path)["id"], "golden")

    def test_of_two_files_of_one_id_the_one_that_has_it_is_shown(self):
        good = self.add_plugin("golden")
        first = self.path("first")
        os.mkdir(first)
        refused = shutil.copy(good, first)
        os.chmod(refused, 0o666)
        both = {"RLK_PLUGIN_PATH": f"{first}:{self.plugins}"}
        states = [plugin["state"] for plugin in self.json("list", code=1, **both)["plugins"] if plugin["id"] == "golden"]
        self.assertEqual(states, ["rejected", "registered"])
        self.assertEqual(self.json("inspect", "golden", **both)["path"], good)
        self.assertTrue(self.json("scope", "golden", **both)["units"])
        [probed] = self.json("probe", "golden", **both)["plugins"]
        self.assertEqual(probed["state"], "registered")
        only = {"RLK_PLUGIN_PATH": first}
        self.assertEqual(self.json("inspect", "golden", code=1, **only)["reason_code"], "WRITABLE_BY_OTHERS")

    def test_probe_of_an_unknown_plugin_names_near_ones(self):
        self.add_plugin("golden")
        done = self.run_command("probe", "goldn", code=2, RLK_VERIFY="lazy")
        self.assertIn("did you mean 'golden'?", done.stderr)

    def test_a_call_can_be_pinned_to_it(self):
        self.add_plugin("golden")
        command.write_npy(self.path("a.npy"), "<f4", (3,), [1, 2, 3])
        done = self.output("run", "add", "--input", "a=a.npy", "--input", "b=a.npy", "--output", "out=out.npy",
                           "--backend", "golden")
        self.assertIn("golden/", done)
        self.assertEqual(command.read_npy(self.path("out.npy"))[2], [2, 4, 6])

    def test_explain_refuses_what_the_call_would_refuse(self):
        self.add_plugin("golden")
        strict = {"RLK_BACKEND": "golden", "RLK_FALLBACK": "strict"}
        explained = self.json("explain", "whiten", "--shape", "B=1,L=3", code=1, **strict)
        self.assertIsNone(explained["chosen"])
        self.assertIn("RLK_FALLBACK=strict", explained["refused"])
        text = self.output("explain", "whiten", "--shape", "B=1,L=3", code=1, **strict)
        self.assertIn("no implementation: the call is refused", text)
        command.write_npy(self.path("x.npy"), "<f4", (1, 3), [1, 2, 3])
        refused = self.run_command("run", "whiten", "--input", "x=x.npy", "--output", "y=y.npy", code=1, **strict)
        self.assertIn("RLK_FALLBACK=strict", refused.stderr)
        self.assertEqual(self.json("explain", "whiten", "--shape", "B=1,L=3")["chosen"]["plugin"], "cpu")
        self.assertEqual(self.json("explain", "add", **strict)["chosen"]["plugin"], "golden")

    def test_what_its_platforms_policy_turns_off_is_told_with_the_reason_and_can_be_asked_for(self):
        policy = os.path.join(os.path.dirname(self.add_plugin("golden")), "rlk_policy_golden.toml")
        with open(policy, "w") as file:
            file.write('[off]\nadd = "it adds too slowly"\n')
        on_golden = {"RLK_BACKEND": "golden"}
        explained = self.json("explain", "add", **on_golden)
        self.assertEqual(explained["chosen"]["plugin"], "cpu")
        [off] = [one for one in explained["candidates"] if one["plugin"] == "golden"]
        self.assertEqual((off["verdict"], off["reason_code"]), ("filtered", "OFF"))
        self.assertIn("it adds too slowly (%s:2;" % os.path.realpath(policy), off["reason"])
        # Not in silence: a user who wants no fallback gets none.
        self.assertIn("OFF", self.json("explain", "add", code=1, RLK_FALLBACK="strict", **on_golden)["refused"])
        self.assertEqual(self.json("explain", "add", RLK_OP_ADD="golden")["chosen"]["plugin"], "golden")
        self.assertEqual(self.json("explain", "logp", **on_golden)["chosen"]["plugin"], "golden")

    def test_a_version_that_is_known_to_be_wrong_takes_its_operators_out_until_the_policy_says_otherwise(self):
        self.add_plugin("golden")
        policy = self.path("policy.toml")
        known_bad = '[[known_bad]]\nplugin = "golden"\nseen = { runtime_fingerprint = "golden 1*" }\n' \
                    'operators = ["add"]\nreason = "NaN where a is 0"\n'
        with open(policy, "w") as file:
            file.write(known_bad)
        site = {"RLK_CONFIG": policy}
        [golden] = [one for one in self.json("list", code=1, **site)["plugins"] if one["id"] == "golden"]
        self.assertEqual((golden["state"], golden["reason_code"]), ("partial", "KNOWN_BAD"))
        self.assertIn("add with runtime_fingerprint golden 1: NaN where a is 0 (%s:1)" % policy, golden["reason"])
        self.assertIn("KNOWN_BAD", self.output("doctor", code=1, **site))
        on_golden = {"RLK_BACKEND": "golden", **site}
        explained = self.json("explain", "add", **on_golden)
        self.assertEqual(explained["chosen"]["plugin"], "cpu")
        [out] = [one for one in explained["candidates"] if one["plugin"] == "golden"]
        self.assertEqual(out["reason_code"], "KNOWN_BAD")
        self.assertIn("NaN where a is 0", out["reason"])
        self.assertEqual(self.json("explain", "logp", **on_golden)["chosen"]["plugin"], "golden")
        with open(policy, "w") as file:
            file.write('use_known_bad = ["golden"]\n' + known_bad)
        [golden] = [one for one in self.json("list", **site)["plugins"] if one["id"] == "golden"]
        self.assertEqual((golden["state"], golden["reason_code"]), ("registered", ""))
        self.assertIn("used because the policy says so", self.output("inspect", "golden", **site))
        self.assertEqual(self.json("explain", "add", **on_golden)["chosen"]["plugin"], "golden")

    def test_explain_tells_of_plugins_on_other_devices_that_do_not_take_the_call(self):
        policy = os.path.join(os.path.dirname(self.add_plugin("golden")), "rlk_policy_golden.toml")
        self.add_plugin("crash_create")

        def candidates(*words, **variables):
            found = self.json("explain", "add", *words, **variables)
            self.assertEqual(found["chosen"]["plugin"], "cpu")
            return {one["plugin"]: one for one in found["candidates"]}
        with open(policy, "w") as file:
            file.write('[off]\nadd = "it adds too slowly"\n')
        self.assertEqual(candidates()["golden"]["reason_code"], "OFF")
        self.assertIn("it adds too slowly", candidates()["golden"]["reason"])
        self.assertIn("it adds too slowly", " ".join(self.output("explain", "add").split()))
        os.remove(policy)
        with open(self.path("policy.toml"), "w") as file:
            file.write('[[known_bad]]\nplugin = "golden"\nseen = { runtime_fingerprint = "golden 1*" }\n'
                       'operators = ["add"]\nreason = "NaN where a is 0"\n')
        site = {"RLK_CONFIG": self.path("policy.toml"), "RLK_PLUGINS_DISABLE": "crash*"}
        self.assertEqual(candidates(**site)["golden"]["reason_code"], "KNOWN_BAD")
        self.assertEqual(candidates(**site)["crash_create"]["reason_code"], "DISABLED")
        others = candidates(RLK_BACKEND="cpu")
        self.assertEqual((others["golden"]["verdict"], others["golden"]["reason_code"]), ("filtered", "NOT_FIRST"))
        self.assertIn("RLK_BACKEND asks for cpu", others["golden"]["reason"])
        crashed = others["crash_create"]
        self.assertEqual((crashed["verdict"], crashed["reason_code"]), ("failed", "CRASHED"))
        self.assertIn("the plugin is rejected: ", crashed["reason"])
        # A pinned call is about its own device.
        self.assertEqual(set(candidates("--backend", "cpu")), {"cpu"})

    def test_explain_tells_of_a_unit_on_another_device_that_failed_its_test(self):
        self.add_plugin("liar_bf16")
        found = {one["plugin"]: one for one in self.json("explain", "logp", "--dtype", "bf16")["candidates"]}
        self.assertEqual((found["cpu"]["verdict"], found["liar_bf16"]["reason_code"]), ("taken", "VERIFICATION_FAILED"))

    def test_a_folder_whose_name_is_not_utf8_serves_and_is_shown_escaped(self):
        folder = os.fsdecode(os.fsencode(self.folder) + b"/\xe9t\xe9")
        os.mkdir(folder, 0o755)
        shutil.copy(self.add_plugin("golden"), folder)
        path = {"RLK_PLUGIN_PATH": folder}
        for _ in range(2):  # probed, then remembered
            [golden] = [one for one in self.json("list", **path)["plugins"] if one["id"] == "golden"]
            self.assertEqual(golden["state"], "registered", golden["reason"])
            self.assertIn(r"/\xe9t\xe9/librlk_plugin_golden.so", golden["path"])
        self.assertEqual(self.json("explain", "add", RLK_BACKEND="golden", **path)["chosen"]["plugin"], "golden")

    def test_bench_warns_where_the_clock_disagrees_with_dispatch(self):
        self.add_plugin("golden")  # serial and scalar: slower than the CPU backend at any size that matters
        words = ("bench", "logp", "--shape", "N=64,V=8192", "--seconds", "0.2")
        document = self.json(*words)
        self.assertEqual({row["impl"] for row in document["rows"]}, {"cpu/simd", "golden/serial"})
        [warning] = document["warnings"]
        self.assertIn("dispatch sends the call to golden/serial", warning)
        self.assertIn("cpu/simd is faster here", warning)
        self.assertIn("RLK_OP_LOGP=cpu", warning)
        self.assertIn("warning: dispatch sends", " ".join(self.output(*words).split()))
        # Once it is obeyed there is nothing to say, nor where the CPU is all there is.
        self.assertEqual(self.json(*words, RLK_OP_LOGP="cpu")["warnings"], [])
        self.assertEqual(self.json(*words, RLK_PLUGINS_DISABLE="golden")["warnings"], [])

    def test_times_that_bench_remembers_are_those_of_later_processes(self):
        self.add_plugin("golden")
        words = ("logp", "--shape", "N=64,V=512")

        def timed(*shape):
            return {c["plugin"]: c["measured_us"] for c in self.json("explain", *(shape or words))["candidates"]}
        self.assertEqual(set(timed().values()), {0})
        document = self.json("bench", *words, "--seconds", "0.05", "--remember")
        self.assertEqual(document["remembered"], 2)
        medians = {row["impl"].split("/")[0]: row["median_us"] for row in document["rows"] if "staged" not in row}
        self.assertEqual({name: round(us, 6) for name, us in timed().items()},
                         {name: round(us, 6) for name, us in medians.items()})
        self.assertTrue(all(us > 0 for us in timed("logp", "--shape", "N=100,V=512").values()))
        self.assertEqual(set(timed("logp", "--shape", "N=200,V=512").values()), {0})
        self.assertEqual(set(timed("logp", "--shape", "N=64,V=512", "--dtype", "bf16").values()), {0})
        self.assertEqual(len([e for e in self.json("cache", "ls")["entries"] if e["name"].startswith("costs-")]), 2)
        self.assertIn("2 times are remembered", self.output("bench", *words, "--seconds", "0.02", "--remember"))

    def test_what_the_cpu_would_serve_for_a_device_names_its_cost(self):
        self.add_plugin("golden")
        words = ("whiten", "--shape", "B=2,L=300")  # golden has none
        [staged] = self.json("explain", *words)["staged_elsewhere"]
        self.assertEqual((staged["backend"], staged["plugin"]), ("golden", "cpu"))
        cost = staged["staged_cost"]
        self.assertGreaterEqual(cost["to_host_bytes"], 2 * 300 * 4)
        self.assertEqual(cost["to_device_bytes"], 2 * 300 * 4)
        self.assertGreater(cost["estimated_copy_us"], 0)
        text = " ".join(self.output("explain", *words).split())
        self.assertIn("with tensors on golden the call would be staged on the CPU by cpu/", text)
        self.assertIn("an estimate", text)
        rows = self.json("bench", *words, "--seconds", "0.02")["rows"]
        [row] = [row for row in rows if "staged" in row]
        self.assertTrue(row["case"].endswith("on golden"), row)
        self.assertEqual(row["staged"]["to_device_bytes"], cost["to_device_bytes"])
        self.assertGreater(row["median_us"], 0)

    def test_a_filtered_plugin_is_no_fault(self):
        self.add_plugin("golden")
        plugins = {p["id"]: p for p in self.json("list", RLK_PLUGINS_DISABLE="gold*")["plugins"]}
        self.assertEqual(plugins["golden"]["reason_code"], "DISABLED")


class Broken(command.Case):
    def test_a_crash_is_an_answer(self):
        for fault in ("crash_constructor", "crash_entry", "crash_create", "crash_probe"):
            with self.subTest(fault=fault):
                path = self.add_plugin(fault)
                plugins = {p["id"]: p for p in self.json("list", code=1)["plugins"]}
                self.assertEqual(plugins["cpu"]["state"], "registered")
                self.assertEqual((plugins[fault]["state"], plugins[fault]["reason_code"]), ("rejected", "CRASHED"))
                self.assertIn("SIG", plugins[fault]["reason"])
                text = self.output("inspect", fault, code=1)
                self.assertIn("CRASHED", text)
                self.assertEqual(self.json("conformance", path, code=1)["plugin"]["reason_code"], "CRASHED")
                os.remove(path)

    def test_a_wrong_result_is_named_by_its_unit(self):
        path = self.add_plugin("liar_softcap")
        [liar] = [p for p in self.json("list", code=1)["plugins"] if p["id"] == "liar_softcap"]
        self.assertEqual(liar["state"], "partial")
        text = self.output("conformance", path, "--op", "logp", code=1)
        self.assertIn("softcap", text)
        self.assertIn("WRONG_RESULT", text)
        failed = [u for u in self.json("scope", "liar_softcap", code=1)["units"] if u["verdict"] == "failed"]
        self.assertTrue(failed)
        self.assertTrue(all("softcap" in unit["feature"] for unit in failed), failed)

    def test_a_hang_is_ended_remembered_and_told(self):
        self.add_plugin("hang_create")
        self.json("list", RLK_PLUGINS_DISABLE="*")  # the CPU is verified now
        hurry = {"RLK_PROBE_TIMEOUT": "4"}

        def hang(*words, **variables):
            begin = time.monotonic()
            document = self.json(*words, code=1, **hurry, **variables)
            seconds = time.monotonic() - begin
            [found] = [p for p in document["plugins"] if p["id"] == "hang_create"]
            self.assertEqual((found["state"], found["reason_code"]), ("deferred", "TIMED_OUT"))
            return found, seconds

        found, first = hang("list")
        self.assertGreater(first, 3.5)
        found, second = hang("list")
        self.assertLess(second, 3)
        self.assertIn("probe --fresh hang_create", found["hint"])
        checks = self.json("doctor", code=1, **hurry)["checks"]
        self.assertIn(("plugin hang_create", "problem"), [(c["subject"], c["status"]) for c in checks])
        command.write_npy(self.path("a.npy"), "<f4", (1,), [1])
        done = self.run_command("run", "add", "--input", "a=a.npy", "--input", "b=a.npy", **hurry)
        self.assertIn("plugin hang_create is not used: TIMED_OUT", done.stderr)
        # The policy file may say that nothing is remembered; a variable is stronger.
        with open(self.path("policy.toml"), "w") as file:
            file.write("probe_retry = 0\n")
        policy = {"RLK_CONFIG": self.path("policy.toml")}
        hang("probe", "--fresh", "hang_create", **policy)
        self.assertGreater(hang("list", **policy)[1], 3.5)
        hang("list", RLK_PROBE_RETRY="100", **policy)
        self.assertLess(hang("list", **policy)[1], 3)

    def test_a_plugin_that_breaks_the_process_it_is_loaded_into_is_named(self):
        shutil.copy2(os.environ["RLK_TEST_FAULT_PLUGIN"], self.plugins)
        done = self.run_command("list", code=1, RLK_FAULT="raw_create:crash", RLK_FAULT_IN="host")
        self.assertIn("plugin fault passed its probe and broke the process it was then loaded into: killed by SIGSEGV",
                      done.stderr)
        self.assertIn("RLK_PLUGINS_DISABLE=fault", done.stderr)

    def test_list_present_leaves_out_what_has_no_hardware_here(self):
        self.add_plugin("missing_library")
        self.add_plugin("golden")
        every = {plugin["id"]: plugin["state"] for plugin in self.json("list")["plugins"]}
        self.assertEqual(every["missing_library"], "absent")
        present = {plugin["id"] for plugin in self.json("list", "--present")["plugins"]}
        self.assertEqual(present, {id for id, state in every.items() if state != "absent"})

    def test_absent_hardware_is_a_state_of_its_own_and_explained(self):
        self.add_plugin("missing_library")
        [plugin] = [p for p in self.json("list")["plugins"] if p["id"] == "missing_library"]
        self.assertEqual((plugin["state"], plugin["broken"]), ("absent", False))
        text = self.output("list")
        self.assertIn("absent: nothing is broken: this machine has no such hardware or runtime", text)
        self.assertNotIn("rejected", text)
        self.assertIn("absent", self.output("list", "--help"))

    def test_lint_names_what_is_wrong_with_a_file(self):
        path = self.add_plugin("missing_library")
        [finding] = [f for f in self.json("lint", path)["findings"] if f["code"] == "RUNTIME_LIBRARY_MISSING"]
        self.assertIn("libacme_blas.so.3", finding["text"])
        self.assertIn("libacme_runtime.so.3", finding["text"])
        path = self.add_plugin("no_symbol")
        codes = [f["code"] for f in self.json("lint", path, code=1)["findings"]]
        self.assertIn("ENTRY_SYMBOL_MISSING", codes)
        with open(self.path("librlk_plugin_text.so"), "w") as file:
            file.write("hello")
        self.assertIn("NOT_ELF", self.output("lint", self.path("librlk_plugin_text.so"), code=1))

    def test_all_of_them_at_once(self):
        folder = os.path.join(command.PLUGINS, "all")
        if not os.path.isdir(folder):
            self.skipTest("the test plugins are not built")
        plugins = self.json("list", code=1, RLK_PLUGIN_PATH=folder, RLK_PROBE_TIMEOUT="2")["plugins"]
        states = {plugin["id"]: plugin["state"] for plugin in plugins}
        self.assertEqual(states["cpu"], "registered")
        self.assertGreater(len(states), 10)
        self.output("doctor", code=1, RLK_PLUGIN_PATH=folder, RLK_PROBE_TIMEOUT="2")


class LaterFaults(command.Case):
    """A plugin that passes its probe and fails in the process that uses it."""
    def setUp(self):
        super().setUp()
        fault = os.environ.get("RLK_TEST_FAULT_PLUGIN", "")
        if not os.path.exists(fault):
            self.skipTest("the fault plugin is not built")
        shutil.copy(fault, self.plugins)
        command.write_npy(self.path("a.npy"), "<f4", (3,), [1, 2, 3])

    def add(self, code=0, **variables):
        # The verdict is remembered: the fault is met by the process that computes.
        return self.run_command("run", "add", "--input", "a=a.npy", "--input", "b=a.npy", "--output", "out=out.npy",
                                code=code, **variables)

    def fault(self, code=0):
        return {p["id"]: p for p in self.json("list", code=code)["plugins"]}["fault"]

    def test_a_crash_is_named_at_the_next_start_and_the_cpu_computes(self):
        self.assertEqual(self.fault()["state"], "registered")
        for fault, state in (("enqueue:crash", "partial"), ("create:crash", "quarantined"),
                             ("open:crash", "quarantined")):
            with self.subTest(fault=fault):
                self.assertIn("fault/", self.add().stdout)
                self.add(code=-11, RLK_FAULT_UNDECLARED=fault)
                plugin = self.fault(code=1)
                self.assertEqual((plugin["state"], plugin["reason_code"]), (state, "QUARANTINED"))
                self.assertIn("PROCESS_ENDED", plugin["reason"])
                self.assertIn("cpu/", self.add(RLK_FAULT_UNDECLARED=fault).stdout)
                [entry] = self.json("quarantine", "ls")["entries"]
                self.assertEqual(entry["plugin"], "fault")
                self.assertEqual(entry["op"], "add" if state == "partial" else "")
                self.assertIn("ended", self.output("quarantine", "ls"))
                self.output("cache", "clear")
                self.assertEqual(self.fault(code=1)["state"], state)
                self.assertEqual(self.json("quarantine", "clear", "fault")["cleared"], 1)
                self.assertEqual(self.fault()["state"], "registered")

    def test_a_call_that_hangs_is_named_while_it_hangs_and_left_out_by_the_next_start(self):
        self.assertEqual(self.fault()["state"], "registered")
        environment = dict(os.environ, RLK_CACHE_DIR=self.cache, RLK_PLUGIN_PATH=self.plugins, RLK_CALL_TIMEOUT="1", RLK_WATCH="off",
                           RLK_FAULT_UNDECLARED="raw_enqueue:stall")
        hanging = subprocess.Popen([command.COMMAND, "run", "add", "--input", "a=a.npy", "--input", "b=a.npy",
                                    "--output", "out=out.npy"], env=environment, cwd=self.folder,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            told = hanging.stderr.readline().decode()
        finally:
            hanging.kill()
            hanging.communicate()
        self.assertRegex(told, "fault: add/simple for dtype f32 is switched off .TIMEOUT.: enqueue on acme:0 by plugin fault has not "
                               "returned for .* thread [0-9]+ of process [0-9]+ is still inside it")
        plugin = self.fault(code=1)
        self.assertEqual((plugin["state"], plugin["reason_code"]), ("partial", "QUARANTINED"))
        self.assertIn("has not returned", plugin["reason"])
        self.assertIn("cpu/", self.add(RLK_FAULT_UNDECLARED="raw_enqueue:stall").stdout)
        [entry] = self.json("quarantine", "ls")["entries"]
        self.assertEqual(entry["times"], 1, "the breadcrumb of the process that was killed tells of the same failure")
        self.output("quarantine", "clear")

    @unittest.skipIf(os.geteuid() != 0, "needs a folder of root's that another user reads")
    def test_what_is_quarantined_in_a_folder_of_roots_stays_and_the_command_says_so(self):
        self.assertEqual(self.fault()["state"], "registered")
        self.add(RLK_FAULT_UNDECLARED="raw_enqueue:throw_int")
        folder = self.path("of-root")
        os.mkdir(folder, 0o755)
        for name in os.listdir(self.cache):
            if name.startswith("quarantine-"):
                shutil.copy(os.path.join(self.cache, name), folder)
                os.chmod(os.path.join(folder, name), 0o644)
        [name] = os.listdir(folder)
        own = self.path("own")
        os.mkdir(own)
        os.chown(own, 64242, 64242)
        os.chmod(self.folder, 0o755)

        def clear(*words):
            environment = {"PATH": os.environ["PATH"], "RLK_CACHE_DIR": folder, "XDG_CACHE_HOME": own}
            try:
                done = subprocess.run([command.COMMAND, "quarantine", "clear", *words], env=environment, cwd="/",
                                      user=64242, group=64242, extra_groups=[], capture_output=True, text=True)
            except PermissionError:
                self.skipTest(f"another user may not run {command.COMMAND}")
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn(os.path.join(folder, name) + " stays in force", done.stderr)
            return done.stdout

        self.assertIn("0 entries are used again", clear())
        self.assertEqual(json.loads(clear("--json"))["staying"], [os.path.join(folder, name)])
        self.output("quarantine", "clear")

    def test_a_registration_that_took_too_long_is_tried_again_by_the_next_list(self):
        self.assertEqual(self.fault()["state"], "registered")
        release = self.path("release")
        held = {"RLK_FAULT_UNDECLARED": "create:hold", "RLK_FAULT_RELEASE_FILE": release, "RLK_PROBE_TIMEOUT": "2"}
        [plugin] = [p for p in self.json("list", code=1, **held)["plugins"] if p["id"] == "fault"]
        self.assertEqual(plugin["reason_code"], "TIMED_OUT", plugin["reason"])
        self.output("quarantine", "clear")
        open(release, "w").close()
        [plugin] = [p for p in self.json("list", **held)["plugins"] if p["id"] == "fault"]
        self.assertEqual(plugin["state"], "registered", plugin["reason"])

    def test_outputs_go_where_the_caller_stood(self):
        self.assertEqual(self.fault()["state"], "registered")
        self.assertIn("fault/", self.add(RLK_FAULT_UNDECLARED="create:chdir").stdout)
        self.assertTrue(os.path.exists(self.path("out.npy")))

    def test_a_failure_is_remembered(self):
        self.assertEqual(self.fault()["state"], "registered")
        failed = self.add(RLK_FAULT_UNDECLARED="raw_enqueue:throw_int").stdout
        self.assertIn("cpu/", failed)
        self.assertNotIn("fault/", failed)
        self.assertIn("EXCEPTION", self.fault(code=1)["reason"])
        self.output("quarantine", "clear")
        self.assertIn("nothing is quarantined", self.output("quarantine", "ls"))
        self.assertIn("nothing of 'fault' is quarantined", self.output("quarantine", "clear", "fault"))
        self.assertIn("no plugin is called so, did you mean 'fault'?", self.usage_error("quarantine", "clear", "fualt"))


class OddPlaces(command.Case):
    def test_a_cache_is_cleared_under_every_name_of_its_folder(self):
        folder, link = self.path("cache"), self.path("link")
        os.mkdir(folder, 0o700)
        os.symlink(self.folder, link)
        for named in (folder, folder + "/", self.path("./cache"), os.path.join(link, "cache")):
            with self.subTest(named=named):
                self.assertEqual(self.json("cache", "clear", RLK_CACHE_DIR=named)["folder"], os.path.realpath(folder))
        self.assertIn("is passed over", self.run_command("cache", "clear", code=1, RLK_CACHE_DIR="/dev/null").stderr)

    def test_documents_are_json_whatever_bytes_a_folder_is_named_by(self):
        folder = self.path("caf\udce9")  # Latin-1
        for words in (("cache", "ls"), ("cache", "clear"), ("quarantine", "ls"), ("new", "some", "--folder", folder)):
            with self.subTest(words=words):
                self.assertIn("caf\ufffd", self.json(*words, RLK_CACHE_DIR=self.path("of-caf\udce9"))["folder"])
        seed = self.json("cache", "export", self.path("seed\udce9"))["seed"]
        self.assertTrue(seed.endswith("seed\ufffd"), seed)

    def test_an_answer_is_not_written_into_a_file_that_got_the_number_of_standard_output(self):
        log = self.path("log")
        environment = dict(os.environ, RLK_CACHE_DIR=self.cache, RLK_PLUGIN_PATH=self.plugins, RLK_LOG="debug",
                           RLK_LOG_FILE=log)
        done = subprocess.run(["/bin/sh", "-c", 'exec "$0" explain add >&-', command.COMMAND], env=environment,
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("standard output was not written whole", done.stderr)
        with open(log) as file:
            self.assertNotIn("chosen:", file.read())


if __name__ == "__main__":
    command.main()
