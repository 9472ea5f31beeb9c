"""Make the published tables and charts from stored results.

    python -m benchmarks --rounds 3 --json benchmarks/results/mnist.json --only mnist_in_order ...
    python -m benchmarks.publish

Reads every file in `benchmarks/results/`, and writes `docs/benchmarks_results.md`, the table in the
README and the charts in `docs/_static/`: those of the README, and one of each row. A row that is in
several files is taken from the newest one, and so are the gains of `benchmarks.predicted_gains`.
"""

import json
import re
import sys
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from benchmarks._judge import fastest, judge
from benchmarks._model import Contender, Role, Row
from benchmarks._report import (
    cells,
    conclusions,
    markdown_table,
    ratio,
    verdict_line,
    with_unit,
)
from benchmarks._runner import Result
from benchmarks.rows import ROWS

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
CHART_ROWS = {
    "mnist_in_order": "MNIST, Python source",
    "dataset_shuffled": "300k integers, shuffled",
    "packing_first_fit": "Packing documents",
    "large_batches": "38 MB batches, 2 workers",
    "jpeg": "JPEG, 2 workers",
}
"""The rows of the chart in the README, with short names. Losses belong there, too."""

TABLE_ROWS = {
    "mnist_in_order": "MNIST, per-record Python source, in order",
    "mnist_shuffled": "the same, shuffled",
    "dataset_shuffled": "300k integers shuffled, +1 in Python (`MapDataset`)",
    "packing_first_fit": "first-fit packing, documents",
    "large_batches": "batches of 38 MB, 2 workers",
    "first_batch": "the first batch, 2 workers (less is better)",
    "jpeg": "JPEG: decode (tf.data: in C++), crop, flip, 2 workers",
}
"""The rows of the table in the README, as it names them."""

FAMILIES = ("Grain", "PyTorch", "tf.data", "HF", "gristmill")
TABLE_BEGIN, TABLE_END = "<!-- made by benchmarks.publish -->\n", "<!-- end -->"


@dataclass(frozen=True, kw_only=True)
class Theme:
    """The colours of a chart."""

    name: str
    text: str
    muted: str
    bars: dict[str, str]


THEMES = (
    Theme(
        name="light",
        text="#1f2328",
        muted="#59636e",
        bars={
            "Grain": "#9aa4af", "PyTorch": "#c49a8a", "tf.data": "#b7a6cc", "HF": "#c9bb7f",
            "gristmill": "#1a7f64",
        },
    ),
    Theme(
        name="dark",
        text="#e6edf3",
        muted="#9198a1",
        bars={
            "Grain": "#6b7683", "PyTorch": "#97705f", "tf.data": "#85759a", "HF": "#958a52",
            "gristmill": "#3fbf98",
        },
    ),
)  # fmt: skip


def read_results(folder: Path) -> tuple[dict[str, list[Result]], dict[str, dict[str, Any]]]:
    """Return the results of each row, and the run that each is from."""
    rows: dict[str, list[Result]] = {}
    runs: dict[str, dict[str, Any]] = {}
    for document in read_documents(folder):
        for name, row in document["rows"].items():
            if name in ROWS:
                rows[name] = [_as_result(result) for result in row["results"]]
                runs[name] = {key: document[key] for key in ("machine", "rounds", "versions")}
    return {name: rows[name] for name in ROWS if name in rows}, runs


def read_documents(folder: Path) -> list[dict[str, Any]]:
    """Return the stored results of all runs, the oldest first."""
    documents = [json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.json")]
    return sorted(documents, key=lambda document: document["machine"]["date"])


def gains_section(documents: list[dict[str, Any]]) -> list[str]:
    """Return the lines about predicted gains, from the newest run that has some."""
    found = [document for document in documents if "gains" in document]
    if not found:
        return []
    gains = found[-1]["gains"]
    missed = [gain["name"] for gain in gains if gain["verdict"] != "met"]
    body = [
        [
            gain["name"],
            gain["kind"],
            gain["action"],
            f"{gain['predicted']:.2f}x",
            f"{gain['measured']:.2f}x",
            gain["verdict"],
        ]
        for gain in gains
    ]
    return [
        "",
        "## Predicted gains",
        "",
        "What `explain()` predicts for planted bottlenecks, and what its advice brings. The "
        "bottleneck must be named, and the gain be within 25%.",
        "",
        markdown_table(["case", "bottleneck", "change", "predicted", "measured", "bound"], body),
        "",
        f"- {len(gains) - len(missed)} of {len(gains)} met; NOT MET: {', '.join(missed) or 0}.",
        "",
        about_run(found[-1], f"{found[-1]['seconds']:g} s for each setting"),
    ]


def about_run(run: dict[str, Any], length: str) -> str:
    """Return the line about when and where a run was measured, and with which packages."""
    machine = run["machine"]
    packages = ", ".join(f"{key} {value}" for key, value in sorted(run["versions"].items()))
    return (
        f"{machine['date']}; {length}; load at "
        f"the start {machine['load_at_start']:.1f}; {machine['cpus']} CPUs "
        f"({machine['processor']}), {machine['memory_gb']} GB, {machine['platform']}, Python "
        f"{machine['python']}; commit {machine['commit']}; {packages}"
    )


def _as_result(stored: dict[str, Any]) -> Result:
    contender = {**stored["contender"], "role": Role(stored["contender"]["role"])}
    return Result(**{**stored, "contender": Contender(**contender)})


def figures_of_families(name: str, results: list[Result]) -> dict[str, float]:
    """Return the figure of the fastest form of each loader.

    Rows whose contenders are not compared have none.
    """
    score = ROWS[name].score
    best: dict[str, float] = {}
    if score is None:
        return best
    for result in results:
        if result.usable and result.contender.role in (Role.OURS, Role.PEER):
            figure = result.median(score.metric)
            family = result.contender.family
            best[family] = max(best.get(family, figure), figure, key=score.speed)
    return best


def best_of_families(name: str, results: list[Result]) -> dict[str, float]:
    """Return how fast the fastest form of each loader is, relative to gristmill."""
    score, best = ROWS[name].score, figures_of_families(name, results)
    if score is None or "gristmill" not in best:
        return {}
    ours = score.speed(best["gristmill"])
    return {family: score.speed(figure) / ours for family, figure in best.items()}


def readme_table(rows: dict[str, list[Result]]) -> str:
    """Return the table of the README, with the fastest figure of each row in bold."""
    lines = [
        f"| records per second, 2 cores | {' | '.join(FAMILIES)} |",
        f"|---|{'---|' * len(FAMILIES)}",
    ]
    for name, label in TABLE_ROWS.items():
        score, best = ROWS[name].score, figures_of_families(name, rows.get(name, []))
        if score is None or not best:
            continue
        fastest_one = max(best.values(), key=score.speed)
        shown = [
            f"**{with_unit(best[family], score)}**"
            if best.get(family) == fastest_one
            else with_unit(best[family], score)
            if family in best
            else "-"
            for family in FAMILIES
        ]
        lines.append(f"| {label} | {' | '.join(shown)} |")
    return "\n".join(lines) + "\n"


def with_table(readme: str, table: str) -> str:
    """Return the README with another table."""
    before, _, rest = readme.partition(TABLE_BEGIN)
    _, end, after = rest.partition(TABLE_END)
    if not end:
        raise ValueError(f"README.md must contain {TABLE_BEGIN!r} and {TABLE_END!r}.")
    return f"{before}{TABLE_BEGIN}{table}{TABLE_END}{after}"


def draw(charts: dict[str, dict[str, float]], theme: Theme, *, has_caption: bool = True) -> str:
    """Return an SVG with a group of bars for each row, relative to gristmill.

    Args:
        charts: The speed of each loader relative to gristmill, by the label of a row.
        theme: The colours.
        has_caption: Whether a line below explains the numbers.
    """
    left, width, bar, gap = 250 if has_caption else 90, 380, 16, 22
    most = max(value for chart in charts.values() for value in chart.values())
    y, parts = 14, list[str]()
    for name, chart in charts.items():
        families = [*(family for family in chart if family != "gristmill"), "gristmill"]
        middle = y + bar * len(families) / 2 + 4
        parts.append(
            f'<text x="{left - 72}" y="{middle}" text-anchor="end" fill="{theme.text}">'
            f"{escape(name)}</text>"
        )
        for family in families:
            share = chart[family]
            length = max(1.5, width * share / most)
            weight = ' font-weight="600"' if family == "gristmill" else ""
            color = theme.text if weight else theme.muted
            label = "1" if family == "gristmill" else f"{share:.2g}"
            parts += [
                f'<text x="{left - 8}" y="{y + 12}" text-anchor="end" font-size="11" '
                f'fill="{color}"{weight}>{family}</text>',
                f'<rect x="{left}" y="{y + 2}" width="{length:.1f}" height="{bar - 4}" rx="2" '
                f'fill="{theme.bars.get(family, theme.muted)}"/>',
                f'<text x="{left + length + 6:.1f}" y="{y + 12}" font-size="11" '
                f'fill="{color}"{weight}>{label}</text>',
            ]
            y += bar
        y += gap
    caption = (
        "Records per second, relative to gristmill: the fastest documented form of each loader"
    )
    if has_caption:
        parts.append(f'<text x="14" y="{y}" font-size="11" fill="{theme.muted}">{caption}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="720" height="{y + 12}" '
        f'viewBox="0 0 720 {y + 12}" font-family="system-ui, sans-serif" font-size="13" '
        f'role="img"><title>{caption}</title>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def with_code(text: str) -> str:
    """Return text in which the names of special methods are code: Markdown makes them bold.

    >>> with_code("PyTorch, __getitems__")
    'PyTorch, `__getitems__`'
    """
    return re.sub(r"(__\w+__)", r"`\1`", text)


def summary(row: Row, results: list[Result]) -> str:
    """Return the line of a row in the table of all rows."""
    score = row.score
    ours = fastest(results, score, role=Role.OURS)
    peer = fastest(results, score, role=Role.PEER)
    line = [f"[{row.title}](#{row.name})"]
    if score and ours:
        line += [
            with_unit(ours.median(score.metric), score),
            with_code(peer.contender.name) if peer else "",
            with_unit(peer.median(score.metric), score) if peer else "",
            ratio(ours, peer, score) if peer else "",
        ]
    else:
        line += ["", "", "", ""]
    verdicts = [verdict for verdict in judge(row, results) if verdict.met is not None]
    met = sum(bool(verdict.met) for verdict in verdicts)
    line.append(f"{met} of {len(verdicts)}" if verdicts else "")
    return f"| {' | '.join(line)} |"


def not_met(row: Row, results: list[Result]) -> list[str]:
    """Return a line for each target of a row that was missed."""
    return [
        f"- `{row.name}`: {verdict_line(verdict)}"
        for verdict in judge(row, results)
        if verdict.met is False
    ]


def page(
    rows: dict[str, list[Result]],
    runs: dict[str, dict[str, Any]],
    documents: list[dict[str, Any]],
) -> str:
    """Return the page with a summary and all tables, each with its date, machine and versions."""
    missed = [line for name, results in rows.items() for line in not_met(ROWS[name], results)]
    lines = [
        "# Results of the benchmarks",
        "",
        "Made by `python -m benchmarks.publish` from the files in `benchmarks/results/`.",
        "Compare figures of one row only: rows may be from different runs.",
        "[How it is measured](benchmarks.md).",
        "",
        "| work | gristmill | fastest peer | peer | ratio | targets met |",
        "|---|---|---|---|---|---|",
        *(summary(ROWS[name], results) for name, results in rows.items()),
        "",
        "## Targets that are not met",
        "",
        *(missed or ["None."]),
    ]
    for name, results in rows.items():
        row, run = ROWS[name], runs[name]
        chart = (
            [f"![Relative to gristmill: {row.title}](_static/benchmarks/{name}.svg)", ""]
            if len(best_of_families(name, results)) > 1
            else []
        )
        lines += [
            "",
            f"## `{name}`",
            "",
            f"{row.title}.",
            "",
            *chart,
            markdown_table(*cells(row, results)),
            "",
            *(f"- {with_code(line)}" for line in conclusions(row, results)),
            "",
            about_run(run, f"{run['rounds']} round{'s' if run['rounds'] > 1 else ''}"),
        ]
    return "\n".join([*lines, *gains_section(documents)]) + "\n"


def main() -> int:
    """Write the page, the table and the charts; return 1 if there are no results."""
    rows, runs = read_results(RESULTS)
    if not rows:
        sys.stderr.write(f"There are no results in {RESULTS}.\n")
        return 1
    (ROOT / "docs" / "benchmarks_results.md").write_text(
        page(rows, runs, read_documents(RESULTS)), encoding="utf-8"
    )
    readme = ROOT / "README.md"
    readme.write_text(
        with_table(readme.read_text(encoding="utf-8"), readme_table(rows)), encoding="utf-8"
    )
    charts = {
        label: chart
        for name, label in CHART_ROWS.items()
        if name in rows and (chart := best_of_families(name, rows[name]))
    }
    static = ROOT / "docs" / "_static"
    for theme in THEMES:
        path = static / f"throughput-{theme.name}.svg"
        path.write_text(draw(charts, theme), encoding="utf-8")
    (static / "benchmarks").mkdir(exist_ok=True)
    for name, results in rows.items():
        chart = best_of_families(name, results)
        if len(chart) > 1:
            path = static / "benchmarks" / f"{name}.svg"
            path.write_text(draw({"": chart}, THEMES[0], has_caption=False), encoding="utf-8")
    sys.stdout.write(f"Wrote {len(rows)} tables and their charts to docs/.\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
