"""One figure of a scorecard, and the conditions without which a figure says nothing."""

from typing import Annotated, Literal

import msgspec

Count = Annotated[int, msgspec.Meta(ge=1)]
Amount = Annotated[float, msgspec.Meta(gt=0)]

RowStatus = Literal["measured", "not_available", "failed"]


class Conditions(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a figure holds under; None where it is not told, or plays no part."""

    precision: str | None = None  # fp32 | tf32 | bf16 | fp16 | fp8
    sparse: bool = False  # counted with structured sparsity: twice the dense rate
    devices: Count = 1
    bytes: Count | None = None  # of a collective, a copy or an array
    batch: Count | None = None  # samples, or sequences decoded at once
    model: str | None = None
    flops_per_sample: Amount | None = None  # forward and backward
    bits_per_weight: Amount | None = None
    context: Count | None = None  # tokens
    compute_units: Count | None = None  # that the figure is one of
    held: bool = False  # for half a second, when power limits it; else from rest
    in_switch: bool | None = None  # reduced inside the switch (NVLS)
    memory_gb: Amount | None = None  # a device's, as its driver counts it: data sheets round, or count in GiB


class ScorecardRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """One row: a figure with its interval, or the reason why there is none.

    `quantity` says what is measured (see `scalescope.hardware.claims`), `what` with which kernel and at which size.
    """

    row: str
    quantity: str
    what: str
    unit: str
    status: RowStatus = "measured"
    reason: str | None = None
    value: float | None = None
    low: float | None = None  # 95% interval of the mean
    high: float | None = None
    device: str | None = None
    conditions: Conditions = Conditions()
    power_w: float | None = None  # right after it
    sm_clock_mhz: float | None = None
    temperature_c: float | None = None
    seconds: float | None = None  # that the measurement took
    superbench: str | None = None  # which of SuperBench's metrics it corresponds to
    source: str = "scalescope"  # | superbench | mlperf
    node: str | None = None  # of another tool's results: its name for the machine
