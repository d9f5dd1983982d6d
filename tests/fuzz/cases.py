"""One case: a mutated input, what the product does with it, and whether its end is a good one."""

import resource
import tempfile
import time
import traceback
from contextlib import suppress
from pathlib import Path

from tests.fuzz.figures import Figures, Outcome
from tests.fuzz.mutator import mutated
from tests.fuzz.subjects import Subject

FAILURES = Path("fuzz-failures")
LIMIT_S, LIMIT_KB = 10.0, 1_000_000
#: What a process holds that has loaded no more than the product.
OWN_KB = 250_000


def input_of(subject: Subject, number: int) -> tuple[str, bytes]:
    """Return a case's seed by name, and its input, the same for the same number."""
    names = sorted(subject.seeds)
    name = names[number % len(names)]
    return name, mutated(subject.seeds[name], number)


def keep(kind: str, number: int, name: str, data: bytes) -> Path:
    """Keep a failing case's input as a file, named by kind, number and seed."""
    FAILURES.mkdir(exist_ok=True)
    kept = FAILURES / f"{kind.replace(' ', '-')}-{number}-{name.replace('/', '_')}"
    kept.write_bytes(data)
    return kept


def run_cases(kind: str, subject: Subject, first: int, count: int) -> Figures:
    """Run so many cases of one kind in this process, the seeds in turn."""
    figures = Figures(kind, first)
    held_kb = max(0, _resident_kb() - OWN_KB)
    for number in range(first, first + count):
        figures.add(run_case(kind, subject, number, held_kb))
    return figures


def run_case(kind: str, subject: Subject, number: int, held_kb: int = 0) -> Outcome:
    """Run one case; what ends with anything but an exit code, or takes more than a limit, is kept.

    `held_kb`: what the process held before the first of them beyond its own, as other tests' traces, is none of theirs.
    """
    name, data = input_of(subject, number)
    _forget_peak()
    began, code, why = time.process_time(), None, ""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        try:
            code = subject.use(data, name, Path(folder))
            if code not in (0, 1, 2):
                why = f"exit code {code}"
        except AssertionError as defect:
            why = str(defect)
        except Exception:  # noqa: BLE001 - this is what is looked for
            why = traceback.format_exc()
    outcome = Outcome(number, code, len(data), time.process_time() - began, _peak_kb() - held_kb, why)
    if outcome.cpu_s > LIMIT_S:
        outcome.why = why or f"{outcome.cpu_s:.1f} s of CPU"
    if outcome.peak_kb > LIMIT_KB:
        outcome.why = why or f"{outcome.peak_kb // 1000} MB"
    if outcome.why:
        outcome.why = f"{keep(kind, number, name, data)}: {outcome.why}"
    return outcome


def _forget_peak() -> None:
    with suppress(OSError):  # another system than Linux: the peak is then the whole process's
        Path("/proc/self/clear_refs").write_text("5")


def _peak_kb() -> int:
    return _of_status("VmHWM:") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _resident_kb() -> int:
    return _of_status("VmRSS:")


def _of_status(name: str) -> int:
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1])
    return 0
