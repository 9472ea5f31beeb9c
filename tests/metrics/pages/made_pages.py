"""Pages to test: of a real run, and of strings that a hostile file could contain."""

import time
from pathlib import Path

import gristmill as gm
from gristmill._metrics.explanation import explain_stats
from gristmill._metrics.pages.report import Report
from gristmill._metrics.stats import RecentSkip, Stats, StepStats

HOSTILE = '"><script>document.title="taken"</script>\x1b[2J'


def slow(number: int) -> int:
    time.sleep(0.004)
    return number


def page_of_a_run(folder: Path) -> str:
    """Run a loader long enough for its charts, and return its report."""
    loader = gm.load(
        range(160),
        num_epochs=1,
        batch_size=4,
        transformations=[slow],
        read_options=gm.ReadOptions(num_threads=0),
    )
    list(loader)
    loader.report(folder / "report.html")
    return (folder / "report.html").read_text(encoding="utf-8")


def hostile_report() -> Report:
    """Return a report in which every string is hostile."""
    stats = Stats(
        num_elements=4,
        elapsed_s=2.0,
        waited_s=2.0,
        busy_s=2.0,
        steps=(StepStats(name=HOSTILE, elapsed_s=2.0, cpu_s=2.0),),
        worker_start=HOSTILE,
        num_skipped=1,
        recent_skips=(RecentSkip(HOSTILE, HOSTILE, 1, 2),),
    )
    return Report(
        title=HOSTILE,
        explanation=explain_stats(stats),
        settings={HOSTILE: HOSTILE},
    )
