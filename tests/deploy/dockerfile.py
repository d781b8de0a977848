"""Reads a Dockerfile and carries out its build in a folder: no container, the same commands.

Whatever lies under ``/opt/pinhole``, ``/src`` and ``/var/cache/pinhole`` in the image lies under the folder here. Files
are copied from the repository if ``.dockerignore`` lets them in, ``RUN`` commands are run by a shell; of the system's
own commands, ``useradd`` is left out and ``apt-get install`` simulated, where there are package lists. An instruction
that this does not know is an error, so that a Dockerfile cannot outgrow it unnoticed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
MOVED = re.compile(r"(?<![\w./])/(?=opt/pinhole|src\b|var/cache/pinhole)")
LEFT_OUT = ("rm -rf /var/lib/apt/lists/*", "apt-get update", "useradd ")


@dataclass(frozen=True, slots=True)
class Instruction:
    name: str
    text: str


@dataclass(slots=True)
class Image:
    """What a stage, and at the end the image, has beside its files."""

    base: str = ""
    env: dict[str, str] = field(default_factory=dict)
    workdir: str = "/"
    user: str = "root"
    entrypoint: list[str] = field(default_factory=list)
    cmd: list[str] = field(default_factory=list)
    health: list[str] = field(default_factory=list)
    volumes: list[str] = field(default_factory=list)


def parse(text: str) -> list[Instruction]:
    """The instructions, continued lines joined, comments left out."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = re.sub(r"\s*\\\n\s*", " ", "\n".join(lines))
    return [Instruction(line.split(None, 1)[0].upper(), line.split(None, 1)[1].strip()) for line in joined.splitlines()]


def exec_form(text: str) -> list[str]:
    """The words of an exec-form command; anything else (a shell would be process 1) is an AssertionError."""
    assert text.startswith("["), f"not in exec form: {text}"
    words = json.loads(text)
    assert isinstance(words, list)
    assert all(isinstance(word, str) for word in words)
    return words


def let_in() -> set[str]:
    """What .dockerignore lets into a build."""
    lines = (ROOT / ".dockerignore").read_text().split("\n")
    assert "*" in lines
    return {line[1:] for line in lines if line.startswith("!")}


def packages_known() -> bool:
    """Whether apt has lists here by which an installation can be simulated."""
    try:
        done = subprocess.run(["apt-cache", "show", "python3-gi"], capture_output=True, check=False)
    except OSError:
        return False
    return done.returncode == 0


class Build:
    """Carries out a Dockerfile for some build arguments; without ``execute`` it is only read.

    With ``resolve`` pip finds all that is to be installed, and installs nothing.
    """

    def __init__(
        self,
        dockerfile: Path,
        folder: Path,
        arguments: dict[str, str],
        *,
        execute: bool = True,
        resolve: bool = False,
    ) -> None:
        self.folder = folder
        self.execute = execute
        self.resolve = resolve
        self.commands: list[str] = []  # as they were run
        self._stages: dict[str, Image] = {}
        self._all = parse(dockerfile.read_text())
        self._arguments = dict(arguments)
        self.image = self._build()

    def moved(self, text: str) -> str:
        """The same command or path, in the folder."""
        return MOVED.sub(f"{self.folder}/", text)

    def environment(self, image: Image | None = None) -> dict[str, str]:
        """The image's environment, with its programs before this machine's, and what pip needs to find packages."""
        tools = self.folder / "tools"
        tools.mkdir(exist_ok=True)
        if not (tools / "python3").exists():
            (tools / "python3").symlink_to(sys.executable)
        cache = os.environ.get("PIP_CACHE_DIR", str(Path("~/.cache/pip").expanduser()))
        kept = {k: v for k, v in os.environ.items() if k.startswith(("PIP_", "SSL_")) or k == "LANG"}
        kept |= {"PIP_CACHE_DIR": cache, "HOME": "/nonexistent"}  # nothing of the user's own is in an image
        env = dict((image or self.image).env)
        path = self.moved(env.pop("PATH", "$PATH")).replace("$PATH", f"{tools}:/usr/local/bin:/usr/bin:/bin")
        return {**kept, **{k: self.moved(v) for k, v in env.items()}, "PATH": path}

    def _build(self) -> Image:
        image = Image()
        scope: dict[str, str] = {}
        before_from: dict[str, str] = {}
        for instruction in self._all:
            name, text = instruction.name, instruction.text
            if name == "ARG":
                key, _, default = text.partition("=")
                value = self._arguments.get(key, default or before_from.get(key, ""))
                (scope if image.base else before_from)[key] = value
            elif name == "FROM":
                image, scope = self._from(self._expanded(text, before_from)), {}
            else:
                self._step(image, name, self._expanded(text, {**scope, **image.env}) if name != "RUN" else text, scope)
        return image

    def _from(self, text: str) -> Image:
        source, *named = re.split(r"\s+AS\s+", text, flags=re.IGNORECASE)
        before = self._stages.get(source)
        if before is None:
            assert re.fullmatch(r"[a-z./]+:[\w.-]+", source), f"{source}: a base image needs a tag"
            image = Image(base=source)
        else:
            image = Image(base=before.base, env=dict(before.env), workdir=before.workdir)
        for name in named:
            self._stages[name] = image
        return image

    @staticmethod
    def _expanded(text: str, scope: dict[str, str]) -> str:
        return re.sub(r"\$\{(\w+)\}|\$(?!PATH)(\w+)", lambda found: scope[found[1] or found[2]], text)

    def _step(self, image: Image, name: str, text: str, scope: dict[str, str]) -> None:
        if name == "ENV":
            for key, quoted, bare in re.findall(r'(\w+)=(?:"([^"]*)"|(\S+))', text):
                image.env[key] = quoted or bare
        elif name == "WORKDIR":
            image.workdir = text
        elif name == "USER":
            image.user = text
        elif name == "VOLUME":
            image.volumes.append(text)
        elif name == "ENTRYPOINT":
            image.entrypoint = exec_form(text)
        elif name == "CMD":
            image.cmd = exec_form(text)
        elif name == "HEALTHCHECK":
            image.health = exec_form(text[text.index("CMD") + 3 :].strip())
        elif name == "COPY":
            self._copy(image, text)
        elif name == "RUN":
            self._run(image, text, scope)
        else:
            assert name in ("EXPOSE", "STOPSIGNAL"), f"an instruction that the tests do not know: {name}"

    def _copy(self, image: Image, text: str) -> None:
        *sources, target = text.split()
        if sources[0].startswith("--from="):
            assert sources[0].removeprefix("--from=") in self._stages
            assert not self.execute or Path(self.moved(sources[1])).is_dir(), f"{sources[1]} is not there to be copied"
            return
        for source in sources:
            assert source in let_in(), f".dockerignore keeps {source} out"
            if self.execute:
                to = Path(self.moved(os.path.normpath(os.path.join(image.workdir, target))))
                if (ROOT / source).is_dir():
                    shutil.copytree(ROOT / source, to, ignore=shutil.ignore_patterns("__pycache__"))
                else:
                    to.mkdir(parents=True, exist_ok=True)
                    shutil.copy(ROOT / source, to)

    def _run(self, image: Image, text: str, scope: dict[str, str]) -> None:
        for command in text.split(" && "):
            if command.strip().startswith(LEFT_OUT):
                continue
            # An image keeps no cache; here it would only be slow.
            line = self.moved(command.strip()).replace(" --no-cache-dir", "")
            # Nor does it have what happens to be installed beside this machine's Python.
            line = line.replace(" --system-site-packages", "")
            if self.resolve:
                line = line.replace("pip install", "pip install --dry-run", 1)
            if line.startswith("apt-get"):
                line = line.replace("apt-get", "apt-get --simulate", 1)
            self.commands.append(line)
            if self.execute and not (line.startswith("apt-get") and not packages_known()):
                workdir = Path(self.moved(image.workdir))
                workdir.mkdir(parents=True, exist_ok=True)
                done = subprocess.run(
                    ["/bin/sh", "-euc", line],
                    cwd=workdir, env={**self.environment(image), **scope, "PIP_NO_COMPILE": "1"},
                    capture_output=True, text=True, timeout=400, check=False,
                )  # fmt: skip
                assert done.returncode == 0, f"{line}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
