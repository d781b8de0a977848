"""Memory on a node of one's choice."""

from __future__ import annotations

import mmap
import re
from pathlib import Path

import pytest

from kernels import numa
from kernels.numa import node_of_pci, preferring


def policies() -> dict[str, int]:
    """How many mappings of this process are under each policy."""
    found: dict[str, int] = {}
    try:
        text = Path("/proc/self/numa_maps").read_text(encoding="ascii")
    except OSError:
        pytest.skip("this kernel has no /proc/self/numa_maps")
    for line in text.splitlines():
        policy = re.sub(r"=.*", "", line.split()[1])
        found[policy] = found.get(policy, 0) + 1
    return found


def test_the_policy_holds_inside_and_not_after() -> None:
    policies()
    with preferring(0):
        assert "prefer:0" in " ".join(policies()), "memory that has no policy of its own shows the thread's"
        with mmap.mmap(-1, 1 << 20) as pages:
            pages[:4096] = b"x" * 4096
    assert "prefer:0" not in policies()


def test_nothing_changes_where_there_is_no_choice() -> None:
    before = set(policies())
    with preferring(None):
        assert set(policies()) == before


def test_a_refusal_is_said_once_and_done_without(caplog: pytest.LogCaptureFixture) -> None:
    numa._warn.cache_clear()
    for _ in range(2):
        with preferring(1023):  # there is no such node
            pass
    assert caplog.text.count("NUMA") == 1


@pytest.mark.parametrize(
    ("nodes", "text", "expected"),
    [(2, "1\n", 1), (2, "0\n", 0), (2, "-1\n", None), (1, "0\n", None), (2, "x", None), (2, None, None)],
)
def test_a_device_names_its_node(tmp_path: Path, nodes: int, text: str | None, expected: int | None) -> None:
    for number in range(nodes):
        (tmp_path / "nodes" / f"node{number}").mkdir(parents=True)
    (tmp_path / "nodes" / "possible").touch()
    device = tmp_path / "pci" / "0000:3b:00.0"
    device.mkdir(parents=True)
    if text is not None:
        (device / "numa_node").write_text(text)
    assert node_of_pci("0000:3B:00.0", tmp_path / "pci", tmp_path / "nodes") == expected
    assert node_of_pci("0000:3B:00.0", tmp_path / "none", tmp_path / "nowhere") is None
