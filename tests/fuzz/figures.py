"""What cases came to: one outcome a case, and their sum over rounds, starts and days, kept as JSON lines."""

import os
from pathlib import Path

import msgspec


class Outcome(msgspec.Struct):
    """How one case ended; `why` says what is wrong with that, and is empty for a good end."""

    number: int
    code: int | None
    size_bytes: int
    cpu_s: float
    peak_kb: int  # the largest resident memory while it ran, the process's own 250 MB included
    why: str = ""


class Figures(msgspec.Struct):
    """What the cases `first` to `first + cases - 1` of a kind came to."""

    kind: str
    first: int
    cases: int = 0
    codes: dict[int, int] = {}
    largest_bytes: int = 0
    cpu_s: float = 0.0
    slowest_s: float = 0.0
    peak_kb: int = 0
    failed: list[str] = []

    def add(self, outcome: Outcome) -> None:
        """Count one more case."""
        self.cases += 1
        if outcome.code is not None:
            self.codes[outcome.code] = self.codes.get(outcome.code, 0) + 1
        self.largest_bytes = max(self.largest_bytes, outcome.size_bytes)
        self.cpu_s += outcome.cpu_s
        self.slowest_s = max(self.slowest_s, outcome.cpu_s)
        self.peak_kb = max(self.peak_kb, outcome.peak_kb)
        if outcome.why:
            self.failed.append(f"{self.kind} {outcome.number}: {outcome.why}")

    def add_all(self, other: "Figures") -> None:
        """Count another round's cases."""
        self.first = min(self.first, other.first)
        self.cases += other.cases
        for code, count in other.codes.items():
            self.codes[code] = self.codes.get(code, 0) + count
        self.largest_bytes = max(self.largest_bytes, other.largest_bytes)
        self.cpu_s += other.cpu_s
        self.slowest_s = max(self.slowest_s, other.slowest_s)
        self.peak_kb = max(self.peak_kb, other.peak_kb)
        self.failed += other.failed

    def __str__(self) -> str:
        codes = ", ".join(f"exit {code}: {count}" for code, count in sorted(self.codes.items()))
        return (
            f"{self.cases} cases of up to {self.largest_bytes // 1000} kB ({codes}), {len(self.failed)} failed, "
            f"{self.cpu_s:.0f} s of CPU, slowest {self.slowest_s:.1f} s, {self.peak_kb // 1000} MB at most"
        )


def read_figures(path: Path) -> list[Figures]:
    """Return the rounds that earlier starts have written; a torn last line is left out."""
    rounds = []
    for line in path.read_text().splitlines() if path.is_file() else ():
        try:
            rounds.append(msgspec.json.decode(line, type=Figures))
        except msgspec.DecodeError:
            continue
    return rounds


def append_figures(path: Path, figures: Figures) -> None:
    """Keep a round's figures."""
    with path.open("a+b") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
        torn = file.read(1) not in (b"", b"\n")  # whoever wrote it last was killed
        file.write((b"\n" if torn else b"") + msgspec.json.encode(figures) + b"\n")


def sum_of(rounds: list[Figures]) -> dict[str, Figures]:
    """Return the sum of each kind's rounds."""
    sums: dict[str, Figures] = {}
    for one in rounds:
        sums.setdefault(one.kind, Figures(one.kind, one.first)).add_all(one)
    return sums
