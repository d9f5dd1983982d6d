"""Runs mutated inputs through the product: `python -m tests.fuzz.campaign CASES [MINUTES] [KIND …]` prints figures.

CASES traces, and as many of the other kinds together, in rounds, so that a campaign that time ends has some of each. A
case that ends with anything but an exit code, or that takes more than ten seconds or a gigabyte, is kept as a file in
`fuzz-failures/`, named by kind, number and seed.
"""

import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.mutator import mutated
from tests.fuzz.subjects import Subject, subjects
from tests.report_samples import write_study

FAILURES = Path("fuzz-failures")
LIMIT_S, LIMIT_KB = 10.0, 1_000_000
ROUND = 100  # traces


@dataclass
class Figures:
    """What a kind's cases came to."""

    cases: int = 0
    codes: Counter[int] = field(default_factory=Counter)
    largest_bytes: int = 0
    cpu_s: float = 0.0
    slowest_s: float = 0.0
    peak_kb: int = 0  # of this process, which does one case after the other
    failed: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        codes = ", ".join(f"exit {code}: {count}" for code, count in sorted(self.codes.items()))
        return (
            f"{self.cases} cases of up to {self.largest_bytes // 1000} kB ({codes}), {len(self.failed)} failed, "
            f"{self.cpu_s:.0f} s of CPU, slowest {self.slowest_s:.1f} s, {self.peak_kb // 1000} MB at most"
        )


def run_cases(kind: str, subject: Subject, first: int, count: int, figures: Figures | None = None) -> Figures:
    """Run so many cases of one kind, the seeds in turn, and add them to `figures`."""
    figures = figures or Figures()
    names = sorted(subject.seeds)
    for number in range(first, first + count):
        name = names[number % len(names)]
        data = mutated(subject.seeds[name], number)
        if why := _run_case(subject, data, name, figures):
            kept = FAILURES / f"{kind.replace(' ', '-')}-{number}-{name.replace('/', '_')}"
            FAILURES.mkdir(exist_ok=True)
            kept.write_bytes(data)
            figures.failed.append(f"{kept}: {why}")
    return figures


def _run_case(subject: Subject, data: bytes, name: str, figures: Figures) -> str:
    """Run one case; return what is wrong with how it ended."""
    began, why = time.process_time(), ""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        try:
            code = subject.use(data, name, Path(folder))
            figures.codes[code] += 1
            if code not in (0, 1, 2):
                why = f"exit code {code}"
        except AssertionError as defect:
            why = str(defect)
        except Exception:  # noqa: BLE001 - this is what is looked for
            why = traceback.format_exc()
    took_s = time.process_time() - began
    peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    figures.cases += 1
    figures.largest_bytes = max(figures.largest_bytes, len(data))
    figures.cpu_s += took_s
    figures.slowest_s = max(figures.slowest_s, took_s)
    if took_s > LIMIT_S:
        why = why or f"{took_s:.1f} s of CPU"
    if peak_kb > LIMIT_KB >= figures.peak_kb:
        why = why or f"{peak_kb // 1000} MB"
    figures.peak_kb = peak_kb
    return why


def main() -> int:
    """Run all kinds, and return 1 where a case failed."""
    cases = int(sys.argv[1])
    until = time.monotonic() + 60 * float(sys.argv[2]) if len(sys.argv) > 2 else float("inf")
    with tempfile.TemporaryDirectory(prefix="fuzz-study-") as folder:
        found = subjects(write_study(Path(folder) / "study").path)
        kinds = {kind: found[kind] for kind in sys.argv[3:] or found}
        shares = {kind: cases if kind == "traces" else cases // (len(found) - 1) for kind in kinds}
        figures = {kind: Figures() for kind in kinds}
        while time.monotonic() < until and any(figures[kind].cases < shares[kind] for kind in kinds):
            for kind, subject in kinds.items():
                done = figures[kind].cases
                count = min(shares[kind] - done, max(1, ROUND * shares[kind] // cases))
                run_cases(kind, subject, done, count, figures[kind])
    for kind, of_kind in figures.items():
        print(f"{kind}: {of_kind}")
        for failure in of_kind.failed[:20]:
            print(failure)
    return int(any(of_kind.failed for of_kind in figures.values()))


if __name__ == "__main__":
    sys.exit(main())
