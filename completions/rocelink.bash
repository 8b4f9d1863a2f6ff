# SPDX-License-Identifier: BSD-2-Clause
# bash completion for rocelink

_rocelink_devices()
{
	rocelink devices --json 2>/dev/null | grep -o '"name":"[^"]*"' | cut -d'"' -f4
}

# What may follow the option $1 of the subcommand $2; fails when nothing is known.
_rocelink_value()
{
	case $2:$1 in
	run:--path) echo auto udp shm ;;
	run:--log) echo off error warn info debug trace ;;
	pingpong:--type | pingpong:-t) echo rc uc ud xrc ;;
	pingpong:--op | pingpong:-o) echo send write read fetch-add cmp-swap ;;
	pingpong:--mtu | pingpong:-m) echo 256 512 1024 2048 4096 ;;
	pingpong:--compat) echo ibv ibv-srq ;;
	pingpong:--ib-dev | pingpong:-d) _rocelink_devices ;;
	*) return 1 ;;
	esac
}

_rocelink_options()
{
	case $1 in
	run) echo --path --pcap --log --fault --dropin --help ;;
	devices) echo --verbose --json --to --help ;;
	pingpong)
		echo --type --op --size --iters --ib-dev --ib-port --gid-idx --mtu --events --port \
			--listen --secret-file --plain --explain --verify --rnr-demo --compat --num-qp \
			--json --help
		;;
	decode) echo --json --svg --help ;;
	doctor) echo --serve --listen --port --help ;;
	counters) echo --help ;;
	esac
}

_rocelink()
{
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]} words
	local i

	COMPREPLY=()
	if ((COMP_CWORD == 1)); then
		mapfile -t COMPREPLY < <(compgen -W \
			"run devices pingpong decode doctor counters --help --version" -- "$cur")
		return
	fi
	# Behind run's options stands another program's line.
	if [[ $command == run ]]; then
		for ((i = 2; i < COMP_CWORD; i++)); do
			case ${COMP_WORDS[i]} in
			--)
				mapfile -t COMPREPLY < <(compgen -c -f -- "$cur")
				return
				;;
			esac
		done
	fi
	if words=$(_rocelink_value "$prev" "$command"); then
		mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
		return
	fi
	case $prev in
	--pcap | --svg | --secret-file)
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	--to)
		mapfile -t COMPREPLY < <(compgen -A hostname -- "$cur")
		return
		;;
	esac
	if [[ $cur == -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$(_rocelink_options "$command")" -- "$cur")
		return
	fi
	case $command in
	decode) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
	run) mapfile -t COMPREPLY < <(compgen -c -- "$cur") ;;
	pingpong | doctor) mapfile -t COMPREPLY < <(compgen -A hostname -- "$cur") ;;
	esac
}

complete -o filenames -F _rocelink rocelink
