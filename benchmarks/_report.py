"""The tables: one for each row in the terminal, one for all of them in Markdown."""

from collections.abc import Iterable

from benchmarks._judge import RATE, Verdict, fastest, judge
from benchmarks._model import Role, Row
from benchmarks._runner import Result

FAMILIES = ("Grain", "PyTorch", "tf.data", "HF", "limit", "gristmill")
INSTALL = "pip install -e .[bench]"


def short(number: float) -> str:
    """Three significant digits, with k or M."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{unit}" if number < 1000 * size else f"{number:.3g}"
    return f"{number:.3g}"


def ratio(result: Result, other: Result | None) -> str:
    """How many times as fast as the other one."""
    if other is None or not result.usable:
        return "-"
    return times(result.median(RATE) / other.median(RATE))


def times(factor: float) -> str:
    """A factor; small ones are not rounded to nothing."""
    return f"{factor:.2f}x" if factor >= 0.1 else f"{factor:.1g}x"


def spread(result: Result, metric: str) -> str:
    """Half the range of the rounds, as a share of their median."""
    low, high = result.spread(metric)
    return f"{50 * (high - low) / result.median(metric):.0f}%" if len(result.rounds) > 1 else "-"


def remark(result: Result) -> str:
    """What a reader must know about this figure."""
    if result.missing:
        return "not installed"
    if result.error:
        return "FAILED, see below"
    notes: list[str] = []
    if not result.complete:
        notes.append(f"first {result.records:,} records")  # cut by the time limit
    if result.contender.role in (Role.INFO, Role.TUNED):
        notes.append({Role.INFO: "information", Role.TUNED: "hand-tuned"}[result.contender.role])
    return "; ".join(notes)


def cells(row: Row, results: list[Result]) -> tuple[list[str], list[list[str]]]:
    """Headings and lines of a row's own table."""
    rated = RATE in row.metrics
    headings = ["contender", "how", *row.metrics.values()]
    headings += ["+-", "vs peer", "vs limit", "note"] if rated else ["note"]
    peer = fastest(results, role=Role.PEER) if rated else None
    limit = fastest(results, role=Role.LIMIT) if rated else None
    lines: list[list[str]] = []
    for result in results:
        line = [result.contender.family, result.contender.how]
        line += [short(result.median(name)) if result.usable else "-" for name in row.metrics]
        if rated:
            line.append(spread(result, RATE) if result.usable else "-")
            line += [ratio(result, peer), ratio(result, limit)]
        lines.append([*line, remark(result)])
    return headings, lines


def verdict_line(verdict: Verdict) -> str:
    """One sentence on one target."""
    if verdict.met is None or verdict.reached is None:
        return f"Target {verdict.target}: open, a figure is missing."
    reached = times(verdict.reached) if verdict.target.of else f"{verdict.reached:,.0f}"
    against = f" ({verdict.against})" if verdict.against else ""
    return f"Target {verdict.target}{against}: {reached}, {'met' if verdict.met else 'NOT MET'}."


def conclusions(row: Row, results: list[Result]) -> list[str]:
    """What the figures say, the unwelcome included."""
    lines = [verdict_line(verdict) for verdict in judge(row, results)]
    tuned = fastest(results, role=Role.TUNED) if RATE in row.metrics else None
    ours = fastest(results, role=Role.OURS) if RATE in row.metrics else None
    if ours is not None and tuned is not None:
        factor = times(ours.median(RATE) / tuned.median(RATE))
        lines.append(f"Against the hand-tuned {tuned.contender.name}: {factor}.")
    if ours is not None:
        for result in results:
            faster = result.usable and result.median(RATE) > ours.median(RATE)
            if faster and result.contender.family not in ("gristmill", "limit"):
                factor = result.median(RATE) / ours.median(RATE)
                lines.append(f"{result.contender.name} is {factor:.2f}x as fast as gristmill.")
    prints = {
        result.contender.role: result.fingerprint
        for result in results
        if result.usable and result.fingerprint is not None
    }
    if Role.OURS in prints and Role.PEER in prints:
        same = prints[Role.OURS] == prints[Role.PEER]
        lines.append(f"gristmill and Grain give {'the same' if same else 'DIFFERENT'} records.")
    return lines


def failures(results: Iterable[Result]) -> list[str]:
    """What went wrong, in full, each error once."""
    names: dict[str, list[str]] = {}
    for result in results:
        if result.error:
            names.setdefault(result.error, []).append(result.contender.name)
    return [f"Failed: {'; '.join(who)}\n{error}" for error, who in names.items()]


def missing(results: Iterable[Result]) -> str:
    """How to get the packages that were not there."""
    names = sorted({result.missing for result in results if result.missing})
    return f"Not installed: {', '.join(names)}. Run: {INSTALL}" if names else ""


def markdown(rows: list[Row], results: dict[str, list[Result]]) -> str:
    """One table as in the README, with the fastest form of each family, and the details below."""
    rated = [row for row in rows if RATE in row.metrics]
    parts: list[str] = []
    if rated:
        headings = ["records/s", *FAMILIES, "target", "reached"]
        body = [summary_line(row, results[row.name]) for row in rated]
        parts.append(markdown_table(headings, body))
    for row in rows:
        headings, lines = cells(row, results[row.name])
        parts.append(f"**`{row.name}`**: {row.title}\n\n{markdown_table(headings, lines)}")
        parts.append("\n".join(f"- {line}" for line in conclusions(row, results[row.name])))
    return "\n\n".join(part for part in parts if part)


def summary_line(row: Row, results: list[Result]) -> list[str]:
    """A row in one line: the fastest form of each family that did the row's work."""
    line = [row.title]
    for family in FAMILIES:
        role = {"limit": Role.LIMIT, "gristmill": Role.OURS}.get(family, Role.PEER)
        best = fastest(results, role=role, family=family)
        family_results = [result for result in results if result.contender.family == family]
        absent = bool(family_results) and all(result.missing for result in family_results)
        missing_cell = "not installed" if absent else "-"
        line.append(missing_cell if best is None else short(best.median(RATE)))
    verdicts = judge(row, results)
    line.append(" and ".join(str(verdict.target) for verdict in verdicts))
    line.append("; ".join(reached_cell(verdict) for verdict in verdicts))
    return line


def reached_cell(verdict: Verdict) -> str:
    """What was reached of one target, and whether that will do."""
    if verdict.reached is None:
        return "open"
    reached = times(verdict.reached) if verdict.target.of else short(verdict.reached)
    return f"{reached} ({'met' if verdict.met else 'not met'})"


def markdown_table(headings: list[str], lines: list[list[str]]) -> str:
    """A plain Markdown table."""
    rows = [headings, ["---"] * len(headings), *lines]
    text = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    return text.replace("__", "\\_\\_")  # a method's name, not bold type
