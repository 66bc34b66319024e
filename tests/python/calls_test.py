"""A call: arguments by name, outputs, parameters, streams, threads, errors."""
import copy
import gc
import pickle
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest
import rlk
from rlk._call import key_of

N, V = 5, 11


@pytest.fixture
def batch():
    random = np.random.default_rng(7)
    return random.standard_normal((N, V)).astype(np.float32), random.integers(0, V, N)


def golden(logits, ids, temperature=1.0):
    z = logits.astype(np.float64) / temperature
    lse = np.log(np.exp(z - z.max(1, keepdims=True)).sum(1)) + z.max(1)
    return z[np.arange(len(ids)), ids] - lse, lse


def test_one_required_output_comes_alone(batch):
    logp = rlk.ops.logp(*batch, temperature=0.7)
    assert isinstance(logp, np.ndarray) and logp.dtype == np.float32
    np.testing.assert_allclose(logp, golden(*batch, 0.7)[0], atol=2e-5)


def test_inputs_are_positional_or_by_name(batch):
    assert np.array_equal(rlk.ops.logp(ids=batch[1], logits=batch[0]), rlk.ops.logp(*batch))
    with pytest.raises(TypeError, match="temperature|positional"):
        rlk.ops.logp(*batch, None, None, None, None, 0.7)


def test_optional_outputs_come_when_asked_for_by_name(batch):
    result = rlk.ops.logp(*batch, lse=True)
    assert type(result)._fields == ("logp", "lse")
    np.testing.assert_allclose(result.lse, golden(*batch)[1], atol=1e-5)
    assert type(rlk.ops.logp(*batch, outputs=["entropy", "lse"]))._fields == ("logp", "lse", "entropy")
    assert type(rlk.ops.logp(*batch, outputs="entropy"))._fields == ("logp", "entropy")


def test_numpys_bools_ask_for_outputs_as_pythons_do(batch):
    assert type(rlk.ops.logp(*batch, lse=np.True_, entropy=np.False_))._fields == ("logp", "lse")
    result = rlk.ops.logp(*batch, outputs={"lse": np.False_, "entropy": np.True_})
    assert type(result)._fields == ("logp", "entropy")


def test_several_outputs_are_pickled_and_copied(batch):
    result = rlk.ops.logp(*batch, lse=True)
    for other in (pickle.loads(pickle.dumps(result)), copy.deepcopy(result), copy.copy(result)):
        assert type(other) is type(result)
        assert np.array_equal(other.logp, result.logp) and np.array_equal(other.lse, result.lse)
    program = "import pickle, sys; result = pickle.load(sys.stdin.buffer); assert result._fields == ('logp', 'lse'), result"
    subprocess.run([sys.executable, "-c", program], input=pickle.dumps(result), timeout=120, check=True)


def test_outputs_may_be_given_and_have_another_dtype(batch):
    out = np.full(2 * N, 9, np.float32)
    assert rlk.ops.logp(*batch, outputs={"logp": out[::2]}).base is out
    np.testing.assert_allclose(out[::2], golden(*batch)[0], atol=2e-5)
    assert (out[1::2] == 9).all()
    lse = np.empty(N, np.float32)
    assert rlk.ops.logp(*batch, lse=lse).lse is lse
    logits = batch[0].astype(np.float16)
    for dtype in ("f16", np.float16, np.dtype("float16")):
        assert rlk.ops.logp(logits, batch[1], outputs={"logp": dtype}).dtype == np.float16
    assert rlk.ops.logp(logits, batch[1]).dtype == np.float32
    with pytest.raises(rlk.InvalidArgument, match="output 'logp' has dtype f64"):
        rlk.ops.logp(*batch, outputs={"logp": "f64"})
    with pytest.raises(rlk.ArgumentTypeError, match="the output logp shall have the dtype 'half-float'; expected one of"):
        rlk.ops.logp(*batch, outputs={"logp": "half-float"})
    with pytest.raises(rlk.InvalidArgument, match="outputs names 'logps'; there are logp, lse, entropy"):
        rlk.ops.logp(*batch, outputs=["logps"])


def test_an_output_may_be_the_memory_of_an_input(batch):
    logits, ids = batch
    lse = rlk.ops.logp(*batch, lse=True).lse
    grad = np.ones(N, np.float32)
    expected = rlk.ops.logp_backward(logits, ids, lse, grad)
    assert rlk.ops.logp_backward(logits, ids, lse, grad, outputs={"grad_logits": logits}) is logits
    assert np.array_equal(logits, expected)


def test_parameters_with_words_are_given_by_word():
    x = np.random.default_rng(1).standard_normal((6, 3, 2, 8)).astype(np.float32).reshape(18, 2, 8)
    starts = np.array([0, 6, 18], np.int32)
    out = rlk.ops.attention(x, x, x, starts, starts, layout="packed")
    assert out.shape == x.shape
    with pytest.raises(rlk.InvalidArgument, match="layout is 'ragged', expected one of dense, packed"):
        rlk.ops.attention(x, x, x, layout="ragged")
    with pytest.raises(rlk.InvalidArgument, match=r"layout is array\(\['packed'.*, expected one of dense, packed"):
        rlk.ops.attention(x, x, x, layout=np.array(["packed", "packed"]))


@pytest.mark.parametrize("name, value, kind, text", [
    ("temperature", "hot", rlk.ArgumentTypeError, "temperature is 'hot', expected a number"),
    ("temperature", "0.7", rlk.ArgumentTypeError, "temperature is '0.7', expected a number"),
    ("temperature", b"0.7", rlk.ArgumentTypeError, "temperature is b'0.7', expected a number"),
    ("temperature", 0.0, rlk.InvalidArgument, "temperature"),
    ("temperature", float("nan"), rlk.InvalidArgument, "temperature"),
    ("ignore_index", 1.5, rlk.ArgumentTypeError, "ignore_index is 1.5, expected an integer"),
    ("ignore_index", 2**63, rlk.InvalidArgument, "64 bits"),
    ("temperature", 10**400, rlk.InvalidArgument, "temperature is an integer of 1329 bits, which 64 bits do not hold"),
    ("temperature", np.array([1.0, 2.0]), rlk.ArgumentTypeError,
     r"logp: temperature is array\(\[1., 2.\]\), expected a number"),
    ("ignore_index", np.array([1, 2]), rlk.ArgumentTypeError, r"ignore_index is array\(\[1, 2\]\), expected an integer"),
    ("ignore_index", [1], rlk.ArgumentTypeError, r"ignore_index is \[1\], expected an integer"),
])
def test_a_wrong_parameter_is_refused_by_name(batch, name, value, kind, text):
    with pytest.raises(kind, match=text):
        rlk.ops.logp(*batch, **{name: value})


def test_a_zero_keeps_its_sign_whatever_zero_was_passed_before():
    for value in (-0.0, 0.0, -0.0):
        assert np.array_equal(np.signbit(rlk.ops.fill(np.ones(2, np.float32), value=value)), np.signbit([value, value]))


class Number:
    """Of one value at a time, as a tensor of one element is."""

    def __init__(self, value):
        self.value = value

    def __float__(self):
        return float(self.value)

    def __index__(self):
        return self.value


def test_a_parameter_is_what_its_object_is_worth_now_and_is_not_kept(batch):
    ones, factor = np.ones(2, np.float32), Number(2)
    assert rlk.ops.add(ones, ones, alpha=factor)[0] == 3
    factor.value = 5
    assert rlk.ops.add(ones, ones, alpha=factor)[0] == 6
    k = Number(1)
    assert rlk.ops.top_k(batch[0], k=k).y.shape == (N, 1)
    k.value = 3
    assert rlk.ops.top_k(batch[0], k=k).y.shape == (N, 3)
    known = weakref.ref(factor)
    del factor
    gc.collect()
    assert known() is None


def test_a_key_of_parameters_is_of_values_and_tells_apart_what_is_equal():
    alike = [(1.0,), (1,), (True,), (0.0,), (-0.0,), (0,), (False,), (0.0, -0.0), (-0.0, 0.0)]
    keys = [key_of(params) for params in alike]
    assert len(set(keys)) == len(alike) and keys == [key_of(params) for params in alike]
    assert key_of(("token", 1.5)) == key_of(["token", 1.5])
    for other in (np.float64(1), np.float32(1), np.array(1.0), Number(1), None, [1.0]):
        assert key_of((2.0, other)) is None


def test_a_parameter_that_makes_an_output_of_no_possible_size_is_refused_with_the_shape():
    with pytest.raises(rlk.InvalidArgument, match=rf"top_k: no y of the shape \(2, {2**62}\) can be made"):
        rlk.ops.top_k(np.zeros((2, 3), np.float32), k=2**62)


def test_numpys_numbers_are_parameters(batch):
    expected = rlk.ops.logp(*batch, temperature=0.5, ignore_index=3)
    assert np.array_equal(rlk.ops.logp(*batch, temperature=np.float32(0.5), ignore_index=np.int32(3)), expected)


def test_a_bad_value_is_a_data_error_that_names_its_row_and_is_told_once(batch):
    logits, ids = batch
    ids[3] = V
    out = np.zeros(N, np.float32)
    with pytest.raises(rlk.DataError, match=rf"row 3 has the id {V}") as caught:
        rlk.ops.logp(logits, ids, outputs={"logp": out})
    assert isinstance(caught.value, ValueError) and caught.value.status == -4
    assert "what depends on it is NaN (" in str(caught.value)  # none of logp's outputs can be integers
    with pytest.raises(rlk.DataError, match="NaN, in integers 0"):
        rlk.ops.gather(np.arange(6).reshape(2, 3), np.array([[1], [7]]))
    assert np.isnan(out[3]) and np.isfinite(np.delete(out, 3)).all()
    ids[3] = 0
    assert np.isfinite(rlk.ops.logp(logits, ids)).all()


def test_errors_keep_text_and_code_through_pickle():
    error = pickle.loads(pickle.dumps(rlk.DeviceLost("gone", 719, "cuda")))
    assert (type(error), str(error), error.native_code, error.domain) == (rlk.DeviceLost, "gone", 719, "cuda")


@pytest.mark.parametrize("kind", sorted(rlk.errors.CLASSES.values(), key=lambda kind: kind.__name__))
def test_a_status_becomes_its_class_with_the_c_text(kind):
    error = rlk.errors.fresh()
    error.text, error.native_code, error.domain = b"what was seen", 12, b"acl"
    with pytest.raises(kind, match="what was seen") as caught:
        rlk.errors.raise_for(kind.status, error)
    assert (caught.value.native_code, caught.value.domain) == (12, "acl")


def test_a_pin_is_met_or_an_error(batch):
    assert rlk.ops.logp(*batch, pin="cpu").shape == (N,)
    with pytest.raises(rlk.Error, match="cuda"):
        rlk.ops.logp(*batch, pin="cuda")


def test_classes_of_numerics_are_demanded_by_name(batch):
    assert rlk.ops.logp(*batch, numerics="accurate").shape == (N,)
    assert rlk.ops.logp(*batch, numerics=["deterministic", "batch_invariant"]).shape == (N,)
    with pytest.raises(rlk.InvalidArgument, match="numerics names 'exact'; there are tolerance, accurate"):
        rlk.ops.logp(*batch, numerics="exact")


@pytest.mark.parametrize("name, value, text", [
    ("pin", 3, "logp: pin is 3, expected a backend"),
    ("numerics", 5, "logp: numerics is 5, expected one or several of tolerance, accurate"),
    ("numerics", [["accurate"]], r"logp: numerics names \['accurate'\]; there are tolerance"),
    ("outputs", 5, "logp: outputs is 5, expected names of outputs"),
    ("stream", 3, "logp: stream is 3, expected a rlk.Stream"),
])
def test_what_every_call_takes_is_refused_by_name_too(batch, name, value, text):
    with pytest.raises(rlk.InvalidArgument, match=text):
        rlk.ops.logp(*batch, **{name: value})


def test_a_stream_may_be_given_and_is_closed_before_its_runtime(batch):
    runtime = rlk.Runtime()
    with runtime.stream() as stream:
        assert np.array_equal(rlk.ops.logp(*batch, stream=stream), rlk.ops.logp(*batch))
        assert stream.done()
        stream.synchronize(timeout=1)
        with pytest.raises(rlk.InvalidArgument, match="1 streams of this rlk.Runtime are open"):
            runtime.close()
    runtime.close()
    with pytest.raises(rlk.InvalidArgument, match="this rlk.Stream is closed"):
        rlk.ops.logp(*batch, stream=stream)
    with pytest.raises(rlk.InvalidArgument, match="this rlk.Runtime is closed"):
        runtime.stream()


@pytest.mark.parametrize("ordinal", [-1, 2**32, 2**40])
def test_an_ordinal_is_not_cut_to_the_bits_of_c(ordinal):
    runtime = rlk.runtime()
    for make in (runtime.device, runtime.stream, lambda backend, ordinal: runtime.wrap(None, backend, ordinal)):
        with pytest.raises(rlk.InvalidArgument, match=f"ordinal is {ordinal}, expected 0 to 4294967295"):
            make("cpu", ordinal)
    with pytest.raises(rlk.InvalidArgument, match="priority is 4294967296, expected -2147483648 to"):
        runtime.stream("cpu", priority=2**32)
    with pytest.raises(rlk.ArgumentTypeError, match="ordinal is 0.5, expected an integer"):
        runtime.stream("cpu", 0.5)


def test_a_wait_may_be_endless_and_no_number_of_seconds_is_refused_by_name():
    with rlk.runtime().stream() as stream:
        stream.synchronize(float("inf"))
        stream.synchronize(1e300)
        stream.synchronize(0)
        for timeout in (-1, float("nan")):
            with pytest.raises(rlk.InvalidArgument, match=f"timeout is {timeout}, expected seconds, 0 or more"):
                stream.synchronize(timeout)


def test_devices_are_described():
    runtime = rlk.runtime()
    assert runtime.device_count("cpu") == 1
    assert runtime.device("cpu")["memory_bytes"] > 2**20
    with pytest.raises(rlk.Error, match="cpux"):
        runtime.stream("cpux")


def test_threads_call_at_once_and_get_their_own_results():
    failures = []

    def work(seed):
        random = np.random.default_rng(seed)
        for _ in range(100):
            logits = random.standard_normal((7, 33)).astype(np.float32)
            ids = random.integers(0, 33, 7)
            if seed % 2:
                ids[seed % 7] = 99
            try:
                logp = rlk.ops.logp(logits, ids)
                if seed % 2 or np.abs(logp - golden(logits, ids)[0]).max() > 2e-5:
                    failures.append(seed)
            except rlk.DataError as error:
                if f"row {seed % 7} has the id 99" not in str(error):
                    failures.append((seed, str(error)))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_streams_of_threads_that_ended_are_closed():
    runtime, x = rlk.runtime(), np.zeros((2, 3), np.float32)
    rlk.ops.whiten(x)
    gc.collect()
    before = runtime._streams
    for _ in range(4):
        thread = threading.Thread(target=rlk.ops.whiten, args=(x,))
        thread.start()
        thread.join()
    gc.collect()
    assert runtime._streams == before


def test_other_threads_run_during_a_call():
    """A call that lasts leaves the interpreter to others."""
    random = np.random.default_rng(3)
    hidden, weight = random.standard_normal((2, 256, 1024)).astype(np.float32), None
    weight = random.standard_normal((16384, 1024)).astype(np.float32)
    ids, steps, stop = random.integers(0, 16384, 256), [], threading.Event()

    def count():
        while not stop.is_set():
            steps.append(1)
            stop.wait(0.001)

    rlk.ops.linear_logp(hidden[0], weight, ids)
    thread = threading.Thread(target=count)
    thread.start()
    before = len(steps)
    rlk.ops.linear_logp(hidden[1], weight, ids)
    during = len(steps) - before
    stop.set()
    thread.join()
    assert during >= 3


def test_a_process_ends_well_with_open_streams_and_threads():
    program = ("import numpy as np, threading, time, rlk\n"
               "x = np.zeros((4, 9), np.float32)\n"
               "def forever():\n  while True: rlk.ops.whiten(x)\n"
               "rlk.ops.whiten(x); stream = rlk.runtime().stream()\n"
               "threading.Thread(target=forever, daemon=True).start(); time.sleep(0.2)\n")
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
        assert (done.returncode, done.stderr) == (0, "")


def test_a_forked_process_calls():
    program = ("import numpy as np, os, rlk\n"
               "x = np.arange(12, dtype=np.float32).reshape(2, 6); want = rlk.ops.whiten(x)\n"
               "pid = os.fork()\n"
               "if pid == 0: os._exit(0 if np.array_equal(rlk.ops.whiten(x), want) else 3)\n"
               "raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n")
    assert subprocess.run([sys.executable, "-c", program], timeout=120, check=False).returncode == 0


def test_a_text_that_c_would_cut_is_refused():
    x = np.ones(3, np.float32)
    for call in (lambda: rlk.ops.relu(x, pin="cpu\0x"), lambda: rlk.require("cpu\0x"), lambda: rlk.explain("relu\0x", x),
                 lambda: rlk.runtime().stream("cpu\0x"), lambda: rlk.runtime().device_count("cpu\0x")):
        with pytest.raises(rlk.InvalidArgument, match=r"cpu\\x00x|relu\\x00x"):
            call()


def test_a_number_of_hundreds_of_digits_is_told_by_its_size(batch):
    for value in (10**400, 10**5000):
        with pytest.raises(rlk.InvalidArgument, match=f"temperature is an integer of {value.bit_length()} bits"):
            rlk.ops.logp(*batch, temperature=value)
        with pytest.raises(rlk.InvalidArgument, match="ignore_index is an integer of"):
            rlk.ops.logp(*batch, ignore_index=value)
