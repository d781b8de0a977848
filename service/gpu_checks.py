"""What the doctor asks of the GPU, through :mod:`kernels.probe`, and what the answers mean."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as package_version
from pathlib import Path

from kernels import nvjpeg
from kernels.probe import Answer
from kernels.strategies import DeviceTraits, refusals
from service.machine import Check, Status, in_container, size, user_name, who

Ask = Callable[[str], Answer]

MEMORIES = ("device", "mapped", "registered_numpy", "registered_shm", "managed", "chain")
# Whatever Pinhole's own path on a GPU goes through.
NEEDED = frozenset({"mapped", "chain"})
# The device files of NVIDIA's drivers: servers, then boards.
DEVICE_FILES = ("nvidiactl", "nvidia[0-9]*", "nvidia-uvm", "nvhost-ctrl*", "nvhost-gpu", "nvmap", "nvgpu/*/*")


def ask_all(ask: Ask) -> dict[str, Answer]:
    """Every answer by its probe's name. What needs a GPU is asked, all at once, only where there is one."""
    with ThreadPoolExecutor(len(MEMORIES), thread_name_prefix="probe") as pool:
        answers = dict(zip(("gpu", "nvrtc", "host"), pool.map(ask, ("gpu", "nvrtc", "host")), strict=True))
        if answers["gpu"].status == "ok":
            answers |= zip(MEMORIES, pool.map(ask, MEMORIES), strict=True)
    return answers


def gpu_checks(answers: dict[str, Answer]) -> Iterator[Check]:
    """GPU, driver, CuPy, NVRTC, device files."""
    gpu = answers["gpu"]
    needed = gpu.status != "absent"
    yield from _driver_and_gpu(gpu)
    package = cupy_package()
    if package is None:
        status: Status = "todo" if gpu_hardware() or _loaded_driver() else "missing"
        remedy = f"pip install 'pinhole-vision[{fitting_extra()}]'" if status == "todo" else ""
        yield Check("gpu", "cupy", status, "not installed", remedy)
    else:
        yield Check("gpu", "cupy", "ok", " ".join(package))
    nvrtc = answers["nvrtc"]
    status = "ok" if nvrtc.status == "ok" else "todo" if needed else "missing"
    remedy = f"pip install 'pinhole-vision[{fitting_extra()}]'" if status == "todo" else ""
    yield Check("gpu", "nvrtc", status, nvrtc.found, remedy, required=needed)
    if needed and (reason := nvjpeg.absence()) is not None:
        yield Check("gpu", "nvjpeg", "todo", reason, f"pip install 'pinhole-vision[{fitting_extra()}]'")
    elif needed:
        yield Check("gpu", "nvjpeg", "ok", "JPEG is encoded on the GPU")
    yield from device_file_checks()


def _driver_and_gpu(gpu: Answer) -> Iterator[Check]:
    loaded = _loaded_driver()
    if gpu.status == "ok":
        facts = gpu.facts
        yield Check("gpu", "driver", "ok", f"CUDA {facts['cuda_driver']}{'; ' + loaded if loaded else ''}")
        kind = "integrated" if facts["attributes"]["Integrated"] else "discrete"
        memory = f"{size(facts['memory_bytes'])}, {size(facts['memory_free_bytes'])} free"
        text = f"{facts['name']}, compute capability {facts['compute_capability']}, {kind}, {memory}"
        yield Check("gpu", "gpu", "ok", text + (f"; the first of {facts['devices']}" if facts["devices"] > 1 else ""))
        return
    if gpu.status == "failed":
        yield Check("gpu", "driver", "todo", loaded or "unknown", "nvidia-smi")
        remedy = "nvidia-smi   (it must work first); until then: pinhole serve --memory host"
        yield Check("gpu", "gpu", "todo", gpu.found, remedy, required=True)
        return
    hardware = gpu_hardware()
    if loaded or hardware:
        remedy = (
            f"pip install 'pinhole-vision[{fitting_extra()}]'" if cupy_package() is None else
            "docker run --gpus all (on a Jetson: --runtime nvidia)" if in_container() else
            "nvidia-smi   (it must work first)" if loaded else
            "install NVIDIA's driver: sudo ubuntu-drivers install, or sudo apt-get install nvidia-driver"
        )  # fmt: skip
        yield Check("gpu", "driver", "ok" if loaded else "todo", loaded or "not loaded", "" if loaded else remedy)
        yield Check(
            "gpu", "gpu", "todo", f"{hardware or 'an NVIDIA driver is loaded'}, but CUDA says: {gpu.found}", remedy
        )
        return
    yield Check("gpu", "driver", "missing", "no NVIDIA driver")
    yield Check("gpu", "gpu", "missing", f"none that CUDA can use: {gpu.found}")


def _loaded_driver() -> str:
    """The driver's own words, "" if none is loaded."""
    return _read("/proc/driver/nvidia/version").partition("\n")[0].removeprefix("NVRM version:").strip()


def memory_checks(answers: dict[str, Answer]) -> Iterator[Check]:
    """What the first GPU says of host memory; each missing where there is none."""
    gpu = answers["gpu"]
    if gpu.status != "ok":
        for name in ("host mapping", "registered memory", "managed memory"):
            yield Check("memory", name, "missing", "no GPU")
        return
    has = gpu.facts["attributes"]
    if has["CanMapHostMemory"]:
        yield Check("memory", "host mapping", "ok", "the GPU works on pinned host memory in place", required=True)
    else:
        remedy = "pinhole serve --memory host"
        yield Check("memory", "host mapping", "todo", "the GPU cannot map host memory", remedy, required=True)
    if has["HostRegisterSupported"]:
        yield Check("memory", "registered memory", "ok", "memory that exists already can be used in place")
    else:
        yield Check("memory", "registered memory", "missing", "not supported by this device; frames are copied instead")
    if not has["ManagedMemory"]:
        yield Check("memory", "managed memory", "missing", "not supported by this device")
    elif has["ConcurrentManagedAccess"]:
        advice = "" if has["Integrated"] else "; kept on the host by advice, as it would page back and forth"
        yield Check("memory", "managed memory", "ok", f"supported, also while a kernel runs{advice}")
    else:
        yield Check("memory", "managed memory", "ok", "supported; the CPU may not touch it while a kernel runs")
    traits = DeviceTraits.of(has, int(gpu.facts["compute_capability"].replace(".", "")), True)
    for name, reason in refusals(traits).items():
        if reason is not None:
            yield Check("memory", f"--memory {name}", "missing", f"the GPU {reason}")


def proof_checks(answers: dict[str, Answer]) -> Iterator[Check]:
    """42 doubled in each kind of memory."""
    host = answers["host"]
    yield Check("proof", "cpu", "ok" if host.status == "ok" else "todo", host.found, _reinstall(host), required=True)
    for name in MEMORIES:
        answer = answers.get(name)
        if answer is None:
            yield Check("proof", name, "missing", "no GPU to try it on")
        elif answer.status == "absent":
            yield Check("proof", name, "missing", answer.found, required=name in NEEDED)
        else:
            status: Status = "ok" if answer.status == "ok" else "todo"
            remedy = "" if status == "ok" else "nvidia-smi; restart what uses the GPU, else the machine"
            yield Check("proof", name, status, answer.found, remedy, required=name in NEEDED)


def device_file_checks(folder: str = "/dev") -> Iterator[Check]:
    """NVIDIA's device files that this user may not open, or that all may be."""
    files = [path for pattern in DEVICE_FILES for path in sorted(Path(folder).glob(pattern)) if not path.is_dir()]
    closed = [path for path in files if not os.access(path, os.R_OK | os.W_OK)]
    for path in closed:
        gid = path.stat().st_gid
        remedy = (
            f"docker run --group-add {gid} …"
            if in_container()
            else f"sudo usermod -aG $(stat -c %G {path}) {user_name()}   (then log in again)"
        )
        yield Check("permissions", str(path), "todo", f"may not be opened by {who()}; its group is gid {gid}", remedy)
    if files and not closed:
        yield Check("permissions", "GPU device files", "ok", f"{len(files)}, all may be opened")


def gpu_hardware(folder: str = "/sys/bus/pci/devices") -> str:
    """The PCI addresses of NVIDIA's display and 3D controllers (class 03, vendor 10de), "" if there are none."""
    found = [
        path.name
        for path in sorted(Path(folder).glob("*"))
        if _read(path / "vendor").strip() == "0x10de" and _read(path / "class").startswith("0x03")
    ]
    return f"an NVIDIA GPU at {', '.join(found)}" if found else ""


def cupy_package() -> tuple[str, str] | None:
    """(distribution, version) of the CuPy that is installed."""
    for name in ("cupy-cuda13x", "cupy-cuda12x", "cupy"):
        try:
            return name, package_version(name)
        except PackageNotFoundError:
            continue
    return None


def fitting_extra() -> str:
    """The extra for the driver branch that is loaded (CUDA 13 needs 580, release notes of the CUDA toolkit)."""
    words = _read("/proc/driver/nvidia/version").split()
    branches = [int(word.partition(".")[0]) for word in words if word[:3].isdecimal() and "." in word]
    return "cuda12" if branches and branches[0] < 580 else "cuda13"


def _reinstall(host: Answer) -> str:
    return "" if host.status == "ok" else "pip install --force-reinstall opencv-python-headless numpy"


def _read(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
