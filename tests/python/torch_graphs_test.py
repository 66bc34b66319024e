"""What torch.compile makes of a call of rlk.torch: one operator forward and one backward. Counted, never timed."""
import pytest

torch = pytest.importorskip("torch")

import rlk.torch  # noqa: E402
from torch._dynamo.backends.common import aot_autograd  # noqa: E402

IDS = torch.arange(5)


def compiled(call):
    """(output and gradient, {graph: rlk's operators in it}) of a call, in one graph."""
    operators = {"forward": [], "backward": []}

    def counted(kind):
        def compiler(graph, _):
            operators[kind] += [str(n.target) for n in graph.graph.nodes if str(n.target).startswith("rlk.")]
            return graph
        return compiler

    torch._dynamo.reset()
    x = torch.linspace(-1, 1, 35).reshape(5, 7).requires_grad_()
    backend = aot_autograd(fw_compiler=counted("forward"), bw_compiler=counted("backward"))
    y = torch.compile(call, fullgraph=True, backend=backend)(x)
    gradient, = torch.autograd.grad(y, x)
    return (y, gradient), operators


def plain(call):
    x = torch.linspace(-1, 1, 35).reshape(5, 7).requires_grad_()
    y = call(x)
    return y, torch.autograd.grad(y, x)[0]


@pytest.mark.parametrize("call", [
    lambda x: rlk.torch.logp(x, IDS).sum(),
    lambda x: rlk.torch.logp(x, IDS, temperature=0.7, entropy=True).logp.sum(),
    lambda x: rlk.torch.logp(x, ids=IDS, numerics="accurate").sum(),
    lambda x: rlk.torch.rms_norm(x, torch.ones(7)).sum(),
], ids=["defaults", "words", "numerics", "rms_norm"])
def test_a_call_is_one_operator_forward_and_one_backward(call):
    results, operators = compiled(call)
    assert all(map(torch.equal, results, plain(call)))
    assert [len(of_graph) for of_graph in operators.values()] == [1, 1], operators
    assert all(name.endswith(".kernel") for names in operators.values() for name in names), operators
