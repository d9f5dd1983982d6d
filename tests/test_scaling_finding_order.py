"""Which of several findings comes first."""

from msgspec.structs import replace

from scalescope.scaling.finding import Finding, Remedy
from scalescope.scaling.finding_order import behind_what_is_sent


def test_what_a_clean_loop_sends_comes_before_less_python_that_may_run_between_its_operators() -> None:
    """*Launching costs at most 3.3 ms: compile the step* was said first of loops in which nothing is wrong."""
    python = Finding(code="host_bound", ms=3.3, low_ms=2.9, high_ms=3.4, fraction=0.046, backed="replay", at_most=True,
                     remedy=Remedy(cure="compile", on_cpu=True))  # fmt: skip
    sent = Finding(code="exposed_transfer", ms=4.6, low_ms=0.0, high_ms=4.6, fraction=0.064, backed="bound",
                   at_most=True, remedy=Remedy(cure="send_less"))  # fmt: skip
    assert [one.code for one in behind_what_is_sent([python, sent], 71.7)] == ["exposed_transfer", "host_bound"]
    for first, second in (
        (python, replace(sent, ms=3.0)),  # less than the hosts
        (replace(python, ms=9.0, low_ms=8.0), replace(sent, ms=12.0)),  # more than any eager step has
        (python, replace(sent, remedy=Remedy(cure="larger_buckets"))),  # a fault of its own has its own place
    ):
        assert behind_what_is_sent([first, second], 71.7) == [first, second]
