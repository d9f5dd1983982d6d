"""The element types of a sweep, in numbers that need no torch."""

from dataclasses import dataclass


@dataclass(frozen=True)
class DType:
    """One element type, by torch's name.

    `exact` is the largest whole number below which every whole number is exact: a sum that stays below it
    has one right answer, in whatever order it is added. `power` is the largest power of two for products.
    """

    name: str
    itemsize: int
    exact: int
    power: int


DTYPES = {
    dtype.name: dtype
    for dtype in (
        DType("float32", 4, 1 << 24, 126),
        DType("bfloat16", 2, 1 << 8, 126),
        DType("float16", 2, 1 << 11, 15),
        DType("float64", 8, 1 << 53, 1022),
        DType("float8_e4m3fn", 1, 1 << 4, 8),
        DType("float8_e5m2", 1, 1 << 3, 15),
        DType("int32", 4, (1 << 31) - 1, 30),
        DType("int64", 8, (1 << 63) - 1, 62),
        DType("int8", 1, (1 << 7) - 1, 6),
        DType("uint8", 1, (1 << 8) - 1, 7),
    )
}
#: What gfx942 takes these for: fp8 without a negative zero, whose exponent counts from one more ("fnuz"). The same bits
#: are half of what they are elsewhere, which only a product shows.
FNUZ = {
    "float8_e4m3fn": DType("float8_e4m3fnuz", 1, 1 << 4, 7),
    "float8_e5m2": DType("float8_e5m2fnuz", 1, 1 << 3, 15),
}
REDUCTIONS = ("sum", "avg", "min", "max", "prod")
NO_DTYPE = "none"  # of an operation that moves no data
