"""One item of the self-test, and the file that holds all of them."""

import time
from collections.abc import Callable
from typing import Literal

import msgspec

from scalescope.records.rows import Device, Environment

SCHEMA = 1

#: fine: as it must be. differs: something is not what it must be. cannot: not to be tried here, for the reason given.
Verdict = Literal["fine", "differs", "cannot"]
Figure = float | int | str | None


class Item(msgspec.Struct, frozen=True):
    """What one part of scalescope did on this machine."""

    name: str
    verdict: Verdict
    says: str
    seconds: float = 0.0
    figures: dict[str, Figure] = {}


class DoctorLine(msgspec.Struct, frozen=True):
    """One line of the doctor's."""

    level: str
    subject: str
    says: str
    fix: str | None = None


class SelfTest(msgspec.Struct, frozen=True):
    """The file's whole content. No host's name, no path and no variable beyond the allow-list is in it."""

    started_unix_s: float
    environment: Environment
    devices: list[Device]
    doctor: list[DoctorLine]
    items: list[Item]
    schema: int = SCHEMA


class CannotError(Exception):
    """An item cannot be tried on this machine; its text says why."""


class DiffersError(Exception):
    """Something is not what it must be; its text says what."""

    def __init__(self, says: str, figures: dict[str, Figure] | None = None) -> None:
        super().__init__(says)
        self.figures = figures or {}


Check = Callable[[], tuple[str, dict[str, Figure]]]


def carry_out(name: str, check: Check) -> Item:
    """Return what a check found. It returns a sentence and figures, or raises CannotError or DiffersError.

    Any other error is a difference as well: what works elsewhere has failed here, and its words say how.
    """
    started = time.monotonic()

    def item(verdict: Verdict, says: str, figures: dict[str, Figure]) -> Item:
        return Item(name, verdict, says, round(time.monotonic() - started, 2), figures)

    try:
        says, figures = check()
    except CannotError as reason:
        return item("cannot", str(reason), {})
    except DiffersError as reason:
        return item("differs", str(reason), reason.figures)
    except Exception as error:  # noqa: BLE001 - whatever it is, the file is there to say so
        first = next(iter(str(error).splitlines()), "")
        return item("differs", f"{type(error).__name__}: {first}"[:300], {})
    return item("fine", says, figures)
