from __future__ import annotations

import sys
import threading
import time

import numpy as np
import pytest

from kernels import device as device_module
from kernels.chain import Chain, parse_chain
from kernels.device import (
    CudaDevice,
    Device,
    DoneNow,
    Executor,
    HostDevice,
    NullDevice,
    cuda_absence,
    failure,
    open_device,
)
from kernels.errors import DeviceFailedError, DeviceUnavailableError, InputError, OutOfMemoryError
from kernels.formats import GRAY8
from kernels.image import ImageSpec, ImageView
from kernels.plan import make_plan

REASON = "no CUDA driver or device: none here"


@pytest.fixture
def without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_module, "cuda_absence", lambda index=0: REASON)


def gray_view(value: int = 0) -> ImageView:
    spec = ImageSpec.make(GRAY8, 8, 4)
    return ImageView(spec, np.full(spec.nbytes, value, np.uint8))


def gray_executor(device: Device) -> Executor:
    return device.make_executor(make_plan(Chain(), gray_view().spec))


@pytest.mark.usefixtures("without_gpu")
def test_b74_zero_copy_asked_for_without_a_gpu_is_refused_with_the_reason() -> None:
    with pytest.raises(DeviceUnavailableError, match=f"zero_copy was asked for: {REASON}; use --memory host"):
        open_device("zero_copy")


@pytest.mark.usefixtures("without_gpu")
def test_b74_by_default_host_is_used_without_a_gpu_and_says_why() -> None:
    device, why = open_device(None)
    assert isinstance(device, HostDevice)
    assert why == f"host, as there is no usable GPU: {REASON}"
    assert device.describe() == {"backend": "opencv", "memory": "host", "name": device.name}
    assert device.name.startswith("OpenCV on ")


def test_b74_the_reason_is_the_real_one_on_this_machine() -> None:
    """Whatever this machine has, what was chosen and what is said agree."""
    device, why = open_device(None)
    reason = cuda_absence()
    try:
        assert device.describe()["backend"] == ("cuda" if reason is None else "opencv")
        assert why.startswith("zero_copy" if reason is None else "host")
        assert reason is None or reason in why
    finally:
        device.close()


def test_without_a_driver_nobody_is_told_to_install_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)  # importing it fails
    monkeypatch.setitem(sys.modules, "cupy.cuda", None)
    monkeypatch.setattr(device_module, "_has_driver", lambda: False)
    assert cuda_absence() == "there is no NVIDIA driver (libcuda.so.1)"
    monkeypatch.setattr(device_module, "_has_driver", lambda: True)
    assert "install the extra" in str(cuda_absence())


@pytest.mark.usefixtures("without_gpu")
def test_b74_a_cuda_device_is_never_made_without_a_gpu() -> None:
    with pytest.raises(DeviceUnavailableError, match=REASON):
        CudaDevice()


def test_host_asked_for_is_host_whatever_there_is() -> None:
    device, why = open_device("host")
    assert isinstance(device, HostDevice)
    assert why == "host was asked for"


@pytest.mark.parametrize("name", ["gpu", "", "ZERO_COPY", "auto "])
def test_an_unknown_memory_strategy_names_the_field_and_what_is_allowed(name: str) -> None:
    with pytest.raises(InputError, match="memory: ") as caught:
        open_device(name)
    assert caught.value.field == "memory"
    assert set(device_module.MEMORY_STRATEGIES) <= set(caught.value.allowed.split(", "))


@pytest.mark.parametrize(("code", "sticky"), [(2, False), (700, True), (716, True), (719, True), (98, False)])
def test_a_cuda_code_says_whether_the_context_is_lost(code: int, sticky: bool) -> None:
    error = failure("cuLaunchKernel", code, "cudaErrorSomething: some text")
    assert (error.call, error.code, error.name, error.sticky) == ("cuLaunchKernel", code, "cudaErrorSomething", sticky)
    assert ("restart" in str(error)) is sticky


def test_what_is_done_at_once_never_waits() -> None:
    completion = DoneNow()
    completion.wait()
    assert completion.done()
    assert completion.gpu_ns() is None


@pytest.mark.parametrize("device", [HostDevice(), NullDevice()], ids=lambda d: d.backend)
def test_slots_are_counted_and_given_back(device: Device) -> None:
    memory = device.allocate_slot(4096)
    assert device.ledger.held("host") == 4096
    assert memory.dev_ptr is None
    memory.close()
    assert device.ledger.held("host") == 0
    device.check()
    device.activate()
    device.close()


def test_the_host_executor_closes_twice_and_leaves_nothing() -> None:
    device = HostDevice()
    executor = gray_executor(device)
    executor.close()
    executor.close()
    assert device.ledger.held("host") == 0


def test_the_null_device_leaves_the_result_as_it_was() -> None:
    device = NullDevice()
    source, result = gray_view(1), gray_view(2)
    executor = gray_executor(device)
    completion = executor.submit(source, result, ())
    assert completion.done()
    assert (result.buffer == 2).all()
    assert device.submitted == 1
    assert completion.gpu_ns() is None
    executor.close()


def test_the_null_device_is_done_no_sooner_than_its_delay() -> None:
    device = NullDevice(delay_s=0.05)
    begun = time.monotonic()
    completion = gray_executor(device).submit(gray_view(), gray_view(), ())
    early = completion.done()
    assert not early or time.monotonic() - begun >= 0.05
    completion.wait()
    assert completion.done()
    assert time.monotonic() - begun >= 0.05


def test_the_null_device_calls_on_done_once_with_both_pictures() -> None:
    device = NullDevice()
    called: list[tuple[ImageView, ImageView]] = []
    device.on_done = lambda source, result: called.append((source, result))
    source, result = gray_view(1), gray_view(2)
    completion = gray_executor(device).submit(source, result, ())
    threads = [threading.Thread(target=completion.wait) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert completion.done()
    assert len(called) == 1
    assert called[0][0] is source
    assert called[0][1] is result


def test_b75_each_failure_of_the_null_device_is_raised_once() -> None:
    device = NullDevice()
    executor = gray_executor(device)
    failed = DeviceFailedError("cuLaunchKernel", 700, "cudaErrorIllegalAddress", True, "restart")
    device.fail_submit = failed
    with pytest.raises(DeviceFailedError) as caught:
        executor.submit(gray_view(), gray_view(), ())
    assert caught.value is failed
    completion = executor.submit(gray_view(), gray_view(), ())
    device.fail_wait = failed
    with pytest.raises(DeviceFailedError):
        completion.wait()
    completion.wait()
    device.fail_allocation = OutOfMemoryError("pinned host memory", 1 << 30, 1 << 20, "lower the ring")
    with pytest.raises(OutOfMemoryError, match=r"1073\.7 MB were asked for and 1\.0 MB is free; lower the ring"):
        device.allocate_slot(1 << 30)
    assert device.ledger.held("host") == 0


def test_an_executor_runs_the_plan_it_was_made_for() -> None:
    plan = make_plan(parse_chain("sobel"), gray_view().spec)
    for device in (HostDevice(), NullDevice()):
        executor = device.make_executor(plan, "spin")
        assert executor.plan is plan
        executor.close()
