"""All that is wrong with a configuration, found in one go and said together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from kernels.errors import InputError


class ConfigurationError(InputError):
    """Several values are not acceptable: ``errors``, in the order in which they were found; nothing was applied.

    ``field``, ``reason`` and ``allowed`` are those of the first; the message has a line for each.
    """

    def __init__(self, errors: Sequence[InputError]) -> None:
        self.errors = tuple(errors)
        first = self.errors[0]
        super().__init__(first.field, first.reason, first.allowed)
        self.args = ("\n  ".join([f"{len(self.errors)} things are wrong:", *map(str, self.errors)]),)


class Problems:
    """Collects errors, so that what follows one is looked at all the same."""

    def __init__(self) -> None:
        self.found: list[InputError] = []

    @contextmanager
    def collected(self) -> Iterator[None]:
        """Keep an InputError of the body, which ends there, instead of letting it out."""
        try:
            yield
        except ConfigurationError as error:
            self.found += error.errors
        except InputError as error:
            self.found.append(error)

    def mention(self, text: str) -> bool:
        """True if something that was found is about a field with ``text`` in its path."""
        return any(text in error.field for error in self.found)

    def raise_any(self) -> None:
        """Raise what was found: one error as it is, several as :class:`ConfigurationError`."""
        if len(self.found) == 1:
            raise self.found[0]
        if self.found:
            raise ConfigurationError(self.found)
