"""A rank's own time in a step: until something that it computes has to wait for the other ranks."""

from collections.abc import Callable

from torch import Tensor
from torch.autograd import Variable


def at_end_of_backward(tensor: Tensor, call: Callable[[], None]) -> None:
    """Call once the pass that goes back from a tensor has computed all gradients, before it awaits their exchange.

    Autograd makes such calls in the order in which they were asked for. DDP asks for its own, which lets the compute
    stream wait for the buckets, when the last bucket is handed over: after the pass has begun, so after ours.
    """

    def ask(_: Tensor) -> None:
        Variable._execution_engine.queue_callback(call)

    tensor.register_hook(ask)
