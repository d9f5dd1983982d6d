"""What a report is made of, redacted: the whole of it, once, before anything is drawn or written."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import msgspec

from scalescope.records.errors import UserError
from scalescope.records.folder import RunFolder
from scalescope.records.rows import RunInfo
from scalescope.report.redaction.pseudonyms import LEFT_OUT, Pseudonyms, know_here
from scalescope.report.redaction.structs import redacted
from scalescope.report.redaction.traces import learn_from_traces
from scalescope.report.report_data import ReportData, RunData
from scalescope.scaling.sweeps.nccl_tests_log import read_log
from scalescope.scaling.trace.sources import find_sources

_LARGEST_LOG_BYTES = 16 << 20
_NODE_LISTS = ("SLURM_JOB_NODELIST",)  # `gpu[07-12]`: names that are nowhere written out


def pseudonyms_of(folders: Iterable[RunFolder]) -> Pseudonyms:
    """Return pseudonyms that know the hosts, the owners and the places of run folders and of the runs in them.

    A folder of traces, and a trace, are known by what the traces tell, a log by the devices that it lists.
    """
    known = Pseudonyms()
    for folder in folders:
        if folder.path.is_file():
            known.know_folder(folder.path.parent)
            known.know(hosts=_hosts_of_log(folder.path))
        for one in (folder, *folder.read_children()):
            known.know_folder(one.path)
            with suppress(UserError, OSError):  # what cannot be read is not shown either
                info = one.read_info()
                known.know(hosts=hosts_of(info))
                redacted(info, known)  # a user may be known by the home that a message names
            with suppress(UserError):  # none there
                learn_from_traces(known, [source.path for source in find_sources(one.path)])
    know_here(known)
    return known


def _hosts_of_log(path: Path) -> list[str]:
    with suppress(UserError, OSError):  # a trace, or rows
        if path.stat().st_size > _LARGEST_LOG_BYTES:
            return []  # a trace: no log of a sweep is so long
        log = read_log(path.read_text(encoding="utf-8", errors="replace"), path.name)
        return list(dict.fromkeys(device.host for device in log.devices))
    return []


def hosts_of(info: RunInfo) -> list[str]:
    """Return every host that a run.json names."""
    alone = [info.environment.host] if info.environment is not None else []
    return list(dict.fromkeys([*info.hosts, *(device.host for device in info.devices), *alone]))


def redact(data: ReportData, by: Pseudonyms) -> ReportData:
    """Return what a report is made of, without what it reveals. Its folders are names from here on, not to be read."""
    _redact(data, by)  # what one text tells of (a user, by their home) may stand in one before it
    return _redact(data, by)


def _redact(data: ReportData, by: Pseudonyms) -> ReportData:
    return replace(
        data,
        folder=_named(data.folder, by),
        info=redacted_info(data.info, by),
        study=redacted(data.study, by),
        runs=[_redact_run(run, by) for run in data.runs],
        sweep=redacted(data.sweep, by),
        scorecard=redacted(data.scorecard, by),
        sweep_runs=[_redact_run(run, by) for run in data.sweep_runs],
        notes=[by.text(note) for note in data.notes],
    )


def redacted_info(info: RunInfo, by: Pseudonyms) -> RunInfo:
    """Return a run.json without hosts, users and paths."""
    result = redacted(info, by)
    if result.environment is not None:
        kept = {name: LEFT_OUT if name in _NODE_LISTS else one for name, one in result.environment.variables.items()}
        result.environment = msgspec.structs.replace(result.environment, variables=kept)
    if result.launch is not None:
        result.launch = LEFT_OUT  # which start of torchrun: a host, a process
    return result


def _redact_run(run: RunData, by: Pseudonyms) -> RunData:
    return replace(
        run,
        folder=_named(run.folder, by),
        info=redacted_info(run.info, by),
        facts=redacted(run.facts, by),
        steps=redacted(run.steps, by),
        answer=redacted(run.answer, by),
        reason=by.text(run.reason) if run.reason else run.reason,
        config=by.text(run.config),
    )


def _named(folder: RunFolder, by: Pseudonyms) -> RunFolder:
    return RunFolder(folder.path.with_name(by.text(folder.path.name)) if folder.path.name else folder.path)
