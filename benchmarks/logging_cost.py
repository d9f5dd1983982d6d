"""What logging costs: the same training job with W&B on (offline) and off, taking turns.

    python benchmarks/logging_cost.py [KEY=VALUE …] [--repeats 3] [--out DIR]

Each repeat runs the job twice, `logger=wandb` and `logger=none`, and the next repeat the other way round, so that a
machine that gets slower over time slows both. A run's figure is its median measured step (warm-up and the profiler's
window left out); a repeat's is the ratio of its two runs. Without KEY=VALUE it is the small GPT on one CPU rank. Any of
`scalescope train`'s may be given; the profiler is off unless asked for. It writes below --out only.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import yaml

from scalescope.records.folder import RunFolder
from scalescope.records.rows import StepRow
from scalescope.report.sinks.wandb import WandbSink

ROOT = Path(__file__).resolve().parent.parent
TINY = ("model=gpt_tiny", "launch.device=cpu", "launch.ranks=1", "precision=fp32", "steps=200")
LOGGERS = ("wandb", "none")
GOAL = 1.01
PACE_MS, ROWS = 50.0, 200


@dataclass(frozen=True)
class Run:
    """One job's measured steps, slowest rank's, in ms."""

    steps_ms: list[float]

    @property
    def median_ms(self) -> float:
        return median(self.steps_ms)

    @property
    def fast_ms(self) -> float:
        """The 10th percentile: steps in which least came between."""
        return quantiles(self.steps_ms, n=10)[0]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="of `scalescope train`")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, help="where the runs go (default: a temporary folder, deleted at the end)")
    options = parser.parse_intermixed_args(arguments)
    out = options.out or Path(tempfile.mkdtemp(prefix="logging_cost-"))
    runs: dict[str, list[Run]] = {logger: [] for logger in LOGGERS}
    try:
        for repeat in range(options.repeats):
            for logger in LOGGERS if repeat % 2 == 0 else reversed(LOGGERS):
                run = train(out.resolve(), f"{logger}-{repeat + 1}", logger, options.overrides or TINY)
                runs[logger].append(run)
                print(
                    f"{repeat + 1}/{options.repeats} logger={logger:<6} median step {run.median_ms:9.3f} ms "
                    f"({len(run.steps_ms)} steps)",
                    flush=True,
                )
        print(summary(runs))
        print(processor_time(out.resolve()))
    except subprocess.CalledProcessError as error:
        print(f"{' '.join(error.cmd)}\n{error.stdout}{error.stderr}", file=sys.stderr)
        return 3
    finally:
        if options.out is None:
            shutil.rmtree(out, ignore_errors=True)
    return 0


def train(out: Path, name: str, logger: str, overrides: list[str] | tuple[str, ...]) -> Run:
    """Run one job to its end. Raises CalledProcessError where it fails."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
        "WANDB_DIR": str(out),
        "WANDB_CACHE_DIR": str(out / "wandb-cache"),
        "WANDB_CONFIG_DIR": str(out / "wandb-config"),
    }
    command = [sys.executable, "-m", "scalescope", "train", "profiler=none", *overrides, f"logger={logger}",
               f"runs={out}", f"name={name}"]  # fmt: skip
    subprocess.run(command, env=environment, cwd=_made(out), capture_output=True, text=True, check=True)
    folder = RunFolder(out / name)
    if logger == "wandb" and not any((folder.path / "wandb").glob("offline-run-*/run-*.wandb")):
        raise SystemExit(f"{folder.path}: W&B wrote nothing, so there is nothing to compare")
    return Run([max(row.step_ms) for row in folder.read_steps() if row.phase == "steady"])


def summary(runs: dict[str, list[Run]]) -> str:
    """Return the medians, the ratios of the repeats with their spread, and what runs of one kind differ by."""
    lines = []
    for logger, members in runs.items():
        medians = [run.median_ms for run in members]
        lines.append(f"logger={logger:<6} median step {median(medians):9.3f} ms ({_span(medians, 3)})")
    pairs = list(zip(runs["wandb"], runs["none"], strict=True))
    ratios = [on.median_ms / off.median_ms for on, off in pairs]
    fast = [on.fast_ms / off.fast_ms for on, off in pairs]
    off = [run.median_ms for run in runs["none"]]
    lines += [
        f"wandb / none, median step: {median(ratios):.4f} ({_span(ratios, 4)}; {len(ratios)} repeats)",
        f"wandb / none, 10th percentile: {median(fast):.4f} ({_span(fast, 4)})",
        f"runs without W&B differ among themselves by {100 * (max(off) / min(off) - 1):.1f}%",
        f"within 1%: {_verdict(ratios)}",
    ]
    return "\n".join(lines)


def _verdict(ratios: list[float]) -> str:
    if max(ratios) <= GOAL:
        return "yes, in every repeat"
    if min(ratios) > GOAL:
        return "no, in no repeat"
    return f"the median says {'yes' if median(ratios) <= GOAL else 'no'}, the spread does not tell"


def processor_time(out: Path) -> str:
    """Log rows as a job of PACE_MS a step does, and return what that takes of the processors: no noise hides it."""
    node = yaml.safe_load((ROOT / "conf/logger/wandb.yaml").read_text())["wandb"]
    folder = RunFolder.create(out / "processor-time", "train", "{}\n")
    sink = WandbSink(**node, dir=str(folder.path))
    sink.start({}, "processor-time")
    service = [
        int(pid) for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()
    ]
    own, others = time.process_time(), sum(map(_processor_s, service))
    for step in range(ROWS):
        sink.log(StepRow(step, "steady", [PACE_MS], 100.0, 1e4, 2.5, None, 0.4, 0.5, 10**9, unix_s=time.time()))
        time.sleep(PACE_MS / 1e3)
    time.sleep(3)  # the last burst
    own, others = time.process_time() - own, sum(map(_processor_s, service)) - others
    sink.close("done")
    return (
        f"processor time a logged step: {1e3 * own / ROWS:.2f} ms in the job's process, "
        f"{1e3 * others / ROWS:.2f} ms in W&B's ({ROWS} steps of {PACE_MS:g} ms)"
    )


def _processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _span(values: list[float], digits: int) -> str:
    return f"{min(values):.{digits}f} to {max(values):.{digits}f}"


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
