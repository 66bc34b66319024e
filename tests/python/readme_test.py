"""The README's Python works as printed and computes what it says: run by the package of the build folder, with numpy alone.
tests/consumer/wheel_test.py runs it, and that of docs/python.md, in an environment that has the wheel and nothing else."""
import math
import pathlib
import re

import numpy as np

README = pathlib.Path(__file__).resolve().parents[2] / "README.md"


def test_the_program_prints_where_the_call_goes_and_its_logp_is_right(capsys):
    [program] = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)
    names = {}
    exec(compile(program, str(README), "exec"), names)

    assert "cpu" in capsys.readouterr().out
    logits = names["logits"].astype("f8") / 0.7
    for row, action, logp in zip(logits, (1, 2, 3, 4), names["logp"], strict=True):
        expected = row[action] - row.max() - math.log(np.exp(row - row.max()).sum())
        assert abs(logp - expected) < 2e-5
