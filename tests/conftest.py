"""What holds for every test: skips by what the machine can do, and nothing left behind.

- ``gpu``: skipped without a CUDA device, counted and named at the end. With ``PINHOLE_REQUIRE_GPU=1`` such a skip, for
  whatever reason, is a failure: a run on a GPU machine proves that no GPU test was skipped.
- ``program(name)``: skipped by name where the system program is absent.
- ``leaks_allowed(reason)``: the leak check, which every other test passes through, is left out.
"""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Generator, Iterator

import hypothesis
import pytest

from kernels.device import cuda_absence
from tests.leaks import no_leaks
from tests.programs import find_program

# How long an example takes says nothing on a machine that others use too. (Where CI is set, Hypothesis takes the same
# examples in each run; that is left as it is.)
hypothesis.settings.register_profile(
    "pinhole", hypothesis.settings(), deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("pinhole")


@functools.cache
def gpu_absence() -> str | None:
    """Why there is no GPU to test on, or None; asked once."""
    return cuda_absence()


def gpu_required() -> bool:
    return os.environ.get("PINHOLE_REQUIRE_GPU", "") not in ("", "0")


class SkipSummary:
    """Counts and names, at the end, the tests that this machine could not run; also where workers ran them (xdist)."""

    def __init__(self) -> None:
        self.sections: dict[tuple[str, str], list[str]] = {}  # what kind of tests, why → their names

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.skipped or not isinstance(report.longrepr, tuple):
            return
        reason = str(report.longrepr[2]).removeprefix("Skipped: ")
        if "program" in report.keywords and reason.startswith("the program "):
            self.sections.setdefault(("tests skipped", reason), []).append(report.nodeid)
        elif "gpu" in report.keywords:
            self.sections.setdefault(("GPU tests skipped", reason), []).append(report.nodeid)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for (kind, reason), nodes in sorted(self.sections.items()):
            terminalreporter.section(f"{kind}: {len(nodes)} ({reason})")
            for line in folded(nodes):
                terminalreporter.line(line)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(SkipSummary())


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("program"):
        for name in marker.args:
            if find_program(name) is None:
                pytest.skip(f"the program {name} is not installed")
    if item.get_closest_marker("gpu") is not None and (reason := gpu_absence()) is not None:
        pytest.skip(reason)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    skipped = report.skipped and not hasattr(report, "wasxfail")
    if skipped and gpu_required() and item.get_closest_marker("gpu") is not None:
        report.outcome = "failed"
        report.longrepr = f"PINHOLE_REQUIRE_GPU is set and this GPU test was skipped: {report.longrepr}"
    return report


def folded(nodes: list[str]) -> list[str]:
    """Test names, one line for each function, with how many of its cases there are."""
    counts = Counter(node.partition("[")[0] for node in nodes)
    return [f"{name} ({count} cases)" if count > 1 else name for name, count in counts.items()]


@pytest.fixture(scope="session", autouse=True)
def cuda() -> None:
    """The CUDA context, where there is a GPU, and what the driver keeps open for it, before leaks are counted: any test
    may be the first that makes one, be it by a compile."""
    if cuda_absence() is not None:
        return
    from cupy.cuda import Event, Stream, nvrtc, runtime

    runtime.setDevice(0)
    stream = Stream(non_blocking=True)
    done = Event(block=True)
    done.record(stream)
    done.synchronize()
    program = nvrtc.createProgram("", "nothing", [], [])
    nvrtc.compileProgram(program, ())
    nvrtc.destroyProgram(program)


@pytest.fixture(autouse=True)
def _nothing_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test, its own fixtures included, leaves no thread and no descriptor behind."""
    if request.node.get_closest_marker("leaks_allowed") is not None:
        yield
        return
    with no_leaks():
        yield


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note each failure at once: a run that is cut off has no summary (``tests/gpu/run.sh``).

    Not named PINHOLE_…: programs under test refuse settings that they do not know. Workers leave it to the main one.
    """
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ and (noted := os.environ.get("NOTE_FAILURES_IN")):
        with open(noted, "a", encoding="utf-8") as file:
            file.write(f"{report.nodeid} ({report.when})\n")
