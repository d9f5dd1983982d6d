"""`scalescope study`: train at several GPU counts, sweep all-reduce, analyse, report."""

from collections.abc import Callable

from launch.compose import CONF
from launch.config import register
from launch.study import outline_study, plan_study, run_study
from launch.world import discover
from records.console import outlived_console
from records.errors import ExitCode, UserError
from records.folder import RunFolder
from report.wandb import TARGET, log_study
from verbs import sweep, train
from verbs.loggers import end_loggers
from verbs.show import show


def run(words: list[str], before: Callable[[], None] = lambda: None) -> int:
    """Measure and show a study; `before` is called once nothing is wrong with the words and nothing has begun."""
    if words[:1] in (["-h"], ["--help"]):
        print((CONF / "study.yaml").read_text(), end="")
        return int(ExitCode.OK)
    if flags := [word for word in words if word.startswith("-")]:
        raise UserError(f"study does not know {flags[0]}; comma lists such as model=gpt_small,resnet50 need no flag")
    if (world := discover()) is not None:
        raise UserError(f"a study starts its own ranks, and this process is one of {world.size} that {world.source} "
                        "started; call it once, outside of them")  # fmt: skip
    register()
    with outlived_console():
        return _run(words, before)


def _run(words: list[str], before: Callable[[], None]) -> int:
    study = plan_study(outline_study(words, train.verb(), sweep.verb()))
    before()
    print(f"scalescope: study of {len(study.jobs)} jobs → {study.outline.path}", flush=True)
    try:
        folder, failed = run_study(study, lambda line: print(line, flush=True))
    finally:
        end_loggers(RunFolder(study.outline.path).read_children())
    show([folder.path])
    for settings in study.outline.settings.logger.values():
        if settings.get("_target_") == TARGET:
            log_study(folder, {key: value for key, value in settings.items() if key != "_target_"})
    return int(ExitCode.RUN_FAILED if failed else ExitCode.OK)
