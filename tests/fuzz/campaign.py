"""Runs mutated inputs through the product: `python -m tests.fuzz.campaign CASES [FIRST]` a kind, figures at the end.

A case that ends with anything but an exit code, or that takes more than ten seconds or a gigabyte, is kept as a file in
`fuzz-failures/`, named by kind, seed and number.
"""

import resource
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.mutator import mutated
from tests.fuzz.subjects import Subject, subjects
from tests.report_samples import write_study

FAILURES = Path("fuzz-failures")
LIMIT_S, LIMIT_KB = 10.0, 1_000_000


@dataclass
class Figures:
    """What a kind's cases came to."""

    cases: int = 0
    codes: dict[int, int] = field(default_factory=dict)
    slowest_s: float = 0.0
    failed: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        codes = ", ".join(f"exit {code}: {count}" for code, count in sorted(self.codes.items()))
        return f"{self.cases} cases ({codes}), {len(self.failed)} failed, slowest {self.slowest_s:.1f} s of CPU"


def run_cases(kind: str, subject: Subject, first: int, count: int) -> Figures:
    """Run so many cases of one kind, the seeds in turn."""
    figures = Figures()
    names = sorted(subject.seeds)
    for number in range(first, first + count):
        name = names[number % len(names)]
        data = mutated(subject.seeds[name], number)
        began, why = time.process_time(), ""
        with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
            try:
                code = subject.use(data, name, Path(folder))
                figures.codes[code] = figures.codes.get(code, 0) + 1
                if code not in (0, 1, 2):
                    why = f"exit code {code}"
            except AssertionError as defect:
                why = str(defect)
            except Exception:  # noqa: BLE001 - this is what is looked for
                why = traceback.format_exc()
        took_s = time.process_time() - began
        figures.cases += 1
        figures.slowest_s = max(figures.slowest_s, took_s)
        if took_s > LIMIT_S:
            why = why or f"{took_s:.1f} s"
        if why:
            kept = FAILURES / f"{kind.replace(' ', '-')}-{number}-{name.replace('/', '_')}"
            FAILURES.mkdir(exist_ok=True)
            kept.write_bytes(data)
            figures.failed.append(f"{kept}: {why}")
    return figures


def main() -> int:
    """Run all kinds, and return 1 where a case failed or memory grew beyond the limit."""
    count = int(sys.argv[1])
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    wanted = sys.argv[3:]
    bad = False
    with tempfile.TemporaryDirectory(prefix="fuzz-study-") as folder:
        for kind, subject in subjects(write_study(Path(folder) / "study").path).items():
            if wanted and kind not in wanted:
                continue
            figures = run_cases(kind, subject, first, count)
            print(f"{kind}: {figures}", flush=True)
            for failure in figures.failed[:20]:
                print(failure, flush=True)
            bad = bad or bool(figures.failed)
    peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"largest memory {peak_kb // 1000} MB")
    return int(bad or peak_kb > LIMIT_KB)


if __name__ == "__main__":
    sys.exit(main())
