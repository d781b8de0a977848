"""The leak check itself: it fails for what it looks for, and for nothing else."""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path

import pytest

from tests.leaks import LeakError, no_leaks


def test_a_thread_that_stays_is_named() -> None:
    end = threading.Event()
    thread = threading.Thread(target=end.wait, name="stage-leaky")
    try:
        with pytest.raises(LeakError) as caught, no_leaks(grace_s=0.05):
            thread.start()
    finally:
        end.set()
        thread.join()
    assert caught.value.threads == ("stage-leaky",)
    assert caught.value.descriptors == ()


def test_a_daemon_thread_counts_too() -> None:
    end = threading.Event()
    thread = threading.Thread(target=end.wait, daemon=True)
    try:
        with pytest.raises(LeakError), no_leaks(grace_s=0.05):
            thread.start()
    finally:
        end.set()
        thread.join()


def test_a_descriptor_that_stays_is_named(tmp_path: Path) -> None:
    path = tmp_path / "left.txt"
    number = -1
    try:
        with pytest.raises(LeakError) as caught, no_leaks(grace_s=0.05):
            number = os.open(path, os.O_CREAT | os.O_WRONLY)
    finally:
        os.close(number)
    assert caught.value.threads == ()
    assert caught.value.descriptors == (f"{number} → {path}",)


def test_a_descriptor_reopened_under_its_old_number_is_noticed() -> None:
    before, _keep = os.pipe()
    other = socket.socket()
    try:
        with pytest.raises(LeakError), no_leaks(grace_s=0.05):
            os.dup2(other.fileno(), before)
    finally:
        other.close()
        os.close(before)
        os.close(_keep)


def test_what_ends_within_the_grace_is_no_leak() -> None:
    thread = threading.Thread(target=time.sleep, args=(0.1,))
    with no_leaks(grace_s=5):
        thread.start()
    assert not thread.is_alive()


def test_what_only_a_cycle_holds_is_no_leak() -> None:
    class Node:
        def __init__(self) -> None:
            self.myself = self
            self.descriptor = os.open("/dev/null", os.O_RDONLY)

        def __del__(self) -> None:
            os.close(self.descriptor)

    with no_leaks(grace_s=5):
        Node()


def test_the_error_of_the_body_comes_through_whatever_it_left() -> None:
    end = threading.Event()
    thread = threading.Thread(target=end.wait)

    def start_and_fail() -> None:
        thread.start()
        raise ZeroDivisionError

    try:
        with pytest.raises(ZeroDivisionError), no_leaks(grace_s=0.05):
            start_and_fail()
    finally:
        end.set()
        thread.join()
