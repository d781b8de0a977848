#!/usr/bin/env bash
# Makes a virtual machine that has cameras: a Debian kernel with its module vivid (virtual video devices), and an
# initramfs that mounts this machine's own root read-only. Nothing is installed but the tools; the kernel is only unpacked.
#
# Exit code 77: it cannot be made here, and the last line says why. Done again only when something is missing.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
home=${V4L2_MACHINE_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/pinhole/v4l2-machine}
stamp=$home/made-by

cannot() { echo "no virtual machine: $*" >&2; exit 77; }

[ "$(uname -m)" = x86_64 ] || cannot "it is made for x86_64, this is $(uname -m)"
recipe=$(cat "$here/build.sh" "$here/init" | sha256sum)
[ "$(cat "$stamp" 2>/dev/null)" = "$recipe" ] && command -v qemu-system-x86_64 >/dev/null && exit 0

command -v apt-get >/dev/null || cannot "the kernel comes from Debian's archive, and there is no apt-get"
missing=()
declare -A tool=([qemu-system-x86]=qemu-system-x86_64 [cpio]=cpio [kmod]=depmod [v4l-utils]=v4l2-ctl)
for package in "${!tool[@]}"; do
    PATH=$PATH:/usr/sbin:/sbin command -v "${tool[$package]}" >/dev/null || missing+=("$package")
done
busybox=$(command -v busybox || true)
if [ -z "$busybox" ] || ldd "$busybox" >/dev/null 2>&1; then missing+=(busybox-static); fi
if [ ${#missing[@]} -gt 0 ]; then
    [ "$(id -u)" = 0 ] || cannot "root has to install ${missing[*]} (apt-get install ${missing[*]})"
    apt-get update -qq || cannot "apt-get update failed"
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null ||
        cannot "apt-get could not install ${missing[*]}"
fi
export PATH=$PATH:/usr/sbin:/sbin

mkdir -p "$home"
cd "$home"
rm -f "$stamp"
image=$(apt-cache depends linux-image-amd64 2>/dev/null | sed -n 's/^ *Depends: \(linux-image-[0-9][^ ]*\)$/\1/p' | head -n 1)
[ -n "$image" ] || cannot "apt knows no linux-image-amd64: this is not Debian, or its lists are empty (apt-get update)"
version=${image#linux-image-}

if [ ! -e "kernel/lib/modules/$version/modules.dep.bin" ]; then
    rm -rf kernel ./*.deb
    mkdir kernel
    # The sandbox user of apt may not write here; that warning is of no use.
    apt-get download -qq -o APT::Sandbox::User=root "$image" || cannot "apt-get could not download $image"
    wanted=(./boot/vmlinuz-* './lib/modules/*/modules.*')
    for part in drivers/media drivers/virtio drivers/char/virtio_console.ko fs/9p fs/netfs fs/fscache net/9p fs/overlayfs \
        drivers/usb/common drivers/usb/core sound/core drivers/gpu/drm/drm.ko fs/configfs; do
        wanted+=("./lib/modules/*/kernel/$part*")
    done
    dpkg-deb --fsys-tarfile ./*.deb | tar -x -C kernel --wildcards "${wanted[@]}"
    rm -f ./*.deb
    depmod -b "$home/kernel" "$version"
fi

# QEMU starts an uncompressed kernel at its PVH entry without a BIOS; unpacking it here spares the emulated CPU seconds.
python3 - "kernel/boot/vmlinuz-$version" vmlinux <<'PY'
import lzma
import sys

packed = open(sys.argv[1], "rb").read()
at = packed.find(b"\xfd7zXZ\0")
while at >= 0:
    try:
        kernel = lzma.LZMADecompressor(lzma.FORMAT_XZ).decompress(packed[at:])
    except lzma.LZMAError:
        kernel = b""
    if kernel.startswith(b"\x7fELF"):
        open(sys.argv[2], "wb").write(kernel)
        break
    at = packed.find(b"\xfd7zXZ\0", at + 1)
else:
    sys.exit("this kernel is not packed with xz")
PY

rm -rf root
mkdir -p root/bin root/modules
for module in virtio_pci virtio_console 9pnet_virtio 9p overlay; do
    modprobe -d "$home/kernel" -S "$version" --show-depends "$module" | sed -n 's/^insmod \([^ ]*\).*/\1/p'
done | awk '!seen[$0]++' > order
while read -r file; do
    cp "$file" root/modules/
    basename "$file"
done < order > root/modules/order
cp "$(command -v busybox)" root/bin/busybox
install -m 755 "$here/init" root/init
(cd root && find . | cpio --quiet -o -H newc | gzip -1) > initramfs.gz
echo "$version" > version
echo "$recipe" > "$stamp"
