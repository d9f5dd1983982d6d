"""The table of faults in docs/reliability.md, and the tests that it names."""

from tests.faults import FAULTS, PAGE, page_with_table


def test_the_page_shows_what_the_tests_assert() -> None:
    page = PAGE.read_text()
    assert page == page_with_table(page), "python tests/faults.py writes it anew"
    assert len(FAULTS) >= 40
    for fault in FAULTS.values():
        file, _, name = fault.proven_by.partition("::")
        assert f"def {name}(" in (PAGE.parent.parent / file).read_text(), fault.proven_by
