"""A chain's text that is wrong in a usual way: the error says what was meant, and that is a chain."""

from __future__ import annotations

import pytest

from kernels.chain import parse_chain
from kernels.errors import InputError


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("gaussian_blur(5)", "gaussian_blur(ksize=5)"),
        ("gaussian_blur(5, 1.5)", "gaussian_blur(ksize=5, sigma=1.5)"),
        ("gaussian_blur(5, sigma=2)", "gaussian_blur(ksize=5, sigma=2)"),
        ("gaussian_blur ksize=5", "gaussian_blur(ksize=5)"),
        ("gaussian_blur ksize=5, sigma=2", "gaussian_blur(ksize=5, sigma=2)"),
        ("gaussian_blur ksize=5 sigma=2", "gaussian_blur(ksize=5, sigma=2)"),
        ("gaussian_blur: 5", "gaussian_blur(ksize=5)"),
        ("gaussian_blur(ksize:5)", "gaussian_blur(ksize=5)"),
        ('gaussian_blur{"ksize": 5}', "gaussian_blur(ksize=5)"),
        ("gamma(gamma=1.2", "gamma(gamma=1.2)"),
        ("gamma gamma=2", "gamma(gamma=2)"),
        ("flip horizontal", "flip(direction='horizontal')"),
        ("flip(direction=horizontal)", "flip(direction='horizontal')"),
        ("threshold(inverted=true)", "threshold(inverted=True)"),
        ("gaussian_blur(ksize=5), gamma", "gaussian_blur(ksize=5) | gamma"),
        ("sobel, gamma gamma=2", "sobel | gamma(gamma=2)"),
        ("gamma gamma", "gamma | gamma"),
        ("sobel -> gamma(2); invert", "sobel | gamma(gamma=2) | invert"),
    ],
)
def test_what_was_meant_is_said_and_is_a_chain(text: str, meant: str) -> None:
    parse_chain(meant)
    with pytest.raises(InputError) as caught:
        parse_chain(f"sobel | {text}")
    assert caught.value.field.startswith("chain[1]")
    assert caught.value.reason.endswith(f"(did you mean {meant}?)")


@pytest.mark.parametrize(
    "text", ["gaussian_blur(4)", "gamma(1, 2)", "gausian_blur 5", "gamma(2), blurr(5)", "sobel + 1"]
)
def test_nothing_is_suggested_that_would_be_refused_too(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_chain(text)
    assert "did you mean" not in caught.value.reason
