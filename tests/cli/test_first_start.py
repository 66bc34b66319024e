"""What a start says while it waits for plugins that no process has judged yet."""
import contextlib
import os
import pty
import subprocess

import command

NEWS = "rlk probes plugins that are new here"


class FirstStart(command.Case):
    # A plugin that hangs: the start waits for it as long as its limit is.
    HURRY = {"RLK_PROBE_TIMEOUT": "6"}

    def test_without_a_terminal_the_log_has_one_line(self):
        self.add_plugin("hang_create")
        with self.cache_of_the_cpu_alone() as cache:
            done = self.run_command("explain", "add", RLK_CACHE_DIR=cache, **self.HURRY)
            again = self.run_command("explain", "add", RLK_CACHE_DIR=cache, **self.HURRY)
        lines = [line for line in done.stderr.splitlines() if NEWS in line]
        self.assertEqual(len(lines), 1, done.stderr)
        self.assertIn("0 of 1 done", lines[0])
        self.assertIn("This start waits for them", lines[0])
        self.assertIn(cache, lines[0], "where verdicts are kept")
        self.assertNotIn(NEWS, again.stderr, "the verdict is remembered")
        self.assertNotIn(NEWS, done.stdout)

    def test_without_a_new_plugin_nothing_is_said(self):
        with self.cache_of_the_cpu_alone() as cache:
            self.assertEqual(self.run_command("explain", "add", RLK_CACHE_DIR=cache).stderr, "")

    def test_on_a_terminal_a_line_shows_the_progress_and_goes(self):
        self.add_plugin("hang_create")
        ours, theirs = pty.openpty()
        environment = {**os.environ, "RLK_CACHE_DIR": self.cache, "RLK_PLUGIN_PATH": self.plugins, **self.HURRY}
        with subprocess.Popen([command.COMMAND, "probe", "--fresh", "hang_create"], env=environment, stderr=theirs,
                              stdout=subprocess.DEVNULL) as running:
            text = self.read_all(ours, theirs)
        self.assertEqual(running.returncode, 1)
        self.assertIn("looking for plugins", text)
        with self.cache_of_the_cpu_alone() as cache:
            environment["RLK_CACHE_DIR"] = cache
            ours, theirs = pty.openpty()
            with subprocess.Popen([command.COMMAND, "explain", "add"], env=environment, stderr=theirs,
                                  stdout=subprocess.DEVNULL):
                text = self.read_all(ours, theirs)
        self.assertIn(NEWS, text)
        self.assertTrue(text.rsplit("\r\x1b[K", 1)[0].endswith(")"), text)  # the last thing shown, and it is wiped
        self.assertNotIn("[warning] " + NEWS, text)

    @staticmethod
    def read_all(ours, theirs):
        os.close(theirs)
        text = b""
        with contextlib.suppress(OSError):  # the other end is closed
            while piece := os.read(ours, 65536):
                text += piece
        os.close(ours)
        return text.decode()


if __name__ == "__main__":
    command.main()
