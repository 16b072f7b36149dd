# PostgreSQL and the balancer from Debian's packages, for a machine that reaches no registry of images: tests/e2e/scale.sh sets
# PRIVATEER_POSTGRES_IMAGE and PRIVATEER_BALANCER_IMAGE to it. docker-compose.scale.yml names the official images.
ARG BASE=python:3.12-slim
FROM ${BASE}
RUN apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql-15 nginx-light \
    && rm -rf /var/lib/apt/lists/* && install -d -o postgres -m 700 /var/lib/postgresql/data
ENV PATH=/usr/lib/postgresql/15/bin:$PATH
COPY postgres.sh /postgres.sh
CMD ["sh", "/postgres.sh"]
