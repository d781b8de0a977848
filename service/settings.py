"""What the service is asked to be: one typed model, checked as a whole before anything starts."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationInfo, field_validator

from kernels.errors import InputError

TOKEN_VARIABLE = "PINHOLE_TOKEN"
MAX_TOKEN_LENGTH = 512
# Shorter ones can be tried out by whoever reaches the port: at a thousand a second, five letters last three hours. They
# are warned of and not refused: only who sets one knows who can reach the port.
GOOD_TOKEN_LENGTH = 16


class SettingsModel(BaseModel):
    """Base of everything that can be set: unknown keys, NaN, infinities, and yes or no for a number are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_yes_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, bool) and cls.model_fields[str(info.field_name)].annotation in (int, float):
            raise ValueError("yes and no are not numbers")
        return value


class Limits(SettingsModel):
    """Bounds on what clients can make the service do."""

    max_viewers: int = Field(default=100, ge=1, le=10_000, description="Live viewers of all cameras together.")
    max_peers: int = Field(default=32, ge=0, le=1000, description="Those of them that come by WebRTC; 0: none may.")
    max_variants: int = Field(default=32, ge=1, le=1024, description="Renditions encoded at once, for each camera.")
    max_body_bytes: int = Field(default=65_536, ge=1024, le=1 << 30, description="Largest request body.")
    max_memory_bytes: int | None = Field(
        default=None,
        ge=1 << 24,
        description="Host memory for the frames of all cameras; left out: a quarter of the machine's or container's.",
    )
    send_deadline_s: float = Field(default=5.0, gt=0, le=3600, description="A viewer that takes longer is cut off.")


class Settings(SettingsModel):
    """The service's settings. ``token`` None means that whoever reaches the port may do everything."""

    host: str = Field(default="127.0.0.1", description="Address to listen on; any but the loopback's needs a token.")
    port: int = Field(default=8080, ge=0, le=65_535, description="0 takes a free one.")
    token: SecretStr | None = None
    insecure: bool = Field(default=False, description="Listen on other addresses without a token.")
    allow_hosts: tuple[str, ...] = Field(default=(), description="Other names under which it is asked.")
    allow_origins: tuple[str, ...] = Field(default=(), description="Pages of other origins that may control it.")
    ice_servers: tuple[str, ...] = Field(
        default=(),
        description="STUN servers for WebRTC, stun:HOST:PORT; only who comes from another network needs one.",
    )
    webrtc_address: str | None = Field(
        default=None, description="Address under which others reach this machine's UDP ports, if it is not its own."
    )
    limits: Limits = Limits()
    log_format: Literal["text", "json"] = Field(default="text", description="json: one object a line.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="What is logged.")

    @field_validator("ice_servers")
    @classmethod
    def _stun_servers(cls, servers: tuple[str, ...]) -> tuple[str, ...]:
        for server in servers:
            if not re.fullmatch(r"stun:(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]{1,253})(:[0-9]{1,5})?", server):
                raise ValueError(f"{server[:100]!r} is not stun:HOST or stun:HOST:PORT")
        return servers

    @field_validator("webrtc_address")
    @classmethod
    def _plain_address(cls, address: str | None) -> str | None:
        return None if address is None else str(ipaddress.ip_address(address))

    def check(self) -> Settings:
        """The same settings, if they are safe to serve.

        Raises:
            InputError: another address than the loopback without a token, and ``insecure`` was not asked for.
        """
        if not is_loopback(self.host) and self.token is None and not self.insecure:
            if not resolves(self.host):
                raise InputError(
                    "host", f"{self.host[:100]!r} is not a name or address that is known here", "127.0.0.1"
                )
            raise InputError(
                "host",
                f"{self.host or 'every address'} can be reached from other machines, and there is no token",
                f"a token ({TOKEN_VARIABLE} or --token-file), or 127.0.0.1, or --insecure",
            )
        return self


def is_loopback(host: str) -> bool:
    """True for ``localhost`` and the loopback addresses; a name that would have to be looked up is not trusted."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def resolves(host: str) -> bool:
    """True if something may listen under that name, as far as the system's name service knows it; may block."""
    try:
        socket.getaddrinfo(host.strip("[]") or None, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        return False
    return True


def find_token(
    token_file: Path | None, environment: Mapping[str, str] = os.environ, *, insecure: bool = False
) -> SecretStr | None:
    """The token from the file if one is named, else from ``PINHOLE_TOKEN``; None where neither is set.

    An empty file means no token to who says that none is needed (``insecure``), as the compose file does.

    Raises:
        InputError: the file cannot be read, or what it holds cannot be a token. The message never shows it.
    """
    if token_file is not None:
        try:
            text = token_file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise InputError("token_file", f"{token_file} cannot be read: {reason}", "a readable text file") from None
        return None if insecure and not text.strip() else _token(text.strip(), "token_file")
    text = environment.get(TOKEN_VARIABLE, "").strip()
    return _token(text, TOKEN_VARIABLE) if text else None


def _token(text: str, field: str) -> SecretStr:
    if not (1 <= len(text) <= MAX_TOKEN_LENGTH and all("!" <= c <= "~" for c in text)):
        raise InputError(field, "cannot be a token", f"1 to {MAX_TOKEN_LENGTH} printable ASCII characters, no spaces")
    return SecretStr(text)
