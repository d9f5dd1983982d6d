"""What all-reduces of sparse gradients carry is not in a trace, which gives the shape of the dense table."""

from pathlib import Path

import msgspec
import pytest

from scalescope.records.operations import canonical_operation, is_sparse
from scalescope.report.text.codes.exchanges import exchanged
from scalescope.scaling.analyze import analyze_run
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_rows import Collective
from scalescope.scaling.finding.figures import SPARSE
from scalescope.scaling.finding.finding import EvidenceRow, Finding
from scalescope.scaling.findings.bounds.bare_transfer import shown
from scalescope.scaling.rank.cpu import build_cpu_timeline
from scalescope.scaling.trace.reader import read_trace

#: A job's own trace: a table of 250,000 × 128 with sparse gradients, under DDP.
TRACES = Path(__file__).parent / "data" / "cpu_sparse_n2"
MIB = 1 << 20


@pytest.fixture(scope="module")
def collectives() -> list[Collective]:
    analysis: RunAnalysis = analyze_run(TRACES)
    return [one for one in analysis.collectives if one.step is not None]


def test_a_sparse_gradient_has_no_size_and_no_rate_and_dense_ones_keep_theirs(collectives: list[Collective]) -> None:
    """One was told as 122.1 MiB, the dense table's, at 28.1 GB/s; a batch reads 256 rows at most, 128 KiB."""
    sparse = [one for one in collectives if one.sparse]
    dense = [one for one in collectives if not one.sparse]
    assert len(sparse) == 3 and {one.operation for one in collectives} == {"all_reduce"}
    assert all(one.bytes is None and one.bus_gb_s is None and one.transfer_us for one in sparse)
    assert len(dense) == 6 and all(one.bytes and one.bus_gb_s for one in dense)
    assert max(one.bytes or 0 for one in dense) < 4 * MIB


def test_the_median_is_said_of_those_that_have_a_size(collectives: list[Collective]) -> None:
    """It was said of 4 collectives, 2 of them sparse, that they are of 14.8 MiB in the median."""
    rows = shown(collectives, 3, 1.0, 10.0)
    assert next(row.calls for row in rows if row.name == SPARSE) == 1
    sized = EvidenceRow(kind="figure", name="median_bytes", value=8.3 * MIB)
    finding = Finding(
        code="exposed_transfer", ms=1.0, low_ms=1.0, high_ms=1.0, fraction=0.1, backed="bound", evidence=(*rows, sized)
    )
    assert ", 1 of them of sparse tensors and the others of 8.3 MiB in the median" in exchanged(finding)
    of_none = msgspec.structs.replace(finding, evidence=tuple(rows))
    assert ", of sparse tensors, whose sizes traces do not tell" in exchanged(of_none)


def test_the_annotation_says_what_is_sparse() -> None:
    """The operator that hands it over is `c10d::allreduce_`, of the dense shape, as of any other."""
    trace = read_trace(next(TRACES.glob("rank0.*")))
    found = build_cpu_timeline(trace).collectives
    sparse = [one for one in found if one.sparse]
    assert sparse and all(one.elements == 250_000 * 128 and one.bytes is None for one in sparse)


@pytest.mark.parametrize(
    ("name", "sparse"),
    [("gloo:sparse_all_reduce", True), ("nccl:all_reduce_sparse", True), ("gloo:all_reduce", False)],
)
def test_names_of_sparse_all_reduces(name: str, sparse: bool) -> None:
    """Gloo's, without shapes, was an operation of its own, which has no bus factor and waits for nobody."""
    assert canonical_operation(name) == "all_reduce" and is_sparse(name) is sparse
