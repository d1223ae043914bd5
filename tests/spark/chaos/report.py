"""The table of a run."""

from collections.abc import Sequence

from tests.spark.chaos.stream import Outcome

_ROW = "{:>4}  {:<12}  {:<5}  {:<15}  {:<17}  {:<10}  {:>8}  {:>7}  {:>4}  {:>7}  {:>5}"

HEAD = _ROW.format(
    *("kill", "way", "from", "target", "point", "cores/par."),
    *("restarts", "rows", "lost", "doubled", "s"),
)


def line(number: int, outcome: Outcome) -> str:
    """One kill."""
    found = outcome.finding
    row = _ROW.format(
        *(number, outcome.way, outcome.source),
        *(outcome.fault.target, outcome.fault.point, outcome.parallelism),
        *(outcome.restarts, found.rows, found.lost, found.doubled),
        f"{outcome.seconds:.1f}",
    )
    foreign = f"{found.foreign} rows that no batch holds" if found.foreign else ""
    return "  ".join(filter(None, (row, foreign, outcome.note)))


def summary(outcomes: Sequence[Outcome], seconds: float) -> str:
    """All kills together."""
    restarts = sum(outcome.restarts for outcome in outcomes)
    # Findings are those of a stream so far: the last one of each counts.
    last = {(each.way, each.source): each.finding for each in outcomes}.values()
    rows, lost, doubled, foreign = (
        sum(getattr(finding, name) for finding in last)
        for name in ("rows", "lost", "doubled", "foreign")
    )
    stuck = sum(bool(outcome.note) for outcome in outcomes)
    text = (
        f"{len(outcomes)} kills, {restarts} restarts, {rows} rows:"
        f" {lost} lost, {doubled} doubled, in {seconds:.0f} s"
    )
    extra = f"; {foreign} rows that no batch holds" if foreign else ""
    return text + extra + (f"; {stuck} kills that were not survived" if stuck else "")
