"""deploy/python.sh and deploy/programs.sh on machines made of nothing but what a test puts there."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

DEPLOY = Path(__file__).parents[2] / "deploy"

# "Installs" a package by putting a program of its name on the PATH, unless the test says that it cannot be had.
FAKE_APT = """\
#!/bin/sh
echo "$*" >> "{log}"
for package in "$@"; do :; done
case " $LACKING " in *" $package "*) exit 100 ;; esac
case $* in *install*) printf '#!/bin/sh\\n' > "{bin}/$package"; chmod +x "{bin}/$package" ;; esac
"""


@dataclass(frozen=True, slots=True)
class Machine:
    """A PATH of one folder that starts with the bare tools of any system."""

    bin: Path

    @property
    def apt_log(self) -> Path:
        return self.bin.parent / "apt.log"

    def put(self, name: str, text: str) -> None:
        path = self.bin / name
        path.write_text(text)
        path.chmod(0o755)

    def allow_apt(self) -> None:
        self.put("apt-get", FAKE_APT.format(log=self.apt_log, bin=self.bin))
        self.put("id", "#!/bin/sh\necho 0\n")

    def apt_calls(self) -> list[str]:
        calls = self.apt_log.read_text().splitlines() if self.apt_log.exists() else []
        self.apt_log.unlink(missing_ok=True)
        return calls

    def run(self, script: str, *arguments: str, lacking: str = "") -> tuple[int, str, str]:
        done = subprocess.run(
            ["/bin/sh", str(DEPLOY / script), *arguments],
            env={
                "PATH": str(self.bin),
                "HOME": str(self.bin.parent),
                "LACKING": lacking,
                "SYSTEM_PYTHON": str(self.bin / "gir1.2-gst-rtsp-server-1.0"),
            },
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stdout.strip(), done.stderr


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in ("sh", "dirname", "touch", "env", "chmod"):
        path = shutil.which(tool)
        assert path is not None
        (folder / tool).symlink_to(path)
    machine = Machine(folder)
    machine.put("id", "#!/bin/sh\necho 1000\n")
    return machine


def whole_python(machine: Machine, name: str) -> None:
    machine.put(name, f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')


def partial_python(machine: Machine, name: str) -> None:
    """A Python without ensurepip, as a distribution ships it that splits venv off."""
    blocked = machine.bin.parent / "blocked"
    blocked.mkdir()
    (blocked / "ensurepip.py").write_text("raise ModuleNotFoundError(name='ensurepip')\n")
    machine.put(name, f'#!/bin/sh\nPYTHONPATH="{blocked}" exec "{sys.executable}" "$@"\n')


def test_a_python_that_works_is_found_past_names_that_do_not_run(machine: Machine) -> None:
    machine.put("python3.13", "#!/bin/sh\necho 'pyenv: python3.13: command not found' >&2\nexit 127\n")
    whole_python(machine, "python3")
    code, found, _ = machine.run("python.sh")
    assert code == 0
    assert Path(found).resolve() == Path(sys.executable).resolve()


def test_no_python_is_said_with_what_to_do(machine: Machine) -> None:
    code, found, error = machine.run("python.sh")
    assert code != 0
    assert found == ""
    assert "Python 3.10 or newer" in error
    assert "apt-get install python3 python3-venv" in error


def test_an_old_python_is_not_taken(machine: Machine) -> None:
    machine.put("python3", "#!/bin/sh\nexit 1\n")  # what the question after the version answers there
    assert machine.run("python.sh")[0] != 0


def test_a_missing_venv_module_is_named_where_apt_is_not_allowed(machine: Machine) -> None:
    partial_python(machine, "python3")
    code, found, error = machine.run("python.sh")
    assert code != 0
    assert found == ""
    assert f"apt-get install python3.{sys.version_info.minor}-venv" in error


def test_a_missing_venv_module_is_asked_of_apt_where_that_is_allowed(machine: Machine) -> None:
    partial_python(machine, "python3")
    machine.allow_apt()
    code, _, error = machine.run("python.sh")
    assert code != 0, "the fake apt installs nothing that helps, which must not be taken for success"
    assert f"python3.{sys.version_info.minor}-venv" in machine.apt_calls()[-1]
    assert "missing" in error


def test_a_version_that_is_not_there_is_no_error(machine: Machine) -> None:
    whole_python(machine, "python3")
    assert machine.run("python.sh", "3.10") == (1, "", "")


def test_programs_are_installed_once(machine: Machine, tmp_path: Path) -> None:
    machine.allow_apt()
    machine.put("curl", "#!/bin/sh\n")
    code, _, error = machine.run("programs.sh", str(tmp_path / "stamp"))
    assert code == 0
    installed = {call.split()[-1] for call in machine.apt_calls() if " install " in call}
    gstreamer = {f"gstreamer1.0-plugins-{kind}" for kind in ("base", "good", "ugly")}
    server = {"python3-gi", "gir1.2-gst-rtsp-server-1.0", *gstreamer}
    assert installed == {"ffmpeg", "chromium", "gcc", "libc6-dev", *server}
    assert "skipped" not in error
    assert machine.run("programs.sh", str(tmp_path / "stamp")) == (0, "", "")
    assert machine.apt_calls() == []


def test_programs_that_cannot_be_had_are_named_and_asked_for_once(machine: Machine, tmp_path: Path) -> None:
    machine.allow_apt()
    stamp = str(tmp_path / "stamp")
    code, _, error = machine.run("programs.sh", stamp, lacking="chromium")
    assert code == 0
    assert "the program chromium is missing" in error
    assert "ffmpeg is missing" not in error
    machine.apt_calls()
    code, _, error = machine.run("programs.sh", stamp, lacking="chromium")
    assert code == 0
    assert "the program chromium is missing" in error
    assert machine.apt_calls() == []


def test_programs_are_named_where_apt_is_not_allowed(machine: Machine, tmp_path: Path) -> None:
    machine.put("apt-get", FAKE_APT.format(log=machine.apt_log, bin=machine.bin))
    machine.put("sudo", "#!/bin/sh\nexit 1\n")  # asks for a password
    code, _, error = machine.run("programs.sh", str(tmp_path / "stamp"))
    assert code == 0
    assert machine.apt_calls() == []
    for name in ("ffmpeg", "curl", "chromium", "cc"):
        assert f"the program {name} is missing" in error


def test_sudo_without_a_password_will_do(machine: Machine, tmp_path: Path) -> None:
    machine.put("apt-get", FAKE_APT.format(log=machine.apt_log, bin=machine.bin))
    machine.put("sudo", '#!/bin/sh\n[ "$1" = -n ] || exit 1\nshift\n[ "$1" = true ] || "$@"\n')
    code, _, error = machine.run("programs.sh", str(tmp_path / "stamp"))
    assert code == 0
    assert error.count("missing") == 0
    assert any("install" in call for call in machine.apt_calls())
