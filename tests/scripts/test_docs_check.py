"""ci/docs: each kind of stale prose is found, at its line, and sound prose is not."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CONFIGURATION = "# Configuration\n\n`--threads`\n"


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "ci").mkdir()
    (tmp_path / "docs").mkdir()
    shutil.copy(ROOT / "ci" / "docs", tmp_path / "ci")
    (tmp_path / "docs" / "configuration.md").write_text(CONFIGURATION)
    (tmp_path / "README.md").write_text(
        "# A server\n\n## The first `heading`, and more\n\n## Twice\n\n## Twice\n\n"
        "[configuration](docs/configuration.md#configuration) [up](#the-first-heading-and-more) [two](#twice-1)\n"
        "[away](https://example.org/nowhere) `docs/configuration.md` `docs/*.md` `[not](a-link)`\n\n"
        "```sh\nci/docs\n[not](a-link)\n```\n"
    )
    (tmp_path / "m0serve").write_text(f"#!/bin/sh\nprintf '{CONFIGURATION}'\n")
    (tmp_path / "m0serve").chmod(0o755)
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    return tmp_path


def check(tree):
    return subprocess.run(
        [sys.executable, tree / "ci" / "docs"],
        env=os.environ | {"M0SERVE": str(tree / "m0serve")},
        capture_output=True,
        text=True,
    )


def test_sound_prose_passes(tree):
    result = check(tree)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.endswith(" 0 problems\n")


@pytest.mark.parametrize(
    "line, complaint",
    [
        ("[gone](gone.md)", "the link gone.md leads nowhere"),
        ("[gone](configuration.md#gone)", "no such heading"),
        ("[out](../../elsewhere.md)", "leads out of the tree"),
        ("[gone]: gone.md", "the link gone.md leads nowhere"),
        ("run `scripts/gone now`", "scripts/gone is not in the tree"),
        ("```sh\nci/gone\n```", "ci/gone is not in the tree"),
        ("see /ro" + "ot/notes", "a path of one machine"),
        ("see https://py" + "pi.org/project/x", "the host of a package registry"),
    ],
)
def test_stale_prose_is_found(tree, line, complaint):
    (tree / "docs" / "more.md").write_text(f"# More\n\n{line}\n")
    result = check(tree)
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1, result.stderr
    place = "4" if line.startswith("```") else "3"
    assert result.stderr.startswith(f"docs/more.md:{place}: ") and complaint in result.stderr


def test_foreign_words_are_found_in_code_too(tree):
    (tree / "ci" / "fetch").write_text("curl https://de" + "b.debian.org/x\n")
    assert "ci/fetch:1: " in check(tree).stderr


def test_a_stale_configuration_is_found(tree):
    (tree / "docs" / "configuration.md").write_text(CONFIGURATION + "\n`--gone`\n")
    assert "docs/configuration.md:1: stale" in check(tree).stderr


def test_ignored_files_are_not_looked_at(tree):
    (tree / ".gitignore").write_text("/scratch\n")
    (tree / "scratch").write_text("/ro" + "ot/notes\n")
    assert check(tree).returncode == 0
