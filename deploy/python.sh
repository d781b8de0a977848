#!/bin/sh
# Prints a Python >= 3.10 that can make a virtual environment, newest of those that are tried on first.
#
#   deploy/python.sh        the first that fits; installs its venv package by apt where that is what lacks and is allowed
#   deploy/python.sh 3.10   only that version, pyenv's too; exit 1 and nothing printed where it is not there
#
# A name on the PATH proves nothing (version managers leave names there that do not run), so each is run.
here=$(dirname "$0")
. "$here/apt.sh"

runs() { # runs PYTHON CODE
    "$1" -c "import sys; $2" >/dev/null 2>&1
}
recent='sys.exit(not (3, 10) <= sys.version_info < (4,))'
whole='import ensurepip, venv'

found() {
    "$1" -c 'import sys; print(sys.executable)'
    exit 0
}

if [ $# -eq 1 ]; then
    for python in "python$1" "$HOME/.pyenv/versions/$1".*/bin/"python$1"; do
        runs "$python" "$recent" && runs "$python" "$whole" && found "$python"
    done
    exit 1
fi

partial=
for python in python3.13 python3.12 python3.11 python3.10 python3; do
    runs "$python" "$recent" || continue
    runs "$python" "$whole" && found "$python"
    partial=${partial:-$python}
done

if [ -z "$partial" ]; then
    echo "Pinhole needs Python 3.10 or newer, and none is on the PATH." >&2
    echo "Install one (Debian, Ubuntu: apt-get install python3 python3-venv), or name it: make PYTHON=/path/to/python3" >&2
    exit 1
fi

package=$("$partial" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
if apt_allowed; then
    apt_update
    apt_install "$package" && runs "$partial" "$whole" && found "$partial"
fi
echo "$partial cannot make virtual environments: its venv and ensurepip modules are missing." >&2
echo "Install them (Debian, Ubuntu: apt-get install $package), or name another: make PYTHON=/path/to/python3" >&2
exit 1
