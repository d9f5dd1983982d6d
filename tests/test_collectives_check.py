"""The check of a collective's result, against numpy as an independent judge."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from scalescope.collectives.dtypes import DTYPES, FNUZ
from scalescope.collectives.measure.check import Check
from scalescope.collectives.operations import OPERATIONS
from scalescope.collectives.operations.operation import Bound
from scalescope.collectives.plan import PlannedPoint

CPU = torch.device("cpu")
FOLDS = {"sum": np.add, "avg": np.add, "min": np.minimum, "max": np.maximum, "prod": np.multiply}


def by_numpy(operation: str, sends: list[np.ndarray], rank: int, chunk: int, reduction: str) -> np.ndarray:
    """Return what one rank must receive, straight from the collective's definition."""
    n = len(sends)
    folded = FOLDS[reduction].reduce(np.stack(sends).astype(np.float64)) / (n if reduction == "avg" else 1)
    part = slice(rank * chunk, (rank + 1) * chunk)
    answers: dict[str, Callable[[], np.ndarray]] = {
        "all_reduce": lambda: folded,
        "reduce": lambda: folded,
        "reduce_scatter": lambda: folded[part],
        "all_gather": lambda: np.concatenate(sends),
        "gather": lambda: np.concatenate(sends),
        "broadcast": lambda: sends[0],
        "scatter": lambda: sends[0][part],
        "all_to_all": lambda: np.concatenate([send[part] for send in sends]),
        "send_recv": lambda: sends[(rank - 1) % n],
    }
    return answers[operation]()


@pytest.mark.parametrize("n", [2, 3, 5])
@pytest.mark.parametrize("dtype", list(DTYPES))
@pytest.mark.parametrize("name", [name for name, operation in OPERATIONS.items() if operation.moves_data])
def test_the_expected_result_is_numpys_and_any_other_is_counted(name: str, dtype: str, n: int) -> None:
    operation, chunk = OPERATIONS[name], 500
    kind = getattr(torch, dtype)
    folds = ("sum", "min", "max", "prod", "avg") if kind.is_floating_point else ("sum", "min", "max", "prod")
    check = Check(n, CPU, n * chunk)
    for reduction in folds if operation.facts.reduces else (None,):
        point = PlannedPoint(name, chunk, dtype, tuple(range(n)), reduction, "out_of_place", "eager", "c10d", 0, None)
        bounds = [
            Bound(
                torch.zeros(operation.send_elements(chunk, n), dtype=kind),
                torch.zeros(operation.receive_elements(chunk, n), dtype=kind),
                rank, n, reduction or "", 0,
            )
            for rank in range(n)
        ]  # fmt: skip
        for io in bounds:
            check.prepare(point, io)
        sends = [io.send.double().numpy() for io in bounds]
        assert len({send.tobytes() for send in sends}) == n, "every rank has its own pattern"
        for io in bounds[: 1 if name in ("reduce", "gather") else n]:  # only the root receives anything there
            right = torch.from_numpy(np.ascontiguousarray(by_numpy(name, sends, io.rank, chunk, reduction or "sum")))
            assert check.count_wrong(point, io) == io.receive.numel(), "what was not received is not right"
            io.receive.copy_(right.to(kind))
            assert check.count_wrong(point, io) == 0
            io.receive[-1] = 0 if float(io.receive[-1]) else 1
            io.receive[7] = 0 if float(io.receive[7]) else 1
            assert check.count_wrong(point, io) == 2


def test_chunks_in_the_wrong_order_are_wrong() -> None:
    check, n, chunk = Check(4, CPU, 4 * 4096), 4, 4096
    point = PlannedPoint(
        "all_gather", chunk, "float32", (0, 1, 2, 3), None, "out_of_place", "eager", "c10d", None, None
    )
    ios = [Bound(torch.zeros(chunk), torch.zeros(n * chunk), rank, n, "", 0) for rank in range(n)]
    for io in ios:
        check.prepare(point, io)
    ios[0].receive.copy_(torch.cat([ios[rank].send for rank in (1, 0, 2, 3)]))
    wrong = check.count_wrong(point, ios[0])
    assert wrong > 0.99 * 2 * chunk


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float8_e4m3fn", "uint8"])
def test_sums_stay_exact_over_many_ranks(dtype: str) -> None:
    n, kind = 300, getattr(torch, dtype)
    check = Check(n, CPU, 64)
    point = PlannedPoint("all_reduce", 64, dtype, tuple(range(n)), "sum", "in_place", "eager", "c10d", None, None)
    total = torch.zeros(64, dtype=kind)
    for rank in range(n):
        buffer = torch.zeros(64, dtype=kind)
        check.prepare(point, Bound(buffer, buffer, rank, n, "sum", 0))
        total = (total.float() + buffer.float()).to(kind)  # one after another, rounding each time
    assert check.count_wrong(point, Bound(total, total, 0, n, "sum", 0)) == 0
    assert total.float().sum() > 0


@pytest.mark.parametrize("dtype", list(FNUZ))
@pytest.mark.parametrize("reduction", ["sum", "prod", "max", "avg"])
@pytest.mark.parametrize("n", [2, 3, 8])
def test_fp8_is_judged_in_the_layout_that_the_device_computes_in(dtype: str, reduction: str, n: int) -> None:
    """gfx942 takes fp8's bits for values half as large (rccl_float8.h, under __gfx942__): a product is off by two."""
    kind, own = getattr(torch, dtype), getattr(torch, FNUZ[dtype].name)
    point = PlannedPoint(
        "all_reduce", 4096, dtype, tuple(range(n)), reduction, "in_place", "eager", "direct", None, None
    )

    def wrong(check: Check) -> int:
        sends = [torch.zeros(4096, dtype=kind) for _ in range(n)]
        for rank, send in enumerate(sends):
            check.prepare(point, Bound(send, torch.zeros_like(send), rank, n, reduction, 0))
        result = sends[0].view(own).float()
        for send in sends[1:]:
            other = send.view(own).float()
            result = {"prod": result * other, "max": torch.maximum(result, other)}.get(reduction, result + other)
        result = result / n if reduction == "avg" else result
        received = result.to(own).view(kind)
        return check.count_wrong(point, Bound(sends[0], received, 0, n, reduction, 0))

    assert wrong(Check(n, CPU, 4096, FNUZ)) == 0
    if reduction == "prod":
        assert wrong(Check(n, CPU, 4096)) > 1000  # what was called WRONG
