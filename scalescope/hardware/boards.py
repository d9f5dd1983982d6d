"""Which board a device is, where its driver gives it no name of its own. Torch-free.

ROCm reads names from a file of PCI ids that images may lack: a device is then called "" or "AMD Radeon Graphics". What
it is made of tells it as well: architecture, compute units and memory, of the whole chip or of one of its partitions.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from scalescope.hardware.peaks import partition_words

_GENERIC = ("", "amd radeon graphics", "amd radeon(tm) graphics", "radeon graphics", "n/a", "none")
_SAME = 0.06  # by how much memory may miss the board's: firmware and page tables take some, and an APU's host more


@dataclass(frozen=True)
class Board:
    """What a board is reported by."""

    name: str
    architecture: str
    compute_units: int  # of one device, which is half of an MI250 or MI250X
    memory_gib: float
    partitions: tuple[int, ...] = ()  # the numbers of equal partitions that the driver makes of it
    pci_ids: tuple[int, ...] = ()  # its PCI device ids: the board's, and a virtual machine's


# ROCm/rocm-systems, rocprofiler-compute's mi_gpu_spec.yaml: PCI ids and partitions; ROCm's GPU table: units and memory
BOARDS = (
    Board("AMD Instinct MI100", "gfx908", 120, 32, (), (0x738C,)),
    Board("AMD Instinct MI210", "gfx90a", 104, 64, (), (0x740F,)),
    Board("AMD Instinct MI250", "gfx90a", 104, 64, (), (0x740C,)),
    Board("AMD Instinct MI250X", "gfx90a", 110, 64, (), (0x7408,)),
    Board("AMD Instinct MI300A", "gfx942", 228, 128, (3, 6), (0x74A0, 0x74B4)),
    Board("AMD Instinct MI300X", "gfx942", 304, 192, (2, 4, 8), (0x74A1, 0x74B5, 0x74A9, 0x74BD)),
    Board("AMD Instinct MI308X", "gfx942", 80, 192, (2, 4), (0x74A2, 0x74B6, 0x74A8, 0x74BC)),
    Board("AMD Instinct MI325X", "gfx942", 304, 256, (2, 4, 8), (0x74A5, 0x74B9)),
    Board("AMD Instinct MI350X", "gfx950", 256, 288, (2, 4, 8), (0x75A0, 0x75B0)),
    Board("AMD Instinct MI355X", "gfx950", 256, 288, (2, 4, 8), (0x75A3, 0x75B3)),
    Board("AMD Radeon RX 7900 XTX", "gfx1100", 96, 24),
    Board("AMD Radeon RX 7900 XT", "gfx1100", 84, 20),
    Board("AMD Radeon RX 9070 XT", "gfx1201", 64, 16),
    Board("AMD Radeon RX 9070", "gfx1201", 56, 16),
    Board("AMD Radeon RX 9060 XT", "gfx1200", 32, 16),
)


@dataclass(frozen=True)
class Reported:
    """What a driver tells about an AMD device. `None`: not reported."""

    name: str = ""  # torch's
    product: str | None = None  # the board's, from its own chip (amdsmi)
    architecture: str | None = None  # gcnArchName without its features
    compute_units: int | None = None
    memory_bytes: int | None = None
    pci_id: int | None = None
    partitions: int | None = None  # equal ones that its chip is split into


def name_amd_device(reported: Reported) -> str:
    """Return a device's name with the words that say which part of its chip it is.

    By the first that tells: its own name or that of its board, unless it could be of several boards; what it is made
    of; its PCI id. Where none tells, the name says what is known, and matches no data sheet.
    """
    name = next((text for text in (reported.name, reported.product or "") if not is_generic(text)), None)
    matching = list(_matching(reported))
    if name is not None and " / " not in name:
        board = next((board for board in BOARDS if board.name.lower() in name.lower()), None)
        return _with_partitions(name, reported.partitions or _parts(board, reported))
    by_id = [(board, parts) for board, parts in matching if reported.pci_id in board.pci_ids]
    candidates = by_id or matching
    if not candidates and reported.pci_id is not None:
        candidates = [(board, reported.partitions or 1) for board in BOARDS if reported.pci_id in board.pci_ids]
    if len({board.name for board, _ in candidates}) == 1:
        board, parts = candidates[0]
        return _with_partitions(board.name, reported.partitions or parts)
    return name or _of_what_it_is_made(reported)


def is_generic(name: str) -> bool:
    """Return whether a name says nothing about which device it is."""
    return name.strip().lower() in _GENERIC


def _matching(reported: Reported) -> Iterator[tuple[Board, int]]:
    """Yield each board that a device could be, and into how many partitions its chip is split then."""
    if reported.compute_units is None or reported.memory_bytes is None:
        return
    memory_gib = reported.memory_bytes / 1024**3
    for board in BOARDS:
        if reported.architecture not in (None, board.architecture):
            continue
        for parts in (1, *board.partitions) if reported.partitions is None else (reported.partitions,):
            units, expected = board.compute_units / parts, board.memory_gib / parts
            if reported.compute_units == units and abs(memory_gib - expected) <= _SAME * expected:
                yield board, parts


def _parts(board: Board | None, reported: Reported) -> int:
    """Return how many partitions a named board is split into, by the units that this device has of it."""
    if board is None or not reported.compute_units:
        return 1
    fitting = (parts for parts in board.partitions if reported.compute_units * parts == board.compute_units)
    return next(fitting, 1)


def _with_partitions(name: str, partitions: int) -> str:
    return name if partitions == 1 else f"{name}, {partition_words(partitions)}"


def _of_what_it_is_made(reported: Reported) -> str:
    known = [
        reported.architecture or "",
        f"{reported.compute_units} compute units" if reported.compute_units else "",
        f"{reported.memory_bytes / 1024**3:.0f} GiB" if reported.memory_bytes else "",
        f"PCI id 1002:{reported.pci_id:04x}" if reported.pci_id is not None else "",
    ]
    return f"unnamed AMD GPU ({', '.join(filter(None, known)) or 'nothing known of it'})"
