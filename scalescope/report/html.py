"""report.html: one file that needs no network, the verdict first, each chart with its sentence and its figures."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from scalescope.records.files import write_atomic
from scalescope.records.folder import RunFolder
from scalescope.report.drawing.numbers import figure, rate
from scalescope.report.of_traces import data_of_traces
from scalescope.report.page import Machine, Page, render
from scalescope.report.panels.sections import sections
from scalescope.report.redaction.report_data import pseudonyms_of, redact
from scalescope.report.report_data import ReportData, RunData, read_report_data
from scalescope.report.timeline.drawn import drawings_of
from scalescope.report.top.cards import cards_of
from scalescope.report.top.colours import with_colours
from scalescope.report.views import devices, devices_table
from scalescope.scaling.study_answer import Answer

#: What of a job is compiled, by whether it is cut at gradient buckets.
_COMPILED = {None: "yes", True: "yes, a graph a gradient bucket", False: "yes, in one graph"}


def write_report(folder: RunFolder, out: Path | None = None) -> Path:
    """Write the report of a study, a train run or a sweep; return its path (`report.html` in the folder).

    Where altair or vl-convert is missing the page holds the verdict and the tables, and says what the charts need.
    Raises UserError where the folder is none, OSError where the page cannot be written.
    """
    path = out or folder.report
    write_atomic(path, render(page_of(read_report_data(folder))))
    return path


def write_traces_report(answers: Sequence[Answer], name: str, out: Path) -> Path:
    """Write the report of plain traces, of one job or several, to a file; return its path.

    `answers`: the runs', and what compares them where there is such. Raises OSError where it cannot be written.
    """
    write_atomic(out, render(page_of(data_of_traces(answers, name))))
    return out


def write_redacted_report(folder: RunFolder, answers: Sequence[Answer] | None = None, out: Path | None = None) -> Path:
    """Write the report without names of hosts and users and without absolute paths; return its path.

    It goes beside the folder's own, to `report-redacted.html`. `answers`: the analysis, where it is not to be read from
    the folder. Raises as `write_report`.
    """
    path = out or folder.path / "report-redacted.html"
    data = redact(read_report_data(folder, answers), pseudonyms_of([folder]))
    write_atomic(path, render(page_of(data)))
    return path


def page_of(data: ReportData) -> Page:
    """Return what the page of a folder shows."""
    cards = cards_of(data)
    return Page(
        name=data.name,
        facts=facts_of(data),
        cards=cards,
        notes=_notes(data),
        notes_title="How these belong together" if data.of_traces else "What is missing here",
        sections=sections(data),
        machines=machines_of(data),
        drawings=drawings_of(data),
        colours=with_colours(cards),
    )


def _notes(data: ReportData) -> list[str]:
    notes = [*data.notes, *(data.study.reasons if data.study else [])]
    if data.study is not None:
        notes += [f"{run.name} is not analysed: {run.reason}" for run in data.runs if run.answer is None]
    known = _said_to_be_unfinished(data)
    notes += [
        f"{run.name} ended as {run.info.status}{f': {run.info.message}' if run.info.message else ''}"
        for run in (*data.runs, *data.sweep_runs)
        if run.info.status not in ("done", "running") and run.name not in known
    ]
    return list(dict.fromkeys(notes))


def _said_to_be_unfinished(data: ReportData) -> list[str]:
    """Return the runs of which a study's own reasons say how they ended."""
    if data.study is None:
        return []
    return data.study.runs if data.study.unfinished is None else data.study.unfinished


def _ran_on(count: int, name: str, kind: str) -> str:
    """Return how many devices of a name there were; of CPUs, on which several ranks may run, how many ranks."""
    return f"{devices(count, kind)} on {name}" if kind == "cpu" else f"{count} × {name}"


def facts_of(data: ReportData) -> str:
    """Return one line: devices, hosts, the collective library, torch, when."""
    infos = [run.info for run in (*data.runs, *data.sweep_runs)] or [data.info]
    info = max(infos, key=lambda info: info.world_size or 0)
    texts = []
    if info.devices:
        texts.append(_ran_on(len(info.devices), info.devices[0].name, info.devices[0].kind))
    elif data.of_traces:
        texts += list(
            dict.fromkeys(_ran_on(run.world_size, run.device, run.activity) for run in data.answers if run.device)
        )
    if len(info.hosts) > 1:
        texts.append(f"{len(info.hosts)} hosts")
    if info.environment is not None:
        versions = info.environment.versions
        texts += [versions.collective_library] if versions.collective_library else []
        texts += [f"torch {versions.torch}"] if versions.torch else []
    when = "analysed " if data.of_traces else ""
    texts.append(f"{when}{datetime.fromtimestamp(data.info.started_unix_s).astimezone():%Y-%m-%d %H:%M}")
    return " · ".join(texts)


def machines_of(data: ReportData) -> list[Machine]:
    """Return one entry a distinct environment, with the configs of its runs."""
    if data.of_traces:
        return []
    runs = list({run.name: run for run in (*data.runs, *data.sweep_runs)}.values())
    groups: dict[str, list[RunData]] = {}
    for run in runs:
        groups.setdefault(repr((run.info.environment, run.info.backend)), []).append(run)
    machines = []
    for members in groups.values():
        largest = max(members, key=lambda run: run.info.world_size or 0)
        texts = [(f"Configuration of {run.name}", run.config) for run in members if run.config]
        names = ", ".join(run.name for run in members)
        machines.append(Machine(names, _pairs(largest), devices_table(largest.info.devices), texts))
    return machines


def _pairs(run: RunData) -> list[tuple[str, str]]:
    info, facts = run.info, run.facts
    pairs: list[tuple[str, object]] = [("backend", info.backend), ("started by", info.launcher)]
    if facts is not None:
        pairs += [("torch.compile", _COMPILED[facts.compiled_by_bucket] if facts.compiled else "no"),
                  ("attention kernel", facts.attention)]  # fmt: skip
    if info.hosts:
        pairs.append(("hosts", ", ".join(info.hosts)))
    if info.environment is not None:
        known, versions = info.environment, info.environment.versions
        pairs += [("platform", known.platform), ("CPU", f"{known.cpu}, {known.cpu_cores} cores"),
                  ("Python", versions.python), ("torch", versions.torch), ("CUDA", versions.cuda),
                  ("ROCm", versions.hip), ("collectives", versions.collective_library), ("driver", versions.driver),
                  ("scalescope", versions.scalescope)]  # fmt: skip
        pairs += list(known.variables.items())
    if info.ceilings is not None:
        limits = info.ceilings
        if limits.peak_tflops is not None:
            pairs.append(("peak", f"{rate(limits.peak_tflops)} TFLOP/s {limits.peak_dtype or ''}, "
                          f"{limits.peak_source or 'no source'}"))  # fmt: skip
        if limits.matmul_tflops is not None:
            pairs.append(("measured matmul", f"{rate(limits.matmul_tflops)} TFLOP/s {limits.matmul_shape or ''}"))
        if limits.memory_tb_s is not None:
            pairs.append(("memory bandwidth", f"{figure(limits.memory_tb_s, 2)} TB/s"))
        if limits.link_gb_s is not None:
            pairs.append(
                ("link", f"{rate(limits.link_gb_s)} GB/s a direction, {limits.link_topology or 'topology unknown'}")
            )
    return [(key, str(value)) for key, value in pairs if value is not None]
