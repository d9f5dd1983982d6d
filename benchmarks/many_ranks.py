"""Analysing many ranks: time, and memory, which is that of the ranks' summaries.

    python benchmarks/many_ranks.py                                  4, 100 and 1000 ranks by processes
    mpirun -n 3 python benchmarks/many_ranks.py --mpi --ranks 1000    the same on MPI ranks

The traces are the four real ones of `tests/data/gpt_ddp_compile_n4`, repeated under other rank numbers: a file's
header, with its own rank, is a gzip member of its own in front of the shared rest. All ranks are then one process
group. Each four are as on another host, whose clock is some microseconds behind the one before: files of equal
nanoseconds are one file that is there twice, and count once.
"""

import argparse
import gzip
import json
import re
import resource
import tempfile
import time
from concurrent.futures import Executor
from pathlib import Path

from scalescope.scaling.analyze import analyze_run
from scalescope.scaling.ranks.mpi_executor import mpi_workers

#: What lies between the clocks of hosts that follow each other, in ns: less than a transfer takes.
_CLOCKS_APART_NS = 1_009
SOURCE = Path(__file__).resolve().parent.parent / "tests" / "data" / "gpt_ddp_compile_n4"


def make(folder: Path, ranks: int) -> None:
    """Write the traces of this many ranks."""
    heads, bodies = [], []
    for path in sorted(SOURCE.iterdir()):
        text = gzip.decompress(path.read_bytes())
        cut = text.index(b'"traceEvents"')
        everyone = b"[" + b", ".join(b"%d" % rank for rank in range(ranks)) + b"]"
        head = re.sub(rb'"ranks": \[[^]]*\]', b'"ranks": ' + everyone, text[:cut])
        head = re.sub(rb'"(world_size|pg_size)": 4', rb'"\1": %d' % ranks, head)
        # the profiler cuts long lists of ranks, so that readers turn to the header
        body = text[cut:].replace(b'"[0, 1, 2, 3]"', b'"[0, 1, 2, 3, ..., ]"')
        body = body.replace(b'"Group size": 4', b'"Group size": %d' % ranks)
        heads.append(head)
        bodies.append(gzip.compress(body, 6))
    for rank in range(ranks):
        head = re.sub(rb'"rank": \d+', b'"rank": %d' % rank, heads[rank % 4])
        base = re.search(rb'"baseTimeNanoseconds": (\d+)', head)
        assert base is not None, "the ranks' clocks are moved apart by it"
        own = b"%d" % (int(base[1]) + rank // 4 * _CLOCKS_APART_NS)
        head = head[: base.start(1)] + own + head[base.end(1) :]
        (folder / f"rank{rank}.json.gz").write_bytes(gzip.compress(head, 6) + bodies[rank % 4])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[4, 100, 1000])
    parser.add_argument("--mpi", action="store_true", help="work on the ranks of the MPI job this runs in")
    options = parser.parse_args()
    if not options.mpi:
        _measure(options.ranks, None)
        return
    with mpi_workers() as executor:
        if executor is not None:
            _measure(options.ranks, executor)


def _peak_mb(_: int = 0) -> int:
    """Return the peak resident size of the process this runs in."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6)


def _cpu_seconds() -> float:
    """Return the processor time of this process and of those that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _measure(counts: list[int], executor: Executor | None) -> None:
    for ranks in counts:
        with tempfile.TemporaryDirectory() as folder:
            make(Path(folder), ranks)
            begin, used = time.perf_counter(), _cpu_seconds()
            answer = analyze_run(Path(folder), executor=executor)
            seconds, cpu_seconds = time.perf_counter() - begin, _cpu_seconds() - used
        if executor is not None:
            worker_mb = max(executor.map(_peak_mb, range(64)))  # enough for each worker to get one
        else:
            worker_mb = round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e6)
        whole = sum(one.transfer_us is not None for one in answer.collectives)
        print(
            json.dumps(
                {
                    "ranks": len(answer.ranks),
                    "by": "mpi" if executor is not None else "processes",
                    "seconds": round(seconds, 2),
                    # where others use the cores, this says more than the clock; MPI's ranks count their own
                    "cpu_seconds": None if executor is not None else round(cpu_seconds, 2),
                    "joining_process_peak_mb": _peak_mb(),
                    "worker_peak_mb": worker_mb,
                    "collectives_matched": whole,
                    "verdict": answer.quality.verdict,
                }
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
