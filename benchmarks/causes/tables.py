"""The truth and the scores as tables. Torch-free."""

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from causes.scoring import CAUSE, NOTHING, Score, state, windows
from causes.truth import Truth, over_ranks

Row = Sequence[str]


def truth_table(out: Path, only: Sequence[str] | None, markdown: bool) -> list[str]:
    """Return a row a case: its truth, and what a profiler made of the step (medians over its windows).

    `attached`: right before a window, but after earlier ones of the same process; `traced`: in it.
    """
    header = (
        *("case", "code", "rank", "batch", "step without", "step", "cost (95%)"),
        *("attached", "traced", "windows"),
    )
    by_case: dict[str, list[Truth]] = {}
    for _, truth in windows(out, only):
        by_case.setdefault(f"{truth.launch}/{truth.case}", []).append(truth)
    rows = []
    for name, truths in by_case.items():
        truth = truths[0]
        plain = statistics.median(float(step) for one in over_ranks(truth.step_ms_untraced_undisturbed) for step in one)
        traced = statistics.median(step for one in truths for rank in one.step_ms_traced for step in rank)
        rank = "–" if truth.rank is None else str(truth.rank)
        interval = f"{truth.cost_ms:.2f} ({truth.cost_low_ms:.2f}–{truth.cost_high_ms:.2f})"
        before = statistics.median(step for one in truths for rank in one.step_ms_before_window for step in rank)
        batch = f"{truth.batch} {truth.samples}"
        rows.append((name, truth.code if state(truth) in (CAUSE, truth.code) else f"{truth.code} ({state(truth)})",
                     rank, batch, f"{plain:.2f}", f"{truth.step_ms:.2f}", interval,
                     f"{before:.2f}", f"{traced:.2f}", str(len(truths))))  # fmt: skip
    return table(header, rows, markdown)


def score_table(scores: Sequence[Score], markdown: bool) -> list[str]:
    """Return a row a window, then the totals."""
    header = (
        *("window", "truth", "cost (95%)", "first finding", "right", "off by", "size", "covers", "narrow"),
        *("blamed for nothing", "untold: first", "right", "blamed for nothing", "range"),
    )
    rows = [
        (
            one.window,
            _truth(one.truth),
            f"{one.truth.cost_ms:.2f} ({one.truth.cost_low_ms:.2f}–{one.truth.cost_high_ms:.2f})",
            one.error or one.first,
            _yes(one.first_right),
            "–" if one.off is None else f"{one.off:+.0%}",
            _yes(one.size_right),
            _yes(one.covered),
            _yes(one.narrow),
            "; ".join(one.accused) or "–",
            one.without_step_first,
            _yes(one.without_step_first_right),
            "; ".join(one.without_step_accused) or "–",
            _yes(one.range_right),
        )
        for one in scores
    ]
    return [*table(header, rows, markdown), "", *totals(scores)]


def totals(scores: Sequence[Score]) -> list[str]:
    """Return the sums that the product is judged by."""
    causes = [one for one in scores if state(one.truth) == CAUSE]
    calm = [one for one in scores if not one.truth.injected_ms and one.truth.code in ("nothing", "host_bound")]
    settled = [one for one in scores if one.first_right is not None]

    def share(what: str, of: Sequence[Score], right: Callable[[Score], bool | None]) -> str:
        answers = [answer for one in of if (answer := right(one)) is not None]
        return f"{sum(answers)} of {len(answers)} {what}"

    return [
        share("first findings right", settled, lambda one: one.first_right),
        share("injected causes found", causes, lambda one: one.found),
        share("sizes within 15%, of those found", causes, lambda one: one.size_right),
        share("intervals cover the truth", causes, lambda one: one.covered),
        share("intervals within ±25%, of costs known as well", causes, lambda one: one.narrow),
        share("windows blame no rank for nothing", scores, lambda one: not one.accused),
        share("undisturbed windows blame no rank", calm, lambda one: not one.accused),
        share("untold: first findings right", scores, lambda one: one.without_step_first_right),
        share("untold: windows that the truth does not contradict", scores, lambda one: not one.without_step_accused),
        share("untold: ranges hold the untraced step", scores, lambda one: one.range_right),
        *(f"could not be analysed: {one.window}: {one.error}" for one in scores if one.error),
    ]


def table(header: Row, rows: Sequence[Row], markdown: bool) -> list[str]:
    """Return the lines of a table, aligned or in markdown."""
    if markdown:
        return [f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows)]
    widths = [max(len(cells[column]) for cells in (header, *rows)) for column in range(len(header))]
    lines = (
        "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)) for cells in (header, *rows)
    )
    return [line.rstrip() for line in lines]


def _truth(truth: Truth) -> str:
    known = state(truth)
    if known == NOTHING:
        return NOTHING if truth.code == NOTHING else f"{NOTHING} ({truth.code}, hidden)"
    named = truth.code if truth.rank is None else f"{truth.code} of {truth.rank}"
    return named if known == CAUSE else f"{named} ({known})"


def _yes(answer: bool | None) -> str:
    return "–" if answer is None else "yes" if answer else "NO"
