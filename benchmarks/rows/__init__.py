"""The rows of the table, in its order."""

from benchmarks._model import Row
from benchmarks.rows import billion, integers, mnist

ROWS: dict[str, Row] = {
    row.name: row
    for row in (mnist.IN_ORDER, mnist.SHUFFLED, mnist.COLUMNS, integers.ROW, billion.ROW)
}
