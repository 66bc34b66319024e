"""rlk.torch.neighborhood_attention beside softmax under the mask of its definition, in fp64."""
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed here")
import rlk.torch  # noqa: E402


def by_definition(q, k, v, kernel_size, dilation, scale):
    length, groups = q.shape[1], q.shape[2] // k.shape[2]
    k, v = (x.repeat_interleave(groups, 2) for x in (k, v))
    distance = torch.arange(length)[:, None] - torch.arange(length)
    seen = (distance.abs() <= dilation * (kernel_size // 2)) & (distance % dilation == 0)
    scores = scale * torch.einsum("bihd,bjhd->bhij", q, k)
    return torch.einsum("bhij,bjhd->bihd", scores.masked_fill(~seen, -torch.inf).softmax(-1), v)


# Lengths that the dilation divides, that it does not, and that are below it; kernels of one token and of more than all.
@pytest.mark.parametrize("kernel_size", [1, 7, 65])
@pytest.mark.parametrize("dilation", [1, 2, 3, 40])
@pytest.mark.parametrize("length", [24, 37, 1])
@pytest.mark.parametrize("batch", [1, 3])
def test_it_and_its_gradients_are_those_of_the_definition(batch, length, dilation, kernel_size):
    torch.manual_seed(length * 100 + dilation)
    sizes = [(batch, length, heads, 16) for heads in (4, 2, 2)]
    leaves = [torch.randn(size, dtype=torch.float64).requires_grad_() for size in sizes]
    weights = torch.randn(sizes[0], dtype=torch.float64)
    expected = by_definition(*leaves, kernel_size, dilation, 0.3)
    found = rlk.torch.neighborhood_attention(*leaves, kernel_size, dilation, scale=0.3)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    of_expected, of_found = (torch.autograd.grad((x * weights).sum(), leaves) for x in (expected, found))
    torch.testing.assert_close(of_found, of_expected, rtol=1e-11, atol=1e-12)


def test_without_a_scale_it_is_one_over_the_root_of_the_head_size():
    q, k, v = torch.randn(3, 2, 9, 2, 16)
    torch.testing.assert_close(rlk.torch.neighborhood_attention(q, k, v, 3, 2),
                               by_definition(q.double(), k.double(), v.double(), 3, 2, 0.25).float())


@pytest.mark.parametrize("kernel_size, dilation, words", [(4, 1, "kernel_size is 4, expected an odd number"),
                                                          (-1, 1, "kernel_size is -1"), (3, 0, "dilation is 0, expected 1 or more")])
def test_a_window_that_is_none_is_refused(kernel_size, dilation, words):
    x = torch.zeros(1, 4, 1, 8)
    with pytest.raises(rlk.InvalidArgument, match=words):
        rlk.torch.neighborhood_attention(x, x, x, kernel_size, dilation)


def test_tensors_of_different_lengths_are_refused_with_their_shapes():
    q, k = torch.zeros(1, 4, 1, 8), torch.zeros(1, 5, 1, 8)
    with pytest.raises(rlk.InvalidArgument, match=r"q is \(1, 4, 1, 8\), k \(1, 5, 1, 8\)"):
        rlk.torch.neighborhood_attention(q, k, k)
