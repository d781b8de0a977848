"""``pinhole doctor``: what this machine is, whether Pinhole can run here and on what, and the smallest proof of it.

With ``--json`` one object, whose shape is stable (new keys may come, none go while ``schema`` is 1):

* ``schema`` 1; ``version`` of Pinhole; ``ok``, whether it can run (the exit code is 0) or not (1)
* ``runs_on``: ``backend`` (cuda, opencv), ``memory`` (zero_copy, host), ``reason``: what ``pinhole serve`` would take
* ``checks``: objects of ``group`` (machine, gpu, memory, cameras, permissions, proof), ``name``, ``status`` (ok,
  missing, todo), ``found``, ``remedy`` ("" if none), ``required``
* ``proof``: by kind of memory (cpu, device, mapped, registered_numpy, registered_shm, managed, chain) what the CPU read
  after 42 was doubled: 84, or null where there is none or it failed
* ``gpu``: what the first GPU says of itself, or null
* ``recommendation``: ``memory``, the strategy to use, and ``reason``, both from a run of seconds whose ``figures`` they
  are: a frame's p50 by strategy, GB/s of 10 MB by way; ``memory`` null where nothing could be measured
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

import click

from kernels.probe import Answer, run_probe
from service.gpu_checks import MEMORIES, ask_all, gpu_checks, memory_checks, proof_checks
from service.machine import Check, camera_checks, limit_checks, permission_checks, system_checks
from service.version import version

SCHEMA = 1
ADVICE_S = 30.0  # a start, a compiler's text or three, and five seconds of measuring
LOOK_S = 10.0  # for what is only looked at; a dead disk or driver may block for ever
GROUPS = ("machine", "gpu", "memory", "cameras", "permissions", "proof")
COLORS = {"ok": "green", "missing": None, "todo": "red"}
WORDS = {"ok": "ok", "missing": "absent", "todo": "to do"}


@dataclass(frozen=True, slots=True)
class Report:
    """Everything the doctor found, in the order of ``GROUPS``."""

    checks: tuple[Check, ...]
    answers: dict[str, Answer]
    advice: Answer | None = None  # None where it was not asked for

    @property
    def ok(self) -> bool:
        """True if Pinhole can run here."""
        return all(check.status == "ok" for check in self.checks if check.required)

    @property
    def runs_on(self) -> dict[str, str]:
        gpu = self.answers["gpu"]
        if gpu.status == "ok":
            return {"backend": "cuda", "memory": "zero_copy", "reason": f"{gpu.found} reads and writes slots in place"}
        reason = "there is no usable GPU" if gpu.status == "absent" else "the GPU does not work"
        return {"backend": "opencv", "memory": "host", "reason": f"{reason}: {gpu.found}"}

    def to_json(self) -> dict[str, Any]:
        """See the module."""
        gpu = self.answers["gpu"]
        names = {"cpu": "host", **{name: name for name in MEMORIES}}
        answers = {name: self.answers.get(probe) for name, probe in names.items()}
        return {
            "schema": SCHEMA,
            "version": version(),
            "ok": self.ok,
            "runs_on": self.runs_on,
            "checks": [asdict(check) for check in self.checks],
            "proof": {
                name: answer.read if answer is not None and answer.status == "ok" else None
                for name, answer in answers.items()
            },
            "gpu": gpu.facts if gpu.status == "ok" else None,
            "recommendation": self._recommendation(),
        }

    def _recommendation(self) -> dict[str, Any]:
        advice = self.advice
        if advice is None or advice.status != "ok":
            reason = "nothing was measured" if advice is None else advice.found
            return {"memory": None, "reason": reason, "figures": {}}
        return {"memory": advice.facts["memory"], "reason": advice.found, "figures": advice.facts}


def ask_advice(kind: str) -> Answer:
    """Measure for some seconds, on the GPU or the host alone, in a process of its own; blocks for up to 30 s."""
    return run_probe(kind, ADVICE_S, arguments=("-m", "kernels.advice"))


def examine(
    ask: Callable[[str], Answer] = run_probe,
    look_s: float = LOOK_S,
    advise: Callable[[str], Answer] | None = None,
) -> Report:
    """Look at everything; blocks for seconds, at most a minute. Each part has a time limit and may fail by itself.

    ``advise`` is asked last, when nothing else runs, for what to use: of ``gpu``, or of ``host`` where there is none.
    """
    answers = ask_all(ask)
    parts: dict[str, Callable[[], Iterable[Check]]] = {
        "machine": system_checks,
        "gpu": lambda: gpu_checks(answers),
        "memory": lambda: [*memory_checks(answers), *limit_checks()],
        "cameras": camera_checks,
        "permissions": permission_checks,
        "proof": lambda: proof_checks(answers),
    }
    checks = [check for group, look in parts.items() for check in _looked(group, look, look_s)]
    advice = None if advise is None else advise("gpu" if answers["gpu"].status == "ok" else "host")
    return Report(tuple(sorted(checks, key=lambda check: GROUPS.index(check.group))), answers, advice)


def _looked(group: str, look: Callable[[], Iterable[Check]], look_s: float) -> list[Check]:
    """What ``look`` finds within its time, also as far as it came; whatever it raises becomes a line of its own."""
    found: list[Check] = []
    trouble: list[str] = []

    def run() -> None:
        try:
            found.extend(look())
        except Exception as error:  # a border: one broken look must not hide what the others found
            trouble.append(f"could not be looked at: {type(error).__name__}: {error}")

    thread = threading.Thread(target=run, name=f"look-{group}", daemon=True)
    thread.start()
    thread.join(look_s)
    if thread.is_alive():
        trouble.append(f"no answer within {look_s:g} s")
    return [*found, *(Check(group, group, "todo", text, "report this, with pinhole doctor --json") for text in trouble)]


def render(report: Report) -> str:
    """For people: a verdict, then each group with a line for each check and its remedy below it."""
    on = report.runs_on
    where = f"on {'the GPU' if on['backend'] == 'cuda' else 'the CPU'} (memory: {on['memory']}), as {on['reason']}"
    verdict = f"Pinhole {version()} can run here {where}" if report.ok else f"Pinhole {version()} cannot run here"
    if report.ok and any(check.status == "missing" for check in report.checks):
        verdict += "; what is absent below is not needed for that"
    lines = [click.style(verdict, bold=True)]
    width = max(len(check.name) for check in report.checks)
    for group in GROUPS:
        lines += ["", click.style(group, bold=True)]
        for check in report.checks:
            if check.group == group:
                status = click.style(f"{WORDS[check.status]:<7}", fg=COLORS[check.status])
                lines.append(f"  {status}  {check.name:<{width}}  {check.found}")
                if check.remedy:
                    lines.append(f"  {'':<7}  {'':<{width}}  → {check.remedy}")
    if report.advice is not None:
        lines += ["", click.style("recommendation", bold=True), *_recommended(report.advice)]
    return "\n".join(lines)


def _recommended(advice: Answer) -> list[str]:
    if advice.status != "ok":
        return [f"  none: {advice.found}"]
    more = [] if advice.facts["memory"] == "host" else ["  your own: pinhole bench frame --chain …, or --memory auto"]
    return [f"  --memory {advice.facts['memory']}: {advice.found}", *more]


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object, of a stable shape.")
def doctor(as_json: bool) -> None:
    """Say what this machine is, whether Pinhole can run here, and what to do about what is missing.

    Doubles 42 in each kind of memory there is and reads it back; times a frame by each memory strategy for some
    seconds and recommends one. Exit code 0 if Pinhole can run here, else 1.
    """
    report = examine(advise=ask_advice)
    if as_json:
        click.echo(json.dumps(report.to_json(), indent=2, ensure_ascii=False))
    else:
        click.echo(render(report), color=False if os.environ.get("NO_COLOR") else None)
    sys.stdout.flush()
    os._exit(0 if report.ok else 1)  # a look that hangs in a driver must not keep the command from ending
