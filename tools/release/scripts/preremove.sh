#!/bin/sh
# Before a removal (dpkg: remove, rpm: 0) or an upgrade, which leaves the server running.
set -e
case "$1" in
remove | 0)
	if [ -d /run/systemd/system ]; then
		systemctl disable --now seamark.service seamark.socket seamark-node.service
	fi
	;;
esac
