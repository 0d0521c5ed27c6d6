# The image by a container engine: docker build --platform linux/amd64 --tag topogate .
# Its root is made by the same program from the same two locks as that of `make image`, which needs no engine: see docs/image.md.
# Only Python, apt and the tools that build come from the stage below; what they fetch is pinned by hash.
FROM python:3.11-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b AS build
WORKDIR /src
COPY requirements.lock .
RUN python -m pip install --no-cache-dir --require-hashes --requirement requirements.lock
COPY . .
RUN python -m tools.image root /image

FROM scratch
COPY --from=build /image /
ENV PATH=/usr/local/bin:/usr/bin LANG=C.UTF-8 PYTHONMALLOC=malloc GLIBC_TUNABLES=glibc.malloc.hugetlb=1
USER 65532:65532
WORKDIR /
ENTRYPOINT ["python", "-m"]
CMD ["reconciler", "--help"]
