"""The command that measures a series again in more windows, to be pasted into a shell."""

import re
import shlex

from scalescope.scaling.study_answer import StudyAnalysis

#: What a shell takes as it stands: a list in brackets matches no file here, and is what the docs write.
_PLAIN = re.compile(r"[\w@%+=:,./\[\]-]+")


def command_again(study: StudyAnalysis, series: str) -> str:
    """Return the command; "" where the study does not keep what it consists of."""
    again = next((one for one in study.again if one.series == series), None)
    if again is None:
        return ""
    words = [word if _PLAIN.fullmatch(word) else shlex.quote(word) for word in again.overrides]
    return " ".join(["scalescope study", *words])
