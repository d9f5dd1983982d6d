"""What rank 0 shows while it measures."""

import threading
from pathlib import Path

import pytest

from scalescope.collectives.show.progress import Display
from scalescope.scaling.sweeps.nccl_tests_log import read_log
from tests.collectives_runs import planned

LOGS = Path(__file__).parent / "data" / "nccl_tests"


def test_the_bar_of_a_terminal_is_drawn_with_the_rows_and_by_no_thread_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # a terminal, as rich sees it
    monkeypatch.setenv("TERM", "xterm")
    before = threading.active_count()
    with Display(total=2, shown=True) as display:
        for point in planned(2, "sizes=[8B,64B]"):
            display.show(point.row(status="measured", time_us=4.0, alg_gb_s=1.0, bus_gb_s=1.0))
            assert threading.active_count() == before
    said = capsys.readouterr().out
    assert "2/2" in said and said.index("1/2") < said.index("2/2")


@pytest.mark.parametrize("name", ["plain", "alltoall", "sendrecv", "dtypes"])
def test_a_line_has_the_count_that_nccl_tests_prints_for_it(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = (LOGS / f"{name}.txt").read_text()
    theirs = {argv[0]: argv[1] for line in text.splitlines() if (argv := line.split()) and argv[0].isdigit()}
    rows = read_log(text, f"{name}.txt").rows
    assert rows
    with Display(total=len(rows), shown=True) as display:
        for row in rows:
            display.show(row)
    shown = [line.split() for line in capsys.readouterr().out.splitlines() if line.split()[:1] != ["#"]]
    shown = [argv for argv in shown if argv and argv[0].isdigit()]
    assert len(shown) == len(rows) and {argv[0]: argv[1] for argv in shown} == theirs
