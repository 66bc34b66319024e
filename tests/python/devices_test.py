"""Memory of a device whose vendor rlk has never heard of: a plugin that is dropped in says what its tensors look like, and
that is all there is to it. Each test is a process with its own plugins."""
import os
import subprocess
import sys

import pytest

FOREIGN = '''
import ctypes

import numpy as np
import rlk
from rlk._tensors import _Managed


class Foreign:
    """An array on a device of the golden plugin's, whose memory is the host's; only DLPack tells that it is one."""
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    float32, float64, device = np.float32, np.float64, None

    def __init__(self, array, where=(12, 0)):
        self.array, self.where = array, where

    def __dlpack_device__(self):
        return self.where

    def __dlpack__(self, max_version=None):
        x = self.array
        self.sizes = (ctypes.c_int64 * x.ndim)(*x.shape)
        code = {"f": 2, "i": 0}[x.dtype.kind]
        self.managed = _Managed(x.ctypes.data, *self.where, x.ndim, code, x.dtype.itemsize * 8, 1, self.sizes, None, 0)
        return self.new(ctypes.addressof(self.managed), b"dltensor", None)

    def __array_namespace__(self):
        return self

    def empty(self, shape, dtype, device):
        return Foreign(np.zeros(shape, dtype), self.where)


logits = np.random.default_rng(3).standard_normal((6, 40)).astype(np.float32)
ids = np.arange(6)
'''


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


def run(program, *plugins, **more):
    environment = dict(os.environ, RLK_PLUGIN_PATH=os.pathsep.join(plugins), RLK_LOG="error", **more)
    done = subprocess.run([sys.executable, "-c", FOREIGN + program], env=environment, capture_output=True, text=True,
                          timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_registered_backend_of_any_name_serves_its_own_memory(cache):
    run('''
expected = rlk.ops.logp(logits, ids)
found = rlk.ops.logp(Foreign(logits), Foreign(ids))
assert isinstance(found, Foreign)
assert np.allclose(found.array, expected, atol=1e-6)
row = next(r for r in rlk.explain("logp", Foreign(logits), Foreign(ids))["candidates"] if r["verdict"] == "taken")
assert row["plugin"] == "golden", row
''', os.environ["RLK_TEST_GOLDEN_FOLDER"], RLK_CACHE_DIR=str(cache), RLK_REQUIRE="golden:logp")


@pytest.mark.parametrize("where, text", [
    ((12, 1), "no device with that ordinal is registered"),
    ((2, 0), "golden:0 has memory of type 12 and cannot tell whose memory an address is"),
    ((12, -1), "no device with that ordinal is registered"),
    ((99, 0), "golden:0 has memory of type 12 and cannot tell whose memory an address is"),
])
def test_memory_that_no_plugin_claims_is_refused_with_what_was_asked(cache, where, text):
    told = run(f'''
try:
    rlk.ops.logp(Foreign(logits, {where}), Foreign(ids, {where}))
except rlk.Unsupported as e:
    print(e)
''', os.environ["RLK_TEST_GOLDEN_FOLDER"], RLK_CACHE_DIR=str(cache))
    assert "no registered backend serves" in told and text in told, told


def test_a_plugin_that_does_not_say_its_type_is_named(cache):
    told = run('''
try:
    rlk.ops.logp(Foreign(logits), Foreign(ids))
except rlk.Unsupported as e:
    print(e)
''', os.environ["RLK_TEST_FAULT_PLUGIN"], RLK_CACHE_DIR=str(cache))
    assert "does not say its memory's type" in told, told
