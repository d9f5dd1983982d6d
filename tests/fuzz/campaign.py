"""Runs mutated inputs through the product: `python -m tests.fuzz.campaign CASES [MINUTES] [KIND …]`.

CASES traces, and as many of the other kinds together, in rounds, so that a campaign that time ends has some of each. A
round runs in a process forked from this one, which has loaded everything: a case costs what the product does with it,
nothing adds up from round to round, and an input that ends the process itself, by a signal, a minute of CPU or 4 GB,
is a failed case. Figures are appended to `fuzz-results.jsonl`, failing inputs are kept in `fuzz-failures/`, both in the
current folder: the next start goes on behind the last case, and the sum of all is printed. A signal ends it after the
case at work.
"""

import gc
import multiprocessing
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

from tests.fuzz.cases import input_of, keep, run_case
from tests.fuzz.figures import Figures, Outcome, append_figures, read_figures, sum_of
from tests.fuzz.subjects import Subject, subjects
from tests.report_samples import write_study

RESULTS = Path("fuzz-results.jsonl")
ROUND = 200  # traces
MOST_CPU_S, MOST_BYTES = 60, 4 << 30
_asked_to_end: list[int] = []


def run_round(kind: str, subject: Subject, first: int, count: int) -> Figures:
    """Run cases in processes of their own, and go on behind one that ends its process."""
    figures = Figures(kind, first)
    while figures.cases < count and not _asked_to_end:
        for outcome in _outcomes(kind, subject, first + figures.cases, count - figures.cases):
            figures.add(outcome)
            if _asked_to_end:
                break
    return figures


def _outcomes(kind: str, subject: Subject, first: int, count: int) -> Iterator[Outcome]:
    """Yield each case's outcome; the last one is that of the case that ended the process, where one did."""
    here, there = multiprocessing.Pipe(duplex=False)
    worker = multiprocessing.get_context("fork").Process(target=_work, args=(there, kind, subject, first, count))
    worker.start()
    there.close()
    number = first
    try:
        while number < first + count:
            yield here.recv()
            number += 1
    except EOFError:
        worker.join()
        name, data = input_of(subject, number)
        kept = keep(kind, number, name, data)
        yield Outcome(number, None, len(data), 0.0, 0, f"{kept}: it ended the process ({worker.exitcode})")
    finally:
        worker.kill()
        worker.join()
        here.close()


def _work(there: Connection, kind: str, subject: Subject, first: int, count: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the campaign ends the round
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, resource.RLIM_INFINITY))
    for number in range(first, first + count):
        most_s = int(time.process_time()) + MOST_CPU_S
        resource.setrlimit(resource.RLIMIT_CPU, (most_s, resource.RLIM_INFINITY))
        there.send(run_case(kind, subject, number))


def main() -> int:
    """Run all kinds, and return 1 where a case failed."""
    cases = int(sys.argv[1])
    until = time.monotonic() + 60 * float(sys.argv[2]) if len(sys.argv) > 2 else float("inf")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: _asked_to_end.append(number))
    if Path("/dev/shm").is_dir():
        tempfile.tempdir = "/dev/shm"
    with tempfile.TemporaryDirectory(prefix="fuzz-study-") as folder:
        found = subjects(write_study(Path(folder) / "study").path)
        kinds = {kind: found[kind] for kind in sys.argv[3:] or found}
        _load(kinds)
        _go_on(kinds, {kind: cases if kind == "traces" else cases // (len(found) - 1) for kind in kinds}, until)
    sums = sum_of(read_figures(RESULTS))
    for kind, figures in sums.items():
        print(f"{kind}: {figures}")
        for failure in figures.failed[:20]:
            print(failure)
    return int(any(figures.failed for figures in sums.values()))


def _load(kinds: dict[str, Subject]) -> None:
    """Let this process import what cases import, and let no later collection of garbage look at it."""
    for kind, subject in kinds.items():
        for number in range(-8, 0):
            run_case(kind, subject, number)
    gc.collect()
    gc.freeze()


def _go_on(kinds: dict[str, Subject], shares: dict[str, int], until: float) -> None:
    """Run rounds of each kind in turn until each has had its share, counting what earlier starts did."""
    done = dict.fromkeys(kinds, 0)
    for earlier in read_figures(RESULTS):
        if earlier.kind in done:
            done[earlier.kind] = max(done[earlier.kind], earlier.first + earlier.cases)
    while any(done[kind] < shares[kind] for kind in kinds):
        for kind, subject in kinds.items():
            count = min(shares[kind] - done[kind], ROUND if kind == "traces" else ROUND // 4)
            if count <= 0:
                continue
            if _asked_to_end or time.monotonic() > until:
                return
            figures = run_round(kind, subject, done[kind], count)
            append_figures(RESULTS, figures)
            done[kind] += figures.cases


if __name__ == "__main__":
    sys.exit(main())
