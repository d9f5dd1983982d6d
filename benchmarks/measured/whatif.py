"""Tables of changes that were predicted and then made, and what the replay was wrong by."""

import math
import statistics
from pathlib import Path

from measured.table import Table, figure, read_tsv, signed
from measured.training import lengths_ms, steady
from scalescope.records.statistics import student_95

#: The machines on which changes were made; of all of them is `MODEL_ERROR`.
RESULTS = Path(__file__).resolve().parent.parent / "results"
MACHINES = ("2026-11-22_4xH200_A", "2026-11-27_2xH200_U", "2026-11-27_4xH200_Q", "2026-11-23_2xH200_F")
#: Advice that was followed, of those settings that change what is sent, or when: the only one that was advised.
_SENT_OTHERWISE = "strategy.compile_by_bucket=true"


def whatif(folder: Path) -> Table:
    """What was predicted of a change beside what came: of whatif_predicted.tsv, and the changed jobs' own steps.

    Right is within 30% of the change or 1% of the step. Beside the interval of that day's code: what it is with the
    model's error, by what was made on the other machines alone. Taking a known delay off has no such error.
    """
    header = ("change", "step ms", "predicted ms", "95% interval", "measured ms", "off by", "right", "inside",
              "with the model's error", "inside then")  # fmt: skip
    base = _base_ms(folder)
    error = half_of([one for name in MACHINES if name != folder.name for one in residuals(RESULTS / name)])
    rows = []
    for change, job, step, *told in read_tsv(folder / "whatif_predicted.tsv").rows:
        step_ms = float(step) if step else base
        predicted, low, high, came = (float(cell) if cell else None for cell in told)
        if job:
            came = _came_ms(folder, job)
        assert came is not None and predicted is not None, change
        judged: tuple[str, ...] = ("", "", "", "", "", "")
        if low is not None and high is not None:
            off = predicted - came
            right = abs(off) <= max(0.3 * abs(came), 0.01 * step_ms)
            inside = _yes(low <= came <= high)
            judged = (_range(low, high), signed(off, 2), _yes(right), inside, "", "")
            if job:
                model = error * step_ms
                low = predicted - math.hypot(predicted - low, model)
                high = predicted + math.hypot(high - predicted, model)
                judged = (*judged[:4], _range(low, high), _yes(low <= came <= high))
        rows.append((change, figure(step_ms, 2), signed(predicted, 2), judged[0], signed(came, 2), *judged[1:]))
    return Table(header, rows)


def residuals(folder: Path) -> list[float]:
    """Return predictions less measurements, of the changes that a job of their own made, as shares of the step."""
    return [(predicted - came) / step for predicted, _, _, came, step in made(folder)]


def made(folder: Path) -> list[tuple[float, float, float, float, float]]:
    """Return of each change that a job of its own made what was predicted, from, to, what came, and the step, ms."""
    found = []
    if (predicted := folder / "whatif_predicted.tsv").exists():
        base = _base_ms(folder)
        for _, job, _, change, low, high, _ in read_tsv(predicted).rows:
            if job and low:
                found.append((float(change), float(low), float(high), _came_ms(folder, job), base))
    if (advice := folder / "advice.tsv").exists():
        for _, best, gain, interval, came, before, *_ in read_tsv(advice).rows:
            if best == _SENT_OTHERWISE:
                low, high = interval.split(" to ")
                found.append((-float(gain), -float(high), -float(low), -float(came), float(before)))
    return found


def half_of(residuals: list[float]) -> float:
    """Return half of the 95% interval of one residual more: Student's t times their root mean square."""
    return student_95(len(residuals)) * math.sqrt(statistics.fmean(one**2 for one in residuals))


def _base_ms(folder: Path) -> float:
    eager = sorted(folder.glob("whatif_base_eager.gpt_small-ddp-n*.steps.jsonl.gz"))
    unchanged = [*sorted(folder.glob("study.gpt_small-ddp-n*.steps.jsonl.gz")), *eager][-1]  # of the most GPUs
    return statistics.median(lengths_ms(steady(unchanged)))


def _came_ms(folder: Path, job: str) -> float:
    return statistics.median(lengths_ms(steady(folder / f"{job}.steps.jsonl.gz"))) - _base_ms(folder)


def _range(low: float, high: float) -> str:
    return f"{signed(low, 2)} to {signed(high, 2)}"


def _yes(whether: bool) -> str:
    return "yes" if whether else "no"
