#!/bin/sh
# pkg_config.sh COMPILER SOURCE LIBDIR PROGRAM: builds and runs a C program with what rlk.pc says.
set -e
export PKG_CONFIG_PATH="$3/pkgconfig"
# shellcheck disable=SC2046  # pkg-config's answer is words
"$1" -std=c11 -Wall -Werror "$2" -o "$4" $(pkg-config --cflags --libs rlk) -lm
LD_LIBRARY_PATH="$3" "$4"
