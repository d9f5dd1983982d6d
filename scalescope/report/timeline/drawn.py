"""The drawings of a folder's steps: one a run that has a timeline, with its sentence and the figures of its parts."""

from scalescope.report.drawing import parts
from scalescope.report.drawing.numbers import figure, listing, milliseconds, ordinal, percent
from scalescope.report.drawing.tables import Cell, Column, Table
from scalescope.report.page import Drawing, Stretch
from scalescope.report.report_data import ReportData
from scalescope.report.text.late.rank import late_rank
from scalescope.report.timeline.layout import lay_out, legends_of
from scalescope.report.timeline.marks import marks_of
from scalescope.report.timeline.payload import payload
from scalescope.report.timeline.svg import picture
from scalescope.report.views import run_label
from scalescope.scaling.rank.records.record import MOST_STEPS
from scalescope.scaling.step_timeline import StepTimeline, Why

_WHY: dict[Why, str] = {
    "late": "comes late in it",
    "cause": "makes it longer",
    "typical": "is like most",
    "first": "comes first",
}


def drawings_of(data: ReportData) -> list[Drawing]:
    """Return a drawing a run whose step can be drawn, in the runs' order."""
    found: list[Drawing] = []
    for run in data.answers:
        if run.timeline is not None and run.timeline.ranks:
            layout = lay_out(run.timeline)
            marks = marks_of(run.timeline, layout, late_rank(run))
            found.append(
                Drawing(
                    f"timeline-{len(found)}",
                    run_label(run),
                    timeline_sentence(
                        run.timeline, max((one.steps for one in run.ranks), default=0), beside=bool(run.lost)
                    ),
                    picture(run.timeline, layout, marks),
                    payload(run.timeline, layout, marks),
                    [
                        (lane, [Stretch("", colour, name) for name, colour in entries])
                        for lane, entries in legends_of(run.timeline)
                        if entries
                    ],
                    timeline_table(run.timeline),
                    data.series_of(run),
                )
            )
    return found


def timeline_sentence(timeline: StepTimeline, profiled: int = 0, *, beside: bool = False) -> str:
    """Return which step is drawn, of which ranks, and how finely; `profiled`: of how many, where that is told.

    `beside`: how the run compares with a reference comes before what its own steps tell.
    """
    which = f"Step {timeline.step}, {_length(timeline)} with recording{_chosen(timeline, profiled, beside=beside)}"
    count = len(timeline.ranks)
    known = [f"rank {one.rank} {_WHY[why]}" for one in timeline.ranks for why in one.why]
    whose = f"; {listing(known)}" if known else ""
    if timeline.left_out:
        ranks = f"{count} of {count + timeline.left_out} ranks are drawn{whose}; {timeline.left_out} are left out"
    else:
        everybody = {1: "Its rank is", 2: "Both ranks are"}.get(count, f"All {count} ranks are")
        ranks = f"{everybody} drawn{whose}"
    fine = timeline.merged_below_ns / 1e3
    merged = f" Neighbours within {figure(fine, 0 if fine >= 10 else 1)} µs are drawn as one." if fine else ""
    return f"{which}. {ranks}.{merged}"


def _chosen(timeline: StepTimeline, profiled: int, *, beside: bool) -> str:
    """Return why this step is drawn: it shows what is told first, where not every step does, or is like most."""
    of = f"{timeline.steps} steps that all ranks recorded whole"
    first = f"told first{' of its own steps' * beside}"
    if timeline.steps == MOST_STEPS < profiled:  # later ones are as whole, and none of these
        of = f"the first {MOST_STEPS} of the {profiled} profiled steps"
    if timeline.steps == 1:
        return ", the only one to choose from"
    if timeline.shows in ("recurring", "some_steps"):
        what = f"what is {first}, which is in some steps alone"
        if timeline.every is not None:
            what = f"what makes every {ordinal(timeline.every)} step longer, which is {first}"
        like = f"{timeline.like_it or 1} of {of} {'do' if (timeline.like_it or 1) > 1 else 'does'}"
        mean = "" if _are_alike(timeline) else ", in the mean of the ranks"
        median = f"the median of all is {milliseconds(timeline.median_ms)}{mean}"
        return f", is drawn since it shows {what}: {like}; {median}"
    nearest = f": of {of}, the nearest to their median{_off(timeline)}"
    return f"{nearest}, in a window that shows what is {first}" if timeline.shows == "some_windows" else nearest


#: Ranks' steps that differ by no more are one length.
_ALIKE = 0.05


def _length(timeline: StepTimeline) -> str:
    """Return how long the drawn step is, of each rank where they are not alike: what one does at its end the others
    wait for in their next, and the mean of the two is no rank's step.
    """
    own = sorted(timeline.ranks, key=lambda one: -one.length)
    if _are_alike(timeline):
        return milliseconds(timeline.step_ms)
    told = [f"{milliseconds(one.length / 1e6)} on rank {one.rank}" for one in own]
    if len(own) == 2:
        return listing(told)
    return f"from {milliseconds(own[-1].length / 1e6)} on rank {own[-1].rank} to {told[0]}"


def _are_alike(timeline: StepTimeline) -> bool:
    lengths = [one.length for one in timeline.ranks]
    return not lengths or (max(lengths) - min(lengths)) / 1e6 <= _ALIKE * timeline.step_ms


#: A drawn step that is so near the median of all is as long as that.
_AS_MEDIAN = 0.01


def _off(timeline: StepTimeline) -> str:
    """Return how far the drawn step is from the median; "" where it is that one."""
    off = timeline.step_ms / timeline.median_ms - 1 if timeline.median_ms else 0.0
    if abs(off) <= _AS_MEDIAN:
        return ""
    return f", {percent(abs(off), 0)} {'longer' if off > 0 else 'shorter'} than that"


def timeline_table(timeline: StepTimeline) -> Table:
    """Return one row a rank: when its step begins, and the parts of it, which add up to its length."""
    columns = [
        Column("rank", "rank", digits=0),
        Column("why", "why shown"),
        Column("begin_us", "begins after the first", "µs", 1),
        Column("window_ms", "step", "ms", 2),
        *(Column(f"{part.key}_ms", part.name, "ms", 2) for part in parts.ALL),
    ]
    rows: list[list[Cell]] = [
        [one.rank, ", ".join(one.why) or None, one.begin / 1e3, one.length / 1e6, *(ns / 1e6 for ns in one.parts_ns)]
        for one in timeline.ranks
    ]
    return Table(columns, rows, {"why": "nothing sets it apart"})
