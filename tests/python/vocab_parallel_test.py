"""rlk.torch.vocab_parallel_logp of 2 processes, in the long run of 1 and 4 too, is the unsharded operator:
bench/vocab_parallel.py --check."""
import os
import pathlib
import re
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed here")
import rlk.torch  # noqa: E402

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "bench/vocab_parallel.py"


@pytest.mark.parametrize("ranks", [1, 2, 4] if os.environ.get("RLK_TEST_LONG") == "1" else [2])
def test_processes_agree_with_the_unsharded_operator(ranks):
    if not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
        pytest.skip("this torch has no gloo")
    done = subprocess.run([sys.executable, SCRIPT, "--ranks", str(ranks), "--check"], capture_output=True, text=True,
                          timeout=300, check=False, env=os.environ | {"RLK_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stdout + done.stderr
    cases, worst = re.search(r"(\d+) cases, worst error ([\d.]+) of the bound", done.stdout).groups()
    assert int(cases) >= 100 and 0 < float(worst) <= 1


def test_without_process_groups_it_says_what_to_call():
    with pytest.raises(rlk.InvalidArgument, match="not initialized.*init_process_group.*linear_logp"):
        rlk.torch.vocab_parallel_logp(torch.zeros(2, 3), torch.zeros(4, 3), torch.zeros(2, dtype=torch.int64))


def test_autocast_casts_as_it_does_for_the_unsharded_operator(tmp_path):
    if not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
        pytest.skip("this torch has no gloo")
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        ids, results = torch.arange(3), []
        for function in (rlk.torch.linear_logp, rlk.torch.vocab_parallel_logp):
            torch.manual_seed(1)
            leaves = [torch.randn(3, 16).bfloat16().requires_grad_(), torch.randn(7, 16).requires_grad_(),
                      torch.randn(7).requires_grad_()]
            bias = {"bias" if function is rlk.torch.linear_logp else "bias_shard": leaves[2]}
            with torch.autocast("cpu", torch.bfloat16):
                logp = function(leaves[0], leaves[1], ids, **bias)
            logp.sum().backward()
            results.append([logp, *(x.grad for x in leaves)])
        for a, b in zip(*results):
            assert a.dtype == b.dtype
            torch.testing.assert_close(a, b)
    finally:
        torch.distributed.destroy_process_group()
