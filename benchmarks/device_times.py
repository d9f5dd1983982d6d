"""What work takes of a GPU, and what launching it takes of the host, apart."""

import time
from collections.abc import Callable, Sequence

import torch

#: A GPU is kept busy for so many of its cycles, 40 ms or so, while a host launches what is timed behind them.
_HELD_CYCLES, _AT_MOST = 80_000_000, 1_280_000_000


def device_ms(run: Callable[[], object]) -> float:
    """Return what `run`'s kernels take of the device with no host to wait for, ms. It must not wait for the device."""
    held_cycles = _HELD_CYCLES
    while True:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        torch.cuda._sleep(held_cycles)
        begin.record()
        run()
        end.record()
        is_held = not begin.query()
        torch.cuda.synchronize()
        if is_held:
            took: float = begin.elapsed_time(end)
            return took
        held_cycles *= 4
        if held_cycles > _AT_MOST:
            raise RuntimeError("the device was done before the host had launched all of it: time less at once")


def host_ms(run: Callable[[], object]) -> float:
    """Return what the host takes to launch `run`, the device being idle, ms."""
    torch.cuda.synchronize()
    begun = time.perf_counter()
    run()
    took = (time.perf_counter() - begun) * 1e3
    torch.cuda.synchronize()
    return took


def shortest_in_turns(runs: Sequence[Callable[[], object]], rounds: int) -> list[tuple[float, float]]:
    """Return the shortest (device's, host's) times of each, ms, all run in turns."""
    found = [(float("inf"), float("inf"))] * len(runs)
    for run in runs:
        for _ in range(2):
            host_ms(run)  # what is loaded, compiled or allocated at first
    for _ in range(rounds):
        for at, run in enumerate(runs):
            found[at] = (min(found[at][0], device_ms(run)), min(found[at][1], host_ms(run)))
    return found


def given_back(by_hand: tuple[float, float], built_in: tuple[float, float]) -> str:
    """Return both ways' times and what the second gives back, in columns: of the device, then of the host."""
    return "\t".join(
        f"{own:.3f}\t{other:.3f}\t{1 - other / own:.2f}" for own, other in zip(by_hand, built_in, strict=True)
    )
