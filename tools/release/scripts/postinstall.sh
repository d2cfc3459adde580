#!/bin/sh
# After an installation or an upgrade. A running server is replaced; its sockets stay open.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	systemctl try-restart seamark.service
fi
