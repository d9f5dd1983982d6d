"""A scorecard shown: each figure with its limit, the best published and its verdict; and claims by themselves."""

from collections.abc import Callable, Sequence
from pathlib import Path

from scalescope.hardware.claims.catalog import Catalog, own_catalog, read_claims
from scalescope.hardware.claims.claim import Claim, ClaimSource, ClaimVerdict, JudgedClaim
from scalescope.hardware.claims.quantities import QUANTITIES, shown
from scalescope.hardware.claims.verdicts import judge
from scalescope.hardware.peaks import find_peak
from scalescope.records.errors import UserError
from scalescope.records.folder import RunFolder
from scalescope.records.frozen import read_frozen
from scalescope.records.scorecard.row import ScorecardRow
from scalescope.report.drawing.numbers import percent
from scalescope.report.drawing.panel import Panel
from scalescope.report.drawing.tables import Cell, Column, Table

VERDICTS: dict[ClaimVerdict, str] = {
    "impossible": "impossible", "implausible": "implausible", "plausible": "plausible", "far_below": "far below",
    "self_contradictory": "self-contradictory", "not_comparable": "not comparable",
}  # fmt: skip
_HERE = "here"
_NO_LIMIT = "no data sheet of this device is on record, or it says nothing of it"
_NO_BEST = "nothing is published of it"


def scorecard_sentence(rows: Sequence[ScorecardRow], catalog: Catalog) -> str:
    """Return what a machine reaches, figure by figure with its share of the limit, and how many figures there are."""
    measured = [row for row in rows if row.status == "measured"]
    names = sorted({row.device for row in measured if row.device is not None})
    known = all(find_peak(name) is not None for name in names)
    sheet = "" if known else " No data sheet of it is on record, so that few figures have a limit."
    judged = judged_rows(measured, catalog)
    reached = [_reached(*best, what) for what, chosen in _TOLD if (best := _best(judged, chosen)) is not None]
    told = f"{'; '.join(reached)}. " if reached else ""
    return f"{', '.join(names) or 'This machine'}: {told}{_counted(rows)}{sheet}"


def _counted(rows: Sequence[ScorecardRow]) -> str:
    return f"{sum(row.status == 'measured' for row in rows)} of {len(rows)} figures measured."


def _best(
    judged: Sequence[tuple[ScorecardRow, JudgedClaim | None]], chosen: Callable[[ScorecardRow], bool]
) -> tuple[ScorecardRow, JudgedClaim | None] | None:
    fitting = [(row, one) for row, one in judged if row.value is not None and chosen(row)]
    return max(fitting, key=lambda pair: pair[0].value or 0.0, default=None)


def _reached(row: ScorecardRow, judged: JudgedClaim | None, what: str) -> str:
    share = _share(judged, "limit")
    of_limit = f" ({percent(share, 0)} of its limit)" if share is not None else ""
    told = what.format(devices=row.conditions.devices, model=row.conditions.model)
    return f"{told} {shown(row.value or 0.0)} {row.unit}{of_limit}"


#: What a machine's first sentence tells, where it was measured: the best of these rows.
_TOLD: tuple[tuple[str, Callable[[ScorecardRow], bool]], ...] = (
    ("bf16 products", lambda row: row.quantity == "matmul" and row.conditions.precision == "bf16"
     and not row.conditions.held),
    ("held", lambda row: row.quantity == "matmul" and row.conditions.precision == "bf16" and row.conditions.held),
    ("memory", lambda row: row.quantity == "memory_bandwidth"),
    ("all-reduce on {devices} devices", lambda row: row.quantity == "all_reduce_busbw"),
    ("{model}", lambda row: row.quantity == "training_samples"),
    ("{model}", lambda row: row.quantity == "training_tokens"),
)  # fmt: skip


def judged_rows(rows: Sequence[ScorecardRow], catalog: Catalog) -> list[tuple[ScorecardRow, JudgedClaim | None]]:
    """Return each row with its verdict; None of a row without a figure, and of what is no quantity of ours."""
    known = Catalog({**catalog.sources, _HERE: ClaimSource("measured here", "measured")}, catalog.claims)
    return [(row, _judged(row, known)) for row in rows]


def judged_claims(catalog: Catalog, devices: Sequence[str] = ()) -> list[JudgedClaim]:
    """Return the claims of devices with one of these parts in their names, each with its verdict; of none: all."""
    parts = [part.lower() for part in devices]
    return [
        judge(claim, catalog)
        for claim in catalog.claims.values()
        if not parts or any(part in (claim.device or "").lower() for part in parts)
    ]


def catalog_of(folder: RunFolder) -> Catalog:
    """Return our claims, with those of its user's that a scorecard was measured beside, where they are still there."""
    try:
        path = read_frozen(folder.config).get("claims")
        return read_claims(Path(path), own_catalog()) if isinstance(path, str) else own_catalog()
    except UserError:
        return own_catalog()


def scorecard_panels(rows: Sequence[ScorecardRow], catalog: Catalog, devices: Sequence[str] = ()) -> list[Panel]:
    """Return the measured figures as a panel, and one of what is claimed of the same quantities; none without rows."""
    if not rows:
        return []
    judged = judged_rows(rows, catalog)
    panels = [Panel("scorecard", "This machine", _counted(rows), scorecard_table(judged))]
    quantities = {row.quantity for row in rows} | {
        QUANTITIES[q].held_as for row in rows if (q := row.quantity) in QUANTITIES
    }
    beside = [one for one in judged_claims(catalog, devices) if one.quantity in quantities]
    return [*panels, claims_panel(beside)] if beside else panels


def claims_panel(judged: Sequence[JudgedClaim]) -> Panel:
    """Return what is claimed and published, with verdicts; data sheets are the limits themselves, and not repeated."""
    told = [one for one in judged if one.source_kind != "data_sheet"]
    counts = {
        verdict: sum(one.verdict == verdict and one.source_kind == "claim" for one in told) for verdict in VERDICTS
    }
    said = ", ".join(f"{count} {VERDICTS[verdict]}" for verdict, count in counts.items() if count)
    claims = sum(one.source_kind == "claim" for one in told)
    sentence = (
        f"{claims} claim{'s' * (claims != 1)}{f': {said}' if said else ''}; {len(told) - claims} published figures."
    )
    return Panel("claims", "What others say, and what it is worth", sentence, claims_table(told))


def scorecard_table(judged: Sequence[tuple[ScorecardRow, JudgedClaim | None]]) -> Table:
    """Return one row a figure: its interval, its share of the limit and of the best published, its verdict."""
    columns = [
        Column("row", "row"), Column("what", "what"), Column("value", "value"), Column("low", "from"),
        Column("high", "to"), Column("unit", "unit"), Column("of_limit", "of the limit", "%", 1, 100),
        Column("of_best", "of the best published", "%", 1, 100), Column("verdict", "verdict"),
        Column("power_w", "power", "W", 0), Column("sm_clock_mhz", "clock", "MHz", 0), Column("why", "arithmetic"),
        Column("superbench", "SuperBench's"),
    ]  # fmt: skip
    rows: list[list[Cell]] = [
        [row.row, row.what, _rounded(row.value), _rounded(row.low), _rounded(row.high), row.unit, _share(one, "limit"),
         _share(one, "best"), VERDICTS[one.verdict] if one is not None and one.verdict is not None else None,
         row.power_w, row.sm_clock_mhz, _why(row, one), row.superbench]
        for row, one in judged
    ]  # fmt: skip
    reasons = {"of_limit": _NO_LIMIT, "of_best": _NO_BEST, "verdict": "there is nothing to hold it against"}
    return Table(columns, rows, reasons)


def claims_table(judged: Sequence[JudgedClaim]) -> Table:
    """Return one row a claim, those that are no measurement first."""
    columns = [
        Column("id", "id"), Column("device", "device"), Column("quantity", "quantity"), Column("value", "value"),
        Column("unit", "unit"), Column("verdict", "verdict"), Column("arithmetic", "arithmetic"),
        Column("source", "source"), Column("link", "link"),
    ]  # fmt: skip
    ordered = sorted(judged, key=lambda one: one.source_kind != "claim")
    rows: list[list[Cell]] = [
        [one.id, one.device, one.quantity, _span(one), one.unit,
         VERDICTS[one.verdict] if one.verdict is not None else None, one.arithmetic, one.source, one.link]
        for one in ordered
    ]  # fmt: skip
    reasons = {"device": "of no device alone", "link": "its address is not on record"}
    return Table(columns, rows, reasons)


def _judged(row: ScorecardRow, catalog: Catalog) -> JudgedClaim | None:
    if row.value is None or row.quantity not in QUANTITIES or not row.value > 0:
        return None
    return judge(Claim(row.row, _HERE, row.quantity, row.value, row.device, conditions=row.conditions), catalog)


def _share(one: JudgedClaim | None, of: str) -> float | None:
    """Return a figure's share of its limit or of the best published, read as they are."""
    against = getattr(one, of, None)
    if one is None or against is None:
        return None
    claim = Claim(one.id, _HERE, one.quantity, one.value, one.device, one.up_to, one.conditions)
    value: float = QUANTITIES[one.quantity].reading(claim).value / against
    return value


def _why(row: ScorecardRow, one: JudgedClaim | None) -> str:
    if one is None:
        return row.reason or ""
    return one.arithmetic if one.verdict is not None else ""


def _span(one: JudgedClaim) -> str:
    return shown(one.value) if one.up_to is None else f"{shown(one.value)} to {shown(one.up_to)}"


def _rounded(value: float | None) -> Cell:
    """Return a figure with four digits: one column holds GB/s beside millions of tokens."""
    if value is None:
        return None
    return round(value) if abs(value) >= 1000 else float(f"{value:.4g}")
