"""The check of known truth holds what the analysis says of a step against what the step did, not against a wish."""

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.synthetic import OPERATIONS, Activity, Job, trace_of

SCRIPT = Path(__file__).resolve().parent.parent / "benchmarks" / "known_truth.py"
MS = 1_000_000
PRODUCT_MS, TRANSFER_MS, SPIN_MS, FASTER_MS = 20, 1, 10, 1
STEPS = 4


def write(folder: Path, disturbed: bool) -> None:
    """Two ranks' steps of a product and an all-reduce; disturbed, rank 1 spins first, and is faster after its rest."""
    folder.mkdir()
    length = PRODUCT_MS + TRANSFER_MS + (SPIN_MS - FASTER_MS if disturbed else 0)
    job = Job(2, [(0, 1)], STEPS, 1, 0, 0)
    for rank in (0, 1):
        spins = disturbed and rank == 1
        activities: list[Activity] = []
        for step in range(STEPS):
            begin = MS + step * length * MS
            launch, clock = begin + 1_000, begin + 50_000
            if spins:
                activities.append(Activity("spin_kernel", "kernel", clock, clock + SPIN_MS * MS, 7, launch, 101, {}))
                clock += SPIN_MS * MS
            product = (PRODUCT_MS - (FASTER_MS if spins else 0)) * MS
            activities.append(Activity("product", "kernel", clock, clock + product, 7, launch + 20_000, 101, {}))
            end = begin + 50_000 + (length * MS - 200_000)
            record: dict[str, Any] = {
                "Collective name": "allreduce", "In msg nelems": 1 << 20, "Out msg nelems": 1 << 20, "dtype": "Float",
                "Group size": 2, "Process Group Name": "g0", "Process Group Ranks": "[0, 1]", "Rank": rank,
            }  # fmt: skip
            kernel = {key: value for key, value in record.items() if key != "Rank"}
            activities.append(
                Activity(
                    OPERATIONS["allreduce"], "kernel", clock + product, end, 20, launch + 40_000, 102, kernel, record
                )
            )
        trace = trace_of(rank, job, activities, length * MS)
        for step in range(STEPS if spins else 0):
            trace["traceEvents"].append(
                {"ph": "X", "cat": "user_annotation", "name": "scalescope:injected", "pid": 1000, "tid": 101,
                 "ts": (MS + step * length * MS + 500) / 1e3, "dur": 10.0, "args": {}}
            )  # fmt: skip
        (folder / f"rank{rank}.3.pt.trace.json.gz").write_bytes(
            gzip.compress(json.dumps(trace, default=float).encode())
        )


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """The cells of the check's rows."""
    out = tmp_path_factory.mktemp("truth")
    for case in ("undisturbed_1", "device_delay", "undisturbed_2"):
        write(out / case, case == "device_delay")
    cases = ["--cases", "undisturbed_1,device_delay,undisturbed_2", "--markdown"]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "check", str(out), *cases], capture_output=True, text=True, timeout=60
    )
    assert done.returncode in (0, 1), done.stderr
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("rank", "what"),
    [(1, "more compute"), (0, "the step's growth"), (0, "the same + transfer laid bare")],
)
def test_a_right_account_of_a_step_that_did_not_grow_by_the_injection_is_right(
    lines: list[list[str]], rank: int, what: str
) -> None:
    """A chip that rested is faster afterwards: the step grew by 9 ms, though 10 were injected."""
    (cells,) = [cells for cells in lines if cells[:3] == ["device_delay", str(rank), what]]
    assert float(cells[3]) == pytest.approx(SPIN_MS - FASTER_MS, abs=0.01)
    assert float(cells[4]) == pytest.approx(SPIN_MS - FASTER_MS, abs=0.3)
    assert (cells[6] == "right" and "10.00 injected" in "".join(cells)) or what.startswith("the same")


def test_the_verdicts_own_figure_is_still_held_against_the_injection(lines: list[list[str]]) -> None:
    (cells,) = [cells for cells in lines if cells[:3] == ["device_delay", "1", "the verdict's own figure"]]
    assert (cells[3], cells[6]) == ("10.000", "right"), cells
