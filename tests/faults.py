"""What can go wrong around a job, how a test makes it happen, and what then holds: the source of docs/reliability.md.

The tests take exit codes, limits and words from here, so the table says what they assert. `python tests/faults.py`
writes it anew.
"""

import re
from pathlib import Path

from tests.fault_list import FAULTS, Fault

__all__ = ["FAULTS", "Fault"]

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reliability.md"
_MARKS = ("<!-- faults: written by tests/faults.py -->\n", "<!-- end of faults -->\n")


def table() -> str:
    """Return the page's table."""
    lines = [
        "| what happens | made by | exit code | within | it says | it keeps | test |",
        "|---|---|---|---|---|---|---|",
    ]
    for fault in FAULTS.values():
        file, _, test = fault.proven_by.partition("::")
        says = f"“… {fault.says} …”" if fault.says else ""
        link = f"[{test.removeprefix('test_').replace('_', ' ')}](../{file}){'' if fault.tried else ' *'}"
        cells = (fault.what, fault.made_by, fault.exit_code, f"{fault.within_s:g} s", says, fault.keeps, link)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


def page_with_table(page: str) -> str:
    """Return the page with its table as it is now."""
    begin, end = _MARKS
    return re.sub(f"{re.escape(begin)}.*?{re.escape(end)}", lambda _: begin + table() + end, page, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(page_with_table(PAGE.read_text()))
