"""System programs that tests drive, and where they are."""

from __future__ import annotations

import shutil

# Names under which distributions ship a program, the first that is there is taken.
_NAMES = {
    "chromium": ("chromium", "chromium-browser", "google-chrome"),
    "cc": ("cc", "gcc", "clang"),
}


def find_program(name: str) -> str | None:
    """The path of the program called ``name``, None if it is absent; ``cc`` and ``chromium`` have several names."""
    for candidate in _NAMES.get(name, (name,)):
        if (path := shutil.which(candidate)) is not None:
            return path
    return None


def program(name: str) -> str:
    """Like :func:`find_program`, for tests marked ``program(name)``, which do not run where it is absent."""
    path = find_program(name)
    if path is None:
        raise LookupError(f"{name} is not installed; mark the test with pytest.mark.program({name!r})")
    return path
