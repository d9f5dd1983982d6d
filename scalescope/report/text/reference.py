"""What is to be known of a run's reference, beside how much longer a step is, in sentences."""

from scalescope.report.drawing.numbers import capitalized, rank_names
from scalescope.report.text.late.places import changed_places
from scalescope.report.text.samples import as_they_are
from scalescope.scaling.answer import RunAnalysis


def reference_sentences(run: RunAnalysis) -> list[str]:
    """Return of which ranks a reference is, how its user called the job, which ranks changed places, and how it shares
    samples out.
    """
    loss = run.lost[0]
    told = [_of_ranks(run)] if loss.reference_lacks else []
    if loss.other_names is not None:
        from scalescope.scaling.compare.alike.same_work import named_otherwise  # only a comparison takes it

        told.append(f"{capitalized(named_otherwise(loss.other_names))}.")
    if loss.places is not None:
        told.append(f"{changed_places(loss.places)}.")
    if loss.samples is not None:
        told.append(f"{capitalized(as_they_are(loss.samples))}.")
    return told


def _of_ranks(run: RunAnalysis) -> str:
    """Return that a reference holds some ranks' traces alone, and what that leaves untold."""
    loss, compared = run.lost[0], [one.rank for one in run.lost]
    lacks = rank_names(loss.reference_lacks)
    return (
        f"{loss.reference} has no trace of {lacks}, of {run.world_size} ranks: who waits for whom is not known there, "
        f"so waits cannot be compared, and the parts of a step only on {rank_names(compared)}."
    )
