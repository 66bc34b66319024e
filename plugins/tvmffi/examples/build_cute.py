#!/usr/bin/env python3
"""QuACK's and FlashAttention's kernels for Hopper as libraries of packs, compiled ahead of time without a GPU.

    CUTE_DSL_ARCH=sm_90a QUACK_ARCH=90 CUDA_VISIBLE_DEVICES= python3 build_cute.py quack FOLDER
    CUTE_DSL_ARCH=sm_90a CUDA_VISIBLE_DEVICES= python3 build_cute.py flash_attention FOLDER

Writes FOLDER/lib/libNAME.so and FOLDER/kernels.toml. Needs quack-kernels 0.6.5 (flash-attn-4 4.0.0b36), nvidia-cutlass-dsl
with libs-cu13, torch, cc, and CUDA's libcudart_static.a (CUDA_HOME)."""
import importlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import cutlass
from cutlass import cute

ROWS = 4096  # of quack.toml: each kernel is of one length of rows
# The one function that CuTe DSL's objects want of libcute_dsl_runtime.so, 43 MB otherwise; the rest is in its static library.
SHIM = r"""
#include <stdio.h>
void CuteDSLRT_TVMFFISetRaisedCudaError(void (*raise)(const char* kind, const char** parts, int n), int code) {
  char number[32];
  const char* parts[2] = {"CUDA error ", number};
  if (raise == NULL) return;
  snprintf(number, sizeof(number), "%d", code);
  raise("RuntimeError", parts, 2);
}
"""


def quack():
    dtype = cutlass.BFloat16
    rms = importlib.import_module("quack.rmsnorm")._compile_rmsnorm_fwd.__wrapped__  # without its cache of loaded kernels
    softmax = importlib.import_module("quack.softmax").Softmax.compile.__wrapped__

    def norm(residual, weight):
        return rms(dtype, dtype, residual, weight, None, residual, ROWS, False, False, False, False)
    yield f"rms_norm_bf16_{ROWS}", norm(None, None)
    yield f"rms_norm_weight_bf16_{ROWS}", norm(None, dtype)
    yield f"add_rms_norm_bf16_{ROWS}", norm(dtype, None)
    yield f"softmax_bf16_{ROWS}", softmax(dtype, dtype, ROWS)


def flash_attention():
    interface = importlib.import_module("flash_attn.cute.interface")
    kernel = importlib.import_module("flash_attn.cute.flash_fwd_sm90").FlashAttentionForwardSm90
    dtype, head = cutlass.BFloat16, 128

    def tensor(*sizes):
        strides = tuple(cute.sym_int64(divisibility=8) for _ in sizes) + (1,)
        return cute.runtime.make_fake_tensor(dtype, (*sizes, head), stride=strides, assumed_align=16)
    for name, causal in (("full", False), ("causal", True)):
        tile = interface._tile_size_fwd_sm90(head, head, causal, False)
        made = kernel(dtype, head, head, 1, is_causal=causal, is_local=False, pack_gqa=False, tile_m=tile.m_block_size,
                      tile_n=tile.n_block_size, num_stages=2, num_threads=384, Q_in_regs=False,
                      intra_wg_overlap=tile.intra_wg_overlap, mma_pv_is_rs=tile.mma_pv_is_rs, q_subtile_factor=None)
        b, sq, sk, hq, hk = (cute.sym_int() for _ in range(5))
        stream = cute.runtime.make_fake_stream(use_tvm_ffi_env_stream=True)
        yield f"fa_bf16_{head}_{name}", cute.compile(
            made, tensor(b, sq, hq), tensor(b, sk, hk), tensor(b, sk, hk), tensor(b, sq, hq), None, cutlass.Float32(0),
            *[None] * 9, stream=stream, options="--enable-tvm-ffi")


def main(name, folder):
    kernels, library = {"quack": (quack, "libquack.so"), "flash_attention": (flash_attention, "libfa.so")}[name]
    lib = pathlib.Path(folder) / "lib"
    lib.mkdir(parents=True, exist_ok=True)
    cuda = pathlib.Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "lib64"
    runtime = next(parent / "nvidia_cutlass_dsl/cu13/lib/libcuda_dialect_runtime_static.a"
                   for parent in pathlib.Path(cutlass.__file__).parents if (parent / "nvidia_cutlass_dsl/cu13").is_dir())
    with tempfile.TemporaryDirectory() as work:
        objects = []
        for symbol, compiled in kernels():
            objects.append(f"{work}/{symbol}.o")
            compiled.export_to_c(objects[-1], function_name=symbol)
        pathlib.Path(work, "shim.c").write_text(SHIM)
        subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-s", "-o", lib / library, f"{work}/shim.c", *objects, runtime,
                        cuda / "libcudart_static.a", "-ldl", "-lrt", "-lpthread"], check=True)
    shutil.copy(pathlib.Path(__file__).with_name(name + ".toml"), lib.parent / "kernels.toml")


if __name__ == "__main__":
    main(*sys.argv[1:])
