"""The process that runs one contender once. The runner starts it."""

import importlib
import importlib.metadata
import json
import os
import sys
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks._model import Settings
from benchmarks.rows import ROWS


def main() -> None:
    """Execute the request on the command line, and write the answer to the file that it names."""
    request = json.loads(sys.argv[1])
    answer_file = Path(request["answer"])
    try:
        answer = run(request)
    except ModuleNotFoundError as error:
        row = ROWS[request["row"]]
        package = row.contenders[request["contender"]].package
        missing = error.name == package  # any other missing module is a failure
        answer = {"missing": package} if missing else {"error": traceback.format_exc()}
    except Exception:
        answer = {"error": traceback.format_exc()}
    answer_file.write_text(json.dumps(answer))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # does not wait for the threads of a loader that was stopped within an epoch


def run(request: dict[str, Any]) -> dict[str, Any]:
    """Import the program of a contender and measure it as its row defines."""
    row = ROWS[request["row"]]
    contender = row.contenders[request["contender"]]
    module_name, function_name = contender.program.split(":")
    module = importlib.import_module(f"benchmarks.contenders.{module_name}")
    settings = Settings(
        data=Path(request["data"]),
        max_seconds=request["max_seconds"],
        verify=request["verify"],
    )
    measurement = row.measure(getattr(module, function_name), contender, settings)
    return {"measurement": asdict(measurement), "version": version(contender.package)}


def version(package: str) -> str:
    """Return the version of the distribution that provides `package`."""
    distributions = importlib.metadata.packages_distributions().get(package)
    return importlib.metadata.version(distributions[0]) if distributions else "from source"


if __name__ == "__main__":
    main()
