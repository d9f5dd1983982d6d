"""What programs and assistants read: `--json` alone on standard output, by a committed schema, and Markdown."""

import gzip
import json
import re
import shutil
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from scalescope.cli import doctor, front_door
from scalescope.hardware.check_result import broken, fine
from scalescope.report.text.beside import beside_sentences
from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import RunAnalysis
from tests.answer_schemas import ANSWERS, FOLDER, schema

DATA = Path(__file__).parent / "data"
OLD = DATA / "runs_v0.1"
TRACES = DATA / "cpu_ddp_n2"


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder to work in: an old study and a sweep that may be written to."""
    folder = tmp_path_factory.mktemp("programs")
    for name in ("study", "sweep"):
        shutil.copytree(OLD / name, folder / name)
    return folder


def answer(capsys: pytest.CaptureFixture[str], code: int, *argv: object) -> Any:
    """Return what a verb prints, as JSON; it fits the verb's schema, and nothing else is printed."""
    words = [str(word) for word in argv]
    assert front_door.main(words) == code, capsys.readouterr().err
    said = json.loads(capsys.readouterr().out)
    jsonschema.validate(said, json.loads((FOLDER / f"{words[0]}.schema.json").read_text()))
    return said


@pytest.mark.parametrize("verb", ANSWERS)
def test_the_committed_schemas_are_those_of_the_types(verb: str) -> None:
    assert (FOLDER / f"{verb}.schema.json").read_text() == schema(verb), "the types have changed: make docs"


def test_every_verb_that_reads_has_a_schema() -> None:
    measuring = {"demo", "study", "train", "sweep", "submit", "slurm-scripts", "dashboard"}
    assert set(ANSWERS) == set(front_door.VERBS) - measuring
    assert {path.name.partition(".")[0] for path in FOLDER.glob("*.json")} == set(ANSWERS)


def test_analyses_of_traces_studies_and_sweeps(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = answer(capsys, 0, "analyze", TRACES, "--json")
    assert run["kind"] == "run" and len(run["ranks"]) == 2 and run["findings"]
    study, *runs = answer(capsys, 0, "finish", work / "study", "--json")  # analyses the study
    assert study["kind"] == "study" and {one["kind"] for one in runs} == {"run"}
    rows = answer(capsys, 0, "analyze", work / "sweep", "--json", "-")
    assert rows[0]["operation"] == "all_reduce"


def test_a_file_gets_the_answer_and_the_tables_stay_on_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert front_door.main(["analyze", str(TRACES), "--json", str(tmp_path / "a.json")]) == 0
    assert json.loads((tmp_path / "a.json").read_text())["kind"] == "run"
    assert "Where a profiled step goes, recording included, a rank" in capsys.readouterr().out


def test_answers_of_the_other_verbs(work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (what_if,) = answer(capsys, 0, "whatif", TRACES, "--link", "2x", "--json")
    assert len(what_if["predictions"]) == 1
    assert answer(capsys, 0, "compare", OLD / "sweep", OLD / "sweep", "--json")["verdict"] == "same"
    assert answer(capsys, 0, "fit", OLD / "sweep", "--json")["operations"]
    assert answer(capsys, 2, "project", work / "study", "--json")["points"]  # as it stands, each with its refusal
    packed = answer(capsys, 0, "perfetto", TRACES, "--out", tmp_path / "p.json.gz", "--json")
    assert set(packed["events"]) == {"0", "1"} and Path(packed["file"]).is_file()
    page = answer(capsys, 0, "report", TRACES, "--html", tmp_path / "r.html", "--json")
    assert Path(page["file"]).is_file()
    logs = answer(capsys, 0, "import", DATA / "nccl_tests" / "plain.txt", "--out", tmp_path / "theirs", "--json")
    assert logs["rows"] > 0 and (tmp_path / "theirs" / "sweep.jsonl").is_file()


def test_a_scorecards_claims_are_answered(capsys: pytest.CaptureFixture[str]) -> None:
    claims = answer(capsys, 0, "scorecard", "rows=[]", "devices=[mi300x]", "--json")
    assert any(one["verdict"] == "implausible" for one in claims)


def test_the_doctors_findings(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    found = [fine("python", "3.11"), broken("disk", "is full", "make room")]
    monkeypatch.setattr(doctor, "examine", lambda runs: found)  # the examination itself takes seconds
    said = answer(capsys, 1, "doctor", "--json")
    assert [one["fix"] for one in said[:2]] == [None, "make room"]


def test_no_path_is_taken_for_the_file_that_json_goes_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--json PATH` reads as "print, of PATH", and takes PATH for what is to be written."""
    trace = tmp_path / "rank0.json"
    trace.write_text('{"schemaVersion": 1, "traceEvents": []}')
    for taken in (tmp_path, trace):
        assert front_door.main(["analyze", str(TRACES), "--json", str(taken)]) == 2
        assert "put --json last" in capsys.readouterr().err
    assert "traceEvents" in trace.read_text()
    both = ["analyze", str(TRACES), "--json", "--markdown"]
    assert front_door.main(both) == 2 and "both print" in capsys.readouterr().err


def test_markdown_for_an_issue_says_what_the_terminal_says_and_can_be_redacted(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    late = DATA / "gpt8_ddp_delay4ms_rank1_n2"
    assert front_door.main(["analyze", str(late), "--markdown", "--redact"]) == 0
    said = capsys.readouterr().out
    first = next(line for line in said.splitlines() if line.startswith("**"))
    assert "rank 1" in first and "4." in first
    assert said.count("<details>") == said.count("</details>") >= 1 and "| rank |" in said
    assert front_door.main(["analyze", str(work / "study"), "--markdown"]) == 0
    said = capsys.readouterr().out
    assert "gpt\\_tiny" in said and "where the step's growth from 1 to 2 went" in said


@pytest.mark.parametrize(
    ("first", "second", "how", "says"),
    [
        ("gpt_ddp_n2", "gpt_ddp_n1", "another_world_size", "analyze gpt_ddp_n2 --base gpt_ddp_n1."),
        ("gpt_ddp_n1", "gpt_ddp_n2", "another_world_size", "analyze gpt_ddp_n2 --base gpt_ddp_n1."),
        ("gpt_ddp_n1", "cpu_ddp_n2", "another_job", "are two jobs, each told by itself: one ran on "),
        ("gpt8_ddp_none_n2", "gpt8_ddp_delay4ms_rank1_n2", "another_size", "with 4.00 times the blocks"),
        ("gather_sm_n2", "gather_ce_n2", "same_job", "told by scalescope compare gather_sm_n2 gather_ce_n2."),
    ],
)
def test_how_two_folders_relate_is_said_before_what_each_tells(
    first: str, second: str, how: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [str(DATA / first), str(DATA / second)]
    answer, page = tmp_path / "a.json", tmp_path / "a.html"
    assert front_door.main(["analyze", *paths, "--json", str(answer), "--html", str(page)]) == 0
    said = capsys.readouterr().out
    assert says in said.strip().splitlines()[0] and f"{first} and {second} " in said.strip().splitlines()[0]
    alone, beside = json.loads(answer.read_text())
    assert alone["beside"] is None and (beside["beside"]["name"], beside["beside"]["how"]) == (first, how)
    assert "How these belong together" in page.read_text() and "What is missing here" not in page.read_text()


def test_ranks_of_one_job_in_two_folders_are_told_to_go_into_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for rank in (0, 1):
        (tmp_path / f"host{rank}").mkdir()
        shutil.copy(DATA / "gather_sm_n2" / f"rank{rank}.json.gz", tmp_path / f"host{rank}")
    assert front_door.main(["analyze", str(tmp_path / "host0"), str(tmp_path / "host1")]) == 0
    assert "hold other ranks of it: laid into one folder" in capsys.readouterr().out.strip().splitlines()[0]


def test_folders_of_one_name_are_told_apart_by_those_above(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before, `job and job are one job, on 2 and on 2 ranks: scalescope analyze job --base job`."""
    for count in (1, 2):
        shutil.copytree(DATA / f"gpt_ddp_n{count}", tmp_path / f"on{count}" / "job")
    assert front_door.main(["analyze", *(str(tmp_path / f"on{count}" / "job") for count in (1, 2))]) == 0
    first = capsys.readouterr().out.strip().splitlines()[0]
    assert first.startswith("on1/job and on2/job are one job") and " on 1 and on 2 ranks" in first
    assert first.endswith("analyze on2/job --base on1/job.")


@pytest.mark.parametrize(
    ("renamed", "how", "says"),
    [
        (r"ProfilerStep#\g<1>", "same_job", "hold the same steps: two launches, or one that counted them anew"),
        (r"ProfilerStep#1\g<1>", "other_steps", "in other steps: two windows of one launch, or two launches"),
        (r"work", "unnumbered_steps", "two launches, or two windows of one, which steps without numbers do not tell"),
    ],
)
def test_two_folders_hold_the_same_steps_only_where_numbers_say_so(
    renamed: str, how: str, says: str, tmp_path: Path
) -> None:
    """Before, steps without numbers were said to be the same."""
    again = tmp_path / "again"
    again.mkdir()
    for rank in (0, 1):
        text = gzip.decompress((DATA / "gather_sm_n2" / f"rank{rank}.json.gz").read_bytes()).decode()
        (again / f"rank{rank}.json").write_text(re.sub(r"ProfilerStep#(\d+)", renamed, text))
    _, other = analyze([DATA / "gather_sm_n2", again], jobs=1)
    assert isinstance(other, RunAnalysis) and other.beside is not None and other.beside.how == how
    (said,) = beside_sentences([other])
    assert says in said


@pytest.mark.parametrize("verb", ["analyze", "report", "compare"])
def test_a_page_never_overwrites_a_trace(verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "rank0.json"
    trace.write_text('{"traceEvents": []}')
    paths = [str(tmp_path)] * (2 if verb == "compare" else 1)

    code = front_door.main([verb, *paths, "--html", str(trace)])

    assert code == 2
    assert "that is a trace, and would be overwritten" in capsys.readouterr().err
    assert trace.read_text() == '{"traceEvents": []}'
