"""Where the loop of somebody else's script first waits for the other ranks: found without a word from them.

The modules that exchange something are looked for once, among the process's objects. Of DDP the mark is the end of the
backward pass, which waits for no gradient before; of FSDP the begin of the forward pass, which gathers parameters.
DDP of a model with buffers (batch statistics) has rank 0 send its own before each forward pass, too. The others wait
for rank 0 there, however late it is: that wait is marked, to be no time of their own.
Nothing of the script's is wrapped, replaced or kept alive: a hook a module is all, which goes with `remove`, and is
empty in a copy of the module, or in a file that holds it. A process group alone stays until what holds it has gone.
"""

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_leaves
from torch.utils.hooks import RemovableHandle

from scalescope.train.script.exchanging import find_exchanging
from scalescope.train.strategies.own_time import at_end_of_backward
from scalescope.train.strategies.process_groups import keep_group_for_reducer

Arrive = Callable[[], None]


class Waits(NamedTuple):
    """What is called where a rank begins to wait for another before it has arrived, and where it goes on."""

    begin: Callable[[], None]
    end: Callable[[], None]


#: Marking takes up to 50 µs of the host (benchmarks/live_cost.py): of a step of so many ms no more than 0.2%.
_WORTH_A_MARK_MS = 25.0
_LEAST_OFTEN = 64  # steps


class ExchangeMarks:
    """Calls `arrive` in each step where this rank first waits for the others; maybe more than once."""

    def __init__(
        self,
        ddp: Sequence[DistributedDataParallel],
        gathering: Sequence[nn.Module],
        compiled: Mapping[int, nn.Module],
        arrive: Arrive,
        waits: Waits | None = None,
    ) -> None:
        """`compiled`: by a module's id, the compiled one around it, whose hooks stay outside of what is compiled.

        Without `waits` a wait before the arrival counts as the rank's own time.
        """
        self._ddp = [(weakref.ref(one), weakref.ref(compiled.get(id(one), one))) for one in ddp]
        self._gathering = [weakref.ref(compiled.get(id(one), one)) for one in gathering]
        self._arrive, self._waits = arrive, waits
        self._handles: list[RemovableHandle] = []
        self._every, self._step = 1, 1

    def __len__(self) -> int:
        return len(self._ddp) + len(self._gathering)

    def add(self) -> None:
        """Begin to mark, once."""
        if self._handles:
            return
        for ddp, called in self._ddp:
            if (module := called()) is not None:
                hook = _Hook(_AtBackward(self, ddp))
                self._handles.append(module.register_forward_hook(hook))
                self._add_around_buffers(module, ddp())
        for called in self._gathering:
            if (module := called()) is not None:
                # FSDP2 puts its own first, which waits for the parameters: ours comes before it
                hook = _Hook(_AtForward(self))
                self._handles.append(module.register_forward_pre_hook(hook, prepend=True))

    def _add_around_buffers(self, called: nn.Module, ddp: DistributedDataParallel | None) -> None:
        """Mark where DDP sends rank 0's buffers, right before the forward pass of the module that it wraps."""
        if ddp is None or self._waits is None or not ddp.will_sync_module_buffers():
            return
        begin = _Hook(_AtBuffers(self, weakref.ref(ddp)))
        if called is not ddp or ddp.module._compiled_call_impl is not None:
            # what is compiled takes no hook inside: the rank's own time ends here, before it waits
            begin = _Hook(_AtForward(self))
        else:
            end = _Hook(_AfterBuffers(self))
            self._handles.append(ddp.module.register_forward_pre_hook(end, prepend=True))
        self._handles.append(called.register_forward_pre_hook(begin))  # after the script's own, before DDP's

    def spread(self, step_ms: float) -> None:
        """Mark so few steps of such a length that it costs them no more than 0.2%.

        It is every step, every second, fourth, …, counted from the first: where ranks take their steps for differently
        long, those that all mark are the ones that the rarest does.
        """
        self._every = 1
        while self._every < _LEAST_OFTEN and self._every * step_ms < _WORTH_A_MARK_MS:
            self._every *= 2

    def begin_step(self, number: int) -> None:
        """Say which step the passes from here on are of, however many it has: all of them are marked, or none."""
        self._step = number

    def remove(self) -> None:
        """Mark no more."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._ddp.clear()
        self._gathering.clear()

    def mark(self) -> None:
        """Mark where the rank waits for the others."""
        self._call(self._arrive)

    def begin_wait(self) -> None:
        """Mark that it waits for another before that."""
        if self._waits is not None:
            self._call(self._waits.begin)

    def end_wait(self) -> None:
        """Mark that it goes on."""
        if self._waits is not None:
            self._call(self._waits.end)

    def _call(self, called: Callable[[], None]) -> None:
        """Mark, in somebody else's training: what fails there is left out, and tried no more."""
        try:
            if not _is_capturing():
                called()
        except Exception:  # noqa: BLE001 - whatever it is, it is no reason to end somebody's training
            self.remove()

    def is_due(self) -> bool:
        """Whether the step at work is one of those that are marked, and trains."""
        return torch.is_grad_enabled() and self.is_marked()

    def is_marked(self) -> bool:
        """Whether the step at work is one of those that are marked."""
        return self._step % self._every == 0


class _AtForward:
    """Marks the begin of a forward pass."""

    def __init__(self, marks: ExchangeMarks) -> None:
        self._marks = marks

    def __call__(self, *_: Any) -> None:
        if self._marks.is_due():
            self._marks.mark()


class _AtBuffers:
    """Marks where DDP begins to await rank 0's buffers: in passes that do not train as well, and not in all that do."""

    def __init__(self, marks: ExchangeMarks, ddp: "weakref.ref[DistributedDataParallel]") -> None:
        self._marks, self._ddp = marks, ddp

    def __call__(self, *_: Any) -> None:
        ddp = self._ddp()
        if ddp is not None and self._marks.is_marked() and ddp.will_sync_module_buffers():
            self._marks.begin_wait()


class _AfterBuffers:
    """Marks where it has them."""

    def __init__(self, marks: ExchangeMarks) -> None:
        self._marks = marks

    def __call__(self, *_: Any) -> None:
        if self._marks.is_marked():
            self._marks.end_wait()


class _AtBackward:
    """Marks the end of the backward pass of what a forward pass has put out."""

    def __init__(self, marks: ExchangeMarks, ddp: "weakref.ref[DistributedDataParallel]") -> None:
        self._marks, self._ddp = marks, ddp

    def __call__(self, _: nn.Module, __: Any, output: Any) -> None:
        ddp = self._ddp()
        if ddp is None or not (ddp.require_backward_grad_sync and self._marks.is_due()):
            return  # a part of a batch that is accumulated, or no training, or none of the steps that are marked
        for leaf in (output,) if isinstance(output, Tensor) else tree_leaves(output):
            if isinstance(leaf, Tensor) and leaf.grad_fn is not None:
                at_end_of_backward(leaf, self._marks.mark)


class _Hook:
    """Passes a module's calls on. Copied or pickled with its module it is one that does nothing, and holds nothing."""

    def __init__(self, called: Callable[..., None] | None = None) -> None:
        self._called = called

    def __call__(self, *arguments: Any) -> None:
        if self._called is not None:
            self._called(*arguments)

    def __reduce__(self) -> tuple[type["_Hook"], tuple[()]]:
        return (_Hook, ())


def _is_capturing() -> bool:
    """Whether a CUDA graph is being recorded, into which no event of ours belongs."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def keep_groups_for_reducers() -> None:
    """Let no DDP module of the process end its process group under Python's lock, on which gloo's threads may wait."""
    for one in find_exchanging().ddp:
        keep_group_for_reducer(one)


def mark_exchanges(arrive: Arrive, waits: Waits | None = None) -> ExchangeMarks:
    """Look for the modules that exchange something, and mark where; none is found where the loop runs on one rank."""
    ddp, gathering, compiled = find_exchanging()
    for one in ddp:
        keep_group_for_reducer(one)
    # a hook on what a compiled module has inside might have it compiled anew
    hidden = {id(child) for one in compiled.values() for child in one.modules()} - set(compiled)
    ddp = [one for one in ddp if id(one) not in hidden]
    inside = hidden | {id(child) for one in gathering for child in one.modules() if child is not one}
    marks = ExchangeMarks(ddp, [one for one in gathering if id(one) not in inside], compiled, arrive, waits)
    marks.add()
    return marks
