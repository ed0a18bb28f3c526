# Beam's SDK harness with Headway in it, for runners that start workers as containers (environment_type: DOCKER).
# From the repository's root, after infra/wheel.sh:
#   docker build -f infra/images/beam-worker.Dockerfile -t headway-beam-worker .
FROM apache/beam_python3.11_sdk:2.77.0
COPY constraints.txt dist/headway-*.whl /build/
RUN pip install --no-cache-dir -c /build/constraints.txt /build/headway-*.whl && rm -r /build
