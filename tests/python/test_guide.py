"""The examples of docs/guides/python.md run. Blocks of other products and of GPUs are marked "py" there and are left out."""

import re

import pytest
from conftest import SOURCE

PAGE = (SOURCE / "docs" / "guides" / "python.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)
EXPECTED = {0: "created the heaven and the earth", 1: "(3, 64)"}


@pytest.mark.parametrize("index", range(len(BLOCKS)))
def test_example(index, tmp_path, monkeypatch, capsys):
    for folder in ("configs", "tests"):
        (tmp_path / folder).symlink_to(SOURCE / folder)
    monkeypatch.chdir(tmp_path)
    exec(compile(BLOCKS[index], f"example {index}", "exec"), {"__name__": "__main__"})
    assert EXPECTED.get(index, "") in capsys.readouterr().out


def test_there_are_examples():
    assert len(BLOCKS) >= 8
