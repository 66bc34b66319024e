"""bench/grpo_trl.py: three steps of a tiny model on the CPU, with all that it compares."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="torch is not installed here")
pytest.importorskip("trl", reason="trl is not installed here (pip install trl==1.16.0)")

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench/grpo_trl.py"


def test_the_step_agrees_and_nothing_is_staged_or_refused(tmp_path):
    report = tmp_path / "step.json"
    done = subprocess.run([sys.executable, BENCH, "--tiny", "--steps", "3", "--json", report], capture_output=True, text=True,
                          env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(report.read_text())
    assert document["failures"] == [] and len(document["runs"]["rlk"]["log"]) == 3
    assert {name: set(calls) for name, calls in document["runs"]["rlk"]["calls"].items()} == {
        "_ChunkedLogProbFunction": {"rlk"}, "AttentionInterface._global_mapping[rlk]": {"rlk"}}
    assert len(document["runs"]["rlk"]["functions"]) == 5
    assert all(row["rlk_error"] <= 1 for row in document["runs"]["rlk"]["functions"])
