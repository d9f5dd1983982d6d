"""What is told of a run, while it is put together."""

from collections.abc import Callable
from dataclasses import dataclass

from scalescope.report.sentences import Level


@dataclass
class Told:
    """What is told of a run, but for its name and the notes; each further thing that is known of it changes this."""

    level: Level
    headline: str
    explained: list[str]
    advice: str = ""
    has_lead: bool = False  # what the findings leave unexplained comes first
    begins_on: int | None = None  # see Verdict
    is_beside: bool = False  # see Verdict
    first: Callable[[str], str] | None = None  # the headline by findings, with a sentence of the first one alone in it
    besides: str = ""  # what stands in the headline behind what findings say
