#!/bin/sh
# Builds all fuzz targets with their seeds and dictionaries. OSS-Fuzz sets OUT, CC, CXX, CXXFLAGS and
# LIB_FUZZING_ENGINE. Elsewhere clang and libFuzzer of the system are used:
#
#	OUT=/tmp/targets tools/oss-fuzz/build.sh [PACKAGE...]
set -eu
if [ -n "${SRC:-}" ]; then cd "$SRC/seamark/tools"; else cd "$(dirname "$0")/.."; fi
exec go run ./oss-fuzz -source .. -output "${OUT:?the directory for the programs}" "$@"
