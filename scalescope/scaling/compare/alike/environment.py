"""What differs between the surroundings of two measurements: versions, variables, devices, clocks, settings.

First come those that change what changed: a step whose communication grew is looked for in NCCL's variables and the
links, one whose compute grew in clocks, versions and settings of the model.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

import msgspec

from scalescope.records.frozen import frozen_keys
from scalescope.records.rows import Device, RunInfo
from scalescope.scaling.compare.answer import BEYOND_CORES, COMPUTE_THREADS, Setting
from scalescope.scaling.compare.measurement import Measurement, Repeat
from scalescope.scaling.findings.cores import core_share

#: What differs from run to run without a meaning: names, places, times.
_OWN = re.compile(r"(^|\.)(name|runs|study|resume|csv|run|logger\b.*|launch\.(timeout_s|init_limit_s|step_limit_s))$")
#: What ranks on CPUs tell of the host whose cores they fill most; runs of older versions do not tell, and that is no
#: difference.
_CORES = "compute_cores"
_TOLD_BY_BOTH = (COMPUTE_THREADS, BEYOND_CORES, _CORES)
#: Clocks, temperatures and power differ by so much without a meaning, as a share.
_SAME_STATE = 0.03
_COMMUNICATION = re.compile(
    r"nccl|rccl|gloo|topology|collective_library|ranks|bucket|strategy|hosts|backend|algorithm|protocol|channels", re.I
)
_COMPUTE = re.compile(
    r"torch|cuda|hip|driver|clock|power|temperature|throttled|device|precision|model|compile|attention|batch|threads"
    r"|cpu|omp|matmul|tf32", re.I
)  # fmt: skip
_COMMUNICATES = ("exposed_transfer", "exposed_wait", "exposed_unsplit")


def differing(baseline: Measurement, other: Measurement, changed: Sequence[str] = ()) -> list[Setting]:
    """Return what differs, likely ones first; `changed`: the names of the parts that changed most, the first first."""
    here, there = settings_of(baseline), settings_of(other)
    found = [
        Setting(key=key, baseline=here.get(key), other=there.get(key), likely=_likely(key, changed))
        for key in dict.fromkeys([*here, *there])
        if here.get(key) != there.get(key)
        and not _near(key, here.get(key), there.get(key))
        and not (key in _TOLD_BY_BOTH and None in (here.get(key), there.get(key)))
    ]
    return sorted(found, key=lambda one: not one.likely)


def _likely(key: str, changed: Sequence[str]) -> bool:
    told = changed[:1] or ["compute", *_COMMUNICATES[:1]]
    communicates = any(name in _COMMUNICATES for name in changed[:1] or told)
    computes = any(name not in _COMMUNICATES for name in changed[:1] or told)
    return bool((communicates and _COMMUNICATION.search(key)) or (computes and _COMPUTE.search(key)))


def _near(key: str, here: str | None, there: str | None) -> bool:
    """Tell whether two readings of a device's state are alike."""
    if not key.startswith("state.") or here is None or there is None:
        return False
    try:
        low, high = sorted((float(here), float(there)))
    except ValueError:
        return False
    return high - low <= _SAME_STATE * high


def settings_of(side: Measurement) -> dict[str, str]:
    """Return a side's surroundings as text, by key, in the order in which they are shown."""
    infos = [repeat.info for repeat in side.repeats if repeat.info is not None] or side.infos
    found = dict(_of_info(infos[0])) if infos else {}
    found |= _state([device for info in infos for device in info.devices])
    if side.repeats:
        found |= dict(_of_run(side.first))
    return found


def _of_info(info: RunInfo) -> Iterator[tuple[str, str]]:
    environment = info.environment
    if environment is not None:
        for name, value in msgspec.structs.asdict(environment.versions).items():
            if value is not None:
                yield f"version.{name}", str(value)
        for name, value in environment.variables.items():
            yield name, value
        yield "platform", environment.platform
        yield "cpu", environment.cpu
        yield "cpu_cores", str(environment.cpu_cores)
    share = core_share(info)
    if share is not None:
        yield COMPUTE_THREADS, str(share.threads)
        yield BEYOND_CORES, str(max(0, share.threads - share.cores))
        yield _CORES, str(share.cores)
    for key, told in (("topology", info.topology), ("backend", info.backend), ("launcher", info.launcher)):
        if told is not None:
            yield key, told
    if info.hosts:
        yield "hosts", ", ".join(info.hosts)


def _state(devices: Sequence[Device]) -> dict[str, str]:
    """Return the devices' clocks, power and temperature: medians over all of them."""
    found = {}
    for key in ("sm_clock_mhz", "power_w", "temperature_c"):
        values = [value for device in devices if (value := getattr(device, key)) is not None]
        if values:
            found[f"state.{key}"] = f"{median(values):g}"
    throttled = sorted({device.throttled for device in devices if device.throttled})
    return found | ({"state.throttled": ", ".join(throttled)} if throttled else {})


def _of_run(repeat: Repeat) -> Iterator[tuple[str, str]]:
    identity = repeat.identity
    if identity.device is not None:
        yield "device", identity.device
    yield "world_size", str(identity.world_size)
    if repeat.facts is not None and repeat.facts.attention is not None:
        yield "attention", repeat.facts.attention
    if repeat.facts is not None and repeat.facts.compiled_by_bucket is not None:
        yield "compiled_by_bucket", str(repeat.facts.compiled_by_bucket).lower()
    for key, value in flattened(repeat.config).items():
        if not _OWN.search(key):
            yield f"config.{key}", value


def flattened(config: str) -> Mapping[str, str]:
    """Return a frozen config's keys with dots, and their values as text; a list's items in one line.

    Raises UserError for what freezing does not write.
    """
    return dict(_leaves("", frozen_keys(config)))


def _leaves(above: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(f"{above}.{key}" if above else str(key), inner)
    elif above:
        yield above, _as_text(value)


def _as_text(value: object) -> str:
    """Return a value as the frozen config writes it."""
    if isinstance(value, list):
        return " ".join(map(_as_text, value)) or "[]"
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return str(value)
