"""Tables of training jobs: of their rows a step, and of a study's answer."""

import re
import statistics
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from measured.table import (
    Maker,
    Table,
    figure,
    percent,
    read_answer,
    read_markdown,
    read_rows,
    signed,
    span,
)
from scalescope.records.rows import step_length_ms

_RUN = re.compile(r"\.([a-z0-9_]+)-([a-z0-9-]+)-n(\d+)\.steps")
_PER_CALL_US = 500


def steady(path: Path) -> list[dict[str, Any]]:
    return [row for row in read_rows(path) if row["phase"] == "steady"]


def lengths_ms(rows: Sequence[dict[str, Any]], synchronised: bool = True) -> list[float]:
    return [step_length_ms(row["step_ms"], synchronised) for row in rows]


def _per_s(rows: Sequence[dict[str, Any]], synchronised: bool = True) -> tuple[float, str]:
    """Return what the job did of tokens, or images, in a second: the median over steps."""
    per, unit = ("tokens_per_s", "tokens/s") if rows[0]["tokens_per_s"] else ("samples_per_s", "images/s")
    a_step = rows[0][per] * max(rows[0]["step_ms"])  # as rows told their throughput: by the slowest rank
    return statistics.median(a_step / length for length in lengths_ms(rows, synchronised)), unit


def steps_of(study: str) -> Maker:
    """A row a job: step, throughput, weak scaling, MFU, energy."""

    def made(folder: Path) -> Table:
        header = ("model", "strategy", "GPUs", "step ms", "p95 ms", "mean ms", "throughput", "weak scaling",
                  "MFU (data sheet)", "J a sample")  # fmt: skip
        rows, alone = [], dict[tuple[str, str], float]()
        for path in sorted(folder.glob(f"{study}.*.steps.jsonl.gz")):
            found = _RUN.search(path.name)
            assert found is not None, path
            model, strategy, gpus = found[1], found[2], int(found[3])
            of_job = steady(path)
            lengths = lengths_ms(of_job)
            per_s, unit = _per_s(of_job)
            alone.setdefault((model, strategy), per_s / gpus)
            joules = [row["joules_per_sample"] for row in of_job if row["joules_per_sample"] is not None]
            rows.append((
                model, strategy, str(gpus), figure(statistics.median(lengths), 2),
                figure(float(np.percentile(lengths, 95)), 2), figure(statistics.fmean(lengths), 2),
                f"{figure(per_s, 0)} {unit}", percent(per_s / gpus / alone[model, strategy]),
                percent(statistics.median(row["mfu"] for row in of_job)),
                figure(statistics.fmean(joules) if joules else None, 3),
            ))  # fmt: skip
        return Table(header, rows)

    return made


def growth_of(name: str) -> Maker:
    """Where a step's growth from one GPU to several went, by this analysis of the folder."""
    return lambda folder: _growth(folder / f"{name}.analysis.json.gz")


def _growth(answer: Path) -> Table:
    header = ("model", "from 1 to", "growth", "slower compute", "more compute", "exposed transfer", "exposed wait",
              "exposed copies", "idle (queued)")  # fmt: skip
    rows = []
    for fall in read_answer(answer)["waterfall"]:
        parts = {part["part"]: part["ms"] for part in fall["parts"]}
        shown = (fall["compute_inflation_ms"], fall["compute_more_work_ms"], parts["exposed_transfer"],
                 parts["exposed_wait"], parts["exposed_memory"], parts["idle_queued"])  # fmt: skip
        cells = (f"{signed(ms, 2)} ({percent(ms / fall['growth_ms'], 0)})" if ms else "0" for ms in shown)
        rows.append((fall["series"], str(fall["to_world_size"]), figure(fall["growth_ms"], 2), *cells))
    return Table(header, rows)


def slower_kinds(folder: Path) -> Table:
    """Which kernels of GPT got slower from one GPU to the most."""
    falls = read_answer(folder / "study.analysis.json.gz")["waterfall"]
    kinds = max((fall for fall in falls if fall["series"] == "gpt_small"), key=lambda fall: fall["to_world_size"])
    header = ("kind", "on 1 GPU", f"on {kinds['to_world_size']}", "slower", "of that with an all-reduce beside",
              "time with an all-reduce beside")  # fmt: skip
    rows = [
        (kind["kind"], figure(kind["from_ms"], 2), figure(kind["to_ms"], 2), signed(kind["inflation_ms"], 2),
         signed(kind["inflation_beside_ms"], 2), figure(sum(kind["beside_ms"].values()), 2))
        for kind in sorted(kinds["kinds"], key=lambda kind: -kind["inflation_ms"])
    ]  # fmt: skip
    return Table(header, rows)


def alone(folder: Path) -> Table:
    """Steps of GPUs that nobody waits for, beside those of DDP."""
    rows = []
    several = _several(folder)
    for model in ("gpt_small", "resnet50"):
        one, all_of_them = (steady(folder / f"alone.{model}-local-n{gpus}.steps.jsonl.gz") for gpus in (1, several))
        of_ranks = [statistics.fmean(row["step_ms"][rank] for row in all_of_them) for rank in range(several)]
        own = statistics.fmean(lengths_ms(one))
        both = (steady(folder / f"study.{model}-ddp-n{gpus}.steps.jsonl.gz") for gpus in (1, several))
        ddp = [figure(statistics.fmean(lengths_ms(job)), 2) for job in both]
        mean = f"{figure(statistics.fmean(of_ranks), 2)} ({span(of_ranks, 2)})"
        slowest = figure(statistics.fmean(lengths_ms(all_of_them)), 2)
        rows += [
            (model, "each rank by itself", figure(own, 2), mean),
            (model, "the slowest rank of each step", figure(own, 2), slowest),
            (model, "under DDP", *ddp),
        ]
    return Table(("model", "mean step of", "1 GPU ms", f"{several} GPUs at once ms"), rows)


def alone_throughput(folder: Path) -> Table:
    """What GPUs that train for themselves do together."""
    rows = []
    several = _several(folder)
    for model in ("gpt_small", "resnet50"):
        jobs = [steady(folder / f"alone.{model}-local-n{gpus}.steps.jsonl.gz") for gpus in (1, several)]
        one, all_of_them = (_per_s(job, synchronised=False) for job in jobs)
        means = [statistics.fmean(ms for row in job for ms in row["step_ms"]) for job in jobs]
        rows.append((model, f"{figure(one[0], 0)} {one[1]}", f"{figure(all_of_them[0], 0)} {all_of_them[1]}",
                     figure(all_of_them[0] / one[0], 2), figure(several * means[0] / means[1], 2)))  # fmt: skip
    return Table(("model", "1 GPU", f"{several} GPUs at once", "times", "times, by mean steps"), rows)


def _several(folder: Path) -> int:
    """Return how many GPUs trained each by itself at once."""
    counts = (_RUN.search(path.name) for path in folder.glob("alone.*.steps.jsonl.gz"))
    return max(int(found[3]) for found in counts if found is not None)


def projections(folder: Path) -> Table:
    """Counts that were measured, projected from the smaller ones alone."""
    header = ("job", "from", "to", "projected ms", "95% interval", "measured ms", "off", "inside")
    rows = []
    for study, how in (("study", "compiled"), ("whatif_base_eager", "eager")):
        for test in read_answer(folder / f"{study}.analysis.json.gz")["projection"]["backtests"]:
            step = test["step_ms"]
            rows.append((
                f"{test['series']}, {how}", ", ".join(map(str, test["from_world_sizes"])), str(test["world_size"]),
                figure(step["value"], 2), f"{figure(step['low'], 2)} to {figure(step['high'], 2)}",
                figure(test["measured_step_ms"], 2), f"{signed(100 * test['off'], 1)}%",
                "yes" if test["inside"] else "no",
            ))  # fmt: skip
    return Table(header, rows)


def strategies(folder: Path) -> Table:
    """The table that strategies.py printed."""
    table = read_markdown(folder / "strategies.log")
    rows = [["" if cell == "–" else re.sub(r"^-", "−", cell) for cell in row] for row in table.rows]
    return Table(table.header, rows).only([name for name in table.header if name != "compiled"])


def pairs_of_jobs(*names: str) -> Maker:
    """Jobs that differ in one setting, a row each; how far their losses are from the first one's."""

    def made(folder: Path) -> Table:
        jobs = {name: read_rows(folder / f"{name}.steps.jsonl.gz") for name in names}
        first = next(iter(jobs.values()))
        rows = []
        for name, job in jobs.items():
            lengths = lengths_ms([row for row in job if row["phase"] == "steady"])
            apart = max(abs(one["loss"] - other["loss"]) for one, other in zip(first, job, strict=True))
            rows.append((name, figure(statistics.median(lengths), 1), str(len(lengths)),
                         figure(apart, 3) if job is not first else ""))  # fmt: skip
        return Table(("job", "step ms, median", "of steps", "losses differ by at most"), rows)

    return made


def devices(folder: Path) -> Table:
    """The same job on one H100 and one H200."""
    rows = []
    for name, job in (("gpt", "GPT-2 124M, 64 × 1024 tokens"), ("resnet50", "ResNet-50, 512 images")):
        answer = read_answer(folder / f"h100_beside_h200_{name}.json.gz")
        shares = [f"{signed(100 * answer[key] / answer['baseline_ms'], 1)}%"
                  for key in ("change_ms", "low_ms", "high_ms")]  # fmt: skip
        rows.append((job, figure(answer["baseline_ms"], 1), figure(answer["other_ms"], 1), shares[0],
                     f"{shares[1]} to {shares[2]}"))  # fmt: skip
    return Table(("job", "H100 ms", "H200 ms", "change", "95% interval"), rows)


#: What scorecard measured on both of copies and products, for kinds that one of the two binds (J's counters).
_EXPECTED = {"matmul": "0.99", "elementwise and reductions": "0.71", "optimiser": "0.71"}


def device_kinds(folder: Path) -> Table:
    """Kernels of more than half a millisecond a call, by kind, on both."""
    totals: dict[tuple[str, str], list[float]] = {}
    for name, job in (("gpt", "GPT"), ("resnet50", "ResNet-50")):
        for kernel in read_answer(folder / f"h100_beside_h200_{name}.json.gz")["kernels"]:
            if kernel["baseline_us"] >= _PER_CALL_US * kernel["baseline_calls"]:
                both = totals.setdefault((kernel["kind"], job), [0.0, 0.0])
                both[0] += kernel["baseline_us"] / 1e3
                both[1] += kernel["other_us"] / 1e3
    rows = [
        (kind, job, figure(one, 2), figure(other, 2), figure(other / one, 2),
         _EXPECTED.get(kind, "by neither"))
        for (kind, job), (one, other) in sorted(totals.items(), key=lambda item: item[1][1] / item[1][0])
    ]  # fmt: skip
    return Table(("kind", "job", "H100 ms", "H200 ms", "ratio", "to be expected"), rows)


def kernel_steps(folder: Path) -> Table:
    """Steps with kernels of our own put in: the median of the rounds' medians, beside the job as it is."""
    medians: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in read_rows(folder / "kernels_steps.jsonl.gz"):
        medians[row["model"], row["side"]].append(statistics.median(row["step_ms"]))
    middle = {key: statistics.median(of) for key, of in medians.items()}
    rows = [
        (model, side, f"{middle[model, side]:.2f} ({min(of):.2f} to {max(of):.2f})", str(len(of)),
         f"{middle[model, 'as it is'] / middle[model, side]:.3f} ×")
        for (model, side), of in medians.items()
    ]  # fmt: skip
    return Table(("model", "side", "step ms (median; lowest and highest round)", "rounds", "as fast as it is"), rows)


def side_by_side_rows(name: str, samples: int = 1) -> Maker:
    """The same table of the steps that training_side_by_side.py wrote, with `samples` a row of a batch."""

    def made(folder: Path) -> Table:
        medians: dict[str, list[float]] = defaultdict(list)
        for row in read_rows(folder / name):
            medians[row["side"]].append(statistics.median(row["step_ms"]))
        middle = {side: statistics.median(of) for side, of in medians.items()}
        rows = []
        for side, of in medians.items():
            who, _, batch = side.partition("/")
            ours = middle.get(f"scalescope/{batch}")
            rows.append((
                who, batch, f"{middle[side]:.2f} ({min(of):.2f} to {max(of):.2f})", str(len(of)),
                figure(int(batch) * samples / middle[side] * 1e3, 0),
                "" if who == "scalescope" or ours is None else f"{middle[side] / ours:.3f} ×",
            ))  # fmt: skip
        unit = "images/s" if samples == 1 else "tokens/s"
        return Table(("side", "batch", "step ms (median; lowest and highest repeat)", "repeats", unit, "ours is"), rows)

    return made


def side_by_side(log: str) -> Maker:
    """The table that training_side_by_side.py printed, with how many times as fast ours is."""

    def made(folder: Path) -> Table:
        table = read_markdown(folder / log)
        per_s = {(row[0], row[1]): float(row[3].replace(",", "")) for row in table.rows}
        rows = [
            (*row, "" if row[0] == "scalescope" else f"{per_s['scalescope', row[1]] / per_s[row[0], row[1]]:.3f} ×")
            for row in table.rows
        ]
        return Table((*table.header, "ours is"), rows)

    return made
