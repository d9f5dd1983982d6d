"""No verb writes over what somebody measured, whichever of its options names the file."""

import argparse
import dataclasses
import json
import os
import re
import shlex
import shutil
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import pytest

from scalescope.cli import front_door
from scalescope.cli.front_door import VERBS
from scalescope.cli.outputs import OutputFile, VerbParser
from scalescope.records.folder import RunFolder
from scalescope.records.outputs.overwriting import is_answer, sealed, what_is_lost
from tests.answer_schemas import ANSWERS, structs_of

CLI = Path(front_door.__file__).parent
DATA = Path(__file__).parent / "data"
TRACE = DATA / "gpt_ddp_n1" / "rank0.json.gz"
#: Hydra's, whose one key that names a file has a test of its own; and sbatch's, which writes none.
WITHOUT_PARSER = {"demo", "study", "train", "sweep", "submit"}
#: Paths that are read, or folders that are made and are refused where they are there.
NO_FILE_WRITTEN = {
    "--against", "--base", "--sweep", "--baseline", "--other", "--runs", "import --out", "dashboard --out",
}  # fmt: skip


class Seen(Exception):
    """A verb's parser, before it has read anything."""


def parser_of(verb: str) -> VerbParser:
    def seen(self: VerbParser, argv: Sequence[str]) -> argparse.Namespace:
        raise Seen(self)

    with pytest.MonkeyPatch.context() as patched, pytest.raises(Seen) as raised:
        patched.setattr(VerbParser, "read", seen)
        import_module(VERBS[verb]).run([])
    parser = raised.value.args[0]
    assert isinstance(parser, VerbParser)
    return parser


PARSERS = {verb: parser_of(verb) for verb in VERBS if verb not in WITHOUT_PARSER}
WRITING = [(verb, action.option_strings[0]) for verb, parser in PARSERS.items() for action in parser.outputs()]


def words(verb: str, *more: str) -> list[str]:
    """Return a call of a verb with some word in each place that needs one."""
    found = [verb]
    for action in PARSERS[verb]._actions:
        if not action.option_strings and action.nargs in (None, "+"):
            found.append("nowhere")
        elif action.required:
            found += [action.option_strings[0], "nowhere"]
    return [*found, *more]


def test_each_path_of_a_verb_is_written_with_care_or_read() -> None:
    assert not [
        path.name for path in CLI.glob("*.py") if "ArgumentParser(" in path.read_text() and path.stem != "outputs"
    ]
    for verb, parser in PARSERS.items():
        for action in parser._actions:
            names = {f"{verb} {flag}" for flag in action.option_strings} | set(action.option_strings)
            a_path = action.type is Path or action.metavar == "FILE"
            assert not (names and a_path) or isinstance(action, OutputFile) or names & NO_FILE_WRITTEN, names
    assert {flag for _, flag in WRITING} == {"--json", "--markdown", "--html", "--perfetto", "--out"}


@pytest.fixture
def measured(tmp_path: Path) -> dict[str, Path]:
    """What must stay as it is, by what it is called."""
    run = RunFolder.create(tmp_path / "run", "train", "steps: 1")
    run.steps.write_text('{"step": 1}\n')
    run.traces.mkdir()
    shutil.copy(TRACE, run.trace_of(0, 3))
    shutil.copy(TRACE, tmp_path / "mine.bin")
    (tmp_path / "plain.json").write_text('{"schemaVersion": 1, "traceEvents": []}')
    checkpoint = tmp_path / "last.pt"
    checkpoint.write_bytes(b"PK\x03\x04" + bytes(100))
    shutil.copy(DATA / "nccl_tests" / "plain.txt", tmp_path / "log.txt")
    shutil.copy(DATA / "nccl_tests" / "json.json", tmp_path / "log.json")
    own = {"run.json": run.path / "run.json", "steps": run.steps, "config": run.config, "of a run": run.trace_of(0, 3)}
    named = {
        path.name: path for path in (tmp_path / name for name in ("mine.bin", "plain.json", "log.txt", "log.json"))
    }
    return {**own, **named, "checkpoint": checkpoint}


@pytest.mark.parametrize(("verb", "flag"), WRITING)
def test_no_option_of_a_verb_writes_over_it(
    verb: str, flag: str, measured: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.read_bytes() for path in measured.values()}
    for what, path in measured.items():
        assert front_door.main(words(verb, flag, str(path))) == 2, what
        said = capsys.readouterr().err
        assert f"{flag} {path}: that is " in said and "would be overwritten" in said, (what, said)
    assert {path: path.read_bytes() for path in before} == before


def test_what_is_read_is_not_written_over_whatever_it_looks_like(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (log := tmp_path / "log.json").write_text("[]")
    assert front_door.main(["fit", str(log), "--json", str(tmp_path / "." / "log.json")]) == 2
    assert "that is what is to be read" in capsys.readouterr().err
    os.mkfifo(pipe := tmp_path / "pipe")
    assert front_door.main(["analyze", str(TRACE.parent), "--json", str(pipe)]) == 2
    assert "that is a device or a pipe" in capsys.readouterr().err


def test_a_sweep_s_table_goes_over_none_of_it(measured: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    for path in measured.values():
        before = path.read_bytes()
        assert front_door.main(["sweep", f"csv={path}", "launch.ranks=2", "launch.device=cpu", "sizes=[8]"]) == 2
        assert "would be overwritten; name another file" in capsys.readouterr().err
        assert path.read_bytes() == before


#: What a verb writes as Markdown, shortened.
ANSWER = sealed("**a is as fast as b.**\n\n", " 0.2.0")


@pytest.mark.parametrize(
    "call",
    [
        ["analyze", "{traces}", "--html", "{out}"],
        ["analyze", "{traces}", "--json", "{out}"],
        ["analyze", "{traces}", "--markdown", "{out}"],
        ["perfetto", "{traces}", "--out", "{out}"],
        ["compare", "{traces}", "{traces}", "--markdown", "{out}"],
        ["compare", "{traces}", "{traces}", "--html", "{out}"],
    ],
)
def test_what_a_verb_wrote_itself_is_written_again(call: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    argv = [word.format(traces=TRACE.parent, out=out) for word in call]
    assert front_door.main(argv) == 0
    out.write_bytes(first := out.read_bytes())
    os.utime(out, (0, 0))
    assert front_door.main(argv) == 0
    assert out.stat().st_mtime > 0 and len(out.read_bytes()) == pytest.approx(len(first), rel=0.05)


@pytest.mark.parametrize(
    ("flag", "name", "text"),
    [
        ("--json", "package.json", '{"name": "site", "version": "1.0.0", "scripts": {}}'),
        ("--json", "rows.json", '[{"name": "a", "step_ms": 3}]'),
        ("--json", "figures.json", "[[1, 2], {}]"),
        ("--json", "kind.json", '{"nested": {"schema": 1, "kind": "run", "name": "a"}}'),
        ("--json", "broken.json", '{"schema": '),
        ("--json", "large.json", '{"file": {"a": [' + "1, " * (1 << 15) + "1]}}"),
        ("--json", "first.json", '[{"row": 1}, {"row": 2, "quantity": 3, "what": 4}]'),
        ("--json", "values.json", '["file"]'),
        ("--json", "one.json", '{"file": "a", "mine": 1}'),
        (
            "--markdown",
            "quoting.md",
            "<sub>made by scalescope 1.0</sub>\n\nThat is what it said. To do: measure again.\n",
        ),
        ("--markdown", "pasted.md", f"# What I found\n\nSlow again.\n\n{ANSWER}"),
        ("--markdown", "noted.md", ANSWER.replace("b.**", "b.** I do not believe it.")),
        ("--markdown", "followed.md", f"{ANSWER}\nTo do: measure again.\n"),
        ("--markdown", "README.md", "# My job\n\nHow to start it.\n"),
        ("--markdown", "train.py", "import torch\n"),
        ("--markdown", "notes", "buy milk\n"),
        ("--html", "index.html", "<!doctype html><html><head><title>Mine</title></head></html>"),
    ],
)
def test_only_what_scalescope_wrote_is_written_over(
    flag: str, name: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (file := tmp_path / name).write_text(text)
    assert front_door.main(["analyze", str(TRACE.parent), flag, str(file)]) == 2
    said = capsys.readouterr().err
    assert "scalescope" in said and f"{flag} {file}: that is no " in said and "would be overwritten; " in said
    assert file.read_text() == text


def test_an_answer_in_markdown_is_known_with_the_ends_of_lines_of_another_system(tmp_path: Path) -> None:
    (file := tmp_path / "answer.md").write_bytes(ANSWER.replace("\n", "\r\n").encode())
    assert what_is_lost(file, "markdown") is None
    file.write_bytes(ANSWER.replace("as fast", "twice as fast").encode())
    assert what_is_lost(file, "markdown") is not None


@pytest.mark.parametrize("kind", [kind for kinds in ANSWERS.values() for kind in kinds], ids=str)
def test_every_verbs_json_is_known_as_its_own(kind: Any) -> None:
    for one in structs_of(kind):
        for part in getattr(one, "__args__", (one,)):
            names = [field.name for field in dataclasses.fields(part)] if dataclasses.is_dataclass(part) else [
                field.encode_name for field in msgspec.structs.fields(part)
            ]  # fmt: skip
            written = json.dumps([{key: {"x": [1]} for key in names}], indent=2)
            assert is_answer(written.encode()) and is_answer(written[1:-1].strip().encode()), part


@pytest.mark.parametrize("closed", ["theirs", "read-only"])
def test_a_folder_that_is_not_the_users_gets_no_page(
    closed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (traces := tmp_path / "traces").mkdir()
    (here := tmp_path / "here").mkdir()
    shutil.copy(TRACE, traces)
    monkeypatch.chdir(here)
    user, may = os.geteuid(), os.access
    if closed == "theirs":
        monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    else:  # root may write anywhere but into what is mounted read-only
        monkeypatch.setattr(os, "access", lambda path, mode, **more: Path(path) != traces and may(path, mode, **more))
    for more, name in (([], "traces-report.html"), (["--redact"], "report-redacted.html")):
        assert front_door.main(["report", str(traces), *more]) == 0
        told = capsys.readouterr()
        assert told.out.split() == [name] and (here / name).is_file()
        assert f"the page goes to {name} here, or to --html FILE" in told.err
    assert [one.name for one in traces.iterdir()] == [TRACE.name]


def test_a_page_of_somebody_elses_where_the_report_would_go_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(TRACE, tmp_path)
    (page := tmp_path / "report.html").write_text("<html><title>pytest</title></html>")
    assert front_door.main(["report", str(tmp_path)]) == 2
    assert "name another FILE with --html" in capsys.readouterr().err and "pytest" in page.read_text()


def test_a_flag_that_prints_gives_its_path_back(capsys: pytest.CaptureFixture[str]) -> None:
    """`analyze --json TRACES` is "print, of TRACES" where nothing else is given and they are there."""
    assert front_door.main(["analyze", "--json", str(TRACE.parent)]) == 0
    given_back = capsys.readouterr().out
    assert front_door.main(["analyze", str(TRACE.parent), "--json"]) == 0
    assert capsys.readouterr().out == given_back and given_back.startswith("{")
    assert front_door.main(["analyze", "--json", "new.json"]) == 2
    assert "--json took new.json for the FILE to write: PATH goes before --json" in capsys.readouterr().err


def test_a_path_too_many_is_told_where_it_goes(capsys: pytest.CaptureFixture[str]) -> None:
    assert front_door.main(["compare", "a", "b", "c"]) == 2
    said = capsys.readouterr().err
    assert "c is a third" in said and "--other c" in said and "analyze MOST --base FEWER" in said
    assert front_door.main(["perfetto", "a", "b"]) == 2
    assert "compare A B --perfetto FILE" in capsys.readouterr().err


def test_a_json_log_of_nccl_tests_is_a_sweep_to_compare_and_no_trace(capsys: pytest.CaptureFixture[str]) -> None:
    log = str(DATA / "nccl_tests" / "json.json")
    assert front_door.main(["compare", log, log]) == 0
    assert "is as fast as" in capsys.readouterr().out


@pytest.mark.parametrize("verb", PARSERS)
def test_each_path_is_explained_and_each_example_can_be_typed(verb: str) -> None:
    parser = PARSERS[verb]
    unexplained = [action.dest for action in parser._actions if not action.option_strings and not action.help]
    assert not unexplained or verb in ("scorecard", "slurm-scripts")  # whose descriptions do
    for line in (parser.epilog or "").splitlines()[1:]:
        typed = shlex.split(re.split(r" {2,}(?=\S)", line.strip())[0])
        assert typed[:2] == ["scalescope", verb]
        assert parser.read(typed[2:])
