"""What a report shows, section by section. The HTML page and W&B's analysis run are both made of these panels."""

from scalescope.report.drawing.panel import Section
from scalescope.report.panels.advice import advice_panels
from scalescope.report.panels.collectives import sweep_panels, training_panels
from scalescope.report.panels.costs import cost_panels
from scalescope.report.panels.insitu import in_situ_panels
from scalescope.report.panels.kernels import kernel_panels
from scalescope.report.panels.kinds import inflation_panels, kind_panels
from scalescope.report.panels.lost import lost_panels
from scalescope.report.panels.projection import projection_panels
from scalescope.report.panels.ranks import partition_panels, wait_panels
from scalescope.report.panels.roles import role_panels
from scalescope.report.panels.scaling import growth_panels, scaling_panels
from scalescope.report.panels.steps import profiling_panels, step_panels
from scalescope.report.report_data import ReportData
from scalescope.report.scorecard import catalog_of, scorecard_panels


def sections(data: ReportData, *, legends: bool = False) -> list[Section]:
    """Return what there is to show of a folder, in reading order; sections without a panel are left out.

    `legends` puts a legend into each chart, for pictures that stand without the page around them.
    """
    study = data.study
    on_cpus = bool(data.answers) and all(run.activity == "cpu" for run in data.answers)
    counts = "rank" if on_cpus else "GPU"
    inflation = inflation_panels(study, data.answers) if study else []
    built = [
        Section("scorecard", "The scorecard", scorecard_panels(data.scorecard, catalog_of(data.folder))),
        Section("scaling", "How it scales", scaling_panels(data)),
        Section("projection", f"What to expect on other {counts} counts", projection_panels(data)),
        Section("growth", "Where the step's growth went", [*growth_panels(data), *inflation]),
        Section("advice", "What to do next", advice_panels(data), open=len(data.answers) == 1),
        Section("lost", "What was lost against a reference", lost_panels(data)),
        Section("partition", "Where a step goes, rank by rank", partition_panels(data, legends)),
        Section("waits", "Who waits, and when", wait_panels(data)),
        Section("roles", "What communication is for", role_panels(data)),
        Section("collectives", "Collectives in training", training_panels(data, legends)),
        Section("in-situ", "What collectives lose in training", in_situ_panels(data, legends)),
        Section("sweep", "Collectives alone", sweep_panels(data, legends)),
        Section("costs", "What a collective costs", cost_panels(study.costs, legends) if study else []),
        Section("kernels", "What takes the time", [*kind_panels(data), *kernel_panels(data)]),
        Section("profiling", "What profiling costs", profiling_panels(data)),
        Section("steps", "Step by step", step_panels(data, legends)),
    ]
    return [section for section in built if section.panels]
