"""How traces that were named together relate, in words."""

from collections.abc import Sequence

from scalescope.records.console import counted
from scalescope.report.drawing.numbers import capitalized, figure, percent
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_steps import Beside


def beside_sentences(runs: Sequence[RunAnalysis]) -> list[str]:
    """Return a sentence for each run that was named after another: one job or two, and what lays them side by side."""
    return [_sentence(run.beside, run.world_size) for run in runs if run.beside is not None]


def _sentence(beside: Beside, world_size: int) -> str:
    own = beside.own_name
    both = f"{beside.name} and {own}"
    if beside.how == "another_job":
        return f"{both} are two jobs, each told by itself: {beside.reason}."
    if beside.how == "another_size":
        more = f"{figure(beside.work_ratio, 2)} times" if beside.work_ratio is not None else "another number of"
        return f"{both} run the same kernels, with {more} the blocks in {own}: two jobs, or one of another batch."
    are, if_one = "are one job by their kernels", ""
    if beside.may_be_two_jobs:
        shared = percent(beside.alike or 0.0, 0)
        are, if_one = f"may be one job or two ({shared} of their compute is in kernels of one name)", " If it is one:"
    slower = f"which is slower, and where, is told by scalescope compare {beside.name} {own}."
    if beside.how == "other_ranks":
        hold = "hold other ranks" if if_one else "hold other ranks of it"
        return (
            f"{both} {are} and {hold}: laid into one folder, all of one window, their traces tell who waits for whom."
        )
    if beside.how == "another_world_size":
        ranks = counted(world_size, "rank")
        more, fewer = (own, beside.name) if world_size > beside.world_size else (beside.name, own)
        scales = f"how it scales is told by scalescope analyze {more} --base {fewer}."
        return f"{both} {are}, on {beside.world_size} and on {ranks}{_then(if_one)}{scales}"
    if beside.how == "other_steps":
        return (
            f"{both} {are}, on as many ranks and in other steps: two windows of one launch, or two launches"
            f"{_then(if_one, ';')}{slower}"
        )
    if beside.how == "unnumbered_steps":
        return (
            f"{both} {are}, on as many ranks: two launches, or two windows of one, which steps without numbers do not "
            f"tell.{if_one} {slower if if_one else capitalized(slower)}"
        )
    if beside.how == "same_job":
        return (
            f"{both} {are}, on as many ranks, and hold the same steps: two launches, or one that counted them anew."
            f"{if_one} {slower if if_one else capitalized(slower)}"
        )
    return f"Whether {both} are of one job cannot be told: one of them tells nothing of what it runs."


def _then(if_one: str, mark: str = ":") -> str:
    """Return what joins a command to what it is for: at once, or as that of one job alone."""
    return f".{if_one} " if if_one else f"{mark} "
