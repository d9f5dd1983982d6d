"""Tables of what was told beside what was true: of the checks' own tables, and of logs."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from measured.table import Table, figure, read_markdown, read_tsv, signed, span


def _checked(folder: Path) -> list[dict[str, str]]:
    """Return the rows of truth_check.md; the last two columns, which it leaves unnamed, are `verdict` and `note`."""
    table = read_markdown(folder / "truth_check.md")
    names = (*table.header[:6], "verdict", "note")
    return [dict(zip(names, row, strict=False)) for row in table.rows]


def truth_claims(folder: Path) -> Table:
    """A row a claim: how often it is right."""
    by_claim: dict[str, list[dict[str, str]]] = {}
    for row in _checked(folder):
        if row.get("verdict"):
            by_claim.setdefault(row["what"], []).append(row)
    rows = [
        (claim, str(sum(row["verdict"] == "right" for row in all_of)), str(len(all_of)),
         span(ratios, 3) if (ratios := [float(row["ratio"]) for row in all_of if row["ratio"]]) else "")
        for claim, all_of in by_claim.items()
    ]  # fmt: skip
    right, of = (sum(int(row[place]) for row in rows) for place in (1, 2))
    return Table(("claim", "right", "of", "found ÷ true"), [*rows, ("all", str(right), str(of), "")])


def truth_growth(folder: Path) -> Table:
    """What was injected, what the undisturbed ranks' step grew by, and the account of it."""
    rows = []
    checked = _checked(folder)
    # an earlier check held the growth against the injection: what it found is the growth
    true = "true ms" if "true ms" in checked[0] else "found ms"
    for case in ("device_delay", "slow_compute", "slow_data", "two_late"):
        of_case = [row for row in checked if row["case"] == case]
        if not of_case:
            continue
        injected = next(float(row[1]) for row in
                        ((row["what"], row.get("true ms") or row.get("injected ms") or "") for row in of_case)
                        if row[0] == "the verdict's own figure")  # fmt: skip
        grew = {row["rank"]: row for row in of_case if row["what"] == "the step's growth"}
        accounts = {row["rank"]: float(row["found ms"]) for row in of_case
                    if row["what"] == "the same + transfer laid bare"}  # fmt: skip
        raw = [float(row["found ms"]) / injected for row in of_case if row["what"] == "raw wait, for comparison"]
        own = re.search(r"compute ([+-][\d.]+), wait [+-][\d.]+, idle ([+-][\d.]+)", next(iter(grew.values()))["note"])
        assert own is not None, case
        steps = {rank: float(row[true]) for rank, row in grew.items()}
        rows.append((case, figure(injected, 3), span(list(steps.values()), 3), span(list(accounts.values()), 3),
                     span([accounts[rank] / steps[rank] for rank in steps], 3), signed(float(own[1]), 2),
                     signed(float(own[2]), 2), span(raw, 1)))  # fmt: skip
    header = ("case", "injected ms", "step grew ms", "account ms", "account ÷ growth",
              "disturbed rank's other compute ms", "its idle ms", "raw wait ÷ injected")  # fmt: skip
    return Table(header, rows)


def parallel_truth(folder: Path) -> Table:
    """A row a case of parallel_truth_check.md: the bubble, the slow stage, the first finding."""
    shown = ("the schedule's own bubble", "what is no work", "… which is the schedule's own", "the slow stage",
             "imbalance", "the first finding, with what it costs")  # fmt: skip
    header = ("case", "right", "schedule's own bubble", "no work: true", "no work: told", "schedule's part of it: told",
              "slow stage", "imbalance told", "first finding: true", "first finding: told")  # fmt: skip
    cases: dict[str, dict[str, tuple[str, str]]] = {}
    right: dict[str, list[bool]] = {}
    for case, claim, true, found, verdict in read_markdown(folder / "parallel_truth_check.md").rows:
        right.setdefault(case, []).append(verdict.strip() == "right")
        cases.setdefault(case, {})[claim] = (true, found.split(" (")[0])
    rows = []
    for case, claims in cases.items():
        bubble, work, own, stage, imbalance, finding = (claims.get(claim, ("", "")) for claim in shown)
        rows.append((case, f"{sum(right[case])} of {len(right[case])}", bubble[1], *work, own[1],
                     stage[1].replace("None", "none"), imbalance[1], *finding))  # fmt: skip
    good = [one for verdicts in right.values() for one in verdicts]
    return Table(header, [*rows, ("all", f"{sum(good)} of {len(good)}", *[""] * 8)])


def faults(folder: Path) -> Table:
    """A row a fault: how soon the job ended, and what it said."""
    text = (folder / "faults.log").read_text(encoding="utf-8")
    found = re.findall(
        r"^(ok|FAIL) +(.+?): ended after ([\d.]+) s with exit code (\d+), (\d+) rows kept.*\n +scalescope: (.*)",
        text,
        re.MULTILINE,
    )
    header = ("fault", "ended after s", "exit code", "rows kept", "as promised", "says")
    return Table(header, [(fault, after, code, kept, "yes" if verdict == "ok" else "no", says)
                          for verdict, fault, after, code, kept, says in found])  # fmt: skip


_COMPARED = re.compile(r"A/B (\S+) (\S+): (\S+) \((\S+) to (\S+)\) ms, true (\S+); first (.*)")
_TWICE = re.compile(r"A/A (\S+) (\S+), (\d) a side: (\d+) of (\d+) called different, a part in (\d+); intervals ± (.*)")


def compared(folder: Path) -> Table:
    """Jobs that differ in what is known: what `compare` says of them, of compare_known.txt."""
    header = ("on", "job", "known difference", "truth ms", "found ms", "95% interval", "first part beyond noise")
    rows = []
    for on, (job, difference, told, low, high, true, first) in _lines(folder, _COMPARED):
        rows.append((on, job, difference, true, told, f"{low} to {high}", first))
    return Table(header, rows)


def compared_alike(folder: Path) -> Table:
    """The same job twice: whether it was called different, of compare_known.txt."""
    header = ("on", "job", "windows", "a side", "called different", "a part alone", "intervals, half")
    rows = []
    for on, (job, windows, side, called, of, parts, half) in _lines(folder, _TWICE):
        rows.append((on, job, windows, side, f"{called} of {of}", parts, half))
    return Table(header, rows)


def _lines(folder: Path, pattern: re.Pattern[str]) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield on which machine, and what the pattern finds, of each line of compare_known.txt that has it."""
    on = ""
    for line in (folder / "compare_known.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            on = line.removeprefix("# ")
        elif found := pattern.match(line.replace("-", "−")):
            yield on, found.groups()


def hta_time(folder: Path) -> Table:
    """Both readers of one trace, of read_by.tsv, and how many times as much the other takes."""
    table = read_tsv(folder / "read_by.tsv")
    ours, theirs = table.rows
    ratios = (figure(float(one) / float(other), 0) for one, other in zip(theirs[1:], ours[1:], strict=True))
    return Table(table.header, [*table.rows, ("ratio", *ratios)])
