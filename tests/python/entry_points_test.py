"""Vendors' wheels are found by their entry point, and nothing of them runs."""
import os
import subprocess
import sys

import pytest
from rlk import _entry_points


def wheel(folder, name, module, files=()):
    """What pip leaves of a vendor's wheel."""
    package = folder.joinpath(*module.split("."))
    package.mkdir(parents=True, exist_ok=True)
    for parent in [package, *package.parents][:len(module.split("."))]:
        (parent / "__init__.py").write_text("raise SystemExit('vendor code ran')\n")
    for file in files:
        (package / file).write_bytes(b"not ELF")
    info = folder / f"rlk_plugin_{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: rlk-plugin-{name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[rlk.plugins]\n{name} = {module}\n")
    return package


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_a_plugin_is_found_without_running_its_package(site):
    package = wheel(site, "acme", "rlk_plugin_acme", ["librlk_plugin_acme.so", "other.so"])
    nested = wheel(site, "beta", "vendors.beta", ["librlk_plugin_beta.so"])
    assert _entry_points.found() == [("acme", str(package / "librlk_plugin_acme.so"), ""),
                                     ("beta", str(nested / "librlk_plugin_beta.so"), "")]
    assert "rlk_plugin_acme" not in sys.modules and "vendors" not in sys.modules


def test_wheels_come_behind_what_the_variable_says_and_once(site):
    file = str(wheel(site, "acme", "rlk_plugin_acme", ["librlk_plugin_acme.so"]) / "librlk_plugin_acme.so")
    assert _entry_points.added_path("") == file
    assert _entry_points.added_path("/opt/a:/opt/b") == f"/opt/a:/opt/b:{file}"
    assert _entry_points.added_path(f"{file}:/opt/a") == f"{file}:/opt/a"


def test_a_wheel_without_a_plugin_is_told_and_passed_over(site, monkeypatch, capsys):
    wheel(site, "acme", "rlk_plugin_acme")
    (site / "rlk_plugin_gone-1.0.dist-info").mkdir()
    (site / "rlk_plugin_gone-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: rlk-plugin-gone\nVersion: 1\n")
    (site / "rlk_plugin_gone-1.0.dist-info" / "entry_points.txt").write_text("[rlk.plugins]\ngone = no.such.package\n")
    monkeypatch.delenv(_entry_points.VARIABLE, raising=False)
    _entry_points.add_to_environment()
    assert _entry_points.VARIABLE not in os.environ
    told = capsys.readouterr().err
    assert "acme = rlk_plugin_acme: no librlk_plugin_*.so in" in told
    assert "gone = no.such.package: there is no such package" in told


def test_the_runtime_and_the_command_see_the_plugin_of_a_wheel(site):
    wheel(site, "acme", "rlk_plugin_acme", ["librlk_plugin_acme.so"])
    environment = dict(os.environ, PYTHONPATH=f"{site}:{os.environ['PYTHONPATH']}")
    environment.pop("RLK_PLUGIN_PATH", None)
    program = "import rlk; print([(p['id'], p['state'], p['reason_code']) for p in rlk.list()['plugins']])"
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert "librlk_plugin_acme" in done.stdout or "acme" in done.stdout, done.stdout
    assert "rejected" in done.stdout
    program = "import sys, rlk._command; sys.argv = ['rlk-plugins', 'list']; rlk._command.main()"
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "acme" in done.stdout, done.stdout + done.stderr
    assert "Python entry point" in done.stdout and "RLK_ADD_PLUGIN_PATH" not in done.stdout, done.stdout
    doctor = "import rlk; print([c for c in rlk.doctor()['checks'] if c['subject'] == 'wheel acme'])"
    done = subprocess.run([sys.executable, "-c", doctor], env=environment, capture_output=True, text=True, check=True)
    assert "'status': 'ok'" in done.stdout
