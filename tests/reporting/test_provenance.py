"""What a result says of how it was made."""

import sys

import pytest

from prism.reporting import provenance


def test_the_command_is_quoted_and_is_not_that_of_the_process(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "argv", ["pytest", "--secret"])
    assert provenance.command() == "called from Python"
    with provenance.called_as(["occlusion", "my model.safetensors", "--data", "it's"]):
        assert provenance.command() == "prism occlusion 'my model.safetensors' --data 'it'\"'\"'s'"
    assert provenance.command() == "called from Python"


def test_the_build_is_named():
    assert provenance.build().startswith("prism")
