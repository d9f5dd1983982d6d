"""Where claims come from: the files of this package, the data sheets of `hardware.peaks`, and a user's own files."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec
import yaml

from scalescope.hardware.claims.claim import Claim, ClaimSource
from scalescope.hardware.claims.quantities import QUANTITIES
from scalescope.hardware.peaks import PEAKS, Peak
from scalescope.records.errors import UserError
from scalescope.records.files import refuse_special
from scalescope.records.frozen import refuse_unfrozen
from scalescope.records.scorecard.row import Conditions

DATA = Path(__file__).resolve().parent / "data"

#: Where the sources of `hardware.peaks` are to be looked up, by the words that they begin with.
_LINKS = {
    "stas00/ml-engineering": "https://github.com/stas00/ml-engineering/tree/master/compute/accelerator",
    "AMD's product page": "https://www.amd.com/en/products/accelerators/instinct.html",
    "AMD-AGI/TraceLens": "https://github.com/AMD-AGI/TraceLens",
}


class _File(msgspec.Struct, forbid_unknown_fields=True):
    sources: dict[str, ClaimSource] = {}
    figures: list[Claim] = []


@dataclass(frozen=True)
class Catalog:
    """Claims by their id, and their sources by theirs."""

    sources: Mapping[str, ClaimSource]
    claims: Mapping[str, Claim]

    def source_of(self, claim: Claim) -> ClaimSource:
        """Return who gives a figure. Raises UserError for nobody: such a figure gets no verdict."""
        if claim.source not in self.sources:
            raise UserError(f"{claim.id}: there is no source {claim.source!r}; list it under `sources`, "
                            "with title, link and kind")  # fmt: skip
        return self.sources[claim.source]

    def with_more(self, sources: Mapping[str, ClaimSource], claims: Sequence[Claim]) -> "Catalog":
        """Return a catalog of these, too. Raises UserError for an id that is there, and for what names nothing."""
        known = {**self.claims}
        for claim in claims:
            if claim.id in known:
                raise UserError(f"{claim.id} is there twice; give each figure an id of its own")
            known[claim.id] = claim
        catalog = Catalog({**self.sources, **sources}, known)
        for claim in claims:
            _check(claim, catalog)
        return catalog


def _check(claim: Claim, catalog: Catalog) -> None:
    catalog.source_of(claim)
    if claim.quantity not in QUANTITIES:
        raise UserError(f"{claim.id}: there is no quantity {claim.quantity!r}; choose one of {', '.join(QUANTITIES)}")
    for field, named in (("beside", claim.beside), ("of", claim.of), ("over", claim.over)):
        if named is not None and named not in catalog.claims:
            raise UserError(f"{claim.id}: `{field}` names {named!r}, which is no figure's id")
    if claim.quantity == "ratio" and (claim.of is None or claim.over is None):
        raise UserError(f"{claim.id} is a ratio: name the two figures that it is of, with `of` and `over`")
    of_group = claim.conditions.bytes is not None and claim.conditions.devices > 1
    if QUANTITIES[claim.quantity].of_collective and not of_group:
        raise UserError(f"{claim.id} is the time of a collective: give its conditions `bytes`, and `devices` of 2 or "
                        "more, for without them there is no bandwidth in it")  # fmt: skip
    if not claim.value > 0 or not math.isfinite(claim.highest) or claim.highest < claim.value:
        raise UserError(f"{claim.id}: its value is {claim.value:g} up to {claim.highest:g}; give a figure above 0, and "
                        "the higher end of a range as up_to")  # fmt: skip


@cache
def own_catalog() -> Catalog:
    """Return the claims that come with this package, and what the data sheets promise."""
    catalog = Catalog({}, {})
    for source_id, source, claims in _of_data_sheets():
        catalog = catalog.with_more({source_id: source}, claims)
    return read_claims(DATA, catalog)


def read_claims(path: Path, onto: Catalog) -> Catalog:
    """Return a catalog with the claims of a YAML file, or of all those of a folder, too.

    Raises UserError for what is no such file, naming it.
    """
    paths = sorted(path.glob("*.yaml")) if path.is_dir() else [path]
    if not paths:
        raise UserError(f"{path} holds no .yaml file; docs/scorecard.md shows how to write one")
    for file in paths:
        try:
            refuse_special(file)
            text = file.read_text(encoding="utf-8")
            refuse_unfrozen(text)
            read = msgspec.convert(yaml.safe_load(text) or {}, _File)
            onto = onto.with_more(read.sources, read.figures)
        except OSError as error:
            raise UserError(f"{file}: {error.strerror}; claims= names a YAML file, or a folder of them") from None
        except (UserError, UnicodeDecodeError, yaml.YAMLError, msgspec.ValidationError, ValueError) as error:
            raise UserError(f"{file}: {' '.join(str(error).split())[:300]}") from error
    return onto


def _of_data_sheets() -> Iterator[tuple[str, ClaimSource, list[Claim]]]:
    """Yield each whole device's promises, and what its vendor has reached itself."""
    for peak in PEAKS:
        if "partitions" in peak.device:
            continue
        slug = peak.device.lower().replace(" ", "_").replace(",", "")
        source = ClaimSource(f"{peak.device}: {peak.source}", "data_sheet", _link(peak.source))
        yield f"sheet_{slug}", source, list(_promises(peak, slug))
        if peak.achievable is not None:
            reached = peak.achievable
            vendor = ClaimSource(reached.source, "measured", _link(reached.source))
            yield f"reached_{slug}", vendor, [
                Claim(f"reached_{slug}_{precision}", f"reached_{slug}", "matmul", value, peak.device,
                      conditions=Conditions(precision=precision))
                for precision in ("bf16", "fp16", "fp8") if (value := reached.tflops(precision)) is not None
            ]  # fmt: skip


def _promises(peak: Peak, slug: str) -> Iterator[Claim]:
    for precision in ("fp32", "tf32", "bf16", "fp16", "fp8"):
        if (tflops := peak.tflops(precision)) is not None:
            yield Claim(f"sheet_{slug}_{precision}", f"sheet_{slug}", "peak", tflops, peak.device,
                        conditions=Conditions(precision=precision))  # fmt: skip
    yield Claim(f"sheet_{slug}_memory", f"sheet_{slug}", "memory_bandwidth", peak.memory_tb_s, peak.device)


def _link(source: str) -> str | None:
    return next((link for begins, link in _LINKS.items() if source.startswith(begins)), None)
