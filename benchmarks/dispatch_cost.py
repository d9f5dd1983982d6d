"""What an eager call of torch.distributed feels of us: the threads that watch, and torch's flight record.

    python benchmarks/dispatch_cost.py [--ranks 8]

Needs no GPU: gloo over a group of one rank, where a call of all_reduce is dispatch alone. The watchdog is switched on
and off in turn, beside those of the job's other ranks; the flight record counts where a process starts, so a process
each, again in turn. Printed: µs a call as the median of batches of 300, the watching threads' time on a core, and the
main thread's own time a call with a record of 0 and of 2,000 entries, in the least of many batches.
"""

import argparse
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

HERE = Path(__file__).resolve()
sys.path.insert(0, str(HERE.parent.parent))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

from scalescope.launch.watch.progress_watchdog import ProgressWatchdog  # noqa: E402

BATCH = 300
ROUNDS, ROUND_S = 4, 3.0
DEPTH = 20  # Python frames above the call, which the record keeps


def main() -> int:
    options = _options()
    if options.neighbour is not None:
        return neighbour(options)
    if options.recorded:
        print(own_time_us(DEPTH), flush=True)
        os._exit(0)
    watched(options.ranks)
    recorded()
    sys.stdout.flush()
    os._exit(0)  # the watchdog has no end of a job to come to


def watched(ranks: int) -> None:
    """Print what a call takes with and without the watchdog."""
    store = dist.TCPStore("127.0.0.1", 0, ranks, is_master=True, wait_for_workers=False)
    command = [sys.executable, str(HERE), "--ranks", str(ranks), "--port", str(store.port), "--neighbour"]
    others = [subprocess.Popen([*command, str(rank)], stdout=subprocess.PIPE) for rank in range(1, ranks)]
    for other in others:
        assert other.stdout is not None
        other.stdout.readline()  # it watches
    call = one_rank_group()
    took: dict[bool, list[float]] = {False: [], True: []}
    busy = []
    batches(call, 1.0)
    for _ in range(ROUNDS):
        took[False] += batches(call, ROUND_S)
        watchdog = begin_watchdog(store, 0, ranks)
        threads = [thread.native_id for thread in threading.enumerate() if thread.name.startswith("watch-")]
        before = on_core_ms(threads)
        took[True] += batches(call, ROUND_S)
        busy.append((on_core_ms(threads) - before) / ROUND_S)
        watchdog.end()
        time.sleep(1.0)
    for other in others:
        other.kill()
    without, with_it = (statistics.median(took[on]) for on in (False, True))
    print(f"a call of {ranks} ranks' job: {without:.2f} µs without the watchdog, {with_it:.2f} µs with it, whose "
          f"threads are on a core for {statistics.fmean(busy):.2f} ms of a second")  # fmt: skip


def recorded() -> None:
    """Print the main thread's time a call without a flight record and with one."""
    took: dict[str, list[float]] = {"0": [], "2000": []}
    for _ in range(ROUNDS):
        for entries, times in took.items():
            done = subprocess.run([sys.executable, str(HERE), "--recorded"], check=True, capture_output=True, text=True,
                                  env={**os.environ, "TORCH_FR_BUFFER_SIZE": entries})  # fmt: skip
            times.append(float(done.stdout.split()[-1]))
    none, some = (statistics.median(times) for times in took.values())
    print(f"a call's time on a core: {none:.2f} µs without a flight record, {some:.2f} µs with one")


def own_time_us(depth: int) -> float:
    if depth > 0:
        return own_time_us(depth - 1)
    call = one_rank_group()
    took = []
    for _ in range(100):
        start = time.thread_time()
        for _ in range(BATCH):
            call()
        took.append((time.thread_time() - start) / BATCH * 1e6)
    return min(took)


def neighbour(options: argparse.Namespace) -> int:
    store = dist.TCPStore("127.0.0.1", options.port, options.ranks, is_master=False, timeout=timedelta(seconds=60))
    begin_watchdog(store, options.neighbour, options.ranks)
    print("here", flush=True)
    threading.Event().wait()
    return 0


def begin_watchdog(store: dist.Store, rank: int, ranks: int) -> ProgressWatchdog:
    watchdog = ProgressWatchdog(store, rank, ranks)
    watchdog.begin(1e6)
    return watchdog


def one_rank_group() -> Callable[[], object]:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    buffer = torch.zeros(2)
    return lambda: dist.all_reduce(buffer)


def batches(call: Callable[[], object], seconds: float) -> list[float]:
    until, took = time.perf_counter() + seconds, []
    while time.perf_counter() < until:
        start = time.perf_counter()
        for _ in range(BATCH):
            call()
        took.append((time.perf_counter() - start) / BATCH * 1e6)
    return took


def on_core_ms(threads: list[int | None]) -> float:
    return sum(int(Path(f"/proc/self/task/{thread}/schedstat").read_text().split()[0]) for thread in threads) / 1e6


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--neighbour", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--recorded", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
