"""The last line of a test run says how many tests were skipped and why; --no-skips makes that a failure."""

from collections import Counter
from collections.abc import Generator
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-skips", action="store_true", help="fail if any test is skipped")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, Any, Any]:
    done = yield  # first pytest's own summary, so that ours is the last line
    reporter: Any = session.config.pluginmanager.get_plugin("terminalreporter")  # a worker has none
    if reporter and not session.config.option.collectonly:
        skipped = [report.longrepr[2].removeprefix("Skipped: ") for report in reporter.stats.get("skipped", [])]
        reasons = "; ".join(f"{reason} ({count})" for reason, count in Counter(skipped).items())
        reporter.write_line(f"{len(skipped)} tests were skipped{f': {reasons}' if reasons else ''}")
        if skipped and session.config.option.no_skips and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
    return done
