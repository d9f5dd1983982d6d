"""What others measured on the same devices, so that a sweep can say whether a figure is normal. Torch-free."""

from dataclasses import dataclass

from scalescope.hardware.claims.catalog import own_catalog
from scalescope.hardware.peaks import find_peak


@dataclass(frozen=True)
class Published:
    """The best bus bandwidth on record of an operation over so many devices of one host, not reduced in a switch."""

    bus_gb_s: float
    source: str


def published_for(device: str, operation: str, group_size: int) -> Published | None:
    """Return the figure on record, or None where there is none for this device, operation and group size."""
    catalog, peak = own_catalog(), find_peak(device)
    found = [
        Published(claim.value, ", ".join(filter(None, (catalog.source_of(claim).title, claim.note))))
        for claim in catalog.claims.values()
        if claim.quantity == f"{operation}_busbw"
        and (claim.conditions.devices, claim.conditions.in_switch is True) == (group_size, False)
        and catalog.source_of(claim).kind == "measured"
        and peak is not None and find_peak(claim.device or "") == peak
    ]  # fmt: skip
    return max(found, key=lambda one: one.bus_gb_s, default=None)
