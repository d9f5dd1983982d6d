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
from scalescope.report.panels.scaling import growth_panels, scaling_panels
from scalescope.report.panels.steps import profiling_panels, step_panels
from scalescope.report.report_data import Material


def sections(material: Material, *, legends: bool = False) -> list[Section]:
    """Return what there is to show of a folder, in reading order; sections without a panel are left out.

    `legends` puts a legend into each chart, for pictures that stand without the page around them.
    """
    study = material.study
    inflation = inflation_panels(study, material.answers) if study else []
    built = [
        Section("scaling", "How it scales", scaling_panels(material)),
        Section("projection", "What to expect on other GPU counts", projection_panels(material)),
        Section("growth", "Where the step's growth went", [*growth_panels(material), *inflation]),
        Section("advice", "What to do next", advice_panels(material)),
        Section("lost", "What was lost against a reference", lost_panels(material)),
        Section("partition", "Where a step goes, rank by rank", partition_panels(material, legends)),
        Section("waits", "Who waits, and when", wait_panels(material)),
        Section("collectives", "Collectives in training", training_panels(material, legends)),
        Section("in-situ", "What collectives lose in training", in_situ_panels(material, legends)),
        Section("sweep", "Collectives alone", sweep_panels(material, legends)),
        Section("costs", "What a collective costs", cost_panels(study.costs, legends) if study else []),
        Section("kernels", "What takes the time", [*kind_panels(material), *kernel_panels(material)]),
        Section("profiling", "What profiling costs", profiling_panels(material)),
        Section("steps", "Step by step", step_panels(material, legends)),
    ]
    return [section for section in built if section.panels]
