#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# image.sh CACHE AGENT PROBE [FILE...]: makes CACHE/vmlinuz and CACHE/initrd, a guest with Debian's
# kernel, busybox, Debian's verbs programs, and the shared libraries these and FILEs need. Cached: a
# digest of all that goes in is kept beside the image, and nothing is done when it still matches.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=$1 agent=$2 probe=$3
shift 3

programs=(ibv_devices ibv_devinfo ibv_rc_pingpong ibv_uc_pingpong ibv_ud_pingpong ibv_srq_pingpong
	ib_send_bw ib_send_lat ib_write_bw ib_write_lat ib_read_bw ib_read_lat ib_atomic_bw ib_atomic_lat
	rdma ip tc tcpdump)
modules=(virtio_pci virtio_net 9pnet_virtio 9p veth rdma_rxe ib_uverbs sch_netem sch_ingress ifb
	act_mirred cls_matchall crc32_generic)

mkdir -p "$cache"
kernel_package() {
	apt-cache depends linux-image-amd64 2>/dev/null | awk '/Depends: linux-image-/ { print $2; exit }' || true
}
# Into CACHE; the lists may be missing or name a package that its successor has replaced.
download() {
	package=$(kernel_package)
	[ -n "$package" ] && (cd "$cache" && apt-get download -qq "$package" 2>&1 | grep -v unsandboxed || true) &&
		[ -n "$(find "$cache" -maxdepth 1 -name "${package}_*.deb")" ]
}
package=$(kernel_package)
if [ -z "$package" ] || [ ! -d "$cache/$package/lib/modules" ]; then
	echo "image.sh: fetching linux-image-amd64"
	download || { $([ "$(id -u)" = 0 ] || echo sudo) apt-get update -qq && download; } ||
		{ echo "image.sh: apt can't fetch linux-image-amd64" >&2; exit 1; }
	dpkg -x "$cache/$package"_*.deb "$cache/$package"
	rm -f "$cache/$package"_*.deb
	busybox depmod -b "$cache/$package" "${package#linux-image-}"
fi
version=${package#linux-image-}

paths=("$agent" "$probe")
for program in "${programs[@]}"; do
	paths+=("$(PATH=$PATH:/usr/sbin:/sbin command -v "$program")")
done
provider=$(find /usr/lib -name 'librxe-rdmav*.so' | head -n 1)
libraries=$({ ldd /bin/dash "${paths[@]}" "$provider" "$@" 2>/dev/null || true; } | grep -v "^/.*:$" |
	grep -oE '/[^ ]+' | grep -v "^$(dirname "${1:-/nonexistent}")/" | sort -u)

digest=$(cat "$0" "$here/init" "${paths[@]}" /bin/busybox $libraries "$provider" <(echo "$package") | sha256sum)
if [ "$(cat "$cache/digest" 2>/dev/null)" = "$digest" ] && [ -s "$cache/initrd" ]; then
	exit 0
fi

root=$cache/root
rm -rf "$root"
mkdir -p "$root"/{bin,sbin,usr/bin,etc/libibverbs.d,lib/modules/"$version"}
# Not busybox's shell: it prefers its own ip and tc to the real ones.
cp /bin/dash "$root/bin/sh"
cp /bin/busybox "$root/bin/busybox"
ln -s /bin/busybox "$root/sbin/modprobe"
cp "$here/init" "$root/init"
cp "${paths[@]}" "$root/usr/bin/"
for path in $libraries "$provider"; do
	mkdir -p "$root$(dirname "$path")"
	cp -L "$path" "$root$path"
done
cp /etc/libibverbs.d/rxe.driver "$root/etc/libibverbs.d/"
echo 'root:x:0:0::/tmp:/bin/sh' > "$root/etc/passwd"
echo 'user:x:1000:1000::/tmp:/bin/sh' >> "$root/etc/passwd"
printf '127.0.0.1 localhost\n::1 localhost\n' > "$root/etc/hosts"

# Every module with all it depends on; modules.dep gives the closure.
from=$cache/$package/lib/modules/$version
for module in "${modules[@]}"; do
	# A module's file may have - where its name has _.
	grep -E "/${module//_/[-_]}\.ko:" "$from/modules.dep" | tr -d :
done | tr ' ' '\n' | sort -u | while read -r file; do
	[ -n "$file" ] && install -D -m 644 "$from/${file#"lib/modules/$version/"}" \
		"$root/lib/modules/$version/${file#"lib/modules/$version/"}"
done
busybox depmod -b "$root" "$version"

(cd "$root" && find . | busybox cpio -o -H newc | gzip -1) > "$cache/initrd.new"
mv "$cache/initrd.new" "$cache/initrd"
cp "$cache/$package/boot/vmlinuz-$version" "$cache/vmlinuz"
echo "$version" > "$cache/version"
echo "$digest" > "$cache/digest"
