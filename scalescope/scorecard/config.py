"""The scorecard, typed. The defaults are in conf/scorecard.yaml alone; torch-free, so that claims alone are quick."""

from dataclasses import dataclass
from typing import Any

from hydra.core.config_store import ConfigStore

from scalescope.launch.bounds import SECONDS, as_written, check_numbers
from scalescope.launch.config import LaunchConfig
from scalescope.launch.keys import key
from scalescope.records.errors import UserError
from scalescope.scorecard.table import ROWS

SIZES = ("auto", "full", "small")


@dataclass
class ScorecardConfig:
    """conf/scorecard.yaml: which rows are measured, at which sizes, and whose figures stand beside them."""

    name: str | None = key()
    runs: str = key()
    rows: Any = key()
    sizes: str = key()
    budget_s: float = key()
    devices: list[str] = key()
    claims: str | None = key()
    launch: LaunchConfig = key()
    logger: dict[str, Any] = key()

    def __post_init__(self) -> None:
        check_numbers(self, budget_s=SECONDS)
        if self.sizes not in SIZES:
            raise UserError(f"sizes={self.sizes}: choose one of {', '.join(SIZES)}")
        if self.rows != "all":
            listed = self.rows if isinstance(self.rows, list) else [self.rows]
            if unknown := [as_written(name) for name in listed if name not in ROWS]:
                raise UserError(f"rows={as_written(self.rows)}: there is no row {unknown[0]}; give all, [] for none, "
                                f"or a list of {', '.join(ROWS)}")  # fmt: skip
            self.rows = listed

    @property
    def chosen(self) -> list[str]:
        """Return the rows to be measured, in the table's order."""
        return [name for name in ROWS if self.rows == "all" or name in self.rows]


def register() -> None:
    """Make the type known to Hydra."""
    ConfigStore.instance().store(name="scorecard_schema", node=ScorecardConfig)
