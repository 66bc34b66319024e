"""A device that torch knows from an extension alone (PrivateUse1), made here in C++, under a name of its own: its tensors are
served by a plugin that is dropped in, found by what it says of its memory. Each test is a process with its own plugins."""
import os
import pathlib
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed here")
SOURCE = pathlib.Path(__file__).parent / "private_device.cpp"

ACME = """
import sys, types
import torch
torch.ops.load_library(sys.argv[1])
torch.utils.rename_privateuse1_backend("acme")
torch._register_device_module("acme", types.ModuleType("torch.acme"))
import rlk

logits, ids = torch.randn(6, 40, generator=torch.Generator().manual_seed(3)), torch.arange(6)
there, ids_there = logits.to("acme"), ids.to("acme")
"""


@pytest.fixture(scope="module")
def extension(tmp_path_factory):
    root, library = pathlib.Path(torch.__file__).parent, tmp_path_factory.mktemp("acme") / "libacme_torch.so"
    done = subprocess.run(
        [os.environ["RLK_TEST_CXX"], "-std=c++20", "-O0", "-shared", "-fPIC", str(SOURCE), "-o", str(library),
         f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}", "-isystem", str(root / "include"),
         "-isystem", str(root / "include/torch/csrc/api/include"), "-L", str(root / "lib"), "-lc10", "-ltorch_cpu"],
        capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return library


@pytest.fixture(scope="module")
def run(extension, tmp_path_factory):
    cache = tmp_path_factory.mktemp("cache")

    def started(program, plugins=None, **more):
        golden = {"RLK_PLUGIN_PATH": os.environ["RLK_TEST_GOLDEN_FOLDER"], "RLK_REQUIRE": "golden:logp,logp_backward"}
        environment = dict(os.environ, RLK_CACHE_DIR=str(cache), RLK_LOG="error", **more,
                           **({"RLK_PLUGIN_PATH": plugins} if plugins else golden))
        done = subprocess.run([sys.executable, "-c", ACME + program, str(extension)], env=environment, capture_output=True,
                              text=True, timeout=240, check=False)
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout
    return started


def test_its_tensors_enter_and_the_plugin_serves_them_where_they_lie(run):
    run("""
found = rlk.ops.logp(there, ids_there)
assert found.device.type == "acme", found.device
torch.testing.assert_close(found.cpu(), rlk.ops.logp(logits, ids))
torch.testing.assert_close(rlk.ops.logp(there[1::2, :30], ids_there[1::2]).cpu(), rlk.ops.logp(logits[1::2, :30], ids[1::2]))
row, = [r for r in rlk.explain("logp", there, ids_there)["candidates"] if r["verdict"] == "taken"]
assert row["plugin"] == "golden" and not row["staged"], row
""")


@pytest.mark.parametrize("library", ["1", "0"])  # librlk_torch, and the kernels of Python
def test_gradients_stay_there(run, library):
    run("""
def gradient(x, ids):
    x = x.clone().requires_grad_()
    found = rlk.torch.logp(x, ids)
    return found.detach(), torch.autograd.grad(found, x, torch.ones_like(found))[0]

for ours, theirs in zip(gradient(there, ids_there), gradient(logits, ids)):
    assert ours.device.type == "acme", ours.device
    torch.testing.assert_close(ours.cpu(), theirs)
""", RLK_TORCH_LIBRARY=library)


def test_an_operator_that_the_plugin_lacks_is_computed_on_the_cpu_and_comes_back(run):
    run("""
found = rlk.ops.softmax(there)
assert found.device.type == "acme", found.device
torch.testing.assert_close(found.cpu(), logits.softmax(-1))
row, = [r for r in rlk.explain("softmax", there)["candidates"] if r["verdict"] == "taken"]
assert row["plugin"] == "cpu" and row["staged"], row
""", RLK_FALLBACK="allow")


@pytest.mark.parametrize("call", ["rlk.ops.logp", "rlk.torch.logp"])
def test_without_the_plugin_they_are_refused_with_what_is_missing(run, call, tmp_path):
    told = run(f"""
try:
    {call}(there, ids_there)
except rlk.Unsupported as e:
    print(e)
""", plugins=str(tmp_path))
    assert "no registered backend serves" in told, told
