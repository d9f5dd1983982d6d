"""What rank 0 shows while it measures."""

import threading

import pytest

from collectives.progress import Display
from tests.collectives_runs import planned


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
