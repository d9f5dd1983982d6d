"""What a profile of XLA says, whichever of its two files it was read from. Times are ns of the file's clock."""

import re
from functools import lru_cache

import msgspec

from scalescope.scaling.trace.header import DeviceProperties

#: A device's plane, and the lines in it that are streams; others repeat the same time by module, op or source.
DEVICE_PLANE = re.compile(r"/device:GPU:(\d{1,6})$")
STREAM_LINE = re.compile(r"Stream #(\d{1,9})")
#: One run of a module on one device, on the thread that launches it.
MODULE_RUN = re.compile(r"\[\d+\] \w+Executable::Execute \((.{1,256})\)$")
CLIQUE = "AcquireGpuClique"
#: The device to be asked for where the host itself is: no plane is called so.
THE_HOST = -1
_REBASED_NS = 1 << 52
_MOST_DAMAGE = 64
_CLIQUE_DEVICES = re.compile(r"devices=\d+:\[([0-9,\s]*)\]")
_GRID = re.compile(r"\bgrid:(\d{1,10}),(\d{1,10}),(\d{1,10})")


class DeviceActivity(msgspec.Struct, gc=False):
    """One kernel, copy or set on a stream."""

    name: str
    start: int
    duration: int
    stream: int
    category: str  # as Kineto has it: kernel, gpu_memcpy, gpu_memset
    correlation: int = -1
    op: str = ""  # of HLO
    program: int = -1
    grid: tuple[int, ...] = ()


class LaunchCall(msgspec.Struct, gc=False):
    """One call of the runtime that hands work to a device."""

    name: str
    start: int
    duration: int
    thread: int
    correlation: int
    device: int = -1  # as CUPTI counts them; ROCm's numbers are no such


class ModuleRun(msgspec.Struct, gc=False):
    """One execution of a module for one device, while its thread launches it."""

    module: str
    start: int
    duration: int
    thread: int
    device: int  # its global id


class StepMark(msgspec.Struct, gc=False):
    """One StepTraceAnnotation on the host: when a step was dispatched, which is no step's time."""

    number: int
    start: int
    duration: int
    thread: int


class HostOperator(msgspec.Struct, gc=False):
    """One operator that TensorFlow ran on the host."""

    type: str
    start: int
    duration: int


class HloCollective(msgspec.Struct, frozen=True):
    """What a module says of one of its collectives. Elements of all operands together; None: not told."""

    operation: str
    dtype: str | None
    in_elements: int | None
    group_size: int | None


class Profile(msgspec.Struct):
    """One device's activities, and what the host of the process did for all of its devices."""

    host: str = ""
    base_ns: int = 0
    device: DeviceProperties | None = None
    devices: list[int] = []  # that have streams in this file
    activities: list[DeviceActivity] = []
    launches: list[LaunchCall] = []
    runs: list[ModuleRun] = []
    steps: list[StepMark] = []
    operators: list[HostOperator] = []  # of TensorFlow on the host, where only that is asked for
    cliques: dict[int, set[tuple[int, ...]]] = {}  # by global id: the groups that a device communicated in
    known_cliques: dict[str, tuple[int, ...]] = {}  # by their list in a key, so that those of many devices are one
    world_size: int = -1
    collectives: dict[tuple[int, str], HloCollective] = {}  # by program and op
    invalid: int = 0
    damage: list[str] = []
    cut_off: bool = False

    def harm(self, what: str, cut_off: bool = False) -> None:
        """Note what is wrong with the file, once, of very many things the first; `cut_off`: activities are missing."""
        if what not in self.damage and len(self.damage) < _MOST_DAMAGE:
            self.damage.append(what)
        self.cut_off = self.cut_off or cut_off

    def rebase(self) -> None:
        """Count times from 52 days before the first at most, so that they stay exact as floats of µs.

        Old profiles have absolute times, of 1.7e18 ns. What is subtracted is the same for all that ran at one time.
        """
        timed = (self.activities, self.launches, self.runs, self.steps, self.operators)
        first = min((one.start for some in timed for one in some), default=0)
        shift = first - first % _REBASED_NS
        if not shift:
            return
        for some in timed:
            for one in some:
                one.start -= shift
        # times that begin after their own base are absolute already
        self.base_ns = shift + (self.base_ns if first < self.base_ns else 0)


def category_of(name: str, copies: bool, sets: bool) -> str:
    """Return Kineto's category of an activity by its name, and by whether it has a copy's or a set's details."""
    if copies or name.startswith(("Memcpy", "__amd_rocclr_copyBuffer")):
        return "gpu_memcpy"
    return "gpu_memset" if sets or name.startswith(("Memset", "__amd_rocclr_fillBuffer")) else "kernel"


@lru_cache(1024)
def kernel_name(name: str) -> str:
    """Return a kernel's name as Kineto has it: ROCm's own mark of a kernel's descriptor is no part of it."""
    return name.removesuffix(".kd").removesuffix(" [clone .kd]")


def grid_of(details: str) -> tuple[int, ...]:
    """Return the blocks in each dimension out of `kernel_details`."""
    match = _GRID.search(details)
    return tuple(int(number) for number in match.groups()) if match else ()


def listed_devices(key: str) -> str:
    """Return the list of devices in a clique's key, as it stands there; empty where there is none."""
    match = _CLIQUE_DEVICES.search(key)
    return match[1] if match else ""


def clique_of(listed: str) -> tuple[int, ...]:
    """Return the global ids in a list of devices."""
    numbers = [number.strip() for number in listed.split(",")]
    return tuple(int(number) for number in numbers if number.isdigit() and len(number) < 8)
