#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# abi.sh OUR_LIBRARY... - every symbol@version of the system's libibverbs is exported by each of ours. The names of
# IBVERBS_PRIVATE_* are for drivers: the library that stands in front leaves them to the system's, but
# for the one that programs use; the drop-in has them all.
set -u
LC_ALL=C
export LC_ALL

exported() {
	nm -D --with-symbol-versions "$1" | awk '$2 ~ /^[TDBRWi]$/ && $3 ~ /@/ { print $3 }' | sort
}

system=$(cc -print-file-name=libibverbs.so.1)
[ -e "$system" ] || system=$(ldconfig -p | awk '/libibverbs.so.1 / { print $NF; exit }')
if [ ! -e "$system" ]; then
	echo "no libibverbs of the system to compare with: skipped"
	exit 77
fi
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
exported "$system" >"$tmp/system"
if ! grep -q 'ibv_open_device@@IBVERBS_1.1' "$tmp/system"; then
	echo "can't read the symbols of $system"
	exit 1
fi
failed=0
for library in "$@"; do
	case $library in
	*/dropin/*) cp "$tmp/system" "$tmp/wanted" ;;
	*) grep -v -e '@@IBVERBS_PRIVATE' "$tmp/system" >"$tmp/wanted"
	   grep 'ibv_query_gid_type@@' "$tmp/system" >>"$tmp/wanted" ;;
	esac
	sort -o "$tmp/wanted" "$tmp/wanted"
	exported "$library" >"$tmp/ours"
	missing=$(comm -23 "$tmp/wanted" "$tmp/ours")
	# What we export besides must be our own mark: anything else would shadow somebody's symbol.
	extra=$(comm -13 "$tmp/system" "$tmp/ours" | grep -v '@@ROCELINK')
	echo "$library: $(wc -l <"$tmp/ours") symbols"
	if [ -n "$missing$extra" ]; then
		[ -n "$missing" ] && printf 'missing:\n%s\n' "$missing"
		[ -n "$extra" ] && printf 'not in %s:\n%s\n' "$system" "$extra"
		failed=1
	fi
done
exit $failed
