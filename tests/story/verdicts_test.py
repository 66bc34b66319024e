"""One folder with everything that can be wrong with a plugin: rlk survives it, says of each what is wrong, and uses
what is right. `tests/plugins/faulty.cpp` says what each plugin does."""
import os
import time

import command

# id: (state, reason code, a word of the reason)
VERDICTS = {
    "cpu": ("registered", "", ""),
    "golden": ("registered", "", ""),
    "operators_only": ("registered", "", ""),
    "newer_minor": ("registered", "", ""),
    "writes_stdout": ("registered", "", ""),
    "liar_softcap": ("partial", "SOME_FAILED", "softcap"),
    "liar_bf16": ("partial", "SOME_FAILED", "bf16"),
    "declines": ("rejected", "NOTHING_VERIFIED", "NOTHING, this plugin declines every call"),
    "old_abi": ("rejected", "ABI_MISMATCH", "0.9"),
    "newer_abi": ("rejected", "ABI_MISMATCH", "draft 2"),
    "newer_major": ("rejected", "ENTRY_SYMBOL_MISSING", "rlk_plugin_entry_v1"),
    "needs_newer_host": ("rejected", "ABI_MISMATCH", "1.1"),
    "missing_slot": ("rejected", "SLOT_MISSING", "allocate"),
    "no_symbol": ("rejected", "ENTRY_SYMBOL_MISSING", "rlk_plugin_entry_v1"),
    "missing_library": ("absent", "RUNTIME_LIBRARY_MISSING", "libacme_blas.so.3"),
    "crash_constructor": ("rejected", "CRASHED", "SIGSEGV"),
    "crash_entry": ("rejected", "CRASHED", "SIGSEGV"),
    "crash_create": ("rejected", "CRASHED", "SIGSEGV"),
    "crash_probe": ("rejected", "CRASHED", "SIGSEGV"),
    "crash_query": ("rejected", "CRASHED", "SIGSEGV"),
    "crash_plan": ("rejected", "CRASHED", "SIGSEGV"),
    "crash_enqueue": ("rejected", "CRASHED", "SIGSEGV"),
    "throws_raw": ("rejected", "CREATE_FAILED", "PLUGIN_EXCEPTION"),
    "throws": ("rejected", "CREATE_FAILED", "the plugin's probe throws"),
    "exit": ("rejected", "EXITED", ""),
    "hang_create": ("deferred", "TIMED_OUT", "create"),
    "hang_probe": ("deferred", "TIMED_OUT", "probe"),
    "hang_enqueue": ("deferred", "TIMED_OUT", ""),
}
LIMIT_SECONDS = 200


class Verdicts(command.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.answer = None

    def setUp(self):
        super().setUp()
        self.plugins = os.path.join(command.PLUGINS, "all")
        if Verdicts.answer is None:
            start = time.monotonic()
            # First with the usual deadlines and without those that run into them, then all together with short ones:
            # what was measured is remembered, and so a busy machine fails no good plugin. 1: plugins are broken.
            self.json("list", code=1, RLK_PLUGINS_DISABLE="hang_*")
            Verdicts.answer = self.json("list", code=1, RLK_PROBE_TIMEOUT="4")
            Verdicts.seconds = time.monotonic() - start
        self.by_id = {plugin["id"]: plugin for plugin in Verdicts.answer["plugins"]}

    def test_every_plugin_has_its_verdict(self):
        self.assertEqual(set(self.by_id), set(VERDICTS))
        for name, (state, code, word) in VERDICTS.items():
            with self.subTest(plugin=name):
                plugin = self.by_id[name]
                self.assertEqual((plugin["state"], plugin["reason_code"]), (state, code), plugin["reason"])
                self.assertIn(word, plugin["reason"])
                self.assertEqual(bool(plugin["hint"]), bool(code), "a reason comes with what to do, and only then")

    def test_the_document_has_its_schema(self):
        self.assertEqual(Verdicts.answer["schema"], 1)
        self.assertEqual(set(Verdicts.answer["host"]), {"version", "abi"})
        self.assertEqual(Verdicts.answer["host"]["abi"], "1.0")
        kinds = {"id": str, "backend": str, "version": str, "abi": str, "state": str, "reason_code": str, "reason": str,
                 "hint": str, "path": str, "source": str, "devices": list, "evidence": list, "ops": dict}
        for plugin in Verdicts.answer["plugins"]:
            with self.subTest(plugin=plugin["id"]):
                for key, kind in kinds.items():
                    self.assertIsInstance(plugin[key], kind, key)
                for device in plugin["devices"]:
                    self.assertLessEqual({"index", "name", "arch", "memory_bytes"}, set(device))
                for item in plugin["evidence"]:
                    self.assertLessEqual({"kind", "value", "supports"}, set(item))
                self.assertEqual(set(plugin["ops"]), {"verified", "partial", "unsupported", "quarantined", "waiting"})
                if plugin["id"] != "cpu":
                    self.assertEqual(plugin["source"], "RLK_PLUGIN_PATH")
                    self.assertEqual(plugin["path"],
                                     os.path.realpath(os.path.join(self.plugins, f"librlk_plugin_{plugin['id']}.so")))

    def test_it_took_bounded_time(self):
        self.assertLess(Verdicts.seconds, LIMIT_SECONDS)

    def test_all_missing_libraries_are_in_one_message(self):
        self.assertIn("libacme_runtime.so.3", self.by_id["missing_library"]["reason"])

    def test_operators_are_counted(self):
        self.assertEqual(self.by_id["golden"]["ops"], {"verified": 4, "partial": 0, "unsupported": 0, "quarantined": 0, "waiting": 0})
        self.assertEqual(self.by_id["liar_bf16"]["ops"],
                         {"verified": 1, "partial": 1, "unsupported": 0, "quarantined": 0, "waiting": 0})

    # A command about one plugin does not wait for those that hang: their time-outs are remembered only shortly.
    def ask(self, *words, **variables):
        return self.json(*words, RLK_PLUGINS_DISABLE="hang_*", **variables)

    def test_a_lie_is_known_by_its_units(self):
        for liar, wrong in (("liar_softcap", lambda unit: "softcap" in unit["feature"]),
                            ("liar_bf16", lambda unit: unit["dtype"] == "bf16")):
            with self.subTest(liar=liar):
                units = [u for u in self.ask("scope", liar, code=1)["units"]
                         if u["op"] == "logp" and not u["reason"].endswith("is not supported")]
                self.assertTrue(units)
                for unit in units:
                    self.assertEqual(unit["verdict"], "failed" if wrong(unit) else "verified", unit)

    def test_a_call_of_a_failed_unit_goes_elsewhere_and_says_why(self):
        explained = self.ask("explain", "logp", "--param", "softcap=3", RLK_BACKEND="liar_softcap")
        self.assertEqual(explained["chosen"]["plugin"], "cpu")
        [liar] = [c for c in explained["candidates"] if c["plugin"] == "liar_softcap"]
        self.assertEqual((liar["verdict"], liar["reason_code"]), ("declined", "VERIFICATION_FAILED"))
        self.assertIn("softcap", liar["reason"])
        self.assertIn("WRONG_RESULT", liar["reason"])

    def test_its_other_calls_stay(self):
        explained = self.ask("explain", "logp", RLK_BACKEND="liar_softcap")
        self.assertEqual(explained["chosen"]["plugin"], "liar_softcap")

    def test_operators_for_another_plugins_device_are_preferred_there(self):
        self.assertEqual(self.ask("explain", "logp", RLK_BACKEND="golden")["chosen"]["plugin"], "operators_only")
        self.assertEqual(self.ask("explain", "attention", RLK_BACKEND="golden")["chosen"]["plugin"], "golden")

    def test_a_rejected_plugin_that_is_asked_for_answers_with_its_reason(self):
        command.write_npy(self.path("a.npy"), "<f4", (3,), [1, 2, 3])
        done = self.run_command("run", "add", "--input", "a=a.npy", "--input", "b=a.npy", "--output", "out=out.npy",
                                "--backend", "crash_create", code=1,
                                RLK_PLUGINS_DISABLE="hang_*")
        self.assertIn("CRASHED", done.stderr)

    def test_the_next_time_everything_but_time_outs_is_remembered(self):
        start = time.monotonic()
        again = {p["id"]: p for p in self.json("list", code=1, RLK_PLUGINS_DISABLE="hang_*")["plugins"]}
        self.assertLess(time.monotonic() - start, 5)
        for name, (state, code, _) in VERDICTS.items():
            if not name.startswith("hang_"):
                self.assertEqual((again[name]["state"], again[name]["reason_code"]), (state, code), name)


if __name__ == "__main__":
    command.main()
