# The image of Armillary, in the place of the official emulator's: docs/docker.md. Made of a checkout:
#   docker build --tag armillary .
# All steps run as they are on x86-64 and aarch64. A test reads this file and runs its commands without Docker.

FROM python:3.11-slim AS build
WORKDIR /source
COPY requirements.lock requirements-build.lock pyproject.toml README.md LICENSE ./
RUN python -m venv /build \
    && /build/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements-build.lock
RUN python -m venv /opt/armillary \
    && /opt/armillary/bin/pip install --no-cache-dir --disable-pip-version-check --only-binary=:all: --require-hashes \
        -r requirements.lock
COPY src src
RUN /build/bin/python -m hatchling build --target wheel --directory /wheels
RUN /opt/armillary/bin/pip install --no-cache-dir --disable-pip-version-check --no-deps --no-index /wheels/*.whl \
    && /opt/armillary/bin/python -m compileall -q /opt/armillary/lib

FROM python:3.11-slim
LABEL org.opencontainers.image.title="Armillary" \
    org.opencontainers.image.description="An open, partitioned multi-model database that speaks the protocols of Azure Cosmos DB" \
    org.opencontainers.image.licenses="MIT"
COPY --from=build /opt/armillary /opt/armillary
RUN groupadd --gid 10001 armillary \
    && useradd --uid 10001 --gid armillary --home-dir /nonexistent --no-create-home --shell /usr/sbin/nologin armillary \
    && install --directory --owner armillary --group armillary --mode 0700 /data
# Nothing is written but below /data and /tmp, so the root file system may be read-only.
# ARMILLARY_ALLOW_WELL_KNOWN_KEY: every client that reaches the ports owns the database. Publish them to one machine only
# (--publish 127.0.0.1:8081:8081), or give the server a key of its own (KEY_FILE, ARMILLARY_KEY_FILE).
ENV PATH=/opt/armillary/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    XDG_RUNTIME_DIR=/tmp \
    ARMILLARY_HOST=0.0.0.0 \
    ARMILLARY_ALLOW_WELL_KNOWN_KEY=true \
    ARMILLARY_DATA=/data \
    ARMILLARY_HEALTH_PORT=8080
USER 10001:10001
WORKDIR /tmp
VOLUME /data
EXPOSE 8081 8080 1234 8901 8902 10255
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=6 CMD armillary health || exit 1
ENTRYPOINT ["armillary", "emulator"]
