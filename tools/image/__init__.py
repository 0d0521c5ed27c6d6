"""The container image, made without a container engine: `python -m tools.image` (`make image`).

debian    Debian's packages: pinned, fetched by the machine's apt, read
base      the root file system of them: what is left out, and what their scripts would have done
wheels    Python's packages: pinned, fetched by the image's own Python, unpacked
project   what is ours: the wheel, its version, the time of the commit
build     the image of all these
oci       an image as an OCI archive
sbom      what is in it, as CycloneDX
"""
