# Headway for servers and workers. From the repository's root, after infra/wheel.sh:
#   docker build -f infra/images/headway.Dockerfile --target cpu -t headway:0.1.0-cpu .
#   docker build -f infra/images/headway.Dockerfile --target gpu -t headway:0.1.0-gpu .
# The targets differ in TensorFlow's CUDA libraries only, which [and-cuda] installs beside it: the host needs NVIDIA's
# driver and container toolkit, and no CUDA.
FROM python:3.11-slim-bookworm AS base
# -P keeps a flows/ folder of the working directory from being taken for Headway's
ENV PYTHONSAFEPATH=1 PYTHONUNBUFFERED=1 PREFECT_SERVER_ANALYTICS_ENABLED=false DO_NOT_TRACK=1
# store and data belong to this user on the host too: --build-arg UID="$(id -u)"
ARG UID=1000
# tini: PID 1 passes signals on, and ends what a killed run leaves behind. A new volume takes the owner of .prefect
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends tini=0.19.* && rm -r /var/lib/apt/lists/* \
    && useradd --create-home --uid "$UID" headway && install -d -o headway -g headway -m 700 /home/headway/.prefect
ENTRYPOINT ["tini", "--"]
COPY constraints.txt dist/headway-*.whl /build/

FROM base AS cpu
RUN set -- /build/headway-*.whl \
    && pip install --no-cache-dir -c /build/constraints.txt "$1[prefect,serve]" && rm -r /build
USER headway
WORKDIR /home/headway
CMD ["python", "-m", "flows.orchestration.worker", "--pool", "headway"]

FROM base AS gpu
RUN set -- /build/headway-*.whl \
    && pip install --no-cache-dir -c /build/constraints.txt "$1[prefect,serve]" "tensorflow[and-cuda]" \
    && rm -r /build
# one process per GPU takes what it needs, and leaves the rest to whoever else is on it
ENV TF_FORCE_GPU_ALLOW_GROWTH=true
USER headway
WORKDIR /home/headway
CMD ["python", "-m", "flows.orchestration.worker", "--pool", "headway"]
