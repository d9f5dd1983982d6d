"""Operations in a row, each on the next of the buffers that they are bound to."""

from collections.abc import Callable, Sequence
from typing import Literal

from scalescope.collectives.operations.operation import Call

Run = Callable[[int], None]  # runs so many operations
IssuedBy = Literal["c", "python"]  # the language of the loop, which is a part of a small operation's time


def rotating(calls: Sequence[Call]) -> Run:
    """Return a function that runs so many calls, going round the buffers that they are bound to."""
    position = 0
    slots = len(calls)

    def run(count: int) -> None:
        nonlocal position
        for index in range(position, position + count):
            calls[index % slots]()
        position = (position + count) % slots

    return run
