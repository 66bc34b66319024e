#!/usr/bin/env python3
"""The bill of materials of a release as SPDX 2.3 JSON: the files that are published, with their SHA-256, and what they
were built from, in the versions that are installed here.

    sbom.py VERSION UNIX_TIME SITE_TOOLS FILE...

SITE_TOOLS is the environment of the tools that made the site, parts of which are in it. UNIX_TIME is that of the commit, so
that the same sources give the same document. What a vendor's plugin loads at run time (its driver, its libraries) is the
user's and is no part of this."""
import datetime
import glob
import hashlib
import importlib.metadata
import json
import os
import re
import subprocess
import sys

# What is compiled into rlk, or loaded by it, as Debian calls it: name, Debian's package, licence, how it is used.
MATERIALS = (
    ("oneTBB", "libtbb-dev", "Apache-2.0", "DYNAMIC_LINK"),
    ("Highway", "libhwy-dev", "Apache-2.0", "STATIC_LINK"),
    ("Boost", "libboost-dev", "BSL-1.0", "STATIC_LINK"),
    ("Boost.Program_options", "libboost-program-options-dev", "BSL-1.0", "STATIC_LINK"),
    ("spdlog", "libspdlog-dev", "MIT", "STATIC_LINK"),
    ("fmt", "libfmt-dev", "MIT", "STATIC_LINK"),
    ("toml++", "libtomlplusplus-dev", "MIT", "STATIC_LINK"),
    ("nlohmann-json", "nlohmann-json3-dev", "MIT", "STATIC_LINK"),
    ("xxHash", "libxxhash-dev", "BSD-2-Clause", "STATIC_LINK"),
    ("GNU C++ library", "libstdc++-12-dev", "GPL-3.0-or-later WITH GCC-exception-3.1", "STATIC_LINK"),
)
# Whose scripts and styles are in the site, as PyPI calls it.
OF_THE_SITE = (("sphinx", "BSD-2-Clause"), ("furo", "MIT"), ("sphinx-basic-ng", "MIT"), ("pygments", "BSD-2-Clause"),
               ("snowballstemmer", "BSD-3-Clause"))


def version_of(package):
    """Of the distribution: "2021.8.0-2"."""
    done = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"sbom: {package} is not installed here; run packaging/install-deps.sh")
    return done.stdout


def version_in(tools, name):
    folders = glob.glob(os.path.join(tools, "lib/python3*/site-packages"))
    for distribution in importlib.metadata.distributions(name=name, path=folders):
        return distribution.version
    sys.exit(f"sbom: {name} is not in {tools}; packaging/site.sh installs it there")


def digests_of(path):
    """SPDX asks for SHA-1 beside whatever else there is."""
    with open(path, "rb") as file:
        content = file.read()
    return {name: hashlib.new(name, content).hexdigest() for name in ("sha1", "sha256")}


def identifier(*words):
    return "SPDXRef-" + "-".join(re.sub(r"[^A-Za-z0-9.]+", "-", word).strip("-") for word in words)


def package(name, version, licence, **more):
    return {"SPDXID": identifier("Package", name), "name": name, "versionInfo": version, "licenseConcluded": licence,
            "licenseDeclared": licence, "copyrightText": "NOASSERTION", "downloadLocation": "NOASSERTION",
            "filesAnalyzed": False} | more


def published(path):
    name = os.path.basename(path)
    checksums = [{"algorithm": kind.upper(), "checksumValue": digest} for kind, digest in digests_of(path).items()]
    return {"SPDXID": identifier("File", name), "fileName": "./" + name, "checksums": checksums,
            "licenseConcluded": "Apache-2.0", "copyrightText": "NOASSERTION"}


def built_from(name, version, licence, origin):
    return package(name, version, licence, externalRefs=[
        {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": f"pkg:{origin}@{version}"}])


def document(version, when, tools, paths):
    rlk = package("rlk", version, "Apache-2.0")
    files = [published(path) for path in paths]
    materials = [built_from(name, version_of(debian), licence, f"deb/debian/{debian}") for name, debian, licence, _ in MATERIALS]
    of_the_site = [built_from(name, version_in(tools, name), licence, f"pypi/{name}") for name, licence in OF_THE_SITE]
    relations = [("SPDXRef-DOCUMENT", "DESCRIBES", rlk["SPDXID"])]
    relations += [(file["SPDXID"], "GENERATED_FROM", rlk["SPDXID"]) for file in files]
    relations += [(rlk["SPDXID"], material[3], identifier("Package", material[0])) for material in MATERIALS]
    relations += [(rlk["SPDXID"], "CONTAINS", contained["SPDXID"]) for contained in of_the_site]
    seed = hashlib.sha256("".join(file["checksums"][-1]["checksumValue"] for file in files).encode()).hexdigest()
    return {
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": f"rlk-{version}",
        "documentNamespace": f"https://rlk.invalid/spdx/rlk-{version}-{seed[:16]}",
        "creationInfo": {"created": when.strftime("%Y-%m-%dT%H:%M:%SZ"), "creators": ["Organization: The rlk project"]},
        "packages": [rlk, *materials, *of_the_site], "files": files,
        "relationships": [{"spdxElementId": a, "relationshipType": how, "relatedSpdxElement": b} for a, how, b in relations],
    }


def main():
    version, seconds, tools, *paths = sys.argv[1:]
    when = datetime.datetime.fromtimestamp(int(seconds), datetime.timezone.utc)
    print(json.dumps(document(version, when, tools, paths), indent=1))


if __name__ == "__main__":
    main()
