#!/bin/sh
# Builds a free-threaded Python from Debian's sources, for the row python3.13t of tools/test_matrix.sh.
#
#   tools/build_free_threaded_python.sh FOLDER            then put FOLDER/bin into PATH
#   FREE_RELEASE=forky FREE_SOURCE=python3.14 tools/…     from another release of Debian
#
# Debian has no such package, so that it is compiled here, in minutes. Needs gcc, make, dpkg-dev, and for pip
# libssl-dev, zlib1g-dev and libffi-dev. Reads MATRIX_MIRROR as tools/test_matrix.sh does; nothing of apt's set-up is
# changed.
set -eu
[ $# -eq 1 ] || {
    sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
    exit 2
}
mkdir -p "$1"
folder=$(cd "$1" && pwd)
release=${FREE_RELEASE:-trixie} source=${FREE_SOURCE:-python3.13}
# shellcheck disable=SC2016  # it is apt's own syntax
mirror=${MATRIX_MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' | grep -v security | head -n 1)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
cd "$work"
mkdir -p lists/partial
echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $release main" >sources.list
set -- -qq -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Dir::State::lists="$work/lists" \
    -o APT::Sandbox::User=root
apt-get "$@" update
apt-get "$@" --download-only source "$source"
tar -xf "$source"_*.orig.tar.xz
cd Python-*
./configure -q --disable-gil --prefix="$folder" >"$folder/build.log" 2>&1
{ make -j "$(nproc)" && make install; } >>"$folder/build.log" 2>&1
echo "free-threaded: $folder/bin/${source}t"
