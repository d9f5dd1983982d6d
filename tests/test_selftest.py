"""The self-test says fine, differs or cannot of each item, and its one file has the documented schema and no names."""

import json
import socket
from pathlib import Path

import msgspec
import pytest

from scalescope.cli import doctor
from scalescope.hardware.check_result import note
from scalescope.records.errors import UserError
from scalescope.records.rows import Environment, RunInfo, SweepRow, Versions
from scalescope.scaling.analyze import analyze_run
from scalescope.scaling.answer import RunAnalysis
from scalescope.selftest.item import CannotError, DiffersError, Item, SelfTest, carry_out
from scalescope.selftest.jobs import check_collectives, check_trace, judge_analysis, judge_sweep
from scalescope.selftest.run import carry_out_all, self_test, write

DATA = Path(__file__).resolve().parent / "data"
INFO = RunInfo(kind="sweep", name="one", status="done", started_unix_s=0.0, environment=Environment(
    "here", "Linux", "CPU", 2, Versions("1", "3", collective_library="rccl 2.27.7")))  # fmt: skip


def test_an_item_is_fine_differs_or_cannot_be_tried() -> None:
    def raising(error: Exception) -> Item:
        def check() -> tuple[str, dict[str, float | int | str | None]]:
            raise error

        return carry_out("one", check)

    fine = carry_out("one", lambda: ("as it must be", {"figure": 1.5}))
    assert (fine.verdict, fine.says, fine.figures) == ("fine", "as it must be", {"figure": 1.5})
    assert raising(CannotError("no GPU")).verdict == "cannot"
    differs = raising(DiffersError("off by two", {"times": 2}))
    assert (differs.verdict, differs.figures) == ("differs", {"times": 2})
    failed = raising(RuntimeError("HIP error: invalid device function\nand more"))
    assert (failed.verdict, failed.says) == ("differs", "RuntimeError: HIP error: invalid device function")


def row(operation: str, status: str = "measured", **more: object) -> SweepRow:
    plain = SweepRow(operation, 1 << 20, "float32", 2, "measured", time_us=10.0, bus_gb_s=50.0, wrong=0)
    return msgspec.structs.replace(plain, status=status, **more)


def test_a_sweep_is_fine_where_everything_that_can_be_is_right() -> None:
    refused = row("barrier", "not_available", time_us=None, bus_gb_s=None, reason="the library has no barrier")
    says, figures = judge_sweep([row("all_reduce"), row("broadcast"), refused], INFO)
    assert says == "2 operations right in 2 measurements by rccl 2.27.7" and figures["not_available"] == 1


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([row("all_reduce", wrong=7)], "wrong results: all_reduce float32"),
        ([row("all_reduce"), row("reduce", "failed", reason="unhandled cuda error")], "unhandled cuda error"),
        ([row("all_reduce", "not_available", reason="RCCL is not loaded")], "RCCL is not loaded"),
        ([], "not measured"),
    ],
)
def test_a_sweep_that_is_wrong_or_empty_differs(rows: list[SweepRow], says: str) -> None:
    with pytest.raises(DiffersError, match=says):
        judge_sweep(rows, INFO)


@pytest.fixture(scope="module")
def analysis() -> RunAnalysis:
    return analyze_run(DATA / "gpt_ddp_n2", jobs=1)


def test_a_trace_is_fine_where_its_parts_add_up(analysis: RunAnalysis) -> None:
    says, figures = judge_analysis(analysis, 2)
    assert says.startswith("2 ranks, 3 steps each") and figures["quality"] == "good"


def test_a_trace_that_lacks_a_rank_or_time_differs(analysis: RunAnalysis) -> None:
    with pytest.raises(DiffersError, match="2 of 4 ranks"):
        judge_analysis(analysis, 4)
    longer = [msgspec.structs.replace(rank, window_ms=rank.window_ms + 1) for rank in analysis.ranks]
    with pytest.raises(DiffersError, match="miss its window by 1"):
        judge_analysis(msgspec.structs.replace(analysis, ranks=longer), 2)
    with pytest.raises(DiffersError, match="no collective was matched"):
        judge_analysis(msgspec.structs.replace(analysis, collectives=[]), 2)


@pytest.mark.job
def test_what_a_cpu_can_be_tried_at_is_fine_and_the_rest_says_why_not() -> None:
    done = {item.name: item for item in carry_out_all(["events", "graphs", "kernels", "fp8", "energy"])}
    assert {name: item.verdict for name, item in done.items()} == {
        "events": "cannot", "graphs": "cannot", "kernels": "cannot", "fp8": "fine", "energy": "cannot"
    }  # fmt: skip
    assert done["events"].says == "there is no GPU here"


def test_the_file_has_the_documented_schema_and_names_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_SECRET", "hush")
    monkeypatch.setattr(socket, "gethostname", lambda: "node17")
    results = [note("host name", f"node17 keeps runs in {Path.home()}/runs", "ask node17's owner")]
    test = self_test(results, [Item("fp8", "fine", "on node17")], 1.0)
    write(test, tmp_path / "one.json")
    text = (tmp_path / "one.json").read_text()
    assert msgspec.json.decode(text, type=SelfTest) == test
    assert "node17" not in text and str(Path.home()) not in text and "hush" not in text
    documented = (Path(__file__).resolve().parent.parent / "docs" / "rocm.md").read_text()
    for key in json.loads(text):
        assert f"`{key}`" in documented, key
    for key in json.loads(text)["items"][0]:
        assert f"`{key}`" in documented, key


def test_the_verb_writes_the_file_and_fails_where_something_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "examine", lambda runs: [])
    path = tmp_path / "one.json"
    assert doctor.run(["--selftest", "--only", "fp8,events", "--json", str(path)]) == 0
    assert [item["name"] for item in json.loads(path.read_text())["items"]] == ["events", "fp8"]
    assert "float8_e4m3fn" in capsys.readouterr().out
    monkeypatch.setattr(
        "scalescope.selftest.device.fp8_product", lambda left, right: 2 * (left.float() @ right.float())
    )
    assert doctor.run(["--selftest", "--only", "fp8", "--json", str(path)]) == 1
    with pytest.raises(UserError, match="there is no item 'fp9'"):
        doctor.run(["--selftest", "--only", "fp9"])


@pytest.mark.long
def test_the_jobs_of_the_self_test_run_on_cpus(tmp_path: Path) -> None:
    says, figures = check_collectives(tmp_path, 0)
    assert "by gloo" in says and isinstance(figures["measured"], int) and figures["measured"] >= 10
    assert check_trace(tmp_path, 0)[0].startswith("2 ranks, 3 steps each")
