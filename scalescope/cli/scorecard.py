"""`scalescope scorecard`: this machine beside data sheets, the published record and claims, and what each is worth."""

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import msgspec

from scalescope.cli import sweep, train
from scalescope.cli.loggers import wandb_options
from scalescope.hardware.claims.catalog import Catalog, own_catalog, read_claims
from scalescope.launch.compose import compose_job, freeze, typed
from scalescope.launch.freeze import folder_below
from scalescope.launch.world import discover
from scalescope.records.console import outlived_console
from scalescope.records.errors import ExitCode, UserError
from scalescope.records.folder import RunFolder, new_name
from scalescope.records.package import CONF
from scalescope.report.scorecard import claims_panel, judged_claims, scorecard_panels
from scalescope.report.terminal.console import make_console
from scalescope.report.terminal.tables import print_panel
from scalescope.scorecard.config import ScorecardConfig, register


def run(argv: list[str]) -> int:
    """Measure rows and print them beside claims; without rows, the claims alone. Raises UserError and RunError."""
    parser = argparse.ArgumentParser(
        prog="scalescope scorecard", formatter_class=argparse.RawDescriptionHelpFormatter, description=_about()
    )
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--json", action="store_true", help="claims and rows as JSON, on the terminal alone")
    options = parser.parse_args(argv)
    register()
    config = compose_job("scorecard", options.settings)
    settings = typed(config, ScorecardConfig)
    catalog = own_catalog() if settings.claims is None else read_claims(Path(settings.claims), own_catalog())
    if not settings.chosen:
        _show_claims(catalog, settings.devices, as_json=options.json)
        return int(ExitCode.OK)
    if (world := discover()) is not None:
        raise UserError(f"a scorecard starts its own ranks, and this process is one of {world.size} that "
                        f"{world.source} started; call it once, outside of them")  # fmt: skip
    what = "all" if settings.rows == "all" else "+".join(settings.chosen)
    path = folder_below(settings.runs, settings.name or new_name("scorecard", what))
    with outlived_console():
        _measure(settings, path, freeze(config), catalog, as_json=options.json)
    return int(ExitCode.OK)


def _measure(settings: ScorecardConfig, path: Path, text: str, catalog: Catalog, *, as_json: bool) -> None:
    from scalescope.launch.start import start_job  # loads torch, which a mistyped key need not wait for
    from scalescope.report.html import write_report
    from scalescope.report.sinks.wandb_study import log_study
    from scalescope.scorecard.run import measure_scorecard

    out = sys.stderr if as_json else sys.stdout
    print(f"scalescope: scorecard of {', '.join(settings.chosen)} → {path}", flush=True, file=out)
    verbs = {"train": train.verb(), "sweep": sweep.verb()}
    with _standard_output_to_stderr() if as_json else nullcontext():  # ranks speak, too
        folder = measure_scorecard(
            settings, path, text, verbs, start_job, lambda line: print(f"  {line}", flush=True, file=out)
        )
        report = write_report(folder)
        for name, node in settings.logger.items():
            if chosen := wandb_options(name, node):
                log_study(folder, chosen)
    if as_json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(folder.read_scorecard())).decode() + "\n")
    else:
        _show(folder, catalog, settings.devices)
        print(f"report: {report}")


@contextmanager
def _standard_output_to_stderr() -> Iterator[None]:
    """Send what this process and those that it starts print to standard error meanwhile."""
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def _show(folder: RunFolder, catalog: Catalog, devices: list[str]) -> None:
    console = make_console()
    for panel in scorecard_panels(folder.read_scorecard(), catalog, devices):
        print_panel(panel, console)


def _about() -> str:
    """Return what conf/scorecard.yaml says of itself and of its keys, without what is for Hydra alone."""
    head, _, rest = (CONF / "scorecard.yaml").read_text(encoding="utf-8").partition("defaults:\n")
    _, _, keys = rest.partition("\n\n")
    return "".join(line.removeprefix("# ") for line in head.splitlines(keepends=True)) + "\n" + keys


def _show_claims(catalog: Catalog, devices: list[str], *, as_json: bool) -> None:
    judged = judged_claims(catalog, devices)
    if as_json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(judged)).decode() + "\n")
    else:
        print_panel(claims_panel(judged), make_console())
