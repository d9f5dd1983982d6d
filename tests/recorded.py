"""What a replay needs of the recorded traces in tests/data, read once a process; each test gets a copy of its own."""

import pickle
from functools import cache
from pathlib import Path

from scalescope.scaling.rank.records.record import RankRecord
from scalescope.scaling.replay.load import read_records

DATA = Path(__file__).resolve().parent / "data"


@cache
def _pickled(name: str) -> bytes:
    return pickle.dumps(read_records(DATA / name))


def records_of(name: str) -> dict[int, RankRecord]:
    """Return the records of a recorded job's ranks, as a process that has read them hands them on."""
    records: dict[int, RankRecord] = pickle.loads(_pickled(name))
    return records
