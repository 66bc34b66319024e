"""rlk.torch.vocab_parallel_logp of 2 processes, in the long run of 1 and 4 too, is the unsharded operator:
bench/vocab_parallel.py --check."""
import datetime
import os
import pathlib
import re
import subprocess
import sys
from unittest import mock

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed here")
import rlk.torch  # noqa: E402
from torch import distributed as dist  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

RANKS = [1, 2, 4] if os.environ.get("RLK_TEST_LONG") == "1" else [2]
SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "bench/vocab_parallel.py"


@pytest.mark.parametrize("ranks", RANKS)
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


class _Rounding(TorchDispatchMode):
    """Notes the shape of each tensor that gets another dtype; `fails`: at such a time it raises."""

    def __init__(self, events, fails=False):
        super().__init__()
        self.events, self.fails = events, fails

    def __torch_dispatch__(self, function, types, arguments=(), words=None):
        result = function(*arguments, **(words or {}))
        if function is torch.ops.aten._to_copy.default and result.dtype != arguments[0].dtype:
            if self.fails:
                raise MemoryError("no memory for the rounded gradient")
            self.events.append(("rounded", *result.shape))
        return result


class _Late:
    """An asynchronous all_reduce that changes its tensor no earlier than the wait: whoever reads before has a part of the sum."""

    def __init__(self, events):
        self.events, self.all_reduce = events, dist.all_reduce

    def __call__(self, tensor, group=None, async_op=False):
        assert async_op
        self.events.append(("begun", *tensor.shape))
        return mock.Mock(wait=lambda: self._end(tensor, group))

    def _end(self, tensor, group):
        self.events.append(("waited",))
        self.all_reduce(tensor, group=group)


def _order(rank, ranks, dtype, equal, wanted):
    """The gradients that are `wanted` of (hidden, weight, bias), and in which order they come about."""
    n, v, d = 5, 24, 16
    ends = [v * r // ranks - (0 if equal or r in (0, ranks) else 2) for r in range(ranks + 1)]
    begin, end = ends[rank:rank + 2]
    made = torch.Generator().manual_seed(1)
    whole = [(torch.randn(*shape, generator=made) * 0.5).to(dtype).requires_grad_(want)
             for shape, want in zip(((n, d), (v, d), (v,)), wanted)]
    leaves = [x.detach()[cut].clone().requires_grad_(x.requires_grad)
              for x, cut in zip(whole, (slice(None), slice(begin, end), slice(begin, end)))]
    ids, g = torch.arange(n) * 7 % v, torch.randn(n, generator=made)
    places = {} if equal else {"vocab_start": begin, "global_vocab": v}
    events = []
    with mock.patch.object(dist, "all_reduce", _Late(events)), _Rounding(events):
        logp = rlk.torch.vocab_parallel_logp(leaves[0], leaves[1], ids, None, leaves[2], **places)
        assert logp.requires_grad == any(wanted) and not events
        if any(wanted):
            logp.backward(g)
    expected = rlk.torch.linear_logp(whole[0], whole[1], ids, whole[2])
    torch.testing.assert_close(logp, expected)
    if any(wanted):
        expected.backward(g)
    for x, y, cut in zip(leaves, whole, (slice(None), slice(begin, end), slice(begin, end))):
        assert (x.grad is None) == (y.grad is None)
        if y.grad is not None:
            assert x.grad.dtype == dtype
            torch.testing.assert_close(x.grad, y.grad[cut])
    travels, rounds = wanted[0] and ranks > 1, dtype != torch.float32
    shapes = [(n, d), (end - begin, d), (end - begin,)]
    assert events == ([("begun", n, d)] * travels + [("rounded", *shapes[i]) for i in (1, 2) if wanted[i] and rounds]
                      + [("waited",)] * travels + [("rounded", n, d)] * (wanted[0] and rounds))


def _raises(rank, ranks):
    """A process that fails after the sum has begun does not hold up the others."""
    leaves = [torch.randn(5, 16).bfloat16().requires_grad_(), torch.randn(8, 16).bfloat16().requires_grad_()]
    logp = rlk.torch.vocab_parallel_logp(*leaves, torch.arange(5))
    if rank == 0:
        with pytest.raises(MemoryError), _Rounding([], fails=True):
            logp.sum().backward()
    else:
        logp.sum().backward()
        assert leaves[0].grad is not None and leaves[1].grad is not None


def _process(rank, ranks, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks,
                            timeout=datetime.timedelta(seconds=200))
    for dtype in (torch.bfloat16, torch.float32):
        for wanted in ((True, True, True), (False, True, False), (True, False, False), (False, False, True), (False, False, False)):
            _order(rank, ranks, dtype, equal=dtype == torch.float32, wanted=wanted)
    _raises(rank, ranks)
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.parametrize("ranks", RANKS)
def test_the_sum_of_hiddens_gradient_runs_while_the_shards_gradients_are_rounded(ranks, tmp_path, monkeypatch):
    if not (dist.is_available() and dist.is_gloo_available()):
        pytest.skip("this torch has no gloo")
    monkeypatch.setenv("RLK_NUM_THREADS", "1")
    torch.multiprocessing.spawn(_process, (ranks, tmp_path), nprocs=ranks)
