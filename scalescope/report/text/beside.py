"""How traces that were named together relate, in words."""

from collections.abc import Sequence

from scalescope.records.console import counted
from scalescope.report.drawing.numbers import figure
from scalescope.scaling.answer import RunAnalysis


def beside_sentences(runs: Sequence[RunAnalysis]) -> list[str]:
    """Return a sentence for each run that was named after another: one job or two, and what lays them side by side."""
    sizes = {run.name: run.world_size for run in runs}
    return [_sentence(run, sizes.get(run.beside.name)) for run in runs if run.beside is not None]


def _sentence(run: RunAnalysis, of_first: int | None) -> str:
    beside = run.beside
    assert beside is not None
    both = f"{beside.name} and {run.name}"
    if beside.how == "another_job":
        return f"{both} are two jobs, each told by itself: {beside.reason}."
    if beside.how == "another_size":
        more = f"{figure(beside.work_ratio, 2)} times" if beside.work_ratio is not None else "another number of"
        return f"{both} run the same kernels, with {more} the blocks in {run.name}: two jobs, or one of another batch."
    if beside.how == "other_ranks":
        return (
            f"{both} are one job by their kernels and hold other ranks of it: laid into one folder, all of one window, "
            "their traces tell who waits for whom."
        )
    if beside.how == "another_world_size":
        ranks = counted(run.world_size, "rank")
        first, more, fewer = of_first or 0, beside.name, run.name
        if run.world_size > first:
            more, fewer = fewer, more
        return (
            f"{both} are one job by their kernels, on {first} and on {ranks}: how it scales is told by scalescope "
            f"analyze {more} --base {fewer}."
        )
    if beside.how == "other_steps":
        return (
            f"{both} are one job by their kernels, on as many ranks and in other steps: two windows of one launch, or "
            f"two launches; which is slower, and where, is told by scalescope compare {beside.name} {run.name}."
        )
    if beside.how == "same_job":
        return (
            f"{both} are one job by their kernels, on as many ranks, and hold the same steps: two launches. Which is "
            f"slower, and where, is told by scalescope compare {beside.name} {run.name}."
        )
    return f"Whether {both} are of one job cannot be told: one of them tells nothing of what it runs."
