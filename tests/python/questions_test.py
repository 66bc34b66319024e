"""list, explain, counters, doctor, reload: data, and a table for people."""
import json
import os
import subprocess
import sys
import typing

import numpy as np
import pytest
import rlk
from rlk import _devices, _runtime, documents, errors


@pytest.fixture
def batch():
    return np.zeros((2, 5), np.float32), np.array([0, 1])


def test_list_has_the_cpu_and_reads_as_a_table():
    report = rlk.list()
    cpu = next(p for p in report["plugins"] if p["id"] == "cpu")
    assert cpu["state"] == "registered"
    lines = str(report).splitlines()
    assert lines[0].startswith(f"rlk {rlk.version()}") and lines[1].split()[:4] == ["id", "backend", "version", "state"]
    assert lines[2].startswith("cpu")
    assert json.loads(json.dumps(report)) == report


def test_a_table_for_notebooks_escapes_what_plugins_say():
    report = rlk.Report({}, ["reason"], [["<script>alert(1)</script>"]], "a < b")
    text = report._repr_html_()
    assert "<script>" not in text and "&lt;script&gt;" in text and "a &lt; b" in text
    assert "<table>" in rlk.list()._repr_html_()


def test_explain_takes_what_the_operator_takes(batch):
    report = rlk.explain("logp", *batch, temperature=0.7, lse=True)
    assert report["op"] == "logp" and report["chosen"]["plugin"] == "cpu"
    assert rlk.explain(rlk.ops.logp, logits=batch[0], ids=batch[1])["chosen"] == report["chosen"]
    assert "taken" in str(report)
    with pytest.raises(rlk.InvalidArgument, match="temperature"):
        rlk.explain("logp", *batch, temperature=-1.0)
    with pytest.raises(TypeError):
        rlk.explain("logp", *batch, temprature=1.0)
    with pytest.raises(rlk.NotFound, match="logq.*did you mean .*logp"):
        rlk.explain("logq", *batch)


def test_counters_count_calls(batch):
    calls = lambda: next(op["calls"] for op in rlk.counters()["ops"] if op["name"] == "logp")
    before = calls()
    rlk.ops.logp(*batch)
    rlk.explain("logp", *batch)
    assert calls() == before + 1
    assert "logp" in str(rlk.counters())


def test_an_answer_has_the_form_that_editors_are_told(batch):
    def check(value, form, place):
        origin, parts = typing.get_origin(form), typing.get_args(form)
        if typing.is_typeddict(form):
            fields = typing.get_type_hints(form)
            assert form.__required_keys__ <= value.keys() <= fields.keys(), place
            for key in value:
                check(value[key], fields[key], f"{place}.{key}")
        elif origin is list:
            for item in value:
                check(item, parts[0], place + "[]")
        elif origin is typing.Literal:
            assert value in parts, place
        elif origin is typing.Union:
            is_none = value is None and type(None) in parts
            check(value, type(None) if is_none else next(p for p in parts if p is not type(None)), place)
        elif form is float:
            assert isinstance(value, (int, float)), place
        else:
            assert type(value) is form, place

    for answer, form in ((rlk.list(), documents.List), (rlk.explain("logp", *batch), documents.Explain),
                         (rlk.counters(), documents.Counters), (rlk.doctor(), documents.Doctor)):
        check(answer, form, form.__name__)
    with pytest.raises(AssertionError, match="List.host"):
        check({**rlk.list(), "host": {}}, documents.List, "List")
    assert typing.get_type_hints(rlk.list, {"documents": documents})["return"] is documents.List


def test_doctor_says_what_it_looked_at():
    report = rlk.doctor()
    subjects = [check["subject"] for check in report["checks"]]
    assert "rlk" in subjects and "plugin cpu" in subjects
    assert str(report).splitlines()[0].split() == ["status", "subject", "text", "hint"]


def test_doctor_that_cannot_run_says_what_was_seen(monkeypatch, tmp_path):
    program = tmp_path / "rlk-plugins"
    program.write_text("#!/bin/sh\necho 'no library' >&2\nexit 127\n")
    program.chmod(0o755)
    monkeypatch.setattr(rlk._location, "command", lambda: str(program))
    with pytest.raises(rlk.Internal, match="ended with 127 and: no library"):
        rlk.doctor()


def test_reload_takes_a_plugin_into_use_while_the_process_runs(tmp_path):
    fault = os.environ.get("RLK_TEST_FAULT_PLUGIN", "")
    if not os.path.exists(fault):
        pytest.skip("the fault plugin is not built")
    program = """
import os, sys, rlk
from rlk import _runtime
folder, fault = sys.argv[1:]
stream = _runtime.stream_of_thread()
assert rlk.reload()["changes"] == [] and _runtime.stream_of_thread() is stream
def put(tag):
    data = open(fault, "rb").read()
    at = data.index(b"RLK_FAULT_SLOT=") + 15
    open(folder + "/new", "wb").write(data[:at] + tag + data[at + len(tag):])
    os.rename(folder + "/new", folder + "/librlk_plugin_fault.so")
for tag, change in (b"tag:a", "added"), (b"tag:b", "replaced"), (b"load:crash", "refused"):
    put(tag)
    report = rlk.reload()
    [row] = report["changes"]
    assert (row["plugin"], row["change"]) == ("fault", change), report
    assert change in str(report)
    assert rlk.runtime().device("acme")["name"] == ("Fault 0 a" if change == "added" else "Fault 0 b")
assert _runtime.stream_of_thread() is not stream, "made anew, on what serves now"
"""
    environment = dict(os.environ, RLK_PLUGIN_PATH=str(tmp_path), RLK_LOG="error")
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path), fault], env=environment, capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stderr


def test_after_a_reload_it_is_asked_anew_who_serves_a_device(monkeypatch):
    asked = []
    monkeypatch.setattr(_devices, "_found", {})
    monkeypatch.setattr(errors, "check", lambda function, runtime, kind, number, address, out: asked.append((kind, number))
                        or setattr(out, "value", b"cuda" if len(asked) == 1 else b"maca"))
    device = (_devices.CUDA, 0)
    assert _devices.backend_of(device, 256) == "cuda"
    assert _devices.backend_of(device, 256) == "cuda", "kept until then"
    _runtime.note_reload()
    assert _devices.backend_of(device, 256) == "maca"
    assert asked == [device, device]


def test_a_reload_that_changes_something_tells_who_asked_to_be_told(monkeypatch):
    told = []
    monkeypatch.setattr(_runtime, "_at_reload", [lambda: told.append(1)])
    assert rlk.reload()["changes"] == [] and told == []
    _runtime.note_reload()
    assert told == [1]


def test_what_was_not_timed_is_not_told_as_0(batch):
    report = rlk.explain("logp", *batch)
    assert report["candidates"][0]["measured_us"] == 0
    assert str(report).splitlines()[2].endswith("-")


def test_nothing_is_not_required():
    for wanted in ("", ","):
        with pytest.raises(rlk.InvalidArgument, match="names no backend; expected some"):
            rlk.require(wanted)


def test_an_unknown_operator_is_answered_with_a_near_name_and_not_with_all():
    with pytest.raises(rlk.NotFound, match="there is no operator 'lgop'; did you mean logp"):
        rlk.explain("lgop")
    with pytest.raises(rlk.NotFound, match=r"'nothing_like_it'; rlk-plugins ops lists the \d+$"):
        rlk.explain("nothing_like_it")
