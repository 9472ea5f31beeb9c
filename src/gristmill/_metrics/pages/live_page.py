"""The page of `gristmill top --web`: reports of the loaders of a process, always up to date."""

from collections.abc import Sequence

from gristmill._metrics.pages.html_table import escape
from gristmill._metrics.pages.page import page_html
from gristmill._metrics.pages.report import Report

_SCRIPT = """
const main = document.querySelector("main"), note = document.getElementById("note");
async function update() {
  try {
    const state = await (await fetch("state", {cache: "no-store"})).json();
    if (state.html) main.innerHTML = state.html;
    note.textContent = state.note || "Updated at " + new Date().toLocaleTimeString() + ".";
  } catch (error) {
    note.textContent = "`gristmill top --web` has ended.";
  }
}
update();
setInterval(update, INTERVAL_MS);
"""


def live_page(pid: int, *, interval_s: float) -> str:
    """Return the page, which asks its server for the present state again and again."""
    script = _SCRIPT.replace("INTERVAL_MS", str(round(1000 * interval_s)))
    body = (
        f'<p class="soft">Process {pid}. <span id="note">Waiting for the first answer.</span></p>'
        "<main></main>"
    )
    return page_html(f"gristmill top {pid}", body, script=script)


def state_html(reports: Sequence[Report]) -> str:
    """Return what the page shows at one moment. Strings of the process are escaped."""
    if not reports:
        return f"<p>{escape('The process iterates over nothing at the moment.')}</p>"
    return "<hr>".join([report.body_html() for report in reports])
