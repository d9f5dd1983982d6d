"""The two factors beside a scaling efficiency say what they multiply to where that is another figure."""

from io import StringIO

import msgspec
from rich.console import Console

from scalescope.report.terminal.study import print_closing, print_study
from scalescope.report.text.scaling.factors import factors_line, factors_sentence
from tests.report_samples import run_answer, study_answer


def test_factors_of_profiled_steps_are_told_to_be_so_where_they_are_not_the_efficiency() -> None:
    """Efficiency 80.5% stood beside factors of 0.747 and 0.935, and nothing said of which steps those are."""
    study = study_answer("s", ["1", "2", "4"])
    last = study.efficiency[-1]
    apart = msgspec.structs.replace(last, efficiency=0.805, compute_factor=0.747, parallel_factor=0.935)
    told = factors_sentence([apart])
    assert told == (
        f"The two factors are of the profiled steps: together they come to 69.8% on {last.world_size} ranks, where "
        "80.5% is measured without a profiler."
    )
    near = msgspec.structs.replace(apart, efficiency=0.70)
    unknown = msgspec.structs.replace(apart, parallel_factor=None)
    assert factors_sentence([near, unknown]) == ""
    study.efficiency[-1] = apart
    runs = [run_answer(one.run, one.world_size) for one in study.efficiency]
    print_study(study, runs, [], Console(file=(shown := StringIO()), width=400))
    assert "69.8% on" in shown.getvalue()
    print_closing(study, runs, Console(file=(shown := StringIO()), width=400))
    line = f"multiply to 69.8% ({last.series}, {last.world_size} ranks); efficiency is measured without a profiler."
    under = [one for one in shown.getvalue().splitlines() if line in one]
    assert len(under) == 1 and len(under[0]) < 130 and factors_line([near, unknown]) == ""
