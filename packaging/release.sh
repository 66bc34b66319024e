#!/usr/bin/env bash
# Makes what a release of rlk publishes, in build/publish: wheel, Debian package, the site of all pages (which the Debian
# package has, too), source archive, SBOM (SPDX 2.3) and SHA256SUMS, which names them all. Publishes nothing.
#
#   packaging/release.sh                  builds the preset release first
#   packaging/release.sh --build FOLDER   packs what was built in FOLDER, which had RLK_PORTABLE=ON
#
# The tree must be committed, and the newest section of CHANGELOG.md be of the version that CMakeLists.txt names, with a
# date. With RLK_RELEASE_TRIAL=1 both are warnings: for a trial.
set -euo pipefail
cd "$(dirname "$0")/.."
build=build/release publish=$PWD/build/publish
case $#:${1-} in
  0:) ;;
  2:--build) build=$2 ;;
  *) echo "usage: release.sh [--build FOLDER], not '$*'" >&2; exit 2 ;;
esac
refuse() {
  echo "release: $1" >&2
  [ -n "${RLK_RELEASE_TRIAL-}" ] || exit 1
}
version=$(sed -nE 's/^project\(rlk VERSION ([0-9.]+).*/\1/p' CMakeLists.txt)
newest=$(grep -m 1 '^## ' CHANGELOG.md)
[[ $newest =~ ^"## $version "\([0-9]{4}-[0-9]{2}-[0-9]{2}\)$ ]] ||
  refuse "the newest section of CHANGELOG.md is '$newest'; expected '## $version (YYYY-MM-DD)'"
[ -z "$(git status --porcelain)" ] || refuse "there are changes that are not committed; the source archive is of the last commit"

if [ $# -eq 0 ]; then
  cmake --preset release > /dev/null
  cmake --build "$build"
fi
rm -rf "$publish"
mkdir -p "$publish"
committed=$(git log -1 --format=%ct)
git archive --format=tar.gz --prefix="rlk-$version/" -o "$publish/rlk-$version.tar.gz" HEAD
# Before the packages, which take it along.
RLK_SITE_FOLDER=$PWD/build/site packaging/site.sh --build "$build" > /dev/null
tar -C build/site --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$committed" --transform="s,^html,rlk-$version-html," \
  -cf - html | gzip -9n > "$publish/rlk-$version-html.tar.gz"
RLK_WHEEL_FOLDER=$PWD/build/wheel packaging/wheel.sh --build "$build" > /dev/null
cp build/wheel/rlk-*.whl "$publish"
cpack --config "$build/CPackConfig.cmake" -B build/deb > build/deb.log || { tail -n 20 build/deb.log >&2; exit 1; }
cp build/deb/rlk_*.deb "$publish"
python3 packaging/sbom.py "$version" "$committed" build/site/tools "$publish"/* > "$publish/rlk-$version.spdx.json"
(cd "$publish" && sha256sum -- * > SHA256SUMS)
cat "$publish/SHA256SUMS"
