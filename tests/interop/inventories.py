"""Read inventories with lib4sbom, in the environment of `make interop`: names and versions by file, as JSON."""

import json
import sys
from pathlib import Path

from lib4sbom.parser import SBOMParser


def read(path: str) -> dict[str, object]:
    """The product of an inventory, and its packages, each with the address that scanners of weaknesses look up."""
    parser = SBOMParser()
    parser.parse_file(path)
    document, packages = parser.get_document(), parser.get_packages()
    addresses = [reference[2] for package in packages for reference in package["externalreference"]]
    return {
        "type": parser.get_type(),
        "product": [document["name"], document["metadata_version"]],
        "packages": sorted([package["name"], package["version"]] for package in packages),
        "addresses": sorted(address for address in addresses if address.startswith("pkg:")),
    }


print(json.dumps({Path(path).name.partition(".")[0]: read(path) for path in sys.argv[1:]}))
