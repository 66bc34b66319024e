"""Do warnings stop the build of a user of rlk? They must not; they stop a developer of rlk.

    warnings_test.py SOURCE BUILD    rlk's folder; a project configured without options that takes rlk in
"""
import json
import pathlib
import sys
import unittest

SOURCE, BUILD = (pathlib.Path(argument) for argument in sys.argv[1:3])


class Warnings(unittest.TestCase):
    def test_a_build_without_options_has_warnings_and_no_errors_of_them(self):
        commands = json.loads((BUILD / "compile_commands.json").read_text(encoding="utf-8"))
        ours = [entry["command"] for entry in commands if "/loader/" in entry["file"]]
        self.assertNotEqual(ours, [])
        self.assertEqual([command for command in ours if "-Wall" not in command], [])
        self.assertEqual([command for command in ours if "-Werror" in command], [])

    def test_the_presets_of_who_changes_rlk_are_strict_and_release_is_not(self):
        presets = json.loads((SOURCE / "CMakePresets.json").read_text(encoding="utf-8"))["configurePresets"]
        strict = {}
        for preset in presets:  # parents come first
            inherited = strict.get(preset.get("inherits", ""), False)
            strict[preset["name"]] = preset.get("cacheVariables", {}).get("RLK_WERROR", inherited) in (True, "ON")
        self.assertEqual({name for name, is_strict in strict.items() if is_strict}, {"strict", "clang", "asan", "tsan"})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
