"""rlk's operators as functions of tvm-ffi, and kernels with its ABI as implementations of operators: a right one is verified
and taken, a wrong one refused by its numbers. tvm-ffi is the installed one, else fetched once into the build; skipped
without network. Kernels are compiled by tvm-ffi's own tools."""
import ctypes
import importlib
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import rlk
from rlk import _location

ROOT = pathlib.Path(__file__).resolve().parents[2]
STORE = pathlib.Path(os.environ.get("RLK_TEST_STORE", ROOT / "build/tvm-ffi")) / f"python{sys.version_info[0]}.{sys.version_info[1]}"
try:
    import tvm_ffi
except ImportError:
    if not STORE.is_dir():
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-compile", "--target", STORE,
                        "apache-tvm-ffi==0.1.15.post2"], capture_output=True, check=False)
    sys.path.insert(0, str(STORE))
    tvm_ffi = pytest.importorskip("tvm_ffi", reason="tvm-ffi is not here, and pip cannot fetch it")
import rlk.tvm_ffi  # noqa: E402

COMMAND = _location.command()
PLUGIN = os.path.join(rlk.tvm_ffi.plugins(), "librlk_plugin_tvmffi_cpu.so")
RUNTIME = importlib.import_module("tvm_ffi.libinfo").find_libtvm_ffi()


# ---- rlk's operators for tvm-ffi ---------------------------------------------------------------------------------

def test_every_operator_has_its_arguments_in_declared_order():
    for name, op in rlk.ops.operators.items():
        said = rlk.tvm_ffi.module().arguments(name).split(", ")
        expected = [a.name for a in op.inputs] + [o.name for o in op.outputs if o.must_alias is None]
        assert [word.split("=")[0] for word in said] == expected + [p.name for p in op.params], name
        defaults = dict(word.split("=") for word in said if "=" in word)
        for p in op.params:
            value = defaults[p.name].strip("'")
            assert {"enum": str, "i64": int}.get(p.type, float)(value) == p.default, (name, p.name)
        required = [a.name for a in op.inputs if not a.optional and len(a.shapes) == len(op.inputs[0].shapes)]
        assert not set(required) & set(defaults), name


def test_a_call_by_place_by_name_and_by_global_name_gives_what_rlk_ops_gives():
    rng = np.random.default_rng(0)
    logits, ids = rng.standard_normal((5, 33)).astype("f4"), np.array([3, 0, 32, -100, 7])
    mask = np.array([1, 1, 0, 1, 1], dtype=bool)  # taken as its bytes; numpy 1 has no DLPack of it
    mask = mask if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else mask.view("u1")
    expected = rlk.ops.logp(logits, ids, mask=mask, temperature=0.7, lse=True)
    rlk.tvm_ffi.register()
    for call in ("place", "name", "global"):
        logp, lse = np.full(5, 9, "f4"), np.full(5, 9, "f4")
        if call == "name":
            rlk.tvm_ffi.functions().logp(logits, ids, mask=mask, logp=logp, lse=lse, temperature=0.7)
        else:
            f = rlk.tvm_ffi.module().logp if call == "place" else tvm_ffi.get_global_func("rlk.logp")
            assert f(logits, ids, None, mask, None, None, logp, lse, None, None, 0.7) is None
        np.testing.assert_array_equal(logp, expected.logp)
        np.testing.assert_array_equal(lse, expected.lse)


def test_strided_tensors_enumerations_and_tensors_in_place():
    x = np.arange(24, dtype="f4").reshape(4, 6)[:, ::2]
    y = np.empty((4, 3), "f4")
    functions = rlk.tvm_ffi.functions()
    for std in ("population", 1):
        functions.whiten(x, y=y, std=std)
        np.testing.assert_array_equal(y, rlk.ops.whiten(np.ascontiguousarray(x), std="population"))
    key, value = np.ones((2, 1, 4), "f4"), np.full((2, 1, 4), 2, "f4")
    keys, values = np.zeros((3, 2, 1, 4), "f4"), np.zeros((3, 2, 1, 4), "f4")
    names = [a.name for a in rlk.ops.operators["reshape_and_cache"].inputs]
    given = dict(zip(names, (key, value, keys, values, np.array([1, 5]))))
    functions.reshape_and_cache(*given.values())
    assert keys.reshape(6, 4).sum(1).tolist() == [0, 4, 0, 0, 0, 4] and values.reshape(6, 4).sum(1).tolist() == [0, 8, 0, 0, 0, 8]


@pytest.mark.parametrize("arguments, kind, text", [
    (("logits",), TypeError, "ids is required, got None"),
    (("logits", 5), TypeError, "ids is 5, expected a tensor"),
    (("logits", "ids"), TypeError, "logp is required"),
    (("logits", "ids") + (None,) * 30, TypeError, "takes at most 15 arguments, got 32: logits, ids, bias=None"),
    (("logits", "wrong", None, None, None, None, "out"), ValueError, "row 1 has the id 99"),
    (("logits", "ids", None, None, None, None, "double"), ValueError, "expected f32"),
    (("logits", "ids", None, None, None, None, "out", None, None, None, "warm"), TypeError, "temperature is a str, expected a number"),
    (("logits", "ids", None, None, None, None, "out", None, None, None, 1.0, 0.0, 1.5), TypeError, "ignore_index is 1.5"),
])
def test_a_wrong_argument_is_an_exception_that_names_it(arguments, kind, text):
    known = {"logits": np.zeros((2, 9), "f4"), "ids": np.array([1, 2]), "wrong": np.array([1, 99]),
             "out": np.zeros(2, "f4"), "double": np.zeros(2, "f8")}
    with pytest.raises(kind, match=text):
        rlk.tvm_ffi.module().logp(*[known.get(a, a) if isinstance(a, str) else a for a in arguments])


def test_a_word_that_an_enumeration_lacks_is_told_with_those_it_has():
    x = np.zeros(3, "f4")
    with pytest.raises(ValueError, match="std is 'some', expected one of unbiased, population"):
        rlk.tvm_ffi.functions().whiten(x, y=x, std="some")
    with pytest.raises(ValueError, match="std is 7, expected 0 to"):
        rlk.tvm_ffi.functions().whiten(x, y=x, std=7)


def test_without_tvm_ffi_in_the_process_it_loads_and_says_what_is_missing():
    program = f"""
import ctypes
class Error(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32), ("status", ctypes.c_int32), ("code", ctypes.c_int64), ("domain", ctypes.c_char * 32),
                ("text", ctypes.c_char * 464)]
library, error = ctypes.CDLL({rlk.tvm_ffi.library()!r}), Error(512)
print(library.rlk_tvmffi_register(ctypes.byref(error)), library.__tvm_ffi_logp(None, None, 0, None), error.text.decode())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("-9 -1 no libtvm_ffi is loaded in this process; import tvm_ffi first"), done.stdout


class Any(ctypes.Structure):
    _fields_ = [("type_index", ctypes.c_int32), ("small_length", ctypes.c_uint32), ("pointer", ctypes.c_void_p)]


class Tensor(ctypes.Structure):
    """A DLTensor, for what no array library would make."""
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p), ("byte_offset", ctypes.c_uint64)]


def test_a_device_with_a_number_below_0_is_nobodys():
    tensor = Tensor(None, 2, -1, 0, 2, 32, 1, None, None, 0)
    arguments = (Any * 3)(*[Any(7, 0, ctypes.addressof(tensor))] * 3)
    assert ctypes.CDLL(rlk.tvm_ffi.library()).__tvm_ffi_add(None, arguments, 3, ctypes.byref(Any())) == -1
    raised = ctypes.c_void_p()
    ctypes.CDLL(RUNTIME).TVMFFIErrorMoveFromRaised(ctypes.byref(raised))
    # Behind the object's header of 24 bytes: the kind and the text, each an address and a length.
    kind, kind_size, text, text_size = (ctypes.c_uint64 * 4).from_address(raised.value + 24)
    assert ctypes.string_at(kind, kind_size) == b"NotImplementedError"
    assert b"device (2, -1), which no registered backend serves" in ctypes.string_at(text, text_size)
    ctypes.CDLL(RUNTIME).TVMFFIObjectDecRef(raised)


# ---- kernels of tvm-ffi for rlk ----------------------------------------------------------------------------------

SOURCE = r"""
#include <rlk/abi.h>
#include <cmath>
using tvm::ffi::Optional;
using tvm::ffi::TensorView;
static void rows(TensorView x, Optional<TensorView> weight, TensorView y, double eps) {
  const int64_t n = x.size(0), h = x.size(1);
  const float* in = static_cast<const float*>(x.data_ptr());
  const float* w = weight.has_value() ? static_cast<const float*>(weight.value().data_ptr()) : nullptr;
  float* out = static_cast<float*>(y.data_ptr());
  for (int64_t i = 0; i < n; ++i) {
    double sum = 0;
    for (int64_t j = 0; j < h; ++j) sum += double(in[i * h + j]) * in[i * h + j];
    const double r = 1 / std::sqrt(sum / double(h) + eps);
    for (int64_t j = 0; j < h; ++j) out[i * h + j] = float(in[i * h + j] * r * (w != nullptr ? w[j] : 1));
  }
}
void right(TensorView x, Optional<TensorView> w, TensorView y, double eps) { rows(x, w, y, eps); }
void wrong(TensorView x, Optional<TensorView> w, TensorView y, double eps) { rows(x, w, y, eps * 4); }
void no_weight(TensorView x, TensorView y, int64_t h, bool sure) {
  if (h != x.size(1) || !sure) TVM_FFI_THROW(RuntimeError) << "the size is " << h;
  rows(x, Optional<TensorView>(), y, 1e-6);
}
static void logp_rows(TensorView logits, TensorView ids, TensorView out, int64_t ignore, void* record, int64_t tag) {
  const int64_t n = logits.size(0), v = logits.size(1);
  const float* x = static_cast<const float*>(logits.data_ptr());
  const int64_t* id = static_cast<const int64_t*>(ids.data_ptr());
  float* o = static_cast<float*>(out.data_ptr());
  for (int64_t i = 0; i < n; ++i, x += v) {
    o[i] = 0;
    if (id[i] == ignore) continue;
    const bool is_id = id[i] >= 0 && id[i] < v;
    double most = -INFINITY, sum = 0;
    for (int64_t j = 0; j < v; ++j) most = x[j] > most || std::isnan(x[j]) ? x[j] : most;
    for (int64_t j = 0; j < v; ++j) sum += std::exp(x[j] - most);
    o[i] = is_id ? float(x[id[i]] - most - std::log(sum)) : NAN;
    auto* to = static_cast<rlk_data_error_record*>(record);
    if (to != nullptr && to->state == 0 && (!is_id || most == -INFINITY))
      *to = {1, is_id ? RLK_DATA_NO_FINITE_LOGIT : RLK_DATA_ID_OUT_OF_RANGE, uint32_t(tag), 0, i, is_id ? 0 : id[i]};
  }
}
void logp(TensorView l, TensorView i, TensorView o, int64_t g, void* r, int64_t t) { logp_rows(l, i, o, g, r, t); }
void silent(TensorView l, TensorView i, TensorView o, int64_t g) { logp_rows(l, i, o, g, nullptr, 0); }
void raises(TensorView x, TensorView y) { TVM_FFI_THROW(ValueError) << "not on a Monday"; }
void allocates(TensorView x, TensorView y) {
  tvm::ffi::Tensor::FromEnvAlloc(TVMFFIEnvTensorAlloc, x.shape(), x.dtype(), x.device());
}
"""
NAMES = ["right", "wrong", "no_weight", "raises", "allocates", "logp", "silent"]


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """The folder of kernels.so, as a third party would build it."""
    folder = tmp_path_factory.mktemp("kernels")
    build = importlib.import_module("tvm_ffi.cpp").build_inline
    path = build(name="kernels", cpp_sources=SOURCE, functions=NAMES, extra_cflags=["-O1"], build_directory=str(folder),
                 extra_include_paths=[str(ROOT / "plugin_api/include")])
    assert pathlib.Path(path).name == "kernels.so"
    return folder


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """One for all: the CPU is judged once."""
    return tmp_path_factory.mktemp("cache")


def manifest(folder, name, *tables, runtime=RUNTIME):
    path = folder / name
    head = f"schema = 1\nruntime = {json.dumps(runtime)}\n" if runtime else "schema = 1\n"
    path.write_text(head + "".join("[[kernel]]\n" + table for table in tables))
    os.chmod(path, 0o600)
    return path


def kernel(symbol, arguments='["x", "weight", "y", "eps"]', more="", dtypes='{ x = "f32", weight = "f32", y = "f32" }'):
    return (f'operator = "rms_norm"\nlibrary = "kernels.so"\nsymbol = "{symbol}"\narguments = {arguments}\n'
            f"dtypes = [{dtypes}]\n{more}\n")


PLAIN = '{ x = "f32", y = "f32" }'


def ask(path, cache, *words, code=0):
    environment = dict(os.environ, RLK_PLUGIN_PATH=PLUGIN, RLK_CACHE_DIR=str(cache), RLK_TVMFFI_MANIFEST=str(path))
    done = subprocess.run([COMMAND, *words, "--json"], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_a_right_kernel_is_verified_and_taken_and_a_wrong_one_refused_by_its_numbers(kernels, cache):
    claims = 'claims = ["accurate", "deterministic", "batch_invariant"]'
    path = manifest(kernels, "all.toml", kernel("right", more=claims), kernel("wrong"),
                    kernel("no_weight", '["x", "y", "H", true]', dtypes=PLAIN),
                    kernel("raises", '["x", "y"]', dtypes=PLAIN), kernel("allocates", '["x", "y"]', dtypes=PLAIN))
    units = ask(path, cache, "scope", "tvmffi_cpu", code=1)["units"]
    verdicts = {(u["implementation"], u["dtype"], u["feature"]): u for u in units}
    right = verdicts["right", "f32", ""]
    assert right["verdict"] == "verified" and 0 < right["worst_error_ratio"] < 1
    assert right["numerics"] == ["tolerance", "accurate", "deterministic", "batch_invariant"]
    assert {verdicts["right", "f32", f]["verdict"] for f in ("weight", "eps", "alias:y=x")} == {"verified"}
    assert verdicts["right", "bf16", ""]["reason_code"] == "DTYPE"
    assert verdicts["right", "f32", "rstd"]["reason"] == "rstd is not supported"
    assert verdicts["wrong", "f32", ""]["verdict"] == "failed"
    assert verdicts["wrong", "f32", ""]["reason_code"] == "WRONG_RESULT" and "allowed" in verdicts["wrong", "f32", ""]["reason"]
    assert verdicts["no_weight", "f32", ""]["verdict"] == "verified"
    assert {verdicts["no_weight", "f32", f]["reason_code"] for f in ("weight", "eps")} == {"INPUT", "PARAMETER"}
    assert "raises raised ValueError: not on a Monday" in verdicts["raises", "f32", ""]["reason"]
    assert "rlk gives kernels no memory" in verdicts["allocates", "f32", ""]["reason"]

    explained = ask(path, cache, "explain", "rms_norm", "--dtype", "f32", "--shape", "N=64,H=128")
    assert explained["chosen"] == {"plugin": "tvmffi_cpu", "implementation": "right"}
    said = {c["implementation"]: c["reason_code"] for c in explained["candidates"]}
    assert said["wrong"] == said["raises"] == "VERIFICATION_FAILED"


def test_a_kernel_tells_data_errors_through_rlks_record_and_one_that_cannot_is_refused(kernels, cache):
    arguments = '["logits", "ids", "logp", "ignore_index"%s]'
    dtypes = '{ logits = "f32", ids = "i64", logp = "f32" }'
    tables = [kernel(symbol, arguments % more, dtypes=dtypes).replace("rms_norm", "logp")
              for symbol, more in (("logp", ', "data_error_record", "data_error_tag"'), ("silent", ""))]
    units = ask(manifest(kernels, "logp.toml", *tables), cache, "scope", "tvmffi_cpu", code=1)["units"]
    plain = {u["implementation"]: u for u in units if (u["dtype"], u["feature"]) == ("f32", "")}
    assert plain["logp"]["verdict"] == "verified", plain["logp"]
    assert (plain["silent"]["verdict"], plain["silent"]["reason_code"]) == ("failed", "DATA_ERROR_MISSING")


def test_a_call_goes_to_the_kernel_in_a_process_with_tvm_ffi_and_in_one_without(kernels, cache):
    path = manifest(kernels, "right.toml", kernel("right"))
    program = """
import numpy as np, rlk
x = np.linspace(-3, 3, 40, dtype="f4").reshape(4, 10)
for _ in range(2):
    y = rlk.ops.rms_norm(x, pin="cpu:right")
np.testing.assert_allclose(y, rlk.ops.rms_norm(x, pin="cpu:simd"), rtol=3e-7)
print(rlk.explain("rms_norm", x)["chosen"]["implementation"], rlk.explain("rms_norm", x.astype("f8"))["chosen"]["implementation"])
"""
    environment = dict(os.environ, RLK_PLUGIN_PATH=PLUGIN, RLK_CACHE_DIR=str(cache), RLK_TVMFFI_MANIFEST=str(path),
                       PYTHONPATH=os.pathsep.join(filter(None, sys.path)))
    for first in ("", "import tvm_ffi"):
        done = subprocess.run([sys.executable, "-c", first + program], env=environment, capture_output=True, text=True, check=False)
        assert done.stdout == "right simd\n", done.stdout + done.stderr


def test_a_changed_manifest_is_tried_anew(kernels, cache):
    path = manifest(kernels, "changing.toml", kernel("right"))
    assert ask(path, cache, "list")["plugins"][1]["state"] == "registered"
    manifest(kernels, "changing.toml", kernel("wrong"))
    plugin = ask(path, cache, "list", code=1)["plugins"][1]
    assert (plugin["state"], plugin["reason_code"]) == ("rejected", "NOTHING_VERIFIED")


@pytest.mark.parametrize("tables, text", [
    (['operator = "rms_nrom"\nsymbol = "f"\nlibrary = "kernels.so"\n'], 'rlk has no operator "rms_nrom"'),
    ([kernel("right", '["x", "w", "y"]')], 'arguments names "w"; rms_norm has x, weight, y, rstd, eps, N, H'),
    ([kernel("right", '["x", "weight"]', dtypes='{ x = "f32", weight = "f32" }')], "arguments lacks the output y"),
    ([kernel("right", '["weight", "y"]')], "arguments lacks the input x"),
    ([kernel("right", dtypes='{ x = "f32", y = "f32" }')], "a table without the dtype of weight"),
    ([kernel("right", dtypes='{ x = "float", weight = "f32", y = "f32" }')], 'says "float" of x, expected f32'),
    ([kernel("right", more='claims = ["exact"]')], 'claims names "exact"'),
    ([kernel("right", more="sizes = { K = { min = 1 } }")], 'sizes names "K"; rms_norm has N, H'),
    ([kernel("right", more='sizes = { N = { times = 0, of = "H" } }')], "times must be from 1 to 1048576"),
    ([kernel("right", more="colour = 1")], '"colour" is no key'),
    ([kernel("right", more='device = "tpu"')], 'device is "tpu", expected cpu, cuda or rocm'),
    ([kernel("right"), kernel("right")], "a second kernel right of rms_norm"),
    (["[[["], "bad.toml:"), ([], "there is no [[kernel]]"), (["name = 'ö'\n"], "a letter beyond ASCII"),
])
def test_a_manifest_that_is_wrong_is_refused_with_its_place(kernels, cache, tables, text):
    path = manifest(kernels, "bad.toml", *tables)
    plugin = ask(path, cache, "list", code=1)["plugins"][1]
    assert (plugin["state"], plugin["reason_code"]) == ("rejected", "CREATE_FAILED")
    assert text in plugin["reason"] and "bad.toml" in plugin["reason"], plugin["reason"]


def test_what_the_manifest_leads_to_must_be_there_and_be_nobody_elses(kernels, cache):
    missing = kernel("right").replace("kernels.so", "gone.so")
    for table, text in ((missing, "gone.so does not exist"), (kernel("nothing"), "exports no __tvm_ffi_nothing")):
        plugin = ask(manifest(kernels, "gone.toml", table), cache, "list", code=1)["plugins"][1]
        assert plugin["state"] == "rejected" and text in plugin["reason"], plugin
    path = manifest(kernels, "open.toml", kernel("right"))
    os.chmod(path, 0o666)
    plugin = ask(path, cache, "list", code=1)["plugins"][1]
    assert "other users could replace" in plugin["reason"] and "chmod go-w" in plugin["reason"]
    plugin = ask("/no/such/file.toml", cache, "list", code=1)["plugins"][1]
    assert "/no/such/file.toml does not exist" in plugin["reason"]


def test_without_a_manifest_or_a_kernel_of_the_backend_the_plugin_is_absent(kernels, cache):
    for path, code in ((manifest(kernels, "cuda.toml", kernel("right", more='device = "cuda"')), "NO_KERNELS"), ("", "NO_MANIFEST")):
        plugin = ask(path, cache, "list")["plugins"][1]
        assert (plugin["state"], plugin["reason_code"]) == ("absent", code)
