# Sourced by the scripts beside it: system packages by apt, where that is allowed.

# Succeeds where apt-get exists and may be used without asking anybody: as root, or by a sudo that needs no password.
apt_allowed() {
    command -v apt-get >/dev/null 2>&1 || return 1
    [ "$(id -u)" -eq 0 ] && return 0
    command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null
}

# Installs one package, quietly; says so on standard error. Fails where it cannot be had.
apt_install() {
    echo "installing the system package $1 (apt)" >&2
    set -- env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 -qq install -y --no-install-recommends "$1"
    [ "$(id -u)" -eq 0 ] || set -- sudo -n "$@"
    "$@" >/dev/null 2>&1
}

# Brings the package lists up to date; a failure shows in the installs that follow.
apt_update() {
    echo "updating the package lists (apt)" >&2
    set -- apt-get -o DPkg::Lock::Timeout=120 -qq update
    [ "$(id -u)" -eq 0 ] || set -- sudo -n "$@"
    "$@" >/dev/null 2>&1 || true
}
