"""What a manifest can say of functions as libraries have them: None, lists, scratch memory, Tensor objects, results over
inputs, limits of parameters, sizes that were compiled in, alignment. The kernels are those of FlashInfer, QuACK and
FlashAttention in kind, for the CPU."""
import importlib
import subprocess
import os
import sys

import pytest

from tvm_ffi_test import PLUGIN, ask, manifest, tvm_ffi  # noqa: F401  (tvm_ffi: skipped without it)

SOURCE = r"""
#include <cmath>
#include <cstring>
#include <vector>
using tvm::ffi::Any;
using tvm::ffi::Array;
using tvm::ffi::Optional;
using tvm::ffi::Tensor;
using tvm::ffi::TensorView;
static void rows(const float* in, const float* w, float* out, int64_t n, int64_t h, double eps) {
  for (int64_t i = 0; i < n; ++i, in += h, out += h) {
    double sum = 0;
    for (int64_t j = 0; j < h; ++j) sum += double(in[j]) * in[j];
    const double r = 1 / std::sqrt(sum / double(h) + eps);
    for (int64_t j = 0; j < h; ++j) out[j] = float(in[j] * r * (w != nullptr ? w[j] : 1));
  }
}
static float* data(TensorView t) { return static_cast<float*>(t.data_ptr()); }
// FlashInfer's fused_add_rmsnorm.
void fused(TensorView x, TensorView residual, TensorView weight, double eps) {
  const int64_t n = x.size(0), h = x.size(1);
  for (int64_t i = 0; i < n * h; ++i) data(residual)[i] += data(x)[i];
  rows(data(residual), data(weight), data(x), n, h, eps);
}
// FlashInfer's layernorm takes its tensors so.
void objects(Tensor y, Tensor x, double eps) {
  rows(static_cast<float*>(x.data_ptr()), nullptr, static_cast<float*>(y.data_ptr()), x.size(0), x.size(1), eps);
}
// Of FlashAttention's kind, and QuACK's: compiled for rows of 3072, with a weight, None for the rest, a list, scratch.
void fixed(TensorView x, TensorView weight, Optional<TensorView> bias, Array<Any> more, TensorView scratch, TensorView y,
           double eps) {
  if (x.size(1) != 3072 || bias.has_value() || more.size() != 2 || more[0] != nullptr || more[1].cast<int64_t>() != 7)
    TVM_FFI_THROW(ValueError) << "other arguments";
  if (scratch.ndim() != 1 || scratch.size(0) != 3072 * 8 || scratch.dtype().code != kDLUInt || scratch.dtype().bits != 8)
    TVM_FFI_THROW(ValueError) << "another scratch";
  std::memset(scratch.data_ptr(), 0x7f, 3072 * 8);
  rows(data(x), data(weight), data(y), x.size(0), x.size(1), eps);
}
// A kernel for vectors: what is less aligned is a fault on a device.
void vectors(TensorView x, TensorView y, double eps) {
  if ((reinterpret_cast<uintptr_t>(x.data_ptr()) | reinterpret_cast<uintptr_t>(y.data_ptr())) % 16 != 0)
    TVM_FFI_THROW(ValueError) << "misaligned";
  rows(data(x), nullptr, data(y), x.size(0), x.size(1), eps);
}
"""
CLAIMS = 'claims = ["accurate", "deterministic", "batch_invariant"]\n'


def table(op, symbol, arguments, tensors, more="", dtype="f32"):
    dtypes = ", ".join(f'{name} = "{dtype}"' for name in tensors.split())
    return (f'operator = "{op}"\nlibrary = "libraries.so"\nsymbol = "{symbol}"\narguments = {arguments}\n'
            f"dtypes = [{{ {dtypes} }}]\n{CLAIMS}{more}\n")


FUSED = table("add_rms_norm", "fused", '["x", "residual", "weight", "eps"]', "x residual weight",
              'requires = ["weight"]\nin_place = { y = "x", sum = "residual" }')
OBJECTS = table("rms_norm", "objects", '["y", "x", "eps"]', "x y", 'tensors = "objects"')
FIXED = table("rms_norm", "fixed", '["x", "weight", "none", ["none", 7], "workspace", "y", "eps"]', "x weight y",
              'requires = ["weight"]\nworkspace_bytes = 24576\nsizes = { H = { min = 3072, max = 3072 } }')
VECTORS = table("rms_norm", "vectors", '["x", "y", "eps"]', "x y")


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    folder = tmp_path_factory.mktemp("libraries")
    build = importlib.import_module("tvm_ffi.cpp").build_inline
    build(name="libraries", cpp_sources=SOURCE, functions=["fused", "objects", "fixed", "vectors"], extra_cflags=["-O1"],
          build_directory=str(folder))
    return folder


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


def test_functions_as_libraries_have_them_are_verified(kernels, cache):
    units = ask(manifest(kernels, "all.toml", FUSED, OBJECTS, FIXED, VECTORS), cache, "scope", "tvmffi_cpu")["units"]
    said = {(u["implementation"], u["feature"]): u for u in units if u["dtype"] == "f32"}
    verified = {name: {f for (n, f), u in said.items() if n == name and u["verdict"] == "verified"}
                for name in ("fused", "objects", "fixed", "vectors")}
    # In place in part, in whole, or not: what is not is copied first.
    assert verified["fused"] >= {"", "weight", "eps", "alias:y=x", "alias:sum=residual"}, said
    assert said["fused", "alias:y=residual"]["verdict"] == "declined"
    assert verified["objects"] == verified["vectors"] == {"", "eps", "alias:y=x"}
    # It takes no plain call, and is tried where its size is.
    assert verified["fixed"] >= {"", "weight", "eps"}
    for unit in said.values():
        if unit["verdict"] == "verified":
            assert unit["numerics"] == ["tolerance", "accurate", "deterministic", "batch_invariant"], unit


def test_what_starts_on_fewer_bytes_goes_elsewhere_unless_the_manifest_says_less(kernels, cache):
    program = """
import numpy as np, rlk
memory = np.linspace(-3, 3, 41, dtype="f4")
for x in (memory[:40], memory[1:]):
    print(rlk.explain("rms_norm", x.reshape(4, 10))["chosen"]["implementation"], end=" ")
"""
    for name, more, expected in (("usual.toml", "", "vectors simd "), ("one.toml", "alignment = 4", "objects objects ")):
        tables = (VECTORS,) if name == "usual.toml" else (OBJECTS + more,)
        environment = dict(os.environ, RLK_PLUGIN_PATH=PLUGIN, RLK_CACHE_DIR=str(cache),
                           RLK_TVMFFI_MANIFEST=str(manifest(kernels, name, *tables)),
                           PYTHONPATH=os.pathsep.join(filter(None, sys.path)))
        done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
        assert done.stdout == expected, done.stdout + done.stderr


@pytest.mark.parametrize("more, words, code, text", [
    ("parameters = { eps = { min = 1e-7, max = 1e-5 } }", ("--param", "eps=0.01"), "PARAMETER", "eps is 0.01; the manifest says from 1e-07 to 1e-05"),
    ('sizes = { H = { times = 2, of = "N" } }', ("--shape", "N=4,H=9"), "SIZE", "H is 9 and N 4; the manifest says 2 times as much"),
])
def test_calls_outside_of_what_the_manifest_says_are_declined_with_the_numbers(kernels, cache, more, words, code, text):
    path = manifest(kernels, "limits.toml", OBJECTS, VECTORS + more)
    explained = ask(path, cache, "explain", "rms_norm", "--dtype", "f32", *words)
    [mine] = [c for c in explained["candidates"] if c["implementation"] == "vectors"]
    assert (mine["reason_code"], mine["reason"]) == (code, text)


@pytest.mark.parametrize("wrong, text", [
    (VECTORS + 'in_place = { y = "x" }', "in_place names y, which is among the arguments"),
    (FUSED.replace('sum = "residual"', 'sum = "x"'), "in_place names an input twice"),
    (FUSED.replace('sum = "residual"', 'total = "residual"'), 'in_place names "total", which is no output of add_rms_norm'),
    (FUSED.replace('y = "x", ', ""), "arguments lacks the output y"),
    (FUSED + "contiguous = false", "in_place goes with contiguous tensors alone"),
    (FIXED.replace("workspace_bytes = 24576", ""), "workspace among the arguments and workspace_bytes go together"),
    (FIXED.replace("24576", "-1"), "workspace_bytes must be a whole number of at least 1"),
    (FIXED.replace('["none", 7]', '["none", "x"]'), "a list among the arguments holds numbers"),
    (VECTORS + 'tensors = "pointers"', 'tensors is "pointers", expected views or objects'),
    (VECTORS + "alignment = 24", "alignment must be a power of two"),
    (VECTORS + "parameters = { eps = { least = 1 } }", '"least" is no key; expected min, max'),
    (VECTORS + 'sizes = { H = { of = "N" } }', "times and of go together"),
    (VECTORS + 'sizes = { H = { times = 2, of = "K" } }', 'of names "K"; rms_norm has N, H'),
])
def test_a_manifest_that_is_wrong_is_refused(kernels, cache, wrong, text):
    plugin = ask(manifest(kernels, "bad.toml", wrong), cache, "list", code=1)["plugins"][1]
    assert (plugin["state"], plugin["reason_code"]) == ("rejected", "CREATE_FAILED")
    assert text in plugin["reason"], plugin["reason"]


def test_an_output_that_may_not_be_an_input_is_said_so(kernels, cache):
    units = ask(manifest(kernels, "never.toml", VECTORS + 'in_place = "never"'), cache, "scope", "tvmffi_cpu")["units"]
    said = {u["feature"]: u for u in units if u["dtype"] == "f32"}
    assert said[""]["verdict"] == "verified"
    assert said["alias:y=x"]["reason"] == "y is to be written over x; the manifest says never in place"
