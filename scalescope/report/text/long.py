"""Sentences that would be too long to be read at once, as two."""

from scalescope.report.drawing.numbers import capitalized

#: A sentence of more words is said as two.
MOST_WORDS = 35


def with_cause(told: str, why: str) -> str:
    """Return what is told and why, after a colon, or in a sentence of its own; without a full stop."""
    return _in_one_or_two(told, f": {why}", why)


def one_or_two(told: str, why: str) -> list[str]:
    """Return the same as one sentence, or as two that stand by themselves."""
    return [f"{told}: {why}"] if _is_one(f"{told}: {why}", why) else [told, capitalized(why)]


def and_then(told: str, then: str, between: str = "") -> str:
    """Return a sentence and what belongs to it, after a semicolon, or in a sentence of its own: behind what stands
    `between`, which is said of the first one alone.
    """
    if between:
        return f"{told} {between} {capitalized(then)}."
    told = told.removesuffix(".")
    return f"{_in_one_or_two(told, f'; {then}', then)}."


def _in_one_or_two(told: str, more: str, apart: str) -> str:
    one = f"{told}{more}"
    return one if _is_one(one, apart) else f"{told}. {capitalized(apart)}"


def _is_one(one: str, apart: str) -> bool:
    begins_with = apart.split(" ", 1)[0].replace("'", "")  # a kernel's name is no word to begin with
    return len(one.rpartition(". ")[2].split()) <= MOST_WORDS or not begins_with.isalnum()
