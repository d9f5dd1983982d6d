"""Which numbers a config may hold: one that no run can make sense of is refused where the config is made."""

import math
from dataclasses import dataclass, replace

from scalescope.records.errors import UserError


@dataclass(frozen=True)
class Bounds:
    """Where a number must lie. What is not finite lies nowhere."""

    least: float | None = None
    above: float | None = None
    most: float | None = None
    below: float | None = None
    null: str | None = None  # what leaving the number out stands for, where that may be

    def or_null(self, meaning: str) -> "Bounds":
        """Return the same bounds for a key that may be null, which means `meaning`."""
        return replace(self, null=meaning)

    def missed_by(self, value: float) -> str | None:
        """Return what a number should have been, in words; None where it is fine."""
        if not -math.inf < value < math.inf:  # math.isfinite refuses whole numbers beyond a float's range
            missed = "a finite number"
        elif self.least is not None and value < self.least:
            missed = f"at least {self.least}"
        elif self.above is not None and value <= self.above:
            missed = f"above {self.above}"
        elif self.most is not None and value > self.most:
            missed = f"at most {self.most}"
        elif self.below is not None and value >= self.below:
            missed = f"below {self.below}"
        else:
            return None
        return missed if self.null is None else f"{missed}, or null {self.null}"


COUNT = Bounds(least=1, most=10**9)  # of what there is at least one of
COUNT_OR_NONE = Bounds(least=0, most=10**9)
POSITIVE = Bounds(above=0)
NOT_NEGATIVE = Bounds(least=0)
SHARE = Bounds(least=0, most=1)
BELOW_ONE = Bounds(least=0, below=1)
SEED = Bounds(least=0, most=2**32 - 1)
MEBIBYTES = Bounds(above=0, most=10**6)  # torch takes them in bytes
THREADS = Bounds(least=1, most=4096)
PROCESSES = Bounds(least=0, most=4096)
SECONDS = Bounds(above=0, most=7 * 24 * 3600)  # a week: torch's store counts milliseconds in 32 bits, and waits thrice


def check_numbers(config: object, section: str = "", **bounds: Bounds) -> None:
    """Raise UserError for the first number of a config that is out of its bounds; they come by the numbers' keys."""
    for key, allowed in bounds.items():
        check_number(f"{section}{key}", getattr(config, key), allowed)


def check_number(key: str, value: float | list[float] | None, allowed: Bounds) -> None:
    """Raise UserError where a number, or one of a list, is out of bounds; none at all is fine."""
    for number in value if isinstance(value, list) else [] if value is None else [value]:
        if (missed := allowed.missed_by(number)) is not None:
            raise UserError(f"{key}={as_written(value)}: must be {missed}")


def as_written(value: object) -> str:
    """Return a config's value as an override has it: lists without blanks."""
    if isinstance(value, list):
        return f"[{','.join(map(as_written, value))}]"
    return f"{value:g}" if isinstance(value, float) else str(value)


def is_whole(value: object) -> bool:
    """Return whether a value of a key that takes several kinds is a whole number; `true` is none."""
    return isinstance(value, int) and not isinstance(value, bool)
