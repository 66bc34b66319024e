"""The notebook of the trainer's engineer runs from its first cell to its last, as Jupyter would run it, and what it shows as
tables has them."""
import ast
import html.parser
import json
import os
import pathlib

import numpy as np
import pytest
from rlk import _location

NOTEBOOK = pathlib.Path(__file__).resolve().parents[2] / "examples/python/first_steps.ipynb"


def run(source, names):
    """The value of the cell's last line, if that is an expression."""
    tree = ast.parse(source)
    last = ast.Expression(tree.body.pop().value) if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, str(NOTEBOOK), "exec"), names)
    return eval(compile(last, str(NOTEBOOK), "eval"), names) if last is not None else None


@pytest.fixture(scope="module")
def notebook():
    return json.loads(NOTEBOOK.read_text())


@pytest.fixture(scope="module")
def after(notebook):
    """(the notebook's names, [what each code cell shows]) once all of it has run."""
    names = {"__name__": "__main__"}
    before = os.environ["PATH"]
    os.environ["PATH"] = os.pathsep.join([os.path.dirname(_location.command()), before])
    try:
        shown = [run("".join(cell["source"]), names) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    finally:
        os.environ["PATH"] = before
    return names, shown


def test_it_is_a_notebook_without_the_outputs_of_somebodys_machine(notebook):
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    for cell in notebook["cells"]:
        assert cell["cell_type"] == "markdown" or (cell["outputs"], cell["execution_count"]) == ([], None)


def test_its_numbers_are_right(after):
    names, _ = after
    assert np.abs(names["logp"] - names["expected"]).max() < 2e-5
    assert names["grad_logits"][names["row"], names["column"]] == pytest.approx(names["slope"], rel=1e-4)
    assert {unit["verdict"] for unit in names["scope"]["units"] if unit["op"] == "logp"} == {"verified"}

    # GRPO by its formula, in fp64.
    z = names["policy"].astype("f8")
    z = z - np.log(np.exp(z).sum(-1, keepdims=True))
    logp = np.take_along_axis(z, names["actions"][..., None], -1)[..., 0]
    groups = names["rewards"].astype("f8").reshape(names["prompts"], -1)
    advantages = ((groups - groups.mean(1, keepdims=True)) / groups.std(1, keepdims=True)).reshape(-1, 1)
    ratio = np.exp(logp - names["old_logp"])
    terms = np.minimum(ratio * advantages, np.clip(ratio, 0.8, 1.2) * advantages)
    assert names["result"].loss[0] == pytest.approx(-terms[names["mask"] != 0].mean(), rel=1e-4)
    assert names["after"][0] < names["result"].loss[0]


def test_reports_are_tables_with_a_cell_for_each_column(after):
    _, shown = after
    reports = [value for value in shown if value is not None]
    assert len(reports) == 4  # list, doctor, explain, counters
    for report in reports:
        rows = []

        class Rows(html.parser.HTMLParser):
            def handle_starttag(self, tag, attrs):
                if tag == "tr":
                    rows.append(0)
                rows[-1:] = [rows[-1] + 1] if tag in ("th", "td") else rows[-1:]

        Rows().feed(report._repr_html_())
        assert len(rows) >= 2 and len(set(rows)) == 1 and rows[0] >= 4, report
