"""The two factors beside a scaling efficiency say what they multiply to where that is another figure."""

from io import StringIO
from types import SimpleNamespace
from typing import cast

import msgspec
from rich.console import Console

from scalescope.report.markdown import for_an_issue
from scalescope.report.panels.scaling import growth_panels, scaling_panels
from scalescope.report.report_data import ReportData
from scalescope.report.terminal.study import print_closing, print_study
from scalescope.report.text.scaling.factors import cores_sentence, factors_line, factors_sentence
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


def test_waits_for_cores_that_count_as_compute_are_told_beside_the_factors_and_the_growth() -> None:
    """Beside *1,093 ms are waits for a core*, of 1,208 ms, stood a parallel factor of 0.93, compute like any other."""
    study = study_answer("s", ["1", "2", "4"])
    runs = [run_answer(one.run, one.world_size) for one in study.efficiency]
    assert cores_sentence(study.efficiency, runs) == ""
    waiting = runs[-1].efficiency
    assert waiting is not None
    waiting.parallel, waiting.on_cores_at_most = 0.927, 0.095
    held = (
        "Waits for cores count as compute, in the factors and in the step's growth: of the 92.7% of the profiled step "
        "on 4 ranks at most 9.5% is on a core."
    )
    assert cores_sentence(study.efficiency, runs) == held
    other = msgspec.structs.replace(study.efficiency[0], series="another", run="elsewhere")
    assert "on 4 ranks of gpt_small at most" in cores_sentence([*study.efficiency, other], runs)
    print_study(study, runs, [], Console(file=(shown := StringIO()), width=400))
    assert shown.getvalue().count(held) == 1
    print_closing(study, runs, Console(file=(shown := StringIO()), width=400))
    assert shown.getvalue().count(held) == 1
    assert held in for_an_issue([study, *runs])
    data = cast(ReportData, SimpleNamespace(study=study, answers=runs))
    assert [held in panel.sentence for panel in scaling_panels(data)] == [True]
    assert [held in panel.sentence for panel in growth_panels(data)] == [False, True], "the growth to 2 ranks has none"
