"""What a check of the machine says: fine, worth knowing, or broken with the way out. Torch-free."""

from dataclasses import dataclass
from typing import Literal

Level = Literal["fine", "note", "broken"]


@dataclass(frozen=True)
class CheckResult:
    """One line of the doctor's answer."""

    level: Level
    subject: str
    says: str
    fix: str | None = None


def fine(subject: str, says: str) -> CheckResult:
    return CheckResult("fine", subject, says)


def note(subject: str, says: str, fix: str | None = None) -> CheckResult:
    return CheckResult("note", subject, says, fix)


def broken(subject: str, says: str, fix: str) -> CheckResult:
    return CheckResult("broken", subject, says, fix)
