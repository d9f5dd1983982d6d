"""`scalescope study`: train at several GPU counts, sweep what is sent, analyse, report."""

from collections.abc import Callable
from typing import Any

from scalescope.cli import sweep, train
from scalescope.cli.loggers import end_loggers, wandb_options
from scalescope.cli.show import Asked, show
from scalescope.launch.compose import dashed
from scalescope.launch.config import register
from scalescope.launch.studies.outline import outline_study
from scalescope.launch.studies.run import PlannedStudy, follow_advice, followed, is_done, plan_study, run_study
from scalescope.launch.world import discover
from scalescope.records.console import counted, outlived_console
from scalescope.records.errors import ExitCode, RunError, Stopped, UserError
from scalescope.records.files import RowWriter
from scalescope.records.folder import RunFolder
from scalescope.records.package import CONF
from scalescope.records.rows import TriedRow
from scalescope.report.sinks.wandb import missing_package
from scalescope.report.sinks.wandb_study import log_study
from scalescope.report.text.cures.words import cure_what
from scalescope.report.text.findings import following, why_nothing
from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.findings.add import is_looked_at


def run(argv: list[str], before: Callable[[], None] = lambda: None, *, briefly: bool = False) -> int:
    """Measure and show a study; `before` is called once nothing is wrong with the arguments and nothing has begun.

    `briefly`: end with one screen, the counts and the verdicts, and leave the other tables to `scalescope analyze`.
    """
    if argv[:1] in (["-h"], ["--help"]):
        print(_help(), end="")
        return int(ExitCode.OK)
    argv = ["try_advice=true" if word == "--try-advice" else word for word in argv]
    register()
    if flags := [word for word in argv if word.startswith("-")]:
        train.verb()
        if (said := dashed(flags[0], "study") or dashed(flags[0], "train")) is not None:
            raise UserError(said)
        raise UserError(f"study does not know {flags[0]}; comma lists such as model=gpt_small,resnet50 need no flag")
    if (world := discover()) is not None:
        raise UserError(f"a study starts its own ranks, and this process is one of {world.size} that {world.source} "
                        "started; call it once, outside of them")  # fmt: skip
    with outlived_console():
        return _run(argv, before, briefly=briefly)


def _help() -> str:
    """Return what conf/study.yaml says of itself and of its keys, without what is for Hydra alone."""
    head, _, rest = (CONF / "study.yaml").read_text(encoding="utf-8").partition("defaults:\n")
    _, _, keys = rest.partition("\n\n")
    about = "".join(line.removeprefix("# ") for line in head.splitlines(keepends=True))
    return f"usage: scalescope study [KEY=VALUE …] [--try-advice]\n\n{about}\n{keys}"


def _run(argv: list[str], before: Callable[[], None], *, briefly: bool) -> int:
    study = plan_study(outline_study(argv, train.verb(), sweep.verb()))
    before()
    print(f"scalescope: {_announced(study)} → {study.outline.path}", flush=True)
    logged = {
        name: settings
        for name, node in study.outline.settings.logger.items()
        if (settings := wandb_options(name, node)) and not _is_missing(name, settings)
    }
    try:
        folder, failed = run_study(study, _say)
        if study.outline.settings.try_advice:
            runs = [one for one in analyze([folder.path]) if isinstance(one, RunAnalysis)]
            failed += follow(study, folder, [run for run in runs if is_looked_at(run)])
    finally:
        end_loggers(RunFolder(study.outline.path).read_children())
    swept = any(plan.verb.name == "sweep" and plan.path.name not in study.done for plan in study.jobs)
    show(Asked([folder.path], points_were_shown=swept, briefly=briefly))
    for settings in logged.values():
        # the report has the pictures, and who waits for it waits for these
        log_study(folder, settings, pictures=not briefly)
    return int(ExitCode.RUN_FAILED if failed else ExitCode.OK)


def _is_missing(name: str, settings: dict[str, Any]) -> bool:
    """Tell whether a logger's package is not installed, and say so: once for all jobs."""
    if (missing := missing_package(str(settings.get("mode")))) is None:
        return False
    _say(f"scalescope: logger {name} is left out: {missing}")
    return True


def _announced(study: PlannedStudy) -> str:
    """Return what is about to run, of a study that goes on what is not run again."""
    jobs = counted(len(study.jobs), "job")
    if not study.outline.resumed:
        return f"study of {jobs}"
    return f"study of {jobs} goes on, {len(study.done)} of them done before"


def follow(study: PlannedStudy, folder: RunFolder, answers: list[RunAnalysis]) -> list[str]:
    """Follow the best advice for each of a study's runs in one run more; return the reasons of those that failed."""
    failed = []
    kept = {row.base for row in folder.read_tried()}
    writer = RowWriter(folder.tried)
    for answer in answers:
        if answer.name in kept and is_done(folder.path / followed(answer.name)):
            continue
        found = next((one for one in following(answer.findings) if one.remedy and one.remedy.overrides), None)
        if found is None or found.remedy is None or found.ms is None:
            _say(f"[advice] {answer.name}: {why_nothing(answer)}")
            continue
        overrides = list(found.remedy.overrides)
        row = TriedRow(
            base=answer.name,
            run=followed(answer.name),
            what=cure_what(found.remedy),
            overrides=overrides,
            expected_ms=found.ms,
            expected_low_ms=found.low_ms if found.low_ms is not None else found.ms,
            expected_high_ms=found.high_ms if found.high_ms is not None else found.ms,
            at_most=found.at_most,
            at_least=found.at_least,
        )
        if answer.name not in kept:
            writer.append(row)
        try:
            follow_advice(study, answer.name, overrides, _say)
        except Stopped:
            raise
        except (RunError, UserError) as error:
            failed.append(f"advice for {answer.name}: {error}")
            _say(f"    failed: {error}")
    return failed


def _say(line: str) -> None:
    print(line, flush=True)
