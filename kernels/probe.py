"""Asks what the GPU can do, each question in a process of its own (:mod:`kernels.proof`).

A driver that hangs or crashes on a question takes nobody with it, and the asking process never initialises CUDA.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Answer:
    """What a probe found: ``ok``; ``absent``, this machine has no such thing; or ``failed``, it should work and does
    not. ``found`` says it in words; ``read`` is what the CPU read of the proof; ``facts`` are plain data."""

    status: Literal["ok", "absent", "failed"]
    found: str
    read: int | None = None
    facts: dict[str, Any] = field(default_factory=dict)


def run_probe(kind: str, timeout_s: float = 30.0, *, arguments: tuple[str, ...] = ("-m", "kernels.proof")) -> Answer:
    """Ask one of ``kernels.proof.PROBES`` in a child process; blocks up to ``timeout_s``.

    Whatever the child does becomes an answer: it crashes, hangs, says nothing or something else.
    """
    process = subprocess.Popen(
        [sys.executable, *arguments, kind],
        cwd=Path(__file__).parent.parent,  # where this package is found by -m, whatever the caller's folder holds
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        return _ended_late(process, timeout_s)
    if process.returncode < 0:
        return Answer("failed", f"the probe's process was ended by {signal_name(-process.returncode)}")
    try:
        answer = json.loads(out.splitlines()[-1])
        return Answer(answer["status"], answer["found"], answer["read"], answer["facts"])
    except (ValueError, IndexError, KeyError, TypeError):
        last = (err.strip().splitlines() or ["it said nothing"])[-1][:200]
        return Answer("failed", f"the probe's process ended with code {process.returncode}: {last}")


def _ended_late(process: subprocess.Popen[str], timeout_s: float) -> Answer:
    process.kill()
    try:
        process.communicate(timeout=2)
    except subprocess.TimeoutExpired:  # stuck inside the kernel's driver: it cannot be ended, and is not waited for
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
        process.returncode = -signal.SIGKILL
    return Answer("failed", f"no answer within {timeout_s:g} s")


def signal_name(number: int) -> str:
    """``SIGSEGV`` for 11."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
