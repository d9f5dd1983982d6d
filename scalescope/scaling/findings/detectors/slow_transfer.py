"""Data that move slower than they do alone in the sweep, or, without one, far slower than the links allow."""

import statistics
from collections.abc import Iterator

from scalescope.hardware.link_ceiling import link_ceiling_gb_s
from scalescope.scaling.finding.figures import BUS
from scalescope.scaling.finding.finding import EvidenceRow, Remedy
from scalescope.scaling.findings.candidate import Candidate, Scene
from scalescope.scaling.replay.change import Change

#: Of what it reaches alone, a collective beside compute still reaches more than this.
_OF_ALONE = 0.6
#: Of the links' ceiling, libraries reach this with large messages, and less than the other figure only where held back.
_REACHED, _HELD_BACK = 0.6, 0.2
#: Smaller messages fill no link.
_LARGE_BYTES = 16 << 20


def slow_transfer(scene: Scene) -> Iterator[Candidate]:
    """Yield a candidate where large collectives are much slower than they could be: links that are as fast as that."""
    if scene.may_wait_unseen:
        return  # faster links do not shorten the wait for a rank whose trace is not there
    for bus, share, times in (_against_the_sweep(scene), _against_the_links(scene)):
        if times > 1:
            yield Candidate(
                code="slow_transfer",
                change=Change(link=times),
                evidence=(EvidenceRow(kind="figure", name=BUS, value=bus, share=share),),
                remedy=Remedy(cure="look_at_links"),
            )
            return


def _against_the_sweep(scene: Scene) -> tuple[float, float, float]:
    """Return the bus bandwidth in training, its share of what it could be, and how many times as fast that is."""
    known = [
        row.efficiency for row in scene.analysis.in_situ if row.efficiency is not None and row.bytes >= _LARGE_BYTES
    ]
    bus = _bus(scene)
    share = statistics.median(known) if known else 1.0
    return (bus, share, 1 / share) if known and bus and 0 < share < _OF_ALONE else (bus, share, 1.0)


def _against_the_links(scene: Scene) -> tuple[float, float, float]:
    bus = _bus(scene)
    limit = link_ceiling_gb_s(scene.peak, scene.analysis.world_size) if scene.peak is not None else None
    if limit is None or not bus or scene.analysis.in_situ:
        return bus, 1.0, 1.0
    ceiling, _ = limit
    share = bus / (_REACHED * ceiling)
    return (bus, share, 1 / share) if bus < _HELD_BACK * ceiling else (bus, share, 1.0)


def _bus(scene: Scene) -> float:
    known = [one.bus_gb_s for one in scene.analysis.collectives if one.bus_gb_s and (one.bytes or 0) >= _LARGE_BYTES]
    return statistics.median(known) if known else 0.0
