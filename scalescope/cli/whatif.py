"""`scalescope whatif`: what a change would do to a step, before it is made."""

import argparse
import math
from collections.abc import Collection
from pathlib import Path

from scalescope.cli.outputs import Outputs, VerbParser, add_json, outputs
from scalescope.cli.redacting import add_redact, pseudonyms_of_paths, refuse_redacting_nothing
from scalescope.records.errors import UserError

_TEACH = """\
The traced step is replayed: what waits for what on the hosts and the devices of all ranks, collectives that wait for
their last member, and compute and communication slowing each other as measured. Then it is replayed changed. Each flag
is one change (a list is several); --together makes all of them at once. Without flags, what the analysis finds is taken
out, one finding after the other.

  scalescope whatif runs/STUDY --bucket-mib 5,50 --gradients bf16
  scalescope whatif runs/STUDY/gpt_small-ddp-n4 --link 2x --no-straggler
  scalescope whatif TRACE_FOLDER --no-overlap --perfect-overlap

PATH is a study (its largest run of each job), a run, or a folder of traces. A study's sweep tells what collectives of
other sizes take, and its run on one rank how much compute is slowed; without them the traces themselves have to do, and
intervals are wider. The interval covers what is assumed, which is printed with it. Where the unchanged replay is more
than 1% off the trace, nothing is predicted."""


def run(argv: list[str]) -> int:
    """Replay, print the table, and write the figures where asked."""
    options = _parse(argv)
    with outputs(json=options.json) as out:
        return _run(options, out)


def _run(options: argparse.Namespace, out: Outputs) -> int:
    from scalescope.report.panels.whatif import replay_panel
    from scalescope.report.terminal.console import make_console
    from scalescope.report.terminal.tables import print_panel
    from scalescope.scaling.as_run.predict import open_as_run, predict
    from scalescope.scaling.found import without_found
    from scalescope.scaling.replay.load import find_targets

    console = make_console()
    answers = []
    for target in find_targets(options.path):
        if not _asks_for_changes(options):
            answers.append(without_found(target, options.step_ms))
            print_panel(replay_panel(answers[-1]), console)
            continue
        replayer = open_as_run(target, options.step_ms)
        straggler = replayer.latest_rank if options.no_straggler == "latest" else None
        _refuse_stranger(options.no_straggler, replayer.graph.ranks, target.name)
        answer = predict(target.name, replayer, _changes(options, straggler))
        answers.append(answer)
        print_panel(replay_panel(answer), console)
    if options.redact:
        from scalescope.report.redaction.structs import redacted_twice

        answers = redacted_twice(answers, pseudonyms_of_paths([options.path]))
    out.put_json(options.json, answers)
    return 0


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = VerbParser(
        prog="scalescope whatif",
        one_more="a change is tried on one PATH, and {} is a second one; try it on each by itself",
        description="Tell what a change would do to a step, before it is made.\n\n" + _TEACH,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("path", type=Path, metavar="PATH", help="a study, a run, or a folder of traces")
    parser.add_argument("--bucket-mib", metavar="MIB[,…]", default="", help="DDP's gradient buckets cut anew")
    parser.add_argument("--gradients", metavar="DTYPE", help="what gradients travel as: bf16 or fp32")
    parser.add_argument("--link", metavar="K[,…]", default="", help="links that are k times as fast: 2x, 0.5x")
    parser.add_argument("--no-overlap", action="store_true", help="collectives begin when the backward pass ends")
    parser.add_argument("--perfect-overlap", action="store_true", help="nothing waits for a collective")
    parser.add_argument(
        "--no-straggler", nargs="?", const="latest", metavar="RANK[,…]",
        help="this rank, or these all at once, take no longer than the others; without a number, the one most often "
        "last",
    )  # fmt: skip
    parser.add_argument("--no-inflation", action="store_true", help="compute takes no longer beside collectives")
    parser.add_argument("--data-free", action="store_true", help="batches are there when they are asked for")
    parser.add_argument("--host-free", action="store_true", help="launching takes no time")
    parser.add_argument("--step-ms", type=float, metavar="MS", help="a step of the job without a profiler")
    parser.add_argument("--together", action="store_true", help="make all of these changes at once")
    add_json(parser, "the figures")
    add_redact(parser)
    options = parser.read(argv)
    refuse_redacting_nothing(options, "--json")
    return options


def _asks_for_changes(options: argparse.Namespace) -> bool:
    return bool(_changes(options, 0))


def _changes(options: argparse.Namespace, latest: int | None) -> list["Change"]:  # type: ignore[name-defined] # noqa: F821
    """Return the changes asked for. Raises UserError for values that make no sense."""
    from scalescope.scaling.replay.change import Change

    single: list[dict[str, object]] = [{"bucket_mib": value} for value in _numbers("--bucket-mib", options.bucket_mib)]
    if options.gradients is not None:
        single.append({"gradients": options.gradients})
    single += [{"link": value} for value in _numbers("--link", options.link)]
    single += [{"overlap": "none"}] if options.no_overlap else []
    single += [{"overlap": "perfect"}] if options.perfect_overlap else []
    if options.no_straggler is not None:
        ranks = (latest,) if latest is not None else _ranks(options.no_straggler)
        single.append({"no_straggler": ranks[0]} if len(ranks) == 1 else {"no_stragglers": ranks})
    for flag in ("no_inflation", "data_free", "host_free"):
        single += [{flag: True}] if getattr(options, flag) else []
    if not options.together:
        return [Change(**one) for one in single]  # type: ignore[arg-type]
    whole: dict[str, object] = {}
    for one in single:
        if whole.keys() & one.keys():
            raise UserError(f"--together takes one value a flag, and {next(iter(one)).replace('_', '-')} has two")
        whole |= one
    return [Change(**whole)] if whole else []  # type: ignore[arg-type]


def _refuse_stranger(text: str | None, ranks: Collection[int], name: str) -> None:
    if text is None or text == "latest":
        return
    if strangers := [rank for rank in _ranks(text) if rank not in ranks]:
        raise UserError(
            f"--no-straggler {strangers[0]}: not a rank of {name} that is replayed; choose one of "
            f"{', '.join(map(str, ranks))}"
        )


def _numbers(flag: str, text: str) -> list[float]:
    found = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        try:
            value = float(word[:-1] if flag == "--link" and word[-1] in "xX×" else word)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise UserError(f"{flag} {text}: '{word}' is no number; give e.g. {flag} 5,50")
        found.append(value)
    return found


def _ranks(text: str) -> tuple[int, ...]:
    if text == "latest":
        raise UserError("--no-straggler: the traces hold no collective of several ranks, so no rank is last")
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdigit() for word in words):
        raise UserError(f"--no-straggler {text}: give a rank's number, or none for the one most often last")
    return tuple(dict.fromkeys(map(int, words)))
