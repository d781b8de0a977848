"""The Dockerfiles: what they install is installed in a clean environment, what they start is started as process 1."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from service.config import load
from service.config_environment import PROCESS_VARIABLES, known_variables
from tests.deploy.dockerfile import ROOT, Build, exec_form, let_in, parse

DOCKERFILES = sorted((ROOT / "deploy").glob("Dockerfile.*"))
NAMES = [path.suffix[1:] for path in DOCKERFILES]
VARIANTS = [
    ("cpu", {}), ("cuda", {"CUDA": "12"}), ("cuda", {"CUDA": "13"}), ("jetson", {"JETPACK": "6"}),
    ("jetson", {"JETPACK": "7"}),
]  # fmt: skip


def dockerfile(name: str) -> Path:
    return ROOT / "deploy" / f"Dockerfile.{name}"


def namespaces() -> list[str] | None:
    """The command that makes what follows process 1 of its own process namespace, None where that is not permitted."""
    if shutil.which("unshare") is None:
        return None
    command = ["unshare", "--pid", "--fork", "--mount-proc"]
    done = subprocess.run([*command, "true"], capture_output=True, check=False)
    return command if done.returncode == 0 else None


def test_there_is_one_for_each_family() -> None:
    assert NAMES == ["cpu", "cuda", "jetson"]


@pytest.mark.parametrize("name", NAMES)
def test_hadolint_has_nothing_to_say(name: str) -> None:
    beside = os.pathsep.join((os.path.dirname(sys.executable), os.environ.get("PATH", "")))
    hadolint = shutil.which("hadolint", path=beside)
    if hadolint is None:
        pytest.skip("hadolint is not installed (extra dev)")
    done = subprocess.run([hadolint, dockerfile(name)], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize(("name", "arguments"), VARIANTS, ids=lambda value: str(value))
def test_what_an_image_is(name: str, arguments: dict[str, str], tmp_path: Path) -> None:
    build = Build(dockerfile(name), tmp_path, arguments, execute=False)
    image = build.image
    assert image.entrypoint == ["pinhole"], "a shell as process 1 would not hand SIGTERM on"
    assert image.cmd == ["serve"]
    assert image.health[0] == "python3"
    assert image.user == "10001:10001"
    assert image.env["PINHOLE_CACHE_DIR"] in image.volumes
    ours = {key for key in image.env if key.startswith("PINHOLE_")}
    assert ours <= {*known_variables(), *PROCESS_VARIABLES}
    assert load({}, dict, environment=image.env).settings.port == 8080
    (install,) = [command for command in build.commands if "pip install" in command]
    if name == "cuda":
        assert f"cuda{arguments['CUDA']}" in {"cuda12", "cuda13"}
    assert ("$CUDA_PACKAGES" in install) == (name != "cpu")


@pytest.mark.parametrize(
    ("name", "arguments", "extra", "pinned"),
    [
        ("cuda", {"CUDA": "12"}, "cuda12", "cu12==12.9.*"), ("cuda", {"CUDA": "13"}, "cuda13", "nvrtc==13.0.*"),
        ("jetson", {"JETPACK": "6"}, "cuda12", "cu12==12.6.*"), ("jetson", {"JETPACK": "7"}, "cuda13", "nvrtc==13.0.*"),
    ],
)  # fmt: skip
def test_build_arguments_choose_extra_and_nvrtc(
    name: str, arguments: dict[str, str], extra: str, pinned: str, tmp_path: Path
) -> None:
    stages = Build(dockerfile(name), tmp_path, arguments, execute=False)._stages
    env = stages["build"].env
    assert pinned in env["CUDA_PACKAGES"]
    assert extra in (env.get("CUDA_EXTRA"), f"cuda{arguments.get('CUDA', '')}")


def test_only_what_is_needed_goes_into_a_build() -> None:
    assert let_in() == {"pyproject.toml", "README.md", "LICENSE", "kernels", "pipeline", "service"}
    for path in let_in():
        assert (ROOT / path).exists()


def test_a_shell_form_is_not_taken() -> None:
    with pytest.raises(AssertionError, match="not in exec form"):
        exec_form("pinhole serve")
    assert [one.name for one in parse("# c\nFROM a:1 AS b\nRUN x && \\\n    y\n")] == ["FROM", "RUN"]
    assert parse("RUN x && \\\n    y\n")[0].text == "x && y"


@contextmanager
def clean_folder() -> Iterator[Path]:
    """A folder that another user may enter, which pytest's own are not."""
    folder = Path(tempfile.mkdtemp(prefix="pinhole-image-"))
    try:
        folder.chmod(0o755)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def as_user(user: str, python: Path) -> list[str]:
    """The command that runs what follows as that user and without capabilities, where we may; else nothing.

    One is left, to read everything, where the interpreter lies in somebody's own folder.
    """
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        return []
    uid, gid = user.split(":")
    command = ["setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups", "--no-new-privs"]
    for left in ("", ",+dac_read_search"):
        options = [f"--{kind}=-all{left}" for kind in ("inh-caps", "ambient-caps", "bounding-set")]
        done = subprocess.run([*command, *options, python, "-c", "import encodings"], capture_output=True, check=False)
        if done.returncode == 0:
            return [*command, *options]
    return []


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def child_of(pid: int) -> int:
    """The only child: what unshare --fork started."""
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def index_absence() -> str | None:
    """Why nothing can be installed here, or None."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-deps", "--ignore-installed", "--retries=0"]
    done = subprocess.run([*command, "click"], capture_output=True, text=True, timeout=100, check=False)
    return None if done.returncode == 0 else f"pip finds no packages here: {done.stderr.strip()[-100:]}"


@pytest.fixture(scope="module")
def built() -> Iterator[dict[str, Build]]:
    """Every image by its Dockerfile's own commands, side by side: most of it is waiting for the disk and the index.

    The boards' image is for another architecture: what it installs is only resolved here, and what it starts is started
    from what the first image installed.
    """
    if (reason := index_absence()) is not None:
        pytest.skip(reason)
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(len(NAMES)) as pool:
        folders = {name: stack.enter_context(clean_folder()) for name in NAMES}
        build = {
            name: pool.submit(Build, dockerfile(name), folders[name], {}, resolve=name == "jetson") for name in NAMES
        }
        done = {name: future.result() for name, future in build.items()}
        done["jetson"].folder = done["cpu"].folder
        yield done


def requirements(*extras: str) -> list[str]:
    """What pyproject.toml asks for (tomllib is not there before Python 3.11)."""
    text = (ROOT / "pyproject.toml").read_text()
    lists = re.findall(r"^(\w+) = \[(.*?)\]$", text, re.MULTILINE | re.DOTALL)
    wanted = {name: re.findall(r'"([^"]+)"', items) for name, items in lists if name in ("dependencies", *extras)}
    assert set(wanted) == {"dependencies", *extras}
    return [requirement for items in wanted.values() for requirement in items]


# glibc 2.35 is Ubuntu 22.04's, 2.39 is 24.04's; pip matches each of these names exactly.
BOARDS = {
    python: [
        "--platform=manylinux2014_aarch64",
        *(f"--platform=manylinux_2_{n}_aarch64" for n in range(17, newest + 1)),
    ]
    for python, newest in (("3.10", 35), ("3.12", 39))
}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("jetpack", "python"), [("6", "3.10"), ("7", "3.12")])
def test_every_package_of_the_boards_image_has_a_wheel_for_them(jetpack: str, python: str, tmp_path: Path) -> None:
    """What their pip would install there, resolved for their architecture and Ubuntu's Python."""
    if (reason := index_absence()) is not None:
        pytest.skip(reason)
    env = Build(dockerfile("jetson"), tmp_path, {"JETPACK": jetpack}, execute=False)._stages["build"].env
    done = subprocess.run(
        [
            sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--only-binary=:all:",
            *BOARDS[python], f"--python-version={python}", "--implementation=cp", f"--target={tmp_path / 'site'}",
            *requirements("video", env["CUDA_EXTRA"]), *env["CUDA_PACKAGES"].split(),
        ],
        capture_output=True, text=True, timeout=250, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    would = done.stdout.rpartition("Would install")[2]
    for package in ("numpy-", "opencv-python-headless-", "av-", "nvidia-cuda-nvrtc-", "cupy-cuda"):
        assert package in would


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_the_cuda_image_compiles_with_the_nvrtc_that_it_pins(built: dict[str, Build]) -> None:
    build = built["cuda"]
    done = subprocess.run(
        ["python3", "-m", "kernels.proof", "nvrtc"], env=build.environment(), cwd=build.folder,
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    answer = json.loads(done.stdout)
    assert (answer["status"], answer["facts"].get("version")) == ("ok", "13.0"), done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.timeout(500)
@pytest.mark.parametrize("name", NAMES)
def test_b133_installed_started_healthy_and_gone_on_sigterm_with_a_stream_open(
    name: str, built: dict[str, Build]
) -> None:
    """Start the entry point as process 1 and as its user; ask the health check's command; end it."""
    alone = namespaces()
    build = built[name]
    folder, image = build.folder, build.image
    port = free_port()
    env = {**build.environment(), "PINHOLE_PORT": str(port), "PINHOLE_INSECURE": "true"}
    cache = Path(env["PINHOLE_CACHE_DIR"])
    cache.mkdir(parents=True, exist_ok=True)
    cache.chmod(0o777)
    user = as_user(image.user, folder / "opt/pinhole/bin/python3")
    program = shutil.which(image.entrypoint[0], path=env["PATH"])
    assert program is not None
    assert program.startswith(str(folder)), "the entry point is not the one that was installed"
    process = subprocess.Popen(
        [*(alone or []), *user, program, *image.entrypoint[1:], *image.cmd],
        env=env, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    log = ""
    try:
        healthy = False
        deadline = time.monotonic() + 60
        while not healthy and process.poll() is None and time.monotonic() < deadline:
            asked = subprocess.run(image.health, env=env, cwd=folder, capture_output=True, text=True, check=False)
            healthy = asked.returncode == 0
            time.sleep(0.2)
        if not healthy:
            process.kill()
        assert healthy, f"not healthy: {asked.stdout}{process.stderr and process.stderr.read()}"
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/stream", timeout=20) as stream:
            assert b"Content-Type: image/jpeg" in stream.read(4096)
            first = child_of(process.pid) if alone else process.pid
            if alone:
                status = Path(f"/proc/{first}/status").read_text()
                assert next(x for x in status.splitlines() if x.startswith("NSpid")).split()[-1] == "1"
            if user:
                assert os.stat(f"/proc/{first}").st_uid == 10001
            started = time.monotonic()
            os.kill(first, signal.SIGTERM)
            code = process.wait(20)
            took = time.monotonic() - started
    finally:
        if process.poll() is None:
            process.kill()
        assert process.stderr is not None
        with process.stderr:
            log = process.stderr.read()
        process.wait()
    assert code == 0, log
    crowded = os.getloadavg()[0] > 2 * (os.cpu_count() or 1)
    assert took < (9 if crowded else 3), log
    assert "INSECURE" in log
    assert "Traceback" not in log, log
    if alone is None:
        pytest.skip("all but process 1: a process namespace of its own (unshare --pid) is not permitted here")
