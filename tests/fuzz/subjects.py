"""What is fuzzed: a seed input of each kind, and what the product does with it, as its verbs do."""

import contextlib
import gzip
import io
import json
import pickle
import random
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from scalescope.cli.front_door import main

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


def _trace_seeds() -> dict[str, bytes]:
    """Parts of real traces, small enough to be read fast: every category, a few events of each."""
    seeds = {}
    for name in ("gpt_ddp_n2", "cpu_ddp_n2", "resnet50_ddp_n4"):
        path = sorted((DATA / name).glob("**/rank0*.json.gz"))[0]
        document = json.loads(gzip.decompress(path.read_bytes()))
        events = document["traceEvents"]
        random_ = random.Random(1)
        steps = [one for one in events if "ProfilerStep" in str(one.get("name"))]
        talk = [one for one in events if "Collective name" in one.get("args", {})]
        kept = [*steps, *talk[:40], *random_.sample(events, min(len(events), 250))]
        seeds[name] = json.dumps({**document, "traceEvents": kept}).encode()
    return seeds


def _use_trace(data: bytes, name: str, folder: Path) -> int:
    """Analyse it beside a sound rank, and pack both."""
    traces = folder / "traces"
    traces.mkdir()
    (traces / "rank0.1.pt.trace.json").write_bytes(data)
    (traces / "rank1.1.pt.trace.json").write_bytes(_SOUND[name])
    code = _run(["analyze", str(traces), "--json", str(folder / "analysis.json")])
    _run(["perfetto", str(traces), "--out", str(folder / "all.json.gz")])
    return code


def _use_log(data: bytes, name: str, folder: Path) -> int:
    log = folder / name
    log.write_bytes(data)
    return _run(["import", str(log), "--out", str(folder / "imported")])


def _use_study(data: bytes, name: str, folder: Path) -> int:
    """Put a file in its place in a study folder, and analyse and report it; one file costs its run, not the study."""
    study = Path(shutil.copytree(STUDY[0], folder / "study"))
    (study / name).write_bytes(data)
    code = _run(["analyze", str(study)])
    if "/" not in name or not name.endswith(("run.json", "config.yaml")):
        _run(["compare", str(study), str(study)])
    _run(["report", str(study), "--html", str(folder / "report.html")])
    return code


def _use_flight(data: bytes, name: str, folder: Path) -> int:
    run = Path(shutil.copytree(sorted(STUDY[0].glob("*/facts.json"))[0].parent, folder / "run"))
    info = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**info, "status": "failed", "message": "rank 1 has died"}))
    (run / "flight_recorder").mkdir(exist_ok=True)
    (run / "flight_recorder" / name).write_bytes(data)
    return _run(["analyze", str(run)])


def _flight_seed() -> bytes:
    entry = {"process_group": ("0", "default_pg"), "collective_seq_id": 3, "profiling_name": "nccl:all_reduce",
             "state": "started", "retired": False, "is_p2p": False, "input_sizes": [[4, 4]],
             "input_dtypes": ["Float"], "frames": [{"name": "step", "filename": "/x/train.py", "line": 3}]}  # fmt: skip
    return pickle.dumps({"version": "2.4", "entries": [entry, {**entry, "collective_seq_id": 4}]})


STUDY: list[Path] = []  # a sound study of two runs and a sweep, made once
_SOUND = _trace_seeds()


def subjects(study: Path) -> dict[str, Subject]:
    """Return all kinds of input; `study` is a sound study folder that copies are made of."""
    STUDY[:] = [study]
    files = {
        str(path.relative_to(study)): path.read_bytes()
        for path in sorted(study.glob("**/*"))
        if path.is_file() and path.name in ("run.json", "facts.json", "steps.jsonl", "sweep.jsonl", "tried.jsonl",
                                            "config.yaml", "analysis.json")
    }  # fmt: skip
    logs = {path.name: path.read_bytes() for path in sorted((DATA / "nccl_tests").iterdir()) if path.is_file()}
    return {
        "traces": Subject(_SOUND, _use_trace),
        "logs": Subject(logs, _use_log),
        "folders": Subject(files, _use_study),
        "flight records": Subject({"rank0.pickle": _flight_seed()}, _use_flight),
    }
