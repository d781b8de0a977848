from __future__ import annotations

import threading
import weakref

import numpy as np
import psutil
import pytest

from kernels import memory
from kernels.errors import MemoryClosedError, OutOfMemoryError
from kernels.memory import Ledger, PageMemory, available_host_bytes

MIB = 1 << 20


def test_memory_is_page_aligned_zeroed_and_of_the_size_asked() -> None:
    ledger = Ledger()
    with PageMemory(12345, ledger) as owner:
        assert owner.nbytes == 12345
        assert owner.array.shape == (12345,)
        assert owner.array.dtype == np.uint8
        assert owner.array.flags.writeable
        assert owner.array.ctypes.data % 4096 == 0
        assert owner.dev_ptr is None
        assert not owner.array.any()


def test_the_ledger_counts_what_is_held_by_kind() -> None:
    ledger = Ledger()
    first, second = PageMemory(1000, ledger), PageMemory(24, ledger)
    assert ledger.held("host") == 1024
    assert ledger.held("pinned") == ledger.held("device") == 0
    first.close()
    assert ledger.held("host") == 24
    second.close()
    assert ledger.held("host") == 0


def test_closing_is_idempotent_from_any_thread() -> None:
    ledger = Ledger()
    owner = PageMemory(4096, ledger)
    gate = threading.Barrier(8)

    def close() -> None:
        gate.wait()
        for _ in range(3):
            owner.close()

    threads = [threading.Thread(target=close) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ledger.held("host") == 0


def test_use_after_close_raises() -> None:
    owner = PageMemory(64, Ledger())
    owner.close()
    with pytest.raises(MemoryClosedError, match="PageMemory of 64 bytes was used after close"):
        _ = owner.array


def test_an_owner_that_is_forgotten_warns_and_gives_its_memory_back() -> None:
    ledger = Ledger()
    owners = [PageMemory(4096, ledger)]
    gone = weakref.ref(owners[0])
    with pytest.warns(ResourceWarning, match="unclosed PageMemory of 4096 bytes"):
        owners.clear()
    assert gone() is None
    assert ledger.held("host") == 0


def test_b42_closed_memory_goes_back_to_the_system_at_once() -> None:
    process, ledger = psutil.Process(), Ledger()

    def use() -> None:
        with PageMemory(32 * MIB, ledger) as owner:
            owner.array[:] = 1

    use()
    before = process.memory_info().rss
    for _ in range(50):
        use()
    assert process.memory_info().rss - before < 32 * MIB


def test_a_view_that_outlives_its_owner_stays_readable() -> None:
    """Closing under a view is a caller's fault; it must not become a fault of the whole process."""
    owner = PageMemory(8192, Ledger())
    view = owner.array[4096:]
    view[:] = 7
    owner.close()
    assert (view == 7).all()


@pytest.mark.parametrize("nbytes", [1 << 50, 1 << 62, 1 << 64], ids=["1 PiB", "4 EiB", "16 EiB"])
def test_out_of_memory_says_what_was_asked_what_is_free_and_what_to_lower(nbytes: int) -> None:
    ledger = Ledger()
    with pytest.raises(OutOfMemoryError) as caught:
        PageMemory(nbytes, ledger)
    assert caught.value.asked_bytes == nbytes
    assert (caught.value.free_bytes or 0) > 0
    message = str(caught.value)
    assert message.startswith(f"host memory: {nbytes / 1e6:.1f} MB were asked for and ")
    assert "lower the picture size or the ring" in message
    assert ledger.held("host") == 0


def test_a_system_that_does_not_tell_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_host_bytes", lambda: None)
    with pytest.raises(OutOfMemoryError, match="an unknown amount is free"):
        PageMemory(1 << 62, Ledger())


def test_the_free_memory_is_the_systems_own_figure() -> None:
    ours = available_host_bytes()
    assert ours is not None
    assert ours == pytest.approx(psutil.virtual_memory().available, rel=0.2)


def test_memory_of_a_lost_context_leaves_the_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = pytest.importorskip("cupy").cuda.runtime

    class LostError(Exception):
        status = 700

    def release(pointer: int) -> None:
        raise LostError

    monkeypatch.setattr(runtime, "CUDARuntimeError", LostError)
    memory._free(release, 1)
    LostError.status = 1
    with pytest.raises(LostError):
        memory._free(release, 1)


def test_a_release_that_fails_still_leaves_the_ledger() -> None:
    class Stubborn(memory._Owner):
        def _release(self) -> None:
            raise OSError("no")

    ledger = Ledger()
    owner = Stubborn(10, ledger)
    with pytest.raises(OSError, match="no"):
        owner.close()
    assert ledger.held("host") == 0
    owner.close()
