"""What rank 0 shows while it measures."""

import threading
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from scalescope.collectives.show.progress import Display, line
from scalescope.report.terminal.sweep import print_sweep
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


def test_what_plus_minus_and_wide_mean_stands_once_where_they_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """Rows of *53 20 … wide* stood under *±*, and no line said what either is."""
    points = planned(2, "sizes=[8B,64B]", "operations=[all_reduce,all_gather]")
    rows = [
        point.row(status="measured", time_us=53.0, interval_us=(42.4, 63.6), alg_gb_s=1.0, bus_gb_s=1.0)
        for point in points
    ]
    with Display(total=len(rows), shown=True) as display:
        for row in rows:
            display.show(row)
    live = capsys.readouterr().out
    print_sweep(rows, Console(file=(shown := StringIO()), width=200))
    for text in (live, shown.getvalue()):
        assert text.count("±: how far off the time may be (95% interval); wide: by more than 10%") == 1
        assert text.count("busbw") > 1
    theirs = read_log((LOGS / "plain.txt").read_text(), "plain.txt").rows
    print_sweep(theirs, Console(file=(none := StringIO()), width=200))
    assert "±" not in none.getvalue(), "nccl-tests tells no interval"


def test_digits_follow_the_interval_and_a_wide_one_is_said() -> None:
    (point,) = planned(2, "sizes=[1MiB]")

    def shown(time_us: float, half_us: float | None) -> list[str]:
        interval = None if half_us is None else (time_us - half_us, time_us + half_us)
        return line(point.row(
            status="measured", time_us=time_us, interval_us=interval, alg_gb_s=17.452, bus_gb_s=17.452, wrong=0,
        )).split()[6:]  # fmt: skip

    assert shown(600.84, 44.5) == ["601", "7.4", "17.5", "17.5", "n/a", "0"]
    assert shown(600.84, 267.4) == ["601", "45", "17.5", "17.5", "n/a", "0", "wide"]
    assert shown(600.84, 0.3) == ["600.84", "0.0", "17.45", "17.45", "n/a", "0"]
    assert shown(600.84, None) == ["600.84", "n/a", "17.45", "17.45", "n/a", "0"]
