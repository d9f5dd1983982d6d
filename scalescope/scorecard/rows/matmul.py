"""Matrix products of random matrices, 2·m·n·k FLOPs: the best of several sizes, and the shapes of GPT-2 124M.

What a device reaches and what it holds are two figures: a dozen products end before its power is limited (a job's
ceiling is measured so, and what others publish), half a second of them do not.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from scalescope.hardware.ceiling import multiplied_in, prepared_product
from scalescope.hardware.fp8 import fp8_obstacle
from scalescope.records.scorecard.row import Conditions, ScorecardRow
from scalescope.scorecard.machine import MachineUnderTest, first_line

_PRECISIONS = ("fp32", "tf32", "bf16", "fp16", "fp8")
_SIZES = {True: (4096, 8192, 16384), False: (128, 256)}
_SHORT = 10  # products, after a rest

Shape = tuple[int, int, int]


def measure(machine: MachineUnderTest) -> Iterator[ScorecardRow]:
    """Yield the best square product of each precision, from rest and held, then those of a GPT in bf16, held."""
    for precision in _PRECISIONS:
        if (why := _obstacle(machine, precision)) is not None:
            yield machine.missing("matmul", "matmul", precision, "TFLOP/s", why, Conditions(precision=precision))
            continue
        squares = {n: _tried(machine, precision, (n, n, n), f"{n}³", from_rest=True) for n in _SIZES[machine.full]}
        best = max(squares, key=lambda n: squares[n].value or 0.0)
        yield squares[best]
        if squares[best].value is not None:
            yield _tried(machine, precision, (best, best, best), f"{best}³")
    for what, shape in _model_shapes(machine):
        yield _tried(machine, "bf16", shape, what)


def _tried(machine: MachineUnderTest, precision: str, shape: Shape, what: str, from_rest: bool = False) -> ScorecardRow:
    """Return a product's row, or why it failed: the precisions and sizes behind it are measured all the same."""
    try:
        return _product(machine, precision, shape, what, from_rest)
    except (RuntimeError, MemoryError) as error:
        told = f"{what} {precision}"
        row = machine.missing("matmul", "matmul", told, "TFLOP/s", first_line(error), Conditions(precision=precision))
        return replace(row, status="failed")


def _product(machine: MachineUnderTest, precision: str, shape: Shape, what: str, from_rest: bool) -> ScorecardRow:
    with prepared_product(machine.device, precision, shape) as (product, name):
        m, n, k = shape
        if from_rest:
            machine.rest()
        times_s = machine.times_s(product, _SHORT) if from_rest else machine.times_s(product)
        how = "" if from_rest else ", held"
        figure = machine.rate(times_s, 2 * m * n * k / 1e12)
    return machine.row(
        "matmul", "matmul", f"{what} {name}{how}", "TFLOP/s", figure, Conditions(precision=name, held=not from_rest)
    )


def _obstacle(machine: MachineUnderTest, precision: str) -> str | None:
    """Return why a product is not to be had in a precision; None where it is."""
    if precision == "fp8":
        return fp8_obstacle() if machine.on_gpu else "a CPU multiplies no fp8"
    if precision == "tf32":
        if not machine.on_gpu:
            return "tf32 is for GPUs"
        return None if multiplied_in("tf32") == "tf32" else "this torch multiplies in fp32 where tf32 is asked for"
    return None


def _model_shapes(machine: MachineUnderTest) -> list[tuple[str, Shape]]:
    """Return the products of a GPT's forward pass: rows are the batch's tokens."""
    model = machine.compose("train", ["model=gpt_small" if machine.full else "model=gpt_tiny"]).model
    tokens = (model.batch_size if machine.full else 1) * model.context
    shapes = {"qkv": (3 * model.width, model.width), "MLP in": (4 * model.width, model.width),
              "MLP out": (model.width, 4 * model.width), "head": (model.vocabulary, model.width)}  # fmt: skip
    return [(f"{model.name} {name}, {tokens} × {n} × {k}", (tokens, n, k)) for name, (n, k) in shapes.items()]
