# One file, a stage a role: docker build --target server|shuffler|issuer|load --build-arg revision=$(git rev-parse HEAD) .
# The revision is what logs and /version say. The image of a service holds its role and the core, nothing else. The image of the load driver holds client and lab, without what only the workbench needs.
# Each stage stands right before what is made of it: a builder that makes all stages up to its target makes no other.
FROM python:3.12-slim AS builder
WORKDIR /build
RUN python3 -m venv --without-pip /opt/privateer
COPY requirements/ requirements/
ENV PIP="python3 -m pip --python /opt/privateer/bin/python --disable-pip-version-check --no-cache-dir" \
    WITHOUT_TESTS="find /opt/privateer -type d -name tests -prune -exec rm -r {} +"

FROM python:3.12-slim AS base
RUN useradd --system --uid 10001 --no-create-home privateer && mkdir -p /data /trusted /senders /tokens /keys \
    && chown privateer /data /trusted /senders /tokens /keys
ARG revision=""
ENV PATH=/opt/privateer/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PRIVATEER_REVISION=$revision
USER 10001

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
HEALTHCHECK --interval=5s --timeout=3s --start-period=20s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/readyz', timeout=2)"]
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
HEALTHCHECK --interval=5s --timeout=3s --start-period=20s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8001/readyz', timeout=2)"]
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
HEALTHCHECK --interval=5s --timeout=3s --start-period=20s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8004/readyz', timeout=2)"]
CMD ["privateer-issuer"]
