#!/usr/bin/env bash
# run.sh SECONDS COMMAND: runs a shell command in the virtual machine (see build.sh), as root, in this working directory
# on this machine's own files. Its output and exit code come back; what it writes is gone but for /mnt/exchange, which is
# $V4L2_MACHINE_EXCHANGE here if that is set. Exit code 124: the time was over; 125: the machine did not come to the command.
set -euo pipefail
home=${V4L2_MACHINE_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/pinhole/v4l2-machine}
limit=$1
shift
mine=
exchange=${V4L2_MACHINE_EXCHANGE:-}
if [ -z "$exchange" ]; then exchange=$(mktemp -d); mine=$exchange; fi
trap '[ -z "$mine" ] || rm -rf "$mine"' EXIT
printf 'export PATH=%q HOME=%q LANG=C.UTF-8 IN_V4L2_MACHINE=1\ncd %q || exit 125\n%s\n' "$PATH:/usr/sbin:/sbin" "$HOME" "$PWD" "$*" \
    > "$exchange/command"
rm -f "$exchange/code"
# /dev/kvm alone proves nothing: nested, it may open and then run no such kernel.
accelerator=(-accel tcg,thread=multi,tb-size=512 -cpu max)
if grep -qwE 'vmx|svm' /proc/cpuinfo && [ -w /dev/kvm ]; then accelerator=(-accel kvm -cpu host); fi
code=0
timeout -k 5 "$limit" qemu-system-x86_64 -M q35,hpet=off "${accelerator[@]}" -m 2048 -smp 2 \
    -nodefaults -no-user-config -display none -no-reboot \
    -kernel "$home/vmlinux" -initrd "$home/initramfs.gz" \
    -append "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable no_timer_check nokaslr audit=0 apparmor=0 machine=$home" \
    -serial "file:$exchange/console" \
    -device virtio-serial-pci -chardev stdio,id=out,signal=off -device virtconsole,chardev=out \
    -fsdev local,id=root,path=/,security_model=none,readonly=on,multidevs=remap -device virtio-9p-pci,fsdev=root,mount_tag=root \
    -fsdev "local,id=exchange,path=$exchange,security_model=none" -device virtio-9p-pci,fsdev=exchange,mount_tag=exchange \
    < /dev/null || code=$?
if [ $code = 124 ] || [ $code = 137 ]; then echo "the machine was stopped after $limit s" >&2; exit 124; fi
if [ ! -s "$exchange/code" ]; then tail -n 30 "$exchange/console" >&2; exit 125; fi
exit "$(cat "$exchange/code")"
