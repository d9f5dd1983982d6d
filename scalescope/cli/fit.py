"""`scalescope fit`: what collectives cost, as a function of size and ranks, from sweeps."""

import argparse
from datetime import datetime
from pathlib import Path

from scalescope.cli.outputs import Outputs, add_json, outputs
from scalescope.cli.redacting import add_redact, pseudonyms_of_paths, refuse_redacting_nothing
from scalescope.records.errors import UserError
from scalescope.records.files import write_atomic

_TEACH = """\
Each (operation, dtype) is fitted by itself:

  t = t0 + a·(messages one after another) + b·(share of S that a rank sends)·S + c·S

with n ranks and S bytes: a ring's messages or a tree's, 2(n-1)/n of S for all_reduce, (n-1)/n for all_gather and
reduce_scatter. The curve is cut into segments where the times say so (protocols change with size); coefficients are
never negative; the error made small is relative. Intervals (95%) are bootstrapped.

Then the fit is tested: the largest number of ranks is predicted from the smaller ones, beside what was measured.
That takes two group sizes at least; three say whether the shape in n is right:

  scalescope sweep group_sizes=[2,3,4]
  scalescope fit runs/SWEEP --html fit.html

SWEEP is a sweep's run folder, a study with a sweep in it, a sweep.jsonl, or a log of nccl-tests or rccl-tests; several
are launches of one sweep (three or more: intervals are bootstrapped over the launches)."""


def run(argv: list[str]) -> int:
    """Fit, print what the fits are worth, and write them where asked."""
    parser = argparse.ArgumentParser(
        prog="scalescope fit",
        description="Fit what collectives cost, as a function of size and ranks.\n\n" + _TEACH,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("sweeps", nargs="+", type=Path, metavar="SWEEP")
    add_json(parser, "the fits (terms, points, intervals, test)")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page: points, fitted curves, ceiling, test")
    add_redact(parser)
    options = parser.parse_args(argv)
    refuse_redacting_nothing(options, "--json", "--html")
    with outputs(json=options.json) as out:
        return _run(options, out)


def _run(options: argparse.Namespace, out: Outputs) -> int:
    from scalescope.report.drawing.panel import Section
    from scalescope.report.page import Card, Page, render
    from scalescope.report.panels.costs import cost_panels, fit_sentence, holdout_sentence
    from scalescope.report.sentences import Verdict
    from scalescope.report.terminal.console import make_console
    from scalescope.report.terminal.tables import print_panel
    from scalescope.scaling.costs.answer import cost_answer
    from scalescope.scaling.costs.model import CostModel, NotKnown
    from scalescope.scaling.costs.points import read_launches

    launches = [launch for path in options.sweeps for launch in read_launches(path)]
    try:
        answer = cost_answer(CostModel(launches))
    except NotKnown as reason:
        raise UserError(str(reason)) from None
    if not answer.operations:
        raise UserError(
            f"{options.sweeps[0]} has no point that a fit could use: eager, with nothing running beside, and the "
            "algorithm left to the library"
        )
    console = make_console()
    panels = cost_panels(answer)
    for panel in panels:
        print_panel(panel, console)
    names = ", ".join(path.name for path in options.sweeps)
    if options.redact:
        from scalescope.report.redaction.structs import redacted_twice

        answer, names = redacted_twice((answer, names), pseudonyms_of_paths(options.sweeps))
        panels = cost_panels(answer)
    out.put_json(options.json, answer)
    if options.html is not None:
        cards = [
            Card(Verdict(f"{each.operation} {each.dtype}", "unknown", fit_sentence(each),
                         (holdout_sentence(each.holdout),) if each.holdout is not None else ()))
            for each in answer.operations
        ]  # fmt: skip
        facts = f"{answer.device or 'device not told'} · {datetime.now().astimezone():%Y-%m-%d %H:%M}"
        section = Section("costs", "What collectives cost", panels)
        write_atomic(options.html, render(Page(f"fit of {names}", facts, cards, [], [section], [])))
        print(f"page: {options.html}")
    return 0
