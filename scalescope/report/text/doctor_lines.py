"""The doctor's answer in a terminal: a line a finding, the way out below what needs one."""

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from scalescope.hardware.check_result import CheckResult, Level

_ITEM_STYLES = {"fine": "green", "differs": "bold red", "cannot": "yellow"}
_MARKS: dict[Level, tuple[str, str]] = {
    "fine": ("fine", "green"),
    "note": ("note", "yellow"),
    "broken": ("BROKEN", "bold red"),
}


def print_findings(findings: Sequence[CheckResult], console: Console) -> None:
    """Print every finding, and last how many are broken."""
    width = max((len(finding.subject) for finding in findings), default=0)
    for finding in findings:
        mark, style = _MARKS[finding.level]
        console.print(Text.assemble((f"{mark:<6}", style), f"  {finding.subject:<{width}}  {finding.says}"))
        if finding.fix is not None:
            console.print(Text.assemble(f"{'':<{width + 8}}  → ", (finding.fix, "bold")))
    bad = sum(finding.level == "broken" for finding in findings)
    console.print("Nothing is broken." if not bad else f"{bad} broken: see the arrows.")


def print_item(name: str, verdict: str, says: str, console: Console) -> None:
    """Print one item of the self-test: whether it is fine, differs, or cannot be tried here."""
    console.print(Text.assemble((f"{verdict:<8}", _ITEM_STYLES[verdict]), f"{name:<12}  {says}"))
