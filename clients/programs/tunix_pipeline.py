"""Tunix: a Parquet file of questions, with the template of its recipes."""

import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as typed_arrow
import pyarrow.parquet as typed_parquet
from tunix.examples.data import math_dataset

from clients._digest import report

arrow: Any = typed_arrow
parquet: Any = typed_parquet

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "questions.parquet")
        questions = [f"How much is {number} plus {number}?" for number in range(20_000)]
        answers = [f"#### {2 * number}" for number in range(20_000)]
        table = arrow.table({"question": questions, "answer": answers})
        parquet.write_table(table, path, row_group_size=1000)
        dataset = math_dataset.create_dataset("local", path, apply_chat_template_to_dataset=True)
        report(dataset.batch(16), **{"google-tunix": version("google-tunix")})
