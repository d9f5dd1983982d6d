"""What hosts do while their devices wait, in words."""

from msgspec.structs import replace

from scalescope.records.console import counted
from scalescope.records.steps.annotations import LOADING
from scalescope.report.drawing.numbers import figure, listing, milliseconds, ordinal
from scalescope.report.text.codes.evidence import (
    beyond_its_cause_ms,
    first_of,
    host_does,
    idle_words,
    in_all_steps,
    in_some_steps,
    is_of_several,
    is_on_cpu,
    long_steps_of,
    longer_beside,
    longer_there,
    longer_there_ms,
    others,
    row_of,
    waited_there,
)
from scalescope.report.text.codes.host_places import called, each_pass, in_loop, placed
from scalescope.report.text.cures.words import line_words
from scalescope.scaling.finding.figures import (
    ANOMALY,
    AT_STEP,
    BESIDE,
    ELEMENTS_READ,
    EVERY,
    GARBAGE,
    HIDDEN,
    IN_STEPS,
    LATE,
    LOADED,
    LOADER_WORKERS,
    LOOP_AFTER,
    MAY_BE_OTHERS,
    MAY_LOAD,
    READ_VALUES,
    RUN_THERE,
    SHOWN_BY_WAITS,
    STOOD_BEFORE,
    WORKERS_CORES,
)
from scalescope.scaling.finding.finding import EvidenceRow, Finding
from scalescope.scaling.finding.kinds import is_of_one_step, is_of_resting_workers
from scalescope.scaling.findings.of_rows.off_cpu import OFF_CPU, ON_CPU
from scalescope.scaling.findings.of_rows.own_workers import waits_for_workers

#: Of what lasts so many times as long as it costs, most is no matter of what it is told of.
_MUCH_MORE = 2
#: What lasts so many times as long as it costs is read as another figure for the same, unless its step is named.
_FAR_LONGER = 1.1


def debug_mode(finding: Finding) -> str:
    who, verb = ("all ranks", "") if is_of_several(finding) else ("it", "s")
    if (looks := row_of(finding, ANOMALY)) is not None and looks.calls is not None:
        return (
            f"{who} look{verb} for NaN behind the backward pass's operators, {looks.calls:,.0f} times a step, and "
            f"keep{verb} where each operator was called, as torch.autograd.set_detect_anomaly has it"
        )
    launches = row_of(finding, "blocking_launches")
    count = f"{launches.calls:,.0f} " if launches is not None and launches.calls else ""
    return f"each of the {count}launches a step waits for its kernel, as CUDA_LAUNCH_BLOCKING=1 has it"


def loading(finding: Finding) -> str:
    if (long := long_steps_of(finding)) is not None:
        whose = host_does(finding, "wait", "waits")
        often = f"in {long.calls:.0f} of {long.value:.0f} steps"
        return f"{often} {whose} {milliseconds(long.ms or 0.0)} for a batch, which its loader makes too slowly"
    if (some := in_some_steps(finding)) is not None:
        whose = host_does(finding, "load", "loads")
        beside = longer_beside(finding, several=is_of_several(finding))
        return f"{some[0]} {whose} data for {longer_there(finding)} longer than in the others{beside}"
    all_steps = row_of(finding, LOADED)
    if all_steps is not None and first_of(finding, "annotation") is None:
        whose = host_does(finding, "are in their loaders", "is in its loader")
        return f"in the mean of {all_steps.value:.0f} steps {whose} for {milliseconds(all_steps.ms or 0.0)}"
    row = first_of(finding, "annotation")
    whose = host_does(finding, "load", "loads")
    # torch's own mark of its loader tells nothing beyond that data are loaded
    plain = row is None or row.name in ("loading", LOADING) or row.name.startswith("enumerate(DataLoader)")
    named = f" ({row.name})" if row is not None and not plain else ""
    # without an annotation it is a gap before the step's first batch is copied
    row = row or row_of(finding, "idle_data")
    row = row or next((one for one in finding.evidence if one.name.startswith("gap_before ")), None)
    took = f" for {milliseconds(row.ms)}" if row is not None and row.ms is not None else ""
    took += f" {_of_which_step(finding, row)}" if took and not is_of_one_step(finding) else ""
    took += line_words(row) + "," * (row is not None and row.line is not None)
    # a worker goes on while its rank waits for another one: how slow it is shows once that other is mended
    hidden = (
        "; whether the others' workers are as slow does not show, as these go on while their ranks wait"
        if waits_for_workers(finding)
        else ""
    )
    computed = first_of(finding, "operator")
    inside = f", {milliseconds(computed.ms)} of it in {computed.name}" if computed is not None and computed.ms else ""
    if (late := row_of(finding, LATE)) is not None:
        told = f"and all {late.value:.0f} steps tell what it costs"
        more_ms = 0.0 if finding.at_most else beyond_its_cause_ms(finding)
        told += f": {milliseconds(more_ms)} more than that" if more_ms else ""
        return f"{whose} data{named}{took} in the profiled steps{inside}, {told}{hidden}"
    meanwhile = " while nothing computes" if is_on_cpu(finding) else " while the device has nothing to do"
    meanwhile = inside or meanwhile
    if all_steps is not None:
        meanwhile += f", {milliseconds(all_steps.ms or 0.0)} in the mean of {all_steps.value:.0f} that are not recorded"
    return f"{whose} data{named}{took}{meanwhile}{hidden}{_shared_with_workers(finding)}"


def _of_which_step(finding: Finding, row: EvidenceRow | None) -> str:
    """Return of which step hosts load for so long: of a recorded one, where the job's own loses far less to it."""
    longer = row is not None and (row.ms or 0.0) > _FAR_LONGER * (finding.ms or 0.0) > 0
    told = any(one.name == LATE for one in finding.evidence)  # which step it is of is said behind it
    return "a profiled step" if longer and not told else "a step"


def _shared_with_workers(finding: Finding) -> str:
    """Return that those who make the batches share the ranks' cores, and what no trace tells of that; else ""."""
    ranks, cores = row_of(finding, "ranks"), row_of(finding, "cores")
    still = row_of(finding, "interruptions")
    if row_of(finding, LOADER_WORKERS) is None:
        return ""
    stands = (
        f", and {host_does(finding, 'stand', 'stands').removeprefix('the hosts ')} still for {milliseconds(still.ms)}, "
        "now here and now there"
        if still is not None and still.ms
        else ""
    )
    if ranks is None or cores is None or not (ranks.value and cores.value):
        whose = "other threads have their cores, and how much of that are the loader's workers no trace tells"
        return f"{stands}: {whose}" if stands else ""
    share = (
        f"{counted(round(ranks.value), 'rank')} and the loader's workers share {counted(round(cores.value), 'core')}"
    )
    used = row_of(finding, WORKERS_CORES)
    if used is not None and used.value is not None and is_of_resting_workers(finding):
        return f"; the loader's workers rest: they use {figure(used.value, 2)} of {counted(round(cores.value), 'core')}"
    if used is not None and used.value is not None:
        more = row_of(finding, MAY_BE_OTHERS)
        part = f", which may be {milliseconds(more.ms)} of it" if more is not None and more.ms else ""
        return f"{stands}; {share}, of which the workers use {figure(used.value, 2)}{part}"
    return f"{stands}; {share}, and how much of the compute's time the workers take no trace tells"


#: What a host may do that no profiler records.
_UNRECORDED = "(Python runs, sleeps, or waits for a file or a lock)"


#: What a host that nothing is recorded of most likely does between a step's passes and the next one's.
_AS_WHERE_IT_SAVES = ", as where it saves or logs"
#: So much of what a step takes longer is all of it.
_NEARLY = 0.95


def stood_there(finding: Finding) -> str:
    """Return for how long of a longer step its host does nothing recorded, and where, after a comma; "": not told."""
    row = next((one for one in finding.evidence if one.name.startswith(STOOD_BEFORE)), None)
    if row is None or row.ms is None:
        return ""
    where = in_loop(row.place, row.name.removeprefix(STOOD_BEFORE).strip())
    much = "all" if row.ms >= _NEARLY * longer_there_ms(finding) else milliseconds(row.ms)
    return f", {much} of it {where}{_AS_WHERE_IT_SAVES}"


def stall(finding: Finding) -> str:
    row = first_of(finding, "figure")
    if row is None or row.ms is None:
        return "its host launches nothing for a while"
    place = row.name.removeprefix("gap_before ")
    where = f" {placed(row, on_cpu=is_on_cpu(finding))}" if place != row.name else ""
    if row.name.startswith("gap_in "):
        where = f" in {row.name.removeprefix('gap_in ')}, which pickles and unpickles"
    where += line_words(row)
    does = _stands_still(finding, row)
    if row_of(finding, MAY_LOAD) is not None:
        where = f" before {called(place)}, where the step begins: most likely they load the next batch"
        does = host_does(finding, "do nothing that is recorded", "does nothing that is recorded")
    if (some := in_some_steps(finding)) is not None and row.name == "idle_launch":
        idles = host_does(finding, idle_words(finding, several=True), idle_words(finding))
        beside = longer_beside(finding, several=is_of_several(finding))
        longer = f"{some[0]} {idles} for {longer_there(finding)} longer than in the others"
        return f"{longer}{stood_there(finding)}{beside}{waited_there(finding)}"
    nothing = f"{does} for {milliseconds(row.ms)}"
    if is_of_one_step(finding) or finding.backed == "bound":
        beside = f" a step, the others' for {milliseconds(row.others_ms)} at most" if row.others_ms is not None else ""
        return f"{nothing}{beside}{where}"
    nothing += " a step"
    if (steps := row_of(finding, IN_STEPS)) is not None and steps.ms is not None:
        often = f"in {steps.calls:.0f} of {steps.value:.0f} steps"
        several = sum(one.name.startswith("gap_before ") for one in finding.evidence) > 1
        longest = milliseconds(row.ms if several else steps.ms)
        apiece = "" if steps.calls == 1 else " each"
        nothing = f"{does} for {longest}{apiece} {often}{_at_steps(finding)}"
    if (every := row_of(finding, EVERY)) is not None and every.value is not None:
        nothing += f", every {ordinal(round(every.value))} one{',' * bool(where)}"
    if (each := each_pass(finding, row)) is not None:
        whose = host_does(finding, "do", "does")
        nothing = f"{whose} nothing that is recorded for {milliseconds(row.ms)} a step{line_words(row)}, {each}"
        return f"{nothing}{_elsewhere(finding, row)}{_run_there(finding)}{_shown(finding)}"
    like = _AS_WHERE_IT_SAVES if _is_beside_training(finding, row) else ""
    there = f"{_elsewhere(finding, row)}{_run_there(finding)}"
    return f"{nothing}{where}{there}{like}{_shown(finding)}{in_all_steps(finding)}"


def _is_beside_training(finding: Finding, row: EvidenceRow) -> bool:
    """Tell whether a loop stands still behind the optimizer's step in some steps, some steps apart.

    Nobody knows what it does then, but a loop that saves or logs every so many steps does so there.
    """
    often = finding.remedy is not None and finding.remedy.cure == "do_less_often"
    return often and row.place == "optimizer_to_forward" and row_of(finding, IN_STEPS) is not None


def _at_steps(finding: Finding) -> str:
    """Return which of a window's steps have it, where they are few, and how far apart two of them are."""
    at = [round(row.value) for row in finding.evidence if row.name == AT_STEP and row.value is not None]
    if not at:
        return ""
    apart = f", {at[1] - at[0]} steps apart" if len(at) > 1 and at[1] - at[0] > 1 else ""
    return f" (the {listing([ordinal(one) for one in at])}{apart})"


def _stands_still(finding: Finding, row: EvidenceRow) -> str:
    """Return what a host does meanwhile: Python's collector says so, and its time on a core whether it sleeps."""
    if row.name == GARBAGE:
        return f"{host_does(finding, 'run', 'runs')} Python's garbage collector (gc)"
    if row_of(finding, OFF_CPU) is not None:
        return host_does(finding, "sleep, or wait for I/O or a lock,", "sleeps, or waits for I/O or a lock,")
    if row_of(finding, ON_CPU) is not None:
        return f"{host_does(finding, 'compute', 'computes')} in Python, or a library, that no operator tells,"
    return f"{host_does(finding, 'do', 'does')} nothing that is recorded {_UNRECORDED}"


def _elsewhere(finding: Finding, told: EvidenceRow) -> str:
    """Return where else a host stands still as well: what a stall costs is of all its places."""
    places = [
        f"for {milliseconds(row.ms)} {_at(row, told, on_cpu=is_on_cpu(finding))}"
        for row in finding.evidence
        if row is not told and row.name.startswith(("gap_before ", GARBAGE)) and row.ms is not None
    ]
    if told.name == GARBAGE and places:
        return f", and nothing that is recorded {listing(places)}"
    return f", and also {listing(places)}" if places else ""


def _run_there(finding: Finding) -> str:
    """Return what the rank alone runs at the place where its host stands still: what it costs is of both."""
    row = next((one for one in finding.evidence if one.name.startswith(RUN_THERE)), None)
    if row is None or row.ms is None:
        return ""
    name = row.name.removeprefix(RUN_THERE).strip()
    return f"; there it also runs what {others(finding)} do not, {milliseconds(row.ms)} a step, led by {name}"


def _at(row: EvidenceRow, told: EvidenceRow, *, on_cpu: bool) -> str:
    if row.name == GARBAGE:
        return "in Python's garbage collector"
    there = row.place is not None and row.place == told.place  # that is said
    where = f"there {placed(replace(row, place=None), on_cpu=on_cpu)}" if there else placed(row, on_cpu=on_cpu)
    return where + line_words(row)


def _shown(finding: Finding) -> str:
    """Return why a stall shows at all, where hosts that ran ahead would hide it."""
    waits = row_of(finding, SHOWN_BY_WAITS)
    if waits is None:
        return ""
    often = f" {waits.calls:.0f} times a step" if waits.calls is not None and waits.calls >= 1.5 else " in each step"
    # what one rank alone does is told of hosts that all wait
    alone = finding.rank is None and not is_of_several(finding)
    waiting = "the host waits for its device" if alone else "all hosts wait for their devices"
    return f", which nothing hides, as {waiting}{often}"


def _loop_among(finding: Finding) -> str:
    """Return what of a step's operators are a loop's, and where it lies; "" where most of them are not."""
    loop = next((one for one in finding.evidence if one.name.startswith(LOOP_AFTER)), None)
    if loop is None or loop.calls is None:
        return ""
    by = [f"{one.name} {one.calls:,.0f} times" for one in finding.evidence if one.kind == "operator" and one.calls]
    place = loop.name.removeprefix(LOOP_AFTER).strip().removeprefix("Optimizer.step#")
    where = (f"after {called(place)}" if place else "at its begin") + line_words(loop)
    return f", {loop.calls:,.0f} of which are run by a loop of Python {where} ({listing(by)}),"


def host_bound(finding: Finding) -> str:
    row, launches = row_of(finding, "idle_launch"), row_of(finding, "launches")
    if is_on_cpu(finding) and row is not None and row.ms:
        count = f"{launches.calls:,.0f} " if launches is not None and launches.calls else ""
        idle = milliseconds(row.ms)
        doing = host_does(finding, "do", "does")
        things = f"between the {count}operators of a step{_loop_among(finding)} {doing} other things, such as Python"
        return f"{things}, for up to {idle}{_of_other_causes(finding, row.ms)}"
    if is_on_cpu(finding):
        return f"between the operators of a step {host_does(finding, 'do', 'does')} other things, such as Python"
    waiting = "the devices wait" if is_of_several(finding) else "the device waits"
    idle = f"{waiting} {milliseconds(row.ms)} a step for launches" if row is not None and row.ms else (
        f"{waiting} for launches")  # fmt: skip
    if row_of(finding, HIDDEN) is not None:
        those, wait = ("devices do", "they wait") if is_of_several(finding) else ("the device does", "it waits")
        idle = f"without what {those} beyond that, {wait} for launches"
    if launches is None or not launches.calls:
        return idle
    beside = row_of(finding, BESIDE)
    turns = (
        f", while another thread of the process, which runs no operators, launches {beside.calls:,.0f}: they take turns"
        if beside is not None and beside.calls
        else ""
    )
    return f"{idle}, {launches.calls:,.0f} of them{turns}"


def _of_other_causes(finding: Finding, ms: float) -> str:
    """Return that what hosts do between operators is other causes' for the most part, where it is; else ""."""
    return ", most of it for other causes" if finding.ms is not None and ms > _MUCH_MORE * finding.ms else ""


def element_reads(finding: Finding) -> str:
    row = row_of(finding, ELEMENTS_READ)
    count = f"{row.calls:,.0f} values a step" if row is not None and row.calls else "values"
    by = [one.name for one in finding.evidence if one.kind == "operator"]
    named = f" ({listing(by)})" if by else ""
    return f"{host_does(finding, 'read', 'reads')} {count} one by one, in a loop of Python{named}"


def synchronising(finding: Finding) -> str:
    row = first_of(finding, "operator")
    what = f" in {row.name}" if row is not None else ""
    calls = row.calls if row is not None else None
    times = f", {calls:,.0f} times a step" if calls and calls >= 1.5 else ", once a step" if calls else ""
    times += line_words(row)
    if finding.remedy is not None and finding.remedy.cure == "pin_memory":
        times += ", to copy out of memory that is not pinned"
    waits = f"the host waits for the device{what}{times}, and the device then for the host"
    values = row_of(finding, READ_VALUES)
    if values is None or not values.ms:
        return waits
    return (
        f"{waits}; {milliseconds(values.ms)} of kernels compute what is read, and go with it if nothing else needs it"
    )
