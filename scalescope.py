"""The front door: `scalescope VERB …`.

Every verb imports what it needs when it runs, so that help is instant and the reading verbs never load torch.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import Executor

_HOUSE = Path(__file__).resolve().parent
if __name__ == "__main__" and not sys.flags.safe_path and Path(sys.path[0] or ".").resolve() != _HOUSE:
    # `python -m scalescope` puts the current folder first, where somebody else's train.py may lie
    del sys.path[0]

USAGE = """\
scalescope: why does my training job not scale, and what would make it?

  scalescope demo                             measure this machine with both models, and show where the time goes
  scalescope study   [KEY=VALUE …]            train at several GPU counts, sweep all-reduce, analyse, report
  scalescope train   [KEY=VALUE …] [-m]       one training job on this machine's devices
  scalescope sweep   [KEY=VALUE …] [-m]       collectives over sizes and GPU counts
  scalescope analyze PATH … [--json FILE]     traces → analysis.json and a table; PATH: runs, studies, traces
  scalescope report  PATH [OTHER]             report.html, one file that needs no network; of two, side by side
  scalescope perfetto RUN [--out FILE]        all ranks' traces as one file for ui.perfetto.dev
  scalescope dashboard [--dry-run]            a W&B workspace and report of the scaling figures, as code
  scalescope import  LOG … --out FOLDER       logs of nccl-tests and rccl-tests → a sweep like ours
  scalescope compare BASELINE OTHER           two sweeps row by row; --fail-under 0.95 exits 1
  scalescope submit  VERB [KEY=VALUE …]       train, sweep or study by Slurm's sbatch (--wait, --dry-run)
  scalescope doctor                           what of this machine is fine, worth knowing, or broken, and the fix

Examples:
  scalescope study model=gpt_small gpu_counts=[1,2,4]
  scalescope train model=resnet50 steps=100 launch.ranks=2
  scalescope train -m model=gpt_tiny,resnet50_64px        one run folder each (Hydra's multirun)
  scalescope sweep sizes="1MiB..1GiB x4" group_sizes=[2,4]
  torchrun --nproc-per-node 4 -m scalescope train         inside a world that torchrun, srun or mpirun made

KEY=VALUE are Hydra overrides; `scalescope train --help` lists the keys and choices, conf/ holds their defaults.
Exit codes: 0 fine, 1 a failed check, 2 your input, 3 failed while running (what was measured is kept), 75 run me again.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help", "help"):
        print(USAGE, end="")
        return 0
    from records.errors import ExitCode, Preempted, RunError, UserError

    verbs: dict[str, Callable[[list[str]], int]] = {
        "demo": _demo,
        "study": _study,
        "train": _measure_train,
        "sweep": _measure_sweep,
        "analyze": _analyze,
        "report": _report,
        "doctor": _doctor,
        "submit": _submit,
        "finish": _finish,
        "import": _import,
        "compare": _compare,
        "perfetto": _perfetto,
        "dashboard": _dashboard,
    }
    verb, rest = words[0], words[1:]
    try:
        if verb not in verbs:
            import difflib

            near = difflib.get_close_matches(verb, verbs, n=1)
            hint = f"did you mean {near[0]}?" if near else f"choose one of {', '.join(verbs)}"
            raise UserError(f"there is no verb '{verb}'; {hint}")
        return verbs[verb](rest)
    except (UserError, RunError, Preempted) as error:
        print(f"scalescope: {error}", file=sys.stderr)
        return int(error.exit_code)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"scalescope: {where}{error.strerror or error}", file=sys.stderr)
        return int(ExitCode.RUN_FAILED)
    except KeyboardInterrupt:
        print("scalescope: interrupted", file=sys.stderr)
        return int(ExitCode.RUN_FAILED)
    except BrokenPipeError:
        # the reader of a pipe (head, less) has gone: not worth a traceback
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(ExitCode.OK)


# --- measuring -------------------------------------------------------------------------------------------------------


def _verb(name: str) -> "launch.verb.Verb":  # type: ignore[name-defined] # noqa: F821 - loaded when a verb runs
    """Return a measuring verb, with its config types registered at Hydra."""
    from launch.verb import Verb

    if name == "train":
        from train import config as train_config

        train_config.register()
        return Verb("train", "train", train_config.TrainConfig, "train.job:run", "train.checks:check",
                    {"model": dict(train_config.MODELS)})  # fmt: skip
    from collectives import config as sweep_config

    sweep_config.register()
    return Verb("sweep", "sweep", sweep_config.SweepConfig, "collectives.sweep:run", "collectives.checks:check")


def _measure_train(words: list[str]) -> int:
    return _measure("train", words)


def _measure_sweep(words: list[str]) -> int:
    return _measure("sweep", words)


def _measure(name: str, words: list[str]) -> int:
    """Start a job's ranks, or be one of them: the world this process is in decides."""
    from launch.world import discover
    from records.errors import UserError

    world = discover()
    if world is None:
        return _compose_and_start(name, words)
    from launch.run import run_frozen, run_in_world

    if words[:1] == ["--frozen"]:
        return int(run_frozen(_verb(name), Path(words[1]), world))
    if flags := [word for word in words if word.startswith("-") and "=" not in word]:
        raise UserError(f"{flags[0]} does not go with ranks that {world.source} has started; "
                        f"leave it out, or call scalescope {name} outside of it")  # fmt: skip
    return int(run_in_world(_verb(name), words, world))


def _compose_and_start(name: str, words: list[str]) -> int:
    """Let Hydra compose the config (its flags, multirun and launchers included) and start the ranks of each job."""
    import hydra
    from hydra.errors import HydraException
    from omegaconf import DictConfig
    from omegaconf.errors import OmegaConfBaseException

    from launch.compose import CONF, explain, register_resolvers
    from records.errors import ExitCode, RunError, Stopped, UserError

    verb = _verb(name)
    register_resolvers()
    codes: list[int] = []
    stopped = False
    front = os.getpid()

    def task(config: DictConfig) -> None:
        nonlocal stopped
        if stopped:
            return  # who stops one job of a multirun means the others, too
        # said here, since Hydra would put a line of its own before it; the other jobs of a multirun go on
        try:
            codes.append(_start(verb, config))
            stopped = codes[-1] == ExitCode.PREEMPTED
        except (UserError, RunError) as error:
            print(f"scalescope: {error}", file=sys.stderr)
            codes.append(int(error.exit_code))
            stopped = isinstance(error, Stopped)
            if os.getpid() != front:
                raise  # a launcher of Hydra's runs this elsewhere: only what is raised gets back from there

    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra then raises, and we say it in one line
    before = sys.argv
    sys.argv = [f"scalescope {name}", *words]
    try:
        hydra.main(version_base="1.3", config_path=str(CONF), config_name=name)(task)()
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(explain(error, name)) from error
    finally:
        sys.argv = before
    return max(codes, default=int(ExitCode.OK))


def _start(verb: "launch.verb.Verb", config: "omegaconf.DictConfig") -> int:  # type: ignore[name-defined] # noqa: F821
    from launch.freeze import plan_job
    from launch.start import start_job
    from records.errors import ExitCode

    plan = plan_job(verb, config)
    print(f"scalescope: {plan.place.ranks} × {plan.place.device} ({plan.place.backend}) → {plan.path}", flush=True)
    folder = start_job(plan)
    if folder.read_info().status == "preempted":
        print(f"scalescope: state is saved in {folder.path}; run the same command with resume=true", file=sys.stderr)
        return int(ExitCode.PREEMPTED)
    _show([folder.path])
    return int(ExitCode.OK)


def _study(words: list[str], before: Callable[[], None] = lambda: None) -> int:
    from launch.config import register
    from launch.study import outline_study, plan_study, run_study
    from launch.world import discover
    from records.errors import ExitCode, UserError

    if words[:1] in (["-h"], ["--help"]):
        print((_HOUSE / "conf" / "study.yaml").read_text(), end="")
        return 0
    if flags := [word for word in words if word.startswith("-")]:
        raise UserError(f"study does not know {flags[0]}; comma lists such as model=gpt_small,resnet50 need no flag")
    if (world := discover()) is not None:
        raise UserError(f"a study starts its own ranks, and this process is one of {world.size} that {world.source} "
                        "started; call it once, outside of them")  # fmt: skip
    register()
    study = plan_study(outline_study(words, _verb("train"), _verb("sweep")))
    before()
    print(f"scalescope: study of {len(study.jobs)} jobs → {study.outline.path}", flush=True)
    folder, failed = run_study(study, lambda line: print(line, flush=True))
    _show([folder.path])
    for settings in study.outline.settings.logger.values():
        if settings.get("_target_") == "report.wandb.WandbSink":
            from report.wandb import log_study

            log_study(folder, {key: value for key, value in settings.items() if key != "_target_"})
    return int(ExitCode.RUN_FAILED if failed else ExitCode.OK)


def _demo(words: list[str]) -> int:
    """Measure this machine, whatever it has; an earlier demo is put aside, not lost."""
    from datetime import datetime

    from hardware.detect import device_kind

    def put_aside() -> None:
        previous = Path("runs/demo")
        if previous.exists():
            changed = datetime.fromtimestamp(previous.stat().st_mtime)
            previous.rename(previous.with_name(f"demo-{changed:%Y%m%d-%H%M%S}"))

    preset = "demo_cpu" if device_kind() == "cpu" else "demo_gpu"
    print(f"scalescope demo = scalescope study preset={preset} name=demo {' '.join(words)}".rstrip())
    return _study([f"preset={preset}", "name=demo", *words, "runs=runs"], put_aside)


def _submit(words: list[str]) -> int:
    from launch import submit as slurm
    from launch.config import register
    from launch.study import outline_study

    order = slurm.parse(words)
    finish = None
    if order.verb == "study":
        register()
        most = order.request.most_ranks_per_node or 2
        outline = outline_study(order.overrides, _verb("train"), _verb("sweep"), sorted({1, most}))
        batches, finish = slurm.study_batches(outline, order.request)
    else:
        _verb(order.verb)
        slurm.check_job(order.verb, order.overrides)
        batches = [slurm.job_batch(order.verb, order.overrides, order.request, None, order.verb)]
    if order.dry_run:
        for batch in [*batches, *([finish] if finish else [])]:
            print(slurm.script_text(batch, "<the others>" if batch is finish else ""))
        return 0
    if finish is not None:
        with slurm.study_folder(outline):
            ids = slurm.submit(batches, finish, print)
    else:
        ids = slurm.submit(batches, finish, print)
    print(f"results: {outline.path if finish is not None else Path('runs').resolve()}")
    if order.wait:
        slurm.wait(ids, lambda line: print(line, flush=True))
        if finish is not None:
            _show([outline.path])
    return 0


def _finish(words: list[str]) -> int:
    """End a study whose jobs ran one by one: its status from theirs, then analysis and report."""
    if not words:
        from records.errors import UserError

        raise UserError("finish needs a study folder, and may be given the names of its jobs")
    from records.errors import ExitCode
    from records.folder import RunFolder

    folder = RunFolder.open(Path(words[0]))
    runs = folder.read_children()
    bad = [f"{run.path.name} is {run.read_info().status}" for run in runs if run.read_info().status != "done"]
    bad += [f"{name} never began" for name in words[1:] if name not in {run.path.name for run in runs}]
    folder.set_status("failed" if bad or not runs else "done", "; ".join(bad) or (None if runs else "no job ran"))
    _show([folder.path])
    return int(ExitCode.RUN_FAILED if bad or not runs else ExitCode.OK)


def _doctor(words: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="scalescope doctor",
        description="Check this machine and environment, line by line: fine, worth knowing, or broken with the fix. "
        "Exit code 1 where something is broken.",
    )
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="where run folders would be made (runs)")
    options = parser.parse_args(words)
    from hardware.doctor import examine
    from records.errors import ExitCode
    from report.findings import print_findings

    findings = examine(options.runs)
    print_findings(findings)
    return int(ExitCode.CHECK_FAILED if any(finding.level == "broken" for finding in findings) else ExitCode.OK)


# --- reading ---------------------------------------------------------------------------------------------------------


def _analyze(words: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="scalescope analyze",
        description="Read the Kineto traces of run folders, studies, trace folders or trace files; say where each "
        "millisecond went. Run folders and studies get an analysis.json.",
    )
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the answer here, too")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the report here, too")
    parser.add_argument("--mpi", action="store_true", help="read on the ranks of the MPI job that this runs in")
    options = parser.parse_args(words)
    from records.errors import UserError

    if options.html and len(options.paths) > 1:
        raise UserError("--html shows one run or study; name one PATH")
    if not options.mpi:
        _show(options.paths, json=options.json, html=options.html)
        return 0
    from scaling.workers import mpi_workers

    with mpi_workers() as executor:
        if executor is not None:  # MPI's rank 0; the others read what it hands out
            _show(options.paths, json=options.json, html=options.html, executor=executor)
    return 0


def _report(words: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="scalescope report", description="Make report.html of a study or a run: one file that needs no network."
    )
    parser.add_argument("path", type=Path, metavar="PATH", help="a run folder or a study folder")
    parser.add_argument("other", type=Path, nargs="?", metavar="OTHER", help="a second one: both side by side")
    parser.add_argument("--html", type=Path, metavar="FILE", help="where to write it (PATH/report.html)")
    options = parser.parse_args(words)
    from records.folder import RunFolder
    from report.html import write_report
    from scaling.analyze import analyze

    folder = RunFolder.open(options.path)
    analyze([folder.path])
    if options.other is not None:
        from report.compare import write_comparison

        other = RunFolder.open(options.other)
        analyze([other.path])
        print(write_comparison(folder, other, options.html or other.path / "comparison.html"))
        return 0
    print(write_report(folder, options.html))
    return 0


def _perfetto(words: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="scalescope perfetto",
        description="Pack the traces of all ranks into one file that ui.perfetto.dev opens: one clock, processes named "
        "by rank, marks where ranks wait.",
    )
    parser.add_argument("path", type=Path, metavar="PATH", help="a run folder or a folder of traces")
    parser.add_argument("--out", type=Path, metavar="FILE", help="where to write it")
    options = parser.parse_args(words)
    from records.folder import RunFolder
    from report.perfetto import write_perfetto
    from scaling.answer import read_run_answer

    folder = RunFolder(options.path)
    answer = read_run_answer(folder.analysis) if folder.analysis.is_file() else None
    packed = write_perfetto(options.path, options.out, answer)
    count = sum(packed.events.values())
    print(f"{packed.path}: {count:,} events of {len(packed.events)} ranks; open it in ui.perfetto.dev")
    for reason in packed.reasons:
        print(reason)
    return 0


def _dashboard(words: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="scalescope dashboard", description="Make or update a W&B workspace and report of the scaling figures."
    )
    parser.add_argument("--entity", default="", metavar="E", help="your W&B user or team")
    parser.add_argument("--project", default="scalescope", metavar="P")
    parser.add_argument("--workspace-url", metavar="URL", help="update this one instead of making another")
    parser.add_argument("--report-url", metavar="URL", help="update this one instead of making another")
    parser.add_argument("--dry-run", action="store_true", help="write the models as JSON files; needs no network")
    parser.add_argument("--out", type=Path, default=Path("dashboard"), help="the dry run's folder (dashboard)")
    options = parser.parse_args(words)
    from report import dashboard

    if options.dry_run:
        made = dashboard.write_dashboard(options.out, options.entity, options.project)
    else:
        made = dashboard.publish_dashboard(options.entity, options.project, options.workspace_url, options.report_url)
    print(f"workspace: {made.workspace}\nreport:    {made.report}")
    return 0


def _import(words: list[str]) -> int:
    from scaling.sweeps.verbs import run_import

    return run_import(words)


def _compare(words: list[str]) -> int:
    from scaling.sweeps.verbs import run_compare

    return run_compare(words)


def _show(
    paths: list[Path], json: Path | None = None, html: Path | None = None, executor: "Executor | None" = None
) -> None:
    """Analyse, print and report what was measured: how every measuring verb ends."""
    from records.folder import RunFolder
    from report.html import write_report
    from report.material import read_material
    from report.terminal import print_material, print_run
    from scaling.analyze import analyze
    from scaling.answer import RunAnalysis, write_answers

    # files that are given together are ranks that belong together; folders are runs of their own
    groups = [paths] if all(path.is_file() for path in paths) else [[path] for path in paths]
    found = [(group[0], analyze(group, executor=executor)) for group in groups]
    if json is not None:
        write_answers(json, [answer for _, answers in found for answer in answers])
    for path, answers in found:
        if (path / "run.json").is_file():
            folder = RunFolder(path)
            report = write_report(folder, html)  # before the tables: whoever reads those may stop early
            print_material(read_material(folder))
            print(f"report: {report}")
        else:
            for answer in answers:
                if isinstance(answer, RunAnalysis):
                    print_run(answer)


if __name__ == "__main__":
    sys.exit(main())
