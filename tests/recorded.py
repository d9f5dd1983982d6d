"""What the recorded traces in tests/data tell, read once a process; each test gets a copy of its own."""

import pickle
from functools import cache
from pathlib import Path

from scalescope.scaling.join.explained import Explained
from scalescope.scaling.rank.records.record import RankRecord
from scalescope.scaling.replay.load import read_records
from scalescope.scaling.run import explain_traces
from scalescope.scaling.trace.sources import find_sources

DATA = Path(__file__).resolve().parent / "data"


@cache
def _records(name: str) -> bytes:
    return pickle.dumps(read_records(DATA / name))


@cache
def _explained(name: str) -> bytes:
    return pickle.dumps(explain_traces(find_sources(DATA / name), name, 1))


def records_of(name: str) -> dict[int, RankRecord]:
    """Return the records of a recorded job's ranks, as a process that has read them hands them on."""
    records: dict[int, RankRecord] = pickle.loads(_records(name))
    return records


def explained_of(name: str) -> Explained:
    """Return what `explain_traces` tells of a recorded job."""
    explained: Explained = pickle.loads(_explained(name))
    return explained
