from __future__ import annotations

import base64
import html
import json
import string
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from kernels.errors import InputError
from pipeline.sources import make_source, redact, redact_text
from pipeline.sources._redact import is_masked

MASK = "***"
# A secret of asterisks alone cannot be told from its mask; one of a letter or two is in any text.
PASSWORDS = st.text(st.characters(codec="utf-8"), min_size=3, max_size=16).filter(lambda p: p.strip("*") != "")
LONG_PASSWORDS = st.text(string.ascii_letters + string.digits + "!$&'()+,;=:@/?#[]%\\\" é漢", min_size=6, max_size=24)


def forms_of(secret: str) -> set[str]:
    """How a secret may stand in somebody's text."""
    once = quote(secret, safe="")
    forms = {
        secret,
        once,
        once.lower(),
        quote(secret),
        quote_plus(secret),
        quote(once, safe=""),
        repr(secret)[1:-1],
        ascii(secret)[1:-1],
        json.dumps(secret)[1:-1],
        html.escape(secret),
    }
    return {form for form in forms if form.strip("*")}


@given(PASSWORDS)
@example("50%b1")  # decodes further than its owner meant
@example("%2541")
def test_b77_no_form_of_the_password_is_left(password: str) -> None:
    uri = f"rtsp://viewer:{quote(password, safe='')}@127.0.0.1:1/x"
    forms = forms_of(password)
    assume(not any(form in redact(uri) for form in forms))  # 127 and rtsp are in every text about that address
    shown = redact_text(f"{redact(uri)} | {uri} | " + " | ".join(sorted(forms)), uri)
    assert not [form for form in forms if form in shown]


@given(LONG_PASSWORDS)
def test_b77_redact_hides_passwords_written_without_escapes(password: str) -> None:
    uri = f"rtsp://viewer:{password}@10.0.0.1:554/live"
    assert redact(uri) == f"rtsp://{MASK}@10.0.0.1:554/live"
    shown = redact_text(f"cannot open {uri!r}", uri)
    assert password not in shown
    assert "viewer" not in shown


@given(st.text(max_size=60))
def test_redact_never_raises_and_is_stable(text: str) -> None:
    for uri in (text, f"rtsp://{text}", f"file:///{text}", f"x://h/?{text}"):
        assert redact(redact(uri)) == redact(uri)
        redact_text(text, uri)


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("rtsp://u:p%40ss%21@127.0.0.1:1/x", "rtsp://***@127.0.0.1:1/x"),
        ("rtsp://u@cam/x", "rtsp://***@cam/x"),
        ("rtsp://u:p@ss@cam/x", "rtsp://***@cam/x"),
        ("rtsp://u:a/b?c#d@cam/x", "rtsp://***@cam/x"),
        ("rtsp:///u:pw@cam/x", "rtsp://***@cam/x"),
        ("rtsp://u:pw%40cam/x", "rtsp://***@cam/x"),
        ("rtsp://u:pw", "rtsp://***"),
        ("rtsp://u:pw@cam/x?key=p%40ss", "rtsp://***"),
        ("rtsp://cam/x?key=p%2540ss&b=c", "rtsp://***"),
        ("u:pw@cam", "***@cam"),
        ("srt://cam:9000?passphrase=geheim&latency=20", "srt://cam:9000?passphrase=***&latency=20"),
        ("rtsp://cam/realmonitor?channel=1&subtype=0", "rtsp://cam/realmonitor?channel=1&subtype=0"),
        ("http://cam/x?q=a1B2c3D4e5F6g7H8i9&width=640", "http://cam/x?q=***&width=640"),
        ("http://cam/x?vcodec=h264&u=adm&p=x", "http://cam/x?vcodec=h264&u=***&p=***"),
        (
            "opencv://?name=rtsp%3A%2F%2Fadm%3Apw%40cam%2Fx%3Fchannel%3D1%26subtype%3D0",
            "opencv://?name=rtsp://***@cam/x%3Fchannel=1%26subtype=0",
        ),
        (
            "opencv://?name=http%3A%2F%2Fcam%2Fx%3Fwidth%3D320%26fps%3D10",
            "opencv://?name=http%3A%2F%2Fcam%2Fx%3Fwidth%3D320%26fps%3D10",
        ),
        ("http://cam/x?token=abc&fps=30", "http://cam/x?token=***&fps=30"),
        ("http://cam/x?to%6ben=abc;PASSWORD=x", "http://cam/x?to%6ben=***;PASSWORD=***"),
        ("http://cam/user=admin_password=tlJwpbo6_channel=1.sdp", "http://cam/***"),
        ("http://cam/a;password=x/b", "http://cam/***/b"),
        ("http://cam/x#access_token=abc", "http://cam/x#***"),
        ("http://cam/x?abc", "http://cam/x?***"),
        ("rtsp://cam.local:554/h264", "rtsp://cam.local:554/h264"),
        ("rtsp://[fe80::1]:554/h264", "rtsp://[fe80::1]:554/h264"),
        ("testcard://?size=1280x720&fps=30&format=NV12", "testcard://?size=1280x720&fps=30&format=NV12"),
        ("file:///media/a@b/clip.mp4?loop=true", "file:///media/a@b/clip.mp4?loop=true"),
        ("file://u:pw@/clip.mp4", "file://***@/clip.mp4"),
        ("", ""),
    ],
)
def test_b80_every_component_is_redacted_and_the_rest_is_kept(uri: str, shown: str) -> None:
    assert redact(uri) == shown
    assert is_masked(shown) == (MASK in shown)
    assert not is_masked(uri)


@pytest.mark.parametrize(
    "uri",
    [
        "opencv://?name=rtsp://***@cam/x", "opencv://?name=rtsp%3A%2F%2F***%40cam%2Fx", "rtsp://***@cam/x",
        "opencv://?name=http%3A%2F%2Fcam%2Fx%3Ftoken%3D***", "opencv://?name=http%253A%252F%252F***%2540cam",
        "opencv://?name=***", "file://***@/clip.mp4",
    ],
)  # fmt: skip
def test_b77_a_mask_is_not_taken_for_a_credential(uri: str) -> None:
    with pytest.raises(InputError, match="put the credentials back") as caught:
        make_source(uri)
    assert caught.value.field == "uri"


@pytest.mark.parametrize(
    "uri", ["file:///a***b.mp4", "file:///a/***.mp4", "file:///a/%2A%2A%2A/x.mp4", "file:///a/****"]
)
def test_a_name_with_asterisks_is_none(uri: str) -> None:
    assert make_source(uri).uri == uri


@pytest.mark.parametrize(
    ("uri", "text", "shown"),
    [
        ("rtsp://adm:hunter2@cam/x", "401 for adm at cam, path /admin", "401 for *** at cam, path /admin"),
        ("rtsp://adm:hunter2@cam/x", "b'hunter2' and HUNTER2", "b'***' and ***"),
        ("rtsp://adm:pa/ss@cam/x", "Port could not be cast to integer value as 'pa'", None),
        ("srt://cam?passphrase=geh%65im", "wrong passphrase geheim (geh%65im, geh%2565im)", None),
        ("rtsp://cam/x", "redirected to rtsp://other:secret@cam2/y", "redirected to rtsp://***@cam2/y"),
        ("rtsp://u:pw@cam/x?key=geh%40eim&b=1", "the key geh@eim, or eim", "the key ***, or eim"),
        (
            "opencv://?name=rtsp%3A%2F%2Fadm%3Ahunter2%40cam%2Fx",
            "401 for adm at cam: hunter2",
            "401 for *** at cam: ***",
        ),
        ("opencv://?name=http%3A%2F%2Fcam%2Fx%3Fkey%3Dgeh%2565im", "wrong key geheim", "wrong key ***"),
        ("rtsp://cam/x?channel=1", "frame 1 of channel 1", None),
    ],
)
def test_b77_texts_of_other_libraries(uri: str, text: str, shown: str | None) -> None:
    hidden = redact_text(text, uri)
    assert shown is None or hidden == shown
    for secret in ("hunter2", "'pa'", "geheim", "geh%65im", "geh%2565im", "other", "secret"):
        assert secret not in hidden


@pytest.mark.parametrize("password", ["p", "0", "127", "rtsp", "8554", "Hunter2x"])
def test_b77_an_address_stays_readable_whatever_the_password_is(password: str) -> None:
    """Which characters are missing from an address would tell the password."""
    inner = f"rtsp://admin:{password}@127.0.0.10:8554/cam/realmonitor?channel=1&subtype=0"
    uri = f"opencv://?name={quote(inner, safe='')}"
    said = "rtsp://127.0.0.10:8554 did not open: wrong password"
    assert redact_text(f"{said} '{password}'", uri) == f"{said} '{MASK}'"
    assert redact_text(f"{uri}; {inner}", uri).startswith(f"{redact(uri)}; rtsp://{MASK}@127.0.0.10:8554/")


def test_b77_a_host_that_begins_another_user_is_no_address() -> None:
    assert redact_text("rtsp://camera:geheim@other/x", "rtsp://u:pw@cam/x") == "rtsp://***@other/x"
    assert redact_text("rtsp://cam:geheim@other/x", "rtsp://u:pw@cam/x") == "rtsp://***@other/x"


def test_b77_basic_authorization_is_hidden() -> None:
    pair = base64.b64encode(b"u:p@ss!").decode()
    assert pair not in redact_text(f"Authorization: Basic {pair}", "rtsp://u:p%40ss%21@cam/x")


def test_b77_the_checks_can_fail() -> None:
    assert "hunter2" in redact_text("hunter2", "rtsp://cam/x")
    assert "p%40ss" in forms_of("p@ss")
