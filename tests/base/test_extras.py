import sys
import tomllib
from pathlib import Path

import pytest

from gristmill._base.extras import load_extra
from gristmill.errors import MissingExtraError

ROOT = Path(__file__).parents[2]


def test_a_missing_package_names_the_extra():
    with pytest.raises(MissingExtraError) as caught:
        load_extra("no_such_package.part", extra="tables", wanted_by="Reading tables")

    assert str(caught.value) == (
        "Reading tables needs the package 'no_such_package.part'. Install it with "
        '`pip install "gristmill[tables]"`.'
    )
    assert caught.value.name == "no_such_package.part"


def test_a_missing_dependency_of_an_installed_package_keeps_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "half_installed.py").write_text("import no_such_dependency")
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(ModuleNotFoundError, match="no_such_dependency") as caught:
        load_extra("half_installed", extra="tables", wanted_by="Reading tables")

    assert not isinstance(caught.value, MissingExtraError)


def test_a_package_whose_name_starts_alike_is_another_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "tables_fast.py").write_text("import tables")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "tables", None)

    with pytest.raises(ModuleNotFoundError) as caught:
        load_extra("tables_fast", extra="tables", wanted_by="Reading tables")

    assert not isinstance(caught.value, MissingExtraError)


def test_an_extra_may_be_written_with_an_underscore():
    # pip before 23.3 does not normalize the names of extras, and installs nothing for another one.
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    for name in extras:
        assert extras[name] == extras[name.replace("-", "_")] == extras[name.replace("_", "-")]
