"""A sweep's rows as one table for a spreadsheet. Torch-free."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import msgspec

from scalescope.records.files import write_atomic
from scalescope.records.rows import SweepRow


def write_csv(path: Path, rows: Sequence[SweepRow]) -> None:
    """Write every field of every row, lists joined by spaces, as one CSV file."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [field.name for field in msgspec.structs.fields(SweepRow)]
    writer.writerow(names)
    writer.writerows([_cell(getattr(row, name)) for name in names] for row in rows)
    write_atomic(path, text.getvalue())


def _cell(value: object) -> object:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else value
