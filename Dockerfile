# One file, a stage a role: docker build --target server|shuffler|issuer|load --build-arg revision=$(git rev-parse HEAD) .
# The revision is what logs and /version say. The image of a service holds its role and the core, nothing else. The image of the load driver holds client and lab, without what only the workbench needs.
# Each stage stands right before what is made of it: a builder that makes all stages up to its target makes no other.
# BASE takes another base image, such as one of a digest: --build-arg BASE=python@sha256:...
ARG BASE=python:3.12-slim
FROM ${BASE} AS builder
WORKDIR /build
RUN python3 -m venv --without-pip /opt/privateer
COPY requirements/ requirements/
ENV PIP="python3 -m pip --python /opt/privateer/bin/python --disable-pip-version-check --no-cache-dir" \
    WITHOUT_TESTS="find /opt/privateer -type d -name tests -prune -exec rm -r {} +"

FROM ${BASE} AS base
RUN useradd --system --uid 10001 --no-create-home privateer && mkdir -p /data /trusted /senders /tokens /keys \
    && chown privateer /data /trusted /senders /tokens /keys
ARG revision=""
ENV PATH=/opt/privateer/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PRIVATEER_REVISION=$revision
USER 10001
# A shell's own connection: an interpreter that starts for each check takes a fiftieth of a processor.
HEALTHCHECK --interval=5s --timeout=3s --start-period=20s \
    CMD ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/$PRIVATEER_PORT && printf 'GET /readyz HTTP/1.0\\r\\n\\r\\n' >&3 && read -r _ status _ <&3 && [ \"$status\" = 200 ]"]

FROM builder AS build-server
RUN $PIP install --quiet --require-hashes -r requirements/server.txt
COPY shared/ shared/
COPY server/ server/
RUN $PIP install --quiet --no-deps --no-build-isolation ./shared ./server && $PIP uninstall --quiet --yes hatchling && $WITHOUT_TESTS

FROM base AS server
COPY --from=build-server /opt/privateer /opt/privateer
ENV PRIVATEER_HOST=0.0.0.0 PRIVATEER_PORT=8000 PRIVATEER_ADMIN_HOST=0.0.0.0 PRIVATEER_ADMIN_PORT=8002 \
    PRIVATEER_DATA=/data PRIVATEER_SHUFFLER_KEYS=/trusted PRIVATEER_SENDER_KEYS=/senders
EXPOSE 8000 8002
CMD ["privateer-server"]

FROM builder AS build-shuffler
RUN $PIP install --quiet --require-hashes -r requirements/shuffler.txt
COPY shared/ shared/
COPY shuffler/ shuffler/
RUN $PIP install --quiet --no-deps --no-build-isolation ./shared ./shuffler && $PIP uninstall --quiet --yes hatchling && $WITHOUT_TESTS

FROM base AS shuffler
COPY --from=build-shuffler /opt/privateer /opt/privateer
ENV PRIVATEER_HOST=0.0.0.0 PRIVATEER_PORT=8001 PRIVATEER_ADMIN_HOST=0.0.0.0 PRIVATEER_ADMIN_PORT=8003 \
    PRIVATEER_DATA=/data PRIVATEER_PUBLIC_KEY_FILE=/trusted/shuffler.pub PRIVATEER_SENDER_KEYS=/senders
EXPOSE 8001 8003
CMD ["privateer-shuffler"]

FROM builder AS build-load
RUN $PIP install --quiet --require-hashes -r requirements/load.txt
COPY shared/ shared/
COPY client/ client/
COPY lab/ lab/
RUN $PIP install --quiet --no-deps --no-build-isolation ./shared ./client ./lab && $PIP uninstall --quiet --yes hatchling && $WITHOUT_TESTS

FROM base AS load
COPY --from=build-load /opt/privateer /opt/privateer
ENV PRIVATEER_SENDER_KEY=/data/sender.key PRIVATEER_SENDER_PUBLIC_KEY_FILE=/senders/load.pub
HEALTHCHECK NONE
ENTRYPOINT ["privateer-load"]

FROM builder AS build-issuer
RUN $PIP install --quiet --require-hashes -r requirements/issuer.txt
COPY shared/ shared/
COPY issuer/ issuer/
RUN $PIP install --quiet --no-deps --no-build-isolation ./shared ./issuer && $PIP uninstall --quiet --yes hatchling && $WITHOUT_TESTS

FROM base AS issuer
COPY --from=build-issuer /opt/privateer /opt/privateer
ENV PRIVATEER_HOST=0.0.0.0 PRIVATEER_PORT=8004 PRIVATEER_ADMIN_HOST=0.0.0.0 PRIVATEER_ADMIN_PORT=8005 \
    PRIVATEER_DATA=/data PRIVATEER_PUBLIC_KEY_FILE=/tokens/issuer.json
EXPOSE 8004 8005
CMD ["privateer-issuer"]
