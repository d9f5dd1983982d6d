"""What issuing an operation of `transport=direct` costs the host: the loop in C against the loop in Python.

    python benchmarks/issue_cost.py

Needs a C compiler, the C helper that the installation built with it, and no GPU: a library with NCCL's interface that
does nothing stands in for NCCL, so that what is left is the loop itself. The rounds alternate; printed is the median of
the rounds, in ns an operation.
"""

import ctypes
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scalescope.collectives.transports.issue import Enqueue, Grouping, Issuer, LibraryCall
from scalescope.collectives.transports.rotation import Run, rotating

SLOTS = 64
COUNT = 20_000
ROUNDS = 15
LIBRARY = """
#include <stddef.h>
int ncclAllReduce(const void* s, void* r, size_t n, int t, int o, void* c, void* st) { return 0; }
int ncclSend(const void* s, size_t n, int t, int peer, void* c, void* st) { return 0; }
int ncclRecv(void* r, size_t n, int t, int peer, void* c, void* st) { return 0; }
int ncclGroupStart(void) { return 0; }
int ncclGroupEnd(void) { return 0; }
"""


def main() -> int:
    issuer = Issuer.find()
    if issuer is None:
        print("the C helper is not built: see scalescope doctor", file=sys.stderr)
        return 3
    library, stream = stand_in(), ctypes.c_void_p(0x57)
    for name, operations in (("all_reduce", reductions(library, stream)), ("send_recv", exchanges(library, stream))):
        loops = {"python": rotating(operations), "c": issuer.rotating(operations, stream)}
        took: dict[str, list[float]] = {by: [] for by in loops}
        for _ in range(ROUNDS):
            for by, run in loops.items():
                took[by].append(ns_each(run))
        medians = {by: statistics.median(times) for by, times in took.items()}
        print(f"{name}: {medians['python']:.0f} ns an operation from Python, {medians['c']:.0f} ns from C")
    return 0


def ns_each(run: Run) -> float:
    start = time.perf_counter_ns()
    run(COUNT)
    return (time.perf_counter_ns() - start) / COUNT


def reductions(library: ctypes.CDLL, stream: ctypes.c_void_p) -> list[Enqueue]:
    return [Enqueue((all_reduce(library, slot, stream),), None, check) for slot in range(SLOTS)]


def exchanges(library: ctypes.CDLL, stream: ctypes.c_void_p) -> list[Enqueue]:
    grouping = Grouping(library.ncclGroupStart, library.ncclGroupEnd)
    return [
        Enqueue((half(library.ncclSend, slot, stream), half(library.ncclRecv, slot, stream)), grouping, check)
        for slot in range(SLOTS)
    ]


def all_reduce(library: ctypes.CDLL, slot: int, stream: ctypes.c_void_p) -> LibraryCall:
    buffer, count, kind, sum_ = ctypes.c_void_p(slot + 1), ctypes.c_size_t(2), ctypes.c_int(7), ctypes.c_int(0)
    return LibraryCall(library.ncclAllReduce, (buffer, buffer, count, kind, sum_, ctypes.c_void_p(0xC0), stream))


def half(function: object, slot: int, stream: ctypes.c_void_p) -> LibraryCall:
    buffer, count, kind, peer = ctypes.c_void_p(slot + 1), ctypes.c_size_t(2), ctypes.c_int(7), ctypes.c_int(1)
    return LibraryCall(function, (buffer, count, kind, peer, ctypes.c_void_p(0xC0), stream))


def stand_in() -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder) / "standin.c", Path(folder) / "standin.so"
        source.write_text(LIBRARY)
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", made, source], check=True)
        return ctypes.CDLL(str(made))


def check(result: int) -> None:
    if result:
        raise RuntimeError(f"result {result}")


if __name__ == "__main__":
    sys.exit(main())
