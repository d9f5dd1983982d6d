"""The front door: `scalescope VERB …`.

A verb's file is loaded when it is called, so that help is instant and the reading verbs never load torch.
"""

import gc
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from scalescope import missing

# a verb → the module whose run(argv) it is
VERBS = {
    "demo": "scalescope.cli.demo",
    "study": "scalescope.cli.study",
    "train": "scalescope.cli.train",
    "sweep": "scalescope.cli.sweep",
    "scorecard": "scalescope.cli.scorecard",
    "analyze": "scalescope.cli.analyze",
    "report": "scalescope.cli.report",
    "perfetto": "scalescope.cli.perfetto",
    "dashboard": "scalescope.cli.dashboard",
    "import": "scalescope.cli.import_logs",
    "compare": "scalescope.cli.compare",
    "fit": "scalescope.cli.fit",
    "whatif": "scalescope.cli.whatif",
    "project": "scalescope.cli.project",
    "submit": "scalescope.cli.submit",
    "slurm-scripts": "scalescope.cli.slurm_scripts",
    "finish": "scalescope.cli.finish",
    "doctor": "scalescope.cli.doctor",
}

#: What people call it who know other tools.
_MEANT = {
    **dict.fromkeys(
        ("profile", "record"), "train, or three lines in a script of your own (profile_steps in README.md)"
    ),
    **dict.fromkeys(("run", "launch", "start"), "train"),
    **dict.fromkeys(("view", "show", "open", "html", "plot", "summary"), "report"),
    **dict.fromkeys(("trace", "traces", "stats", "read", "explain"), "analyze"),
    **dict.fromkeys(("bench", "benchmark", "collectives", "nccl", "nccl-tests"), "sweep"),
    **dict.fromkeys(("diff", "regression"), "compare"),
    **dict.fromkeys(("merge", "timeline"), "perfetto"),
    **dict.fromkeys(("predict", "extrapolate", "scale"), "project"),
    **dict.fromkeys(("check", "info", "env", "selftest"), "doctor"),
    "slurm": "submit",
    "simulate": "whatif",
}

_MEASURING = ("demo", "study", "train", "sweep", "scorecard")
_READING = ("analyze", "report", "perfetto", "import", "compare", "fit", "whatif", "project")

#: Reading makes objects by the hundred thousand, and hardly a circle of them: Python is to look for circles so seldom.
#: It takes 5% of what four ranks take otherwise.
_OBJECTS = 100_000

USAGE = """\
scalescope: why does my training job not scale, and what would make it?

  scalescope demo                             measure this machine with both models, and show where the time goes
  scalescope study   [KEY=VALUE …]            train at several GPU counts, sweep what they send, analyse, report
  scalescope train   [KEY=VALUE …] [-m]       one training job on this machine's devices
  scalescope sweep   [KEY=VALUE …] [-m]       collectives over sizes and GPU counts
  scalescope scorecard [KEY=VALUE …] [--json] this machine beside data sheets, the record and claims; rows=[]: claims
  scalescope analyze PATH … [--json]          traces → analysis.json and a table; PATH: runs, studies, traces
  scalescope report  PATH [OTHER]             report.html, one file that needs no network; of two, side by side
  scalescope perfetto RUN [--out FILE]        all ranks' traces as one file for ui.perfetto.dev
  scalescope dashboard [--dry-run]            a W&B workspace and report of the scaling figures, as code
  scalescope import  LOG … --out FOLDER       logs of nccl-tests and rccl-tests → a sweep like ours
  scalescope compare BASELINE OTHER           slower? by how much, where, and is it real; --fail-if 'step>3%' exits 1
  scalescope fit     SWEEP … [--html FILE]    what a collective costs at any size and GPU count, and how well that fits
  scalescope whatif  PATH [--bucket-mib 5,50] what a change would do to the step: the traced step, replayed changed
  scalescope project STUDY --gpus 8,64        a study's step on other GPU counts, with intervals
  scalescope submit  VERB [KEY=VALUE …]       train, sweep or study by Slurm's sbatch (--wait, --dry-run)
  scalescope slurm-scripts DIR                copy the batch scripts, to edit what your site needs
  scalescope finish  STUDY                    end a study whose jobs ran one by one: its status, analysis, report
  scalescope doctor                           what of this machine is fine, worth knowing, or broken, and the fix

Examples:
  scalescope study model=gpt_small gpu_counts=[1,2,4]     on GPUs; without any: model=gpt_tiny,resnet50_64px
  scalescope train model=resnet50 steps=100 launch.ranks=2
  scalescope train -m model=gpt_tiny,resnet50_64px        one run folder each (Hydra's multirun)
  scalescope sweep sizes="1MiB..1GiB x4" group_sizes=[2,4]
  torchrun --nproc-per-node 4 -m scalescope train         inside a world that torchrun, srun or mpirun made

KEY=VALUE are Hydra overrides; `scalescope train --help` lists the keys and choices, conf/ holds their defaults.
Exit codes: 0 fine, 1 a failed check, 2 your input, 3 failed while running (what was measured is kept), 75 run me again.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code. What it prints of a stranger's names moves no cursor and no colour."""
    from scalescope.records.console import cleaned_console

    _ready_streams()
    with cleaned_console():
        return _main(arguments)


def _main(arguments: Sequence[str] | None) -> int:
    argv = list(sys.argv[1:] if arguments is None else arguments)
    from scalescope.records.errors import ExitCode, Preempted, ReaderGone, RunError, UserError

    if lacks := missing():
        print(f"scalescope: {lacks}", file=sys.stderr)
        return int(ExitCode.USER_INPUT)
    if argv[:1] and argv[0] in _MEASURING and arguments is None:
        from scalescope.records.stop import let_interrupt, note_interrupts, note_requests

        note_requests()
        note_interrupts()
        if "--frozen" in argv:
            let_interrupt()  # a rank: its launcher says why
    if argv[:1] and argv[0] in _READING and arguments is None:
        # no matrix here is large: numpy's BLAS need not start a thread a core, which takes 25 ms
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        code = _answer(argv)
        sys.stdout.flush()  # a pipe or a disk that takes no more says so here, not while Python ends
        if arguments is None:
            gc.freeze()  # all of it ends with the process: Python need not look through it for circles first
        return code
    except (UserError, RunError, Preempted) as error:
        print(f"scalescope: {error}", file=sys.stderr)
        return int(error.exit_code)
    except BrokenPipeError as error:
        _let_go_of_stdout()  # the reader of a pipe (head, less) has gone: not worth a traceback
        return int(error.exit_code if isinstance(error, ReaderGone) else ExitCode.OK)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"scalescope: {where}{error.strerror or error}", file=sys.stderr)
        try:
            sys.stdout.flush()
        except OSError:
            _let_go_of_stdout()
        return int(ExitCode.RUN_FAILED)
    except KeyboardInterrupt:
        print("scalescope: interrupted", file=sys.stderr)
        return int(ExitCode.RUN_FAILED)
    except Exception as error:  # noqa: BLE001 - the last one to ask: a line for the user, all of it for who mends it
        from scalescope.records.stop import interrupted

        print(f"scalescope: {'interrupted' if interrupted() else _reported(error)}", file=sys.stderr)
        return int(ExitCode.RUN_FAILED)


def _reported(error: Exception) -> str:
    """Return a defect of ours as a line that asks for a report, with its traceback in a file."""
    import tempfile
    import traceback

    said = next(iter(str(error).splitlines()), "")[:200]
    message = f"this is a defect of scalescope: {type(error).__name__}{f': {said}' if said else ''}"
    try:
        handle, path = tempfile.mkstemp(prefix="scalescope-defect-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write("".join(traceback.format_exception(error)))
    except OSError:
        return f"{message}; please report it, with what you called"
    return f"{message}; please report it, with what you called and {path}"


def _answer(argv: list[str]) -> int:
    """Run the verb, or say what there is."""
    if argv[:1] == ["help"] and len(argv) == 2 and argv[1] in VERBS:
        argv = [argv[1], "--help"]
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(USAGE, end="")
        return 0
    if argv[0] in ("-V", "--version", "version"):
        from importlib.metadata import version

        print(f"scalescope {version('scalescope')}")
        return 0
    module = _module(argv[0])
    if argv[0] not in _MEASURING:
        gc.set_threshold(_OBJECTS)
    if argv[0] in (*_MEASURING, "submit"):
        _refuse_undecodable([*argv, str(Path.cwd())])
    return int(import_module(module).run(argv[1:]))


def _refuse_undecodable(argv: Sequence[str]) -> None:
    """Raise UserError for a word that this locale's encoding cannot read: no config or JSON file could hold it."""
    from scalescope.records.errors import UserError

    for word in argv:
        if any("\ud800" <= sign <= "\udfff" for sign in word):
            said = os.fsencode(word).decode("utf-8", "replace")
            raise UserError(f"{said} is no text in this locale, whose encoding is {sys.getfilesystemencoding()}; set "
                            "LC_ALL=C.UTF-8 or PYTHONUTF8=1, or use names that it has")  # fmt: skip


def _ready_streams() -> None:
    """Let nothing that is said end what it is said of: for ranks and libraries, too, there is somewhere to print to.

    What the terminal's encoding has not (× in a Latin or ASCII locale) prints as `?`. A stream that the caller has
    closed (`>&-`) leads nowhere; left closed, the next file that is opened would get its number.
    """
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, number)
            setattr(sys, name, open(number, "w", encoding="utf-8", closefd=False))  # noqa: SIM115
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="replace")


def _let_go_of_stdout() -> None:
    """Send what is still to be printed nowhere: Python would try again as it ends, and exit with a code of its own."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _module(verb: str) -> str:
    """Return the module of a verb. Raises UserError with the nearest one."""
    if verb in VERBS:
        return VERBS[verb]
    import difflib

    from scalescope.records.errors import UserError

    if verb.startswith("-"):
        raise UserError(f"{verb} stands behind a verb: scalescope VERB … {verb}; scalescope --help lists the verbs")
    near = [_MEANT[verb]] if verb in _MEANT else difflib.get_close_matches(verb, VERBS, n=1)
    hint = f"did you mean {near[0]}?" if near else f"choose one of {', '.join(VERBS)}"
    raise UserError(f"there is no verb '{verb}'; {hint}")
