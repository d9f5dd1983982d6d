"""The way in to profiles of XLA: which files are such, of which devices, and one device's trace."""

from pathlib import Path

from scalescope.records.errors import UserError
from scalescope.scaling.trace.trace import Trace
from scalescope.scaling.trace.xla.adapter import trace_of
from scalescope.scaling.trace.xla.operators import trace_of_operators
from scalescope.scaling.trace.xla.profile import THE_HOST, Profile
from scalescope.scaling.trace.xla.trace_json import is_trace_json, read_trace_json
from scalescope.scaling.trace.xla.xplane import read_xplane

XPLANE = ".xplane.pb"
_MOST_DEVICES = 1024


def is_profile(path: Path) -> bool:
    """Tell whether a file is a profile of XLA: an xplane by its name, the JSON beside it by its begin."""
    return path.name.endswith(XPLANE) or is_trace_json(path)


def devices_of(path: Path) -> list[int]:
    """Return the devices that a profile holds activity of, ascending.

    Raises UserError where it is none, or holds more than one process can have: each is a rank that reads the file.
    """
    devices = sorted(set(_read(path, None).devices))
    if len(devices) > _MOST_DEVICES:
        raise UserError(f"{path} holds {len(devices):,} devices, and no process has more than {_MOST_DEVICES:,}: it "
                        "is damaged, or several in one; give jax.profiler's own, a file a process")  # fmt: skip
    return devices


def host_of(path: Path) -> str:
    """Return the host that a profile names; empty where it cannot be read."""
    try:
        return _read(path, None).host
    except UserError:
        return ""


def read_device(path: Path, device: int | None) -> Trace:
    """Return the trace of one of a profile's devices. Raises UserError where it is none, or which one is not said."""
    if device is None:
        devices = devices_of(path)
        if not devices:
            if (profile := _read(path, THE_HOST)).operators:
                profile.rebase()
                return trace_of_operators(profile, path)
            raise UserError(f"{path} holds no activity of a GPU: only profiles of GPUs are read, and of CPUs those of "
                            "TensorFlow; record on a GPU, with jax.profiler.trace around some steps")  # fmt: skip
        if len(devices) > 1:
            raise UserError(f"{path} holds {len(devices)} devices, each a rank of its own; say which: "
                            f"{', '.join(map(str, devices))}")  # fmt: skip
        device = devices[0]
    profile = _read(path, device)
    profile.rebase()
    return trace_of(profile, path)


def _read(path: Path, device: int | None) -> Profile:
    return read_xplane(path, device) if path.name.endswith(XPLANE) else read_trace_json(path, device)
