"""What is fuzzed: a seed input of each kind, and what the product does with it, as its verbs do."""

import contextlib
import functools
import io
import json
import pickle
import random
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import yaml

from scalescope.cli import sweep, train
from scalescope.cli.front_door import main
from scalescope.cli.loggers import end_loggers
from scalescope.launch.compose import compose_job
from scalescope.launch.freeze import Plan, plan_job
from scalescope.records.errors import ExitCode, UserError
from scalescope.records.folder import RunFolder
from scalescope.report.drawing import panel
from tests.trace_json import unpacked

DATA = Path(__file__).resolve().parent.parent / "data"


@dataclass(frozen=True)
class Subject:
    """One kind of input: `seeds` by name, and a call that puts one into place and returns the verb's exit code."""

    seeds: Mapping[str, bytes]
    use: Callable[[bytes, str, Path], int]


def said_by(argv: list[str]) -> tuple[int, str]:
    """Run a verb in this process; return its exit code and all that it said."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            code = main(argv)
        except SystemExit as end:  # argparse
            code = int(end.code or 0)
    return code, out.getvalue()


def _run(argv: list[str]) -> int:
    code, said = said_by(argv)
    if "this is a defect of scalescope" in said:
        kept = Path(said.strip().splitlines()[-1].rpartition(" and ")[2])
        trace = kept.read_text()
        kept.unlink()
        raise AssertionError(f"scalescope {' '.join(argv)}\n{trace}")
    return code


@functools.cache
def _trace_seeds() -> dict[str, bytes]:
    """Parts of real traces, small enough to be read fast: every category, a few events of each."""
    seeds = {}
    for name in ("gpt_ddp_n2", "cpu_ddp_n2", "resnet50_ddp_n4"):
        path = sorted((DATA / name).glob("**/rank0*.json.gz"))[0]
        document = unpacked(path)
        seeds[name] = _part(document, talking=40, others=250, draw=1)
        for draw in range(1, 4):
            seeds[f"{name}-{draw}"] = _part(document, talking=16, others=80, draw=draw)
    return seeds


def _part(document: dict[str, Any], talking: int, others: int, draw: int) -> bytes:
    """Return a trace of the steps, so many events that name a collective, and so many of any kind, drawn."""
    events = document["traceEvents"]
    steps = [one for one in events if "ProfilerStep" in str(one.get("name"))]
    talk = [one for one in events if "Collective name" in one.get("args", {})]
    kept = [*steps, *talk[:talking], *random.Random(draw).sample(events, min(len(events), others))]
    lines = ",\n".join(json.dumps(event) for event in kept)  # an event a line, for mutations of lines
    head = json.dumps({key: value for key, value in document.items() if key != "traceEvents"}).removesuffix("}")
    return f'{head}, "traceEvents": [\n{lines}\n]}}'.encode()


def _use_trace(data: bytes, name: str, folder: Path) -> int:
    """Analyse it beside a sound rank, and pack it, in one case of four beside that rank."""
    traces = folder / "traces"
    traces.mkdir()
    mutant = traces / "rank0.1.pt.trace.json"
    mutant.write_bytes(data)
    (traces / "rank1.1.pt.trace.json").write_bytes(_trace_seeds()[name])
    code = _run(["analyze", str(traces), "--json", str(folder / "analysis.json")])
    packed = traces if zlib.crc32(data) % 4 == 0 else mutant
    _run(["perfetto", str(packed), "--out", str(folder / "all.json.gz")])
    return code


def _use_log(data: bytes, name: str, folder: Path) -> int:
    log = folder / name
    log.write_bytes(data)
    return _run(["import", str(log), "--out", str(folder / "imported")])


def _use_study(data: bytes, name: str, folder: Path) -> int:
    """Put a file in its place in a study folder, and analyse and report it; one file costs its run, not the study."""
    study = Path(shutil.copytree(STUDY[0], folder / "study"))
    if not name.startswith("sweep/") and zlib.crc32(data) % 4:
        shutil.rmtree(study / "sweep")  # fitting its costs takes half of a case's time
    (study / name).write_bytes(data)
    with _charts_in_one_of(40, data):
        code = _run(["analyze", str(study)])
    if "/" not in name or not name.endswith(("run.json", "config.yaml")):
        _run(["compare", str(study), str(study)])
    return code


@contextlib.contextmanager
def _charts_in_one_of(cases: int, data: bytes) -> Iterator[None]:
    """Let the pages of the other cases do without charts, as where altair is not installed: they take 0.8 s of 1.1."""
    if zlib.crc32(data) % cases == 0:
        yield
        return
    with mock.patch.object(panel, "find_spec", return_value=None):
        yield


def _use_config(data: bytes, name: str, folder: Path) -> int:
    """Go on with a run whose config is this, as `resume=true` does before it starts a rank, and analyse it."""
    plan = replace(_plans()[name.partition(".")[0]], path=folder / "run")
    shutil.copytree(sorted(STUDY[0].glob("*/facts.json"))[0].parent, plan.path)
    info = RunFolder(plan.path).read_info()
    info.kind = plan.verb.kind
    RunFolder(plan.path).write_info(info)
    (plan.path / "config.yaml").write_bytes(data)
    if zlib.crc32(data) % 5 == 0:
        with _charts_in_one_of(50, data):
            _run(["analyze", str(plan.path)])
    end_loggers([RunFolder(plan.path)])
    try:
        plan.make_folder()
    except UserError:
        return int(ExitCode.USER_INPUT)
    return int(ExitCode.OK)


@functools.cache
def _plans() -> dict[str, Plan]:
    """Return a job of each measuring verb, ready to go on."""
    here = ("launch.device=cpu", "launch.ranks=2", "name=run", "resume=true", "logger=wandb")
    jobs = ((train.verb(), ("model=gpt_tiny", *here)), (sweep.verb(), here))
    return {verb.name: plan_job(verb, compose_job(verb.name, words)) for verb, words in jobs}


def _config_seeds() -> dict[str, bytes]:
    """Frozen configs as they are written, and the same as JSON, which is YAML whose values the mutator can reach."""
    texts = {name: plan.text for name, plan in _plans().items()}
    return {
        **{f"{name}.yaml": text.encode() for name, text in texts.items()},
        **{f"{name}.json": json.dumps(yaml.safe_load(text)).encode() for name, text in texts.items()},
    }


def _use_flight(data: bytes, name: str, folder: Path) -> int:
    """Analyse a failed run that has this record of a rank's last collectives."""
    run = Path(shutil.copytree(sorted(STUDY[0].glob("*/facts.json"))[0].parent, folder / "run"))
    info = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**info, "status": "failed", "message": "rank 1 has died"}))
    (run / "flight_recorder").mkdir(exist_ok=True)
    (run / "flight_recorder" / name).write_bytes(data)
    with _charts_in_one_of(50, data):
        return _run(["analyze", str(run)])


def _flight_seed() -> bytes:
    entry = {"process_group": ("0", "default_pg"), "collective_seq_id": 3, "profiling_name": "nccl:all_reduce",
             "state": "started", "retired": False, "is_p2p": False, "input_sizes": [[4, 4]],
             "input_dtypes": ["Float"], "frames": [{"name": "step", "filename": "/x/train.py", "line": 3}]}  # fmt: skip
    return pickle.dumps({"version": "2.4", "entries": [entry, {**entry, "collective_seq_id": 4}]})


STUDY: list[Path] = []  # a sound study of two runs and a sweep, made once


def _make_small(study: RunFolder) -> None:
    """Keep what is analysed quickly: two of the runs, some steps of each, and a sweep of a few sizes."""
    for run in study.read_children():
        if (run.read_info().world_size or 0) > 2 and run.steps.is_file():
            shutil.rmtree(run.path)
        for rows, kept in ((run.steps, slice(0, 16)), (run.sweep, slice(0, None, 6))):
            if rows.is_file():
                rows.write_text("".join(rows.read_text().splitlines(keepends=True)[kept]))


def subjects(study: Path) -> dict[str, Subject]:
    """Return all kinds of input; `study` is a sound study folder that copies are made of."""
    _make_small(RunFolder(study))
    STUDY[:] = [study]
    files = {
        str(path.relative_to(study)): path.read_bytes()
        for path in sorted(study.glob("**/*"))
        if path.is_file() and path.name in ("run.json", "facts.json", "steps.jsonl", "sweep.jsonl", "tried.jsonl",
                                            "config.yaml", "analysis.json")
    }  # fmt: skip
    logs = {path.name: path.read_bytes() for path in sorted((DATA / "nccl_tests").iterdir()) if path.is_file()}
    return {
        "traces": Subject(_trace_seeds(), _use_trace),
        "logs": Subject(logs, _use_log),
        "folders": Subject(files, _use_study),
        "configs": Subject(_config_seeds(), _use_config),
        "flight records": Subject({"rank0.pickle": _flight_seed()}, _use_flight),
    }
