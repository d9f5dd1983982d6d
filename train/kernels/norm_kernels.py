"""The passes of batch norm over memory, in Triton; `norm` says what they are for, and calls them.

Shapes: M rows of C channels, channels last in memory; P parts, which are sums over the rows of one program.
"""

import triton
import triton.language as tl

#: Elements of a tile, warps, and programs aimed at, for each kernel; of those tried on an H200 the fastest.
PLANS = {
    "statistics": (2048, 4, 2112),
    "apply": (4096, 8, 16896),
    "sums": (4096, 8, 1056),
    "gradient": (2048, 4, 8448),
}
_WIDEST = 128  # columns of a tile
PARTS = 512  # most partial sums of a channel, which one program then adds
TOTALLED = 16  # columns of such a program
UNBOUNDED = 65535  # programs along the rows where each writes its own: what CUDA's second dimension holds


def plan(kernel: str, rows: int, channels: int, most: int) -> tuple[int, int, int, int, int]:
    """Return a tile's columns and rows, the rows of a program, programs along the rows (at most so many), and warps.

    A tile's columns divide the channels, so that no lane lies beyond them.
    """
    elements, warps, programs = PLANS[kernel]
    columns = min(_WIDEST, triton.next_power_of_2(channels))
    while channels % columns:
        columns //= 2
    tile_rows = elements // columns
    along = max(1, min(most, programs // (channels // columns)))
    each = -(-rows // along)
    each = -(-each // tile_rows) * tile_rows
    return columns, tile_rows, each, -(-rows // each), warps


@triton.jit
def batch_norm_statistics(x, partial, M, C, P, EACH, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Write a program's part (2, P, C): its rows' mean, and the sum of squares about it."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    first = tl.program_id(1) * EACH
    last = tl.minimum(first + EACH, M)
    shift = tl.load(x + first.to(tl.int64) * C + column).to(tl.float32)
    one = tl.zeros([ROWS, COLUMNS], tl.float32)
    two = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(0, EACH, ROWS):
        row = first + start + tl.arange(0, ROWS)
        inside = (row < last)[:, None]
        at = row.to(tl.int64)[:, None] * C + column[None, :]
        value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
        value = tl.where(inside, value - shift[None, :], 0.0)
        one += value
        two += value * value
    count = (last - first).to(tl.float32)
    mean = tl.sum(one, 0) / count
    to = partial + tl.program_id(1) * C + column
    tl.store(to, shift + mean)
    tl.store(to + P * C, tl.sum(two, 0) - count * mean * mean)


@triton.jit
def batch_norm_moments(
    partial, moments, running_mean, running_variance, M, C, P, EACH, epsilon, momentum,
    PARTS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """Join the parts' means and squares (Chan et al. 1979), and move the running ones."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    part = tl.arange(0, PARTS)
    inside = (part < P)[:, None] & (column < C)[None, :]
    at = partial + part[:, None] * C + column[None, :]
    means = tl.load(at, mask=inside, other=0.0)
    squares = tl.load(at + P * C, mask=inside, other=0.0)
    count = tl.maximum(tl.minimum(EACH, M - part * EACH), 0).to(tl.float32)[:, None]
    mean = tl.sum(means * count, 0) / M
    off = means - mean[None, :]
    variance = (tl.sum(squares, 0) + tl.sum(tl.where(inside, count * off * off, 0.0), 0)) / M
    valid = column < C
    tl.store(moments + column, mean, mask=valid)
    tl.store(moments + C + column, 1.0 / tl.sqrt(variance + epsilon), mask=valid)
    old = tl.load(running_mean + column, mask=valid)
    tl.store(running_mean + column, old + momentum * (mean - old), mask=valid)
    old = tl.load(running_variance + column, mask=valid)
    tl.store(running_variance + column, old + momentum * (variance * (M / (M - 1.0)) - old), mask=valid)


@triton.jit
def batch_norm_totals(partial, total, P, C, PARTS: tl.constexpr, COLUMNS: tl.constexpr):
    """Add the parts: (kinds, P, C) -> (kinds, C); the second dimension of the grid is the kind."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    kind = tl.program_id(1)
    part = tl.arange(0, PARTS)
    inside = (part < P)[:, None] & (column < C)[None, :]
    parts = tl.load(partial + (kind * P + part[:, None]) * C + column[None, :], mask=inside, other=0.0)
    tl.store(total + kind * C + column, tl.sum(parts, 0), mask=column < C)


@triton.jit
def batch_norm_apply(
    x, shortcut, y, moments, weight, bias, s_moments, s_weight, s_bias, M, C, EACH,
    ADDED: tl.constexpr, NORMED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """Write ReLU of the norm, and of what is ADDED to it, NORMED itself or as it is."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    scale = tl.load(moments + C + column) * tl.load(weight + column)
    shift = tl.load(bias + column) - tl.load(moments + column) * scale
    if NORMED:
        s_scale = tl.load(s_moments + C + column) * tl.load(s_weight + column)
        shift += tl.load(s_bias + column) - tl.load(s_moments + column) * s_scale
    first = tl.program_id(1) * EACH
    last = tl.minimum(first + EACH, M)
    for start in range(0, EACH, ROWS):
        row = first + start + tl.arange(0, ROWS)
        inside = (row < last)[:, None]
        at = row.to(tl.int64)[:, None] * C + column[None, :]
        value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32) * scale[None, :] + shift[None, :]
        if ADDED:
            more = tl.load(shortcut + at, mask=inside, other=0.0).to(tl.float32)
            if NORMED:
                more *= s_scale[None, :]
            value += more
        relu = tl.where(value < 0.0, 0.0, value)  # a NaN is passed on, which a maximum would hide
        tl.store(y + at, relu.to(y.dtype.element_ty), mask=inside)


@triton.jit
def batch_norm_sums(
    upstream, second, x, y, shortcut, through, partial, moments, weight, bias, s_moments, M, C, P, EACH,
    ADDED: tl.constexpr, NORMED: tl.constexpr, TWICE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """Sum a part (2 or 3, P, C) of the gradient behind ReLU, which is written where a shortcut takes it."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    mean, rate = tl.load(moments + column), tl.load(moments + C + column)
    if not ADDED:
        w, b = tl.load(weight + column), tl.load(bias + column)
    if NORMED:
        s_mean, s_rate = tl.load(s_moments + column), tl.load(s_moments + C + column)
        three = tl.zeros([ROWS, COLUMNS], tl.float32)
    one = tl.zeros([ROWS, COLUMNS], tl.float32)
    two = tl.zeros([ROWS, COLUMNS], tl.float32)
    first = tl.program_id(1) * EACH
    last = tl.minimum(first + EACH, M)
    for start in range(0, EACH, ROWS):
        row = first + start + tl.arange(0, ROWS)
        inside = (row < last)[:, None]
        at = row.to(tl.int64)[:, None] * C + column[None, :]
        d = tl.load(upstream + at, mask=inside, other=0.0).to(tl.float32)
        if TWICE:
            d += tl.load(second + at, mask=inside, other=0.0).to(tl.float32)
        normal = (tl.load(x + at, mask=inside, other=0.0).to(tl.float32) - mean[None, :]) * rate[None, :]
        if ADDED:
            d = tl.where(tl.load(y + at, mask=inside, other=0.0).to(tl.float32) > 0, d, 0.0)
            tl.store(through + at, d.to(through.dtype.element_ty), mask=inside)
        else:
            d = tl.where(normal * w[None, :] + b[None, :] > 0, d, 0.0)
        one += d
        two += d * normal
        if NORMED:
            s_value = tl.load(shortcut + at, mask=inside, other=0.0).to(tl.float32)
            three += d * ((s_value - s_mean[None, :]) * s_rate[None, :])
    to = partial + tl.program_id(1) * C + column
    tl.store(to, tl.sum(one, 0))
    tl.store(to + P * C, tl.sum(two, 0))
    if NORMED:
        tl.store(to + 2 * P * C, tl.sum(three, 0))


@triton.jit
def batch_norm_gradient(
    through, second, x, shortcut, dx, d_shortcut, moments, weight, bias, s_moments, s_weight, sums, M, C, EACH,
    ADDED: tl.constexpr, NORMED: tl.constexpr, TWICE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """Write the gradient of x, and that of a shortcut with a norm; without one `through` is not yet behind ReLU."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    mean, rate = tl.load(moments + column), tl.load(moments + C + column)
    w, b = tl.load(weight + column), tl.load(bias + column)
    one, two = tl.load(sums + column) / M, tl.load(sums + C + column) / M
    if NORMED:
        s_mean, s_rate = tl.load(s_moments + column), tl.load(s_moments + C + column)
        s_w = tl.load(s_weight + column)
        three = tl.load(sums + 2 * C + column) / M
    first = tl.program_id(1) * EACH
    last = tl.minimum(first + EACH, M)
    for start in range(0, EACH, ROWS):
        row = first + start + tl.arange(0, ROWS)
        inside = (row < last)[:, None]
        at = row.to(tl.int64)[:, None] * C + column[None, :]
        d = tl.load(through + at, mask=inside, other=0.0).to(tl.float32)
        if TWICE:
            d += tl.load(second + at, mask=inside, other=0.0).to(tl.float32)
        normal = (tl.load(x + at, mask=inside, other=0.0).to(tl.float32) - mean[None, :]) * rate[None, :]
        if not ADDED:
            d = tl.where(normal * w[None, :] + b[None, :] > 0, d, 0.0)
        inner = (d - one[None, :] - normal * two[None, :]) * (w * rate)[None, :]
        tl.store(dx + at, inner.to(dx.dtype.element_ty), mask=inside)
        if NORMED:
            s_value = tl.load(shortcut + at, mask=inside, other=0.0).to(tl.float32)
            normal = (s_value - s_mean[None, :]) * s_rate[None, :]
            inner = (d - one[None, :] - normal * three[None, :]) * (s_w * s_rate)[None, :]
            tl.store(d_shortcut + at, inner.to(d_shortcut.dtype.element_ty), mask=inside)
