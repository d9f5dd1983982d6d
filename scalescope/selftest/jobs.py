"""What is tried by jobs of their own, as a user starts them: a sweep of the collectives, and a training job's trace."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from scalescope.collectives.operations import OPERATIONS
from scalescope.records.errors import UserError
from scalescope.records.folder import RunFolder
from scalescope.records.package import COMMAND, importable
from scalescope.records.rows import RunInfo, SweepRow
from scalescope.scaling.analyze import analyze_run
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_rows import PARTS, RankSplit
from scalescope.selftest.item import CannotError, DiffersError, Figure

_LIMIT_S = 150.0
_EXPLAINED = ("measured", "not_available")
_ACTIVE_STEPS = 3
_ROUNDING_MS = 1e-3  # a window's parts in analysis.json, each rounded once

Outcome = tuple[str, dict[str, Figure]]


def check_collectives(runs: Path, devices: int) -> Outcome:
    """Every operation is right and measured, on GPUs by the library itself, eager and from a captured graph."""
    if devices == 1:
        raise CannotError("there is one GPU, and a collective needs two")
    on_gpus = devices > 1
    where = ["transport=[direct,c10d]", "execution=[eager,graph]", 'sizes="1KiB,16MiB"', "dtypes=[float32,bfloat16]"]
    on_cpus = ["launch.device=cpu", "launch.ranks=2", 'sizes="1KiB,64KiB"', "launch.threads_per_rank=1"]
    folder = _run("sweep", runs, f"operations=[{','.join(OPERATIONS)}]", "budget_s=0.05", "min_iterations=3",
                  f"group_sizes=[{devices if on_gpus else 2}]", *(where if on_gpus else on_cpus))  # fmt: skip
    return judge_sweep(folder.read_sweep(), folder.read_info())


def judge_sweep(rows: Sequence[SweepRow], info: RunInfo) -> Outcome:
    """Return what a sweep's rows come to. Raises DiffersError for wrong elements, and for what could not be measured.

    What a transport cannot do says so itself and is no difference.
    """
    wrong = [row for row in rows if row.wrong]
    measured = [row for row in rows if row.status == "measured"]
    broken = [row for row in rows if row.status in ("failed", "out_of_memory")]
    library = info.environment.versions.collective_library if info.environment is not None else None
    figures: dict[str, Figure] = {
        "library": library,
        "measured": len(measured),
        "not_available": sum(row.status == "not_available" for row in rows),
        "largest_bus_gb_s": max((row.bus_gb_s or 0.0 for row in measured), default=None),
        "least_time_us": min((row.time_us for row in measured if row.time_us is not None), default=None),
    }
    missing = sorted({row.operation for row in rows} - {row.operation for row in rows if row.status in _EXPLAINED})
    if wrong:
        kinds = sorted({f"{row.operation} {row.dtype} ({row.transport}, {row.execution})" for row in wrong})
        raise DiffersError(f"wrong results: {', '.join(kinds)}", figures)
    if broken or missing or not measured:
        reasons = dict.fromkeys(row.reason or row.status for row in rows if row.status != "measured")
        raise DiffersError(f"not measured: {', '.join(missing) or 'some'}: {'; '.join(reasons)}"[:300], figures)
    operations = len({row.operation for row in measured})
    return f"{operations} operations right in {len(measured)} measurements by {library}", figures


def check_trace(runs: Path, devices: int) -> Outcome:
    """A trace of three steps of every rank is written, read and taken apart, and its parts add up to the steps."""
    ranks = max(1, devices) if devices else 2
    where = ["launch.device=cpu", "precision=fp32", "launch.threads_per_rank=1"] if not devices else []
    folder = _run("train", runs, "model=gpt_tiny", "model.layers=2", "model.width=64", "model.context=64", "steps=12",
                  "warmup_steps=2", f"launch.ranks={ranks}", f"profiler.active={_ACTIVE_STEPS}",
                  f"strategy={'ddp' if ranks > 1 else 'local'}", "data=synthetic", "compile=false", *where)  # fmt: skip
    return judge_analysis(analyze_run(folder, jobs=1), ranks)


def judge_analysis(analysis: RunAnalysis, ranks: int) -> Outcome:
    """Return what an analysis comes to. Raises DiffersError where ranks or steps lack, or parts do not add up."""
    quality = analysis.quality
    off = max((abs(_parts_ms(rank) - rank.window_ms) for rank in analysis.ranks), default=0.0)
    figures: dict[str, Figure] = {
        "quality": quality.verdict,
        "unlinked_fraction": quality.unlinked_fraction,
        "ranks": len(analysis.ranks),
        "steps": min((rank.steps for rank in analysis.ranks), default=0),
        "collectives": len(analysis.collectives),
        "parts_off_by_ms": off,
    }
    if len(analysis.ranks) != ranks or quality.verdict == "unusable" or figures["steps"] != _ACTIVE_STEPS:
        raise DiffersError(f"{figures['ranks']} of {ranks} ranks, {figures['steps']} of {_ACTIVE_STEPS} steps, quality "
                           f"{quality.verdict}: {'; '.join(quality.reasons)}"[:300], figures)  # fmt: skip
    if off > _ROUNDING_MS:
        raise DiffersError(f"a rank's parts miss its window by {off:g} ms", figures)
    if ranks > 1 and not analysis.collectives:
        raise DiffersError("no collective was matched across the ranks", figures)
    if quality.verdict != "good":
        raise DiffersError(f"the trace is {quality.verdict}: {'; '.join(quality.reasons)}"[:300], figures)
    return f"{ranks} ranks, {figures['steps']} steps each, {figures['collectives']} collectives matched", figures


def _parts_ms(rank: RankSplit) -> float:
    return sum(rank.part_ms(part) for part in PARTS)


def _run(verb: str, runs: Path, *overrides: str) -> RunFolder:
    """Run a job to its end in a folder of its own. Raises DiffersError with its last words where it fails."""
    name = f"selftest-{verb}"
    done = subprocess.run(
        [sys.executable, *COMMAND, verb, f"runs={runs}", f"name={name}", "logger=none", *overrides],
        capture_output=True, encoding="utf-8", errors="replace", timeout=_LIMIT_S, check=False,
        env={**importable(os.environ), "WANDB_MODE": "disabled"},
    )  # fmt: skip
    try:
        folder = RunFolder.open(runs / name)
    except UserError:
        folder = None
    if folder is None or done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise DiffersError(f"the {verb} job ended with code {done.returncode}: {' '.join(last)}"[:300])
    return folder
