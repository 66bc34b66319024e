"""What may be passed as a tensor: numpy of every layout, what has only DLPack, torch; nothing is copied or converted."""
import ctypes
import sys

import numpy as np
import pytest
import rlk
from rlk._tensors import _Managed, view


class OnlyDlpack:
    """An array of which nothing is known but DLPack; counts what it lent."""
    lent = 0

    def __init__(self, array, old=False):
        self.array, self.old = array, old

    def __dlpack__(self, **arguments):
        if self.old and arguments:
            raise TypeError("__dlpack__() got an unexpected keyword argument 'max_version'")
        type(self).lent += 1
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.fixture
def batch():
    random = np.random.default_rng(5)
    return random.standard_normal((6, 13)).astype(np.float32), random.integers(0, 13, 6)


def test_strides_are_taken_as_they_are(batch):
    logits, ids = batch
    expected = rlk.ops.logp(logits, ids)
    wide = np.zeros((12, 26), np.float32)
    wide[::2, ::2] = logits
    assert np.array_equal(rlk.ops.logp(wide[::2, ::2], ids), expected)
    assert np.array_equal(rlk.ops.logp(np.asfortranarray(logits), ids), expected)
    assert np.array_equal(rlk.ops.logp(logits[::-1], ids[::-1]), expected[::-1])
    one = np.broadcast_to(logits[0], logits.shape)
    assert np.array_equal(rlk.ops.logp(one, ids), rlk.ops.logp(np.ascontiguousarray(one), ids))


def test_memory_is_the_callers_own(batch):
    seen = view(batch[0][1:, 2:], "x")
    assert seen.address == batch[0].ctypes.data + 13 * 4 + 8
    assert (seen.shape, seen.strides) == ((5, 11), (13, 1))


def test_read_only_memory_is_an_input_and_never_an_output(batch):
    logits, ids = batch
    expected = rlk.ops.logp(logits, ids)
    logits.flags.writeable = ids.flags.writeable = False
    assert np.array_equal(rlk.ops.logp(logits, ids), expected)
    out = np.zeros(6, np.float32)
    out.flags.writeable = False
    with pytest.raises(rlk.InvalidArgument, match="the output logp is read-only"):
        rlk.ops.logp(logits, ids, outputs={"logp": out})
    assert (out == 0).all()


def test_what_has_only_dlpack_is_taken_and_given_back(batch):
    expected = rlk.ops.logp(*batch)
    for old in (False, True):
        OnlyDlpack.lent = 0
        logits, ids = OnlyDlpack(batch[0][:, ::-1], old), OnlyDlpack(12 - batch[1], old)
        before = sys.getrefcount(logits.array)
        logp = rlk.ops.logp(logits, ids)
        after = sys.getrefcount(logits.array)
        assert np.array_equal(logp, expected)
        assert OnlyDlpack.lent == 2 and after == before
    out = OnlyDlpack(np.zeros(6, np.float32))
    assert rlk.ops.logp(*batch, outputs={"logp": out}) is out
    assert np.array_equal(out.array, expected)


class WithDtype(OnlyDlpack):
    """An array of cupy or jax has a dtype of numpy's beside DLPack."""

    @property
    def dtype(self):
        return self.array.dtype


def test_an_output_is_written_into_and_no_dtype_although_it_has_one(batch):
    expected = rlk.ops.logp(*batch)
    out = WithDtype(np.zeros(6, np.float32))
    assert rlk.ops.logp(*batch, outputs={"logp": out}) is out
    assert np.array_equal(out.array, expected)
    torch = pytest.importorskip("torch")
    out = torch.zeros(6)
    assert rlk.ops.logp(*map(torch.from_numpy, batch), outputs={"logp": out}) is out
    assert np.array_equal(out.numpy(), expected)


@pytest.mark.parametrize("wrong", [np.float32(1), 5, [1.0], object])
def test_what_is_neither_a_dtype_nor_an_array_is_no_output(batch, wrong):
    with pytest.raises(rlk.ArgumentTypeError, match="the output logp is a .*, expected a tensor"):
        rlk.ops.logp(*batch, outputs={"logp": wrong})


def test_what_is_no_tensor_is_refused_by_name(batch):
    for wrong in ([[1.0]], 3.0, "logits", object()):
        with pytest.raises(rlk.ArgumentTypeError, match="logp: logits is a .*, expected a tensor"):
            rlk.ops.logp(wrong, batch[1])
    with pytest.raises(rlk.InvalidArgument, match="every input is absent; logits is required"):
        rlk.ops.logp(None, None)
    with pytest.raises(rlk.InvalidArgument, match="'ids'"):
        rlk.ops.logp(batch[0], None)


def test_a_masked_array_is_refused(batch):
    masked = np.ma.masked_array(batch[0], batch[0] > 0)
    for _ in range(2):
        with pytest.raises(rlk.InvalidArgument, match="logp: logits is a masked array.*x.filled"):
            rlk.ops.logp(masked, batch[1])
    with pytest.raises(rlk.InvalidArgument, match="the output logp is a masked array"):
        rlk.ops.logp(*batch, outputs={"logp": np.ma.masked_array(np.zeros(6, np.float32), [0, 1, 0, 0, 0, 0])})
    assert np.array_equal(rlk.ops.logp(masked.data, batch[1]), rlk.ops.logp(*batch))


def test_a_dtype_is_never_converted(batch):
    logits, ids = batch
    with pytest.raises(rlk.InvalidArgument, match="input 'ids' has dtype i16"):
        rlk.ops.logp(logits, ids.astype(np.int16))
    with pytest.raises(rlk.InvalidArgument, match="'bias' has dtype f64"):
        rlk.ops.logp(logits, ids, np.zeros(13))
    for wrong in (logits.astype(">f4"), logits.astype(np.complex64), logits.astype(object), logits.astype("U3")):
        with pytest.raises(rlk.InvalidArgument, match="logits has numpy dtype .*, which no operator takes"):
            rlk.ops.logp(wrong, ids)


def test_a_bool_is_its_byte(batch):
    mask = np.array([1, 0, 1, 1, 0, 1])
    expected = rlk.ops.logp(*batch, mask=mask.astype(np.uint8))
    assert np.array_equal(rlk.ops.logp(*batch, mask=mask.astype(bool)), expected)


def test_strides_that_cut_elements_are_refused(batch):
    odd = np.zeros(6, np.dtype([("x", np.float32), ("y", np.uint8)]))["x"]
    with pytest.raises(rlk.InvalidArgument, match="strides of .* bytes, which are no multiples"):
        rlk.ops.add(odd, odd)


def test_empty_and_scalar_arrays_are_legal(batch):
    assert rlk.ops.logp(batch[0][:0], batch[1][:0]).shape == (0,)
    total = rlk.ops.add(np.array(2.0, np.float32), np.array(3.0, np.float32))
    assert total.shape == () and total == 5
    assert rlk.ops.add(np.ones((2, 1, 3), np.float32), np.ones((4, 1), np.float32)).shape == (2, 4, 3)
    with pytest.raises(rlk.InvalidArgument, match="add: "):
        rlk.ops.add(np.ones(2, np.float32), np.ones(3, np.float32))


def test_sixteen_bits_and_eight_bytes(batch):
    logits, ids = batch
    for dtype, out, bound in ((np.float64, np.float64, 1e-12), (np.float16, np.float32, 2e-5)):
        x = logits.astype(dtype)
        logp = rlk.ops.logp(x, ids.astype(np.int32))
        exact = rlk.ops.logp(x.astype(np.float64), ids)
        assert logp.dtype == out and np.abs(logp - exact).max() < bound


def test_bf16_of_ml_dtypes(batch):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = batch[0].astype(ml_dtypes.bfloat16)
    logp = rlk.ops.logp(x, batch[1])
    assert logp.dtype == np.float32
    assert np.abs(logp - rlk.ops.logp(x.astype(np.float64), batch[1])).max() < 2e-5
    assert rlk.ops.add(x, x).dtype == ml_dtypes.bfloat16
    assert rlk.ops.logp(x, batch[1], outputs={"logp": "bf16"}).dtype == ml_dtypes.bfloat16


def test_tensors_of_torch_make_tensors_of_torch(batch):
    torch = pytest.importorskip("torch")
    expected = rlk.ops.logp(*batch, lse=True)
    logits, ids = map(torch.from_numpy, batch)
    result = rlk.ops.logp(logits, ids, lse=True)
    assert isinstance(result.logp, torch.Tensor) and np.array_equal(result.lse.numpy(), expected.lse)
    assert rlk.ops.logp(logits.T.contiguous().T, ids, mask=torch.ones(6, dtype=torch.bool)).dtype == torch.float32
    assert rlk.ops.add(logits.bfloat16(), logits.bfloat16()).dtype == torch.bfloat16
    assert rlk.ops.logp(logits.bfloat16(), ids, outputs={"logp": torch.bfloat16}).dtype == torch.bfloat16
    assert isinstance(rlk.ops.logp(logits, batch[1]), torch.Tensor)  # the first input says what is made


def test_a_tensor_of_torch_that_is_not_its_memory_is_refused(batch):
    torch = pytest.importorskip("torch")
    logits, ids = map(torch.from_numpy, batch)
    with pytest.raises(rlk.InvalidArgument, match="logp: an input requires a gradient.*rlk.torch.logp"):
        rlk.ops.logp(logits.clone().requires_grad_(), ids)
    with torch.no_grad():
        rlk.ops.logp(logits.clone().requires_grad_(), ids)
    with pytest.raises(rlk.InvalidArgument, match="logits has layout torch.sparse_coo"):
        rlk.ops.logp(logits.to_sparse(), ids)
    nested = torch.nested.nested_tensor([torch.zeros(3, 4), torch.zeros(2, 4)])
    jagged = torch.nested.nested_tensor([torch.zeros(3, 4), torch.zeros(2, 4)], layout=torch.jagged)
    for x in (nested, jagged):
        for call in (rlk.ops.softmax, rlk.torch.softmax):
            with pytest.raises(rlk.InvalidArgument, match="x is a nested tensor.*values"):
                call(x)
    with pytest.raises(rlk.InvalidArgument, match="lazily negated"):
        rlk.ops.logp(torch.complex(logits, logits).conj().imag, ids)
    with pytest.raises(rlk.InvalidArgument, match="logits is on meta, which has no memory"):
        rlk.ops.logp(logits.to("meta"), ids)


def test_torch_knows_that_an_output_was_written_into():
    torch = pytest.importorskip("torch")
    ones, weight = torch.ones(4), torch.randn(4, requires_grad=True)
    for call in (lambda x: rlk.ops.add(ones, ones, outputs={"out": x}),
                 lambda x: rlk.ops.adamw_step(ones, x, torch.zeros(4), torch.zeros(4))):
        saved = torch.ones(4)
        product = (weight * saved).sum()
        call(saved)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            product.backward()
    leaf = torch.ones(4, requires_grad=True)
    with pytest.raises(rlk.InvalidArgument, match="add: an output that is written into requires a gradient.*no_grad"):
        rlk.ops.add(ones, ones, outputs={"out": leaf})
    assert leaf.tolist() == [1] * 4
    with torch.no_grad():
        assert rlk.ops.add(ones, ones, outputs={"out": leaf}) is leaf
    assert leaf.tolist() == [2] * 4
    with torch.inference_mode():
        assert rlk.ops.add(ones, ones, outputs={"out": torch.ones(4)}).tolist() == [2] * 4


def test_the_memory_of_an_output_lives_as_long_as_the_output(batch):
    results = [rlk.ops.logp(*batch, lse=True) for _ in range(200)]
    assert all(np.array_equal(r.lse, results[0].lse) for r in results)


@pytest.mark.parametrize("dimensions, shape", [(-1, (4,)), (1, None)])
def test_dimensions_without_sizes_are_refused(dimensions, shape):
    numbers = np.arange(4, dtype=np.float32)
    sizes = (ctypes.c_int64 * 1)(*shape) if shape else None
    managed = _Managed(numbers.ctypes.data, 1, 0, dimensions, 2, 32, 1, sizes, None, 0)
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]

    class Wrong:
        def __dlpack__(self):
            return new(ctypes.addressof(managed), b"dltensor", None)

    with pytest.raises(rlk.InvalidArgument, match=f"x comes by DLPack with {dimensions} dimensions"):
        rlk.ops.relu(Wrong())


@pytest.mark.parametrize("offset", [2**63, 2**64 - 4, 2])
def test_an_offset_that_leads_to_no_address_of_an_element_is_refused(offset):
    numbers = np.arange(4, dtype=np.float32)
    managed = _Managed(numbers.ctypes.data, 1, 0, 1, 2, 32, 1, (ctypes.c_int64 * 1)(2), None, offset)
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]

    class Wrong:
        def __dlpack__(self):
            return new(ctypes.addressof(managed), b"dltensor", None)

    with pytest.raises(rlk.InvalidArgument, match=f"byte_offset of {offset}; an address of memory is expected"):
        rlk.ops.relu(Wrong())
