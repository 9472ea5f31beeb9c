"""Create the tables: one for each row in the terminal, and a summary in Markdown."""

from collections.abc import Iterable

from benchmarks._judge import Verdict, fastest, judge, speed
from benchmarks._model import RECORDS_PER_S, Role, Row, Score
from benchmarks._runner import Result

FAMILIES = ("Grain", "PyTorch", "tf.data", "HF", "SPDL", "limit", "gristmill")
INSTALL = "pip install -e .[bench]"


def short(number: float) -> str:
    """Return a number with three significant digits, and k or M."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{unit}" if number < 1000 * size else f"{number:.3g}"
    return f"{number:.3g}"


def ratio(result: Result, other: Result | None, score: Score) -> str:
    """Return how many times as fast as the other contender one is."""
    if other is None or not result.usable:
        return "-"
    return times(speed(result, score) / speed(other, score))


def with_unit(figure: float, score: Score) -> str:
    """Return a figure with its unit, unless that is records per second."""
    return short(figure) if score == RECORDS_PER_S else f"{short(figure)} {score.unit}"


def times(factor: float) -> str:
    """Return a factor. Small ones are not rounded to zero."""
    return f"{factor:.2f}x" if factor >= 0.1 else f"{factor:.1g}x"


def spread(result: Result, metric: str) -> str:
    """Return half the range of the rounds, as a percentage of their median."""
    low, high = result.spread(metric)
    return f"{50 * (high - low) / result.median(metric):.0f}%" if len(result.rounds) > 1 else "-"


def remark(result: Result) -> str:
    """Return what a reader must know about this figure."""
    if result.missing:
        return "not installed"
    if result.error:
        return "FAILED, see below"
    notes: list[str] = []
    if not result.complete:
        notes.append(f"time limit: {result.records:,} records")
    if result.contender.role in (Role.INFO, Role.TUNED):
        notes.append({Role.INFO: "information", Role.TUNED: "hand-tuned"}[result.contender.role])
    return "; ".join(notes)


def cells(row: Row, results: list[Result]) -> tuple[list[str], list[list[str]]]:
    """Return the headings and lines of the table of a row."""
    score = row.score
    headings = ["contender", "how", *row.metrics.values()]
    headings += ["+-", "vs peer", "vs limit", "note"] if score else ["note"]
    peer = fastest(results, score, role=Role.PEER)
    limit = fastest(results, score, role=Role.LIMIT)
    lines: list[list[str]] = []
    for result in results:
        line = [result.contender.family, result.contender.how]
        line += [short(result.median(name)) if result.usable else "-" for name in row.metrics]
        if score:
            line.append(spread(result, score.metric) if result.usable else "-")
            line += [ratio(result, peer, score), ratio(result, limit, score)]
        lines.append([*line, remark(result)])
    return headings, lines


def verdict_line(verdict: Verdict) -> str:
    """Return a sentence about a target."""
    if verdict.met is None or verdict.reached is None:
        return f"Target {verdict.wording}: open, a figure is missing."
    reached = times(verdict.reached) if verdict.target.of else plain(verdict.reached)
    against = f" ({verdict.against})" if verdict.against else ""
    return f"Target {verdict.wording}{against}: {reached}, {'met' if verdict.met else 'NOT MET'}."


def plain(figure: float) -> str:
    """Return a figure that is not shortened. Large ones have no decimals."""
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.3g}"


def conclusions(row: Row, results: list[Result]) -> list[str]:
    """Return the conclusions from the figures, including unfavourable ones."""
    lines = [row.note] if row.note else []
    lines += [verdict_line(verdict) for verdict in judge(row, results)]
    if row.score is not None:
        lines += comparisons(row.score, results)
    prints = {
        result.contender.role: result.fingerprint
        for result in results
        if result.usable and result.fingerprint is not None
    }
    if Role.OURS in prints and Role.PEER in prints:
        same = prints[Role.OURS] == prints[Role.PEER]
        lines.append(f"gristmill and Grain yield {'the same' if same else 'DIFFERENT'} records.")
    return lines


def comparisons(score: Score, results: list[Result]) -> list[str]:
    """Return comparisons with hand-tuned peers, and with contenders that are faster."""
    ours = fastest(results, score, role=Role.OURS)
    if ours is None:
        return []
    lines: list[str] = []
    tuned = fastest(results, score, role=Role.TUNED)
    if tuned is not None:
        factor = times(speed(ours, score) / speed(tuned, score))
        lines.append(f"Compared with the hand-tuned {tuned.contender.name}: {factor}.")
    for result in results:
        other = result.usable and result.contender.family not in ("gristmill", "limit")
        if other and speed(result, score) > speed(ours, score):
            factor = speed(result, score) / speed(ours, score)
            lines.append(f"{result.contender.name} is {factor:.2f}x as fast as gristmill.")
    return lines


def failures(results: Iterable[Result]) -> list[str]:
    """Return the complete errors, each once."""
    names: dict[str, list[str]] = {}
    for result in results:
        if result.error:
            names.setdefault(result.error, []).append(result.contender.name)
    return [f"Failed: {'; '.join(failed)}\n{error}" for error, failed in names.items()]


def missing(results: Iterable[Result]) -> str:
    """Return how to install the missing packages."""
    names = sorted({result.missing for result in results if result.missing})
    return f"Not installed: {', '.join(names)}. Run: {INSTALL}" if names else ""


def markdown(rows: list[Row], results: dict[str, list[Result]]) -> str:
    """Return a summary with the fastest variant of each family, followed by the details."""
    sections: list[str] = []
    scored = [row for row in rows if row.score]
    if scored:
        present = {contender.family for row in scored for contender in row.contenders}
        families = [family for family in FAMILIES if family in present]
        headings = [RECORDS_PER_S.unit, *families, "target", "reached"]
        body = [summary_line(row, results[row.name], families) for row in scored]
        sections.append(markdown_table(headings, body))
    for row in rows:
        headings, lines = cells(row, results[row.name])
        sections.append(f"**`{row.name}`**: {row.title}\n\n{markdown_table(headings, lines)}")
        sections.append("\n".join(f"- {line}" for line in conclusions(row, results[row.name])))
    return "\n\n".join(section for section in sections if section)


def summary_line(row: Row, results: list[Result], families: list[str]) -> list[str]:
    """Return a row as one line, with the fastest variant of each family."""
    score = row.score or RECORDS_PER_S
    line = [row.title]
    for family in families:
        role = {"limit": Role.LIMIT, "gristmill": Role.OURS}.get(family, Role.PEER)
        best = fastest(results, score, role=role, family=family)
        family_results = [result for result in results if result.contender.family == family]
        absent = bool(family_results) and all(result.missing for result in family_results)
        missing_cell = "not installed" if absent else "-"
        line.append(missing_cell if best is None else with_unit(best.median(score.metric), score))
    verdicts = judge(row, results)
    line.append(" and ".join(verdict.wording for verdict in verdicts))
    line.append("; ".join(reached_cell(verdict, score) for verdict in verdicts))
    return line


def reached_cell(verdict: Verdict, score: Score) -> str:
    """Return the figure that was reached, and whether it meets the target."""
    if verdict.reached is None:
        return "open"
    whole = with_unit(verdict.reached, score)
    reached = times(verdict.reached) if verdict.target.of else whole
    return f"{reached} ({'met' if verdict.met else 'not met'})"


def markdown_table(headings: list[str], lines: list[list[str]]) -> str:
    """Return a Markdown table."""
    rows = [headings, ["---"] * len(headings), *lines]
    text = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    return text.replace("__", "\\_\\_")  # the name of a method, not bold type
