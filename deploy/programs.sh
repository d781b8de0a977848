#!/bin/sh
# Makes the system programs available that some tests drive: by apt where that is allowed, else by naming what lacks.
#
# Never fails: the tests of a missing program are skipped by its name. What apt could not give is asked for once for each
# change of this file (the stamp), so that a second run starts at once. Usage: deploy/programs.sh STAMP
here=$(dirname "$0")
. "$here/apt.sh"
stamp=$1

have() {
    for name in "$@"; do
        command -v "$name" >/dev/null 2>&1 && return 0
    done
    return 1
}

# Prints the programs that lack, each with the Debian package that has it.
missing() {
    have ffmpeg || echo ffmpeg:ffmpeg
    have curl || echo curl:curl
    have chromium chromium-browser google-chrome || echo chromium:chromium
    have cc gcc clang || echo cc:gcc
    has_rtsp_server || echo gst-rtsp-server:gir1.2-gst-rtsp-server-1.0
}

# A library that the distribution's own Python drives.
has_rtsp_server() {
    "${SYSTEM_PYTHON:-/usr/bin/python3}" -c '
import gi
gi.require_version("GstRtspServer", "1.0")
from gi.repository import GstRtspServer' >/dev/null 2>&1
}

lacking=$(missing)
if [ -n "$lacking" ] && ! [ "$stamp" -nt "$0" ] && apt_allowed; then
    apt_update
    for entry in $lacking; do
        apt_install "${entry#*:}" || true
    done
    # A compiler without the C library's headers compiles nothing.
    case $lacking in *cc:gcc*) apt_install libc6-dev || true ;; esac
    case $lacking in
        *gst-rtsp-server:*)
            for package in python3-gi gstreamer1.0-plugins-base gstreamer1.0-plugins-good gstreamer1.0-plugins-ugly; do
                apt_install "$package" || true
            done
            ;;
    esac
    lacking=$(missing)
fi
[ -d "$(dirname "$stamp")" ] && touch "$stamp"
for entry in $lacking; do
    echo "the program ${entry%:*} is missing (Debian, Ubuntu: apt-get install ${entry#*:}); its tests are skipped by name" >&2
done
exit 0
