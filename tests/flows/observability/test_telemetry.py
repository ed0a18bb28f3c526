"""OpenTelemetry: one span for each step under one for the run, in the trace that the environment names; measurements."""

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from flows.config.pipeline import read_pipeline
from flows.dag.run_spec import RunSpec
from flows.execution.run import execute
from flows.observability.providers import Providers
from flows.observability.telemetry import Telemetry
from flows.progress.reporter import Reporter
from headway.errors import DataError
from headway.redaction import remember
from tests.ports import free_port
from tfcore.runtime.tensorflow_process import traceparent

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.fixture
def memory():
    """Providers that keep all in memory: (providers, finished spans, {metric: data points})."""
    spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
    traced, metered = TracerProvider(shutdown_on_exit=False), MeterProvider([reader], shutdown_on_exit=False)
    traced.add_span_processor(SimpleSpanProcessor(spans))

    def points():
        found = reader.get_metrics_data().resource_metrics[0].scope_metrics[0].metrics
        return {metric.name: list(metric.data.data_points) for metric in found}

    made = Providers(traced.get_tracer("test"), metered.get_meter("test"))
    return made, spans.get_finished_spans, points


def _spec(project, last):
    loaded = read_pipeline(project / "pipeline.yaml")
    return RunSpec(loaded=loaded, store=loaded.open_store(), window=2, last=last)


def test_a_run_is_a_span_with_one_for_each_step_under_it(project, memory, monkeypatch):
    providers, finished, points = memory
    monkeypatch.setenv("TRACEPARENT", f"00-{TRACE}-{PARENT}-01")
    current = []

    class Asks(Reporter):
        def output(self, output):
            current.append(traceparent())

    for _ in range(2):
        execute(_spec(project, "statistics"), Reporter([Telemetry(providers), Asks()]))
    first, second = (span for span in finished() if span.name == "run flights")
    for run in (first, second):
        assert f"{run.context.trace_id:032x}" == TRACE and f"{run.parent.span_id:016x}" == PARENT
        assert run.attributes["headway.state"] == "done" and run.attributes["headway.last_span"] == "2013-04"
    steps = {span.name: span for span in finished() if span.parent.span_id == first.context.span_id}
    assert set(steps) == {"ingest 2013-03", "ingest 2013-04", "statistics"}
    march, loaded = steps["ingest 2013-03"], _spec(project, "statistics")
    written = loaded.store.find("ingest", march.attributes["headway.fingerprint"]).counts.written
    assert (
        dict(march.attributes).items()
        >= {
            "headway.pipeline": "flights",
            "headway.stage": "ingest",
            "headway.reused": False,
            "headway.rows": written,
            "headway.why": "never run",
        }.items()
    )
    assert march.attributes["headway.bytes"] > 10_000 and len(march.attributes["headway.fingerprint"]) == 32
    reused = {span.name: span for span in finished() if span.parent.span_id == second.context.span_id}
    assert set(reused) == set(steps) and all(span.attributes["headway.reused"] for span in reused.values())
    # while a stage runs its span is the current one: a child process goes on in it
    assert current[0] is not None and current[0].split("-")[1] == TRACE and current[-1] is None

    found = points()
    rows = {point.attributes["headway.outcome"]: point.value for point in found["headway.ingest.rows"]}
    assert sum(rows.values()) == 4000 and rows["filtered"] and not rows["quarantined"]
    stages = [p for p in found["headway.stage.duration"] if p.attributes["headway.stage"] == "ingest"]
    assert {p.attributes["headway.reused"]: p.count for p in stages} == {False: 2, True: 2}
    assert found["headway.run.duration"][0].count == 2
    events = {point.attributes["headway.event"]: point.value for point in found["headway.events"]}
    assert events == {"headway.span.ingested": 2}


def test_what_fails_is_an_error_of_its_span_and_of_the_runs_and_tells_no_secret(project, memory):
    providers, finished, _ = memory
    remember("A_TOKEN", "s3cr3t-value-1234")
    (project / "data" / "2013-04.parquet").write_bytes(b"PAR1 s3cr3t-value-1234 PAR1")
    with pytest.raises(DataError):
        execute(_spec(project, "ingest"), Telemetry(providers))
    failed = [span for span in finished() if span.status.status_code == StatusCode.ERROR]
    assert {span.name for span in failed} >= {"run flights"}
    assert "s3cr3t" not in "".join(span.to_json() for span in finished())


class Collector(BaseHTTPRequestHandler):
    def do_POST(self):
        self.server.got.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *arguments):
        pass


@pytest.fixture
def collector():
    """An OTLP/HTTP receiver: its address, and what came: (path, body)."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    server.got = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", server.got
    server.shutdown()
    server.server_close()


def _environment(**variables):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "TRACE"))}
    return kept | {"NO_PROXY": "127.0.0.1"} | variables


def test_the_standard_variables_send_a_run_to_a_collector(project, headway, collector):
    address, got = collector
    env = _environment(
        OTEL_EXPORTER_OTLP_ENDPOINT=address,
        OTEL_SERVICE_NAME="nightly",
        OTEL_RESOURCE_ATTRIBUTES="team=growth",
        TRACEPARENT=f"00-{TRACE}-{PARENT}-01",
    )
    done = headway("stats", project, "--json", env=env, check=0)
    assert not done.stderr, "telemetry is silent"
    spans, metrics = [], set()
    for path, body in got:
        if path == "/v1/traces":
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                about = {a.key: a.value.string_value for a in resource.resource.attributes}
                assert about["service.name"] == "nightly" and about["team"] == "growth"
                spans += [span for scope in resource.scope_spans for span in scope.spans]
        else:
            assert path == "/v1/metrics"
            for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                metrics |= {metric.name for scope in resource.scope_metrics for metric in scope.metrics}
    assert {span.trace_id.hex() for span in spans} == {TRACE}
    (run,) = (span for span in spans if span.name == "run flights")
    assert run.parent_span_id.hex() == PARENT
    told = {a.key: a.value.string_value for a in run.attributes}
    assert told["headway.run"] == json.loads(done.stdout)["run"]
    assert {s.name for s in spans if s.parent_span_id == run.span_id} >= {"ingest 2013-01", "statistics"}
    assert {"headway.ingest.rows", "headway.stage.duration", "headway.run.duration"} <= metrics


def test_a_collector_that_is_gone_costs_a_line_and_no_run(exported, headway):
    env = _environment(OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{free_port()}")
    done = headway("stats", exported, "--quiet", env=env, check=0)
    assert len(done.stderr.splitlines()) <= 1 and "Traceback" not in done.stderr


def test_an_exporter_that_is_not_installed_is_named(exported, headway):
    env = _environment(OTEL_TRACES_EXPORTER="zipkin")
    done = headway("stats", exported, "--quiet", env=env, check=0)
    assert "no telemetry is exported: Requested component 'zipkin' not found" in done.stderr


AT_ITS_END = """
import threading
from flows.observability.providers import providers

found = providers()
with found.tracer.start_as_current_span("last"):
    found.meter.create_counter("counted").add(1)

def refused(thread):
    raise RuntimeError("can't create new thread at interpreter shutdown")

threading.Thread.start = refused  # as Python 3.12 does once a process ends
"""


def test_a_process_sends_its_last_spans_without_a_thread_that_begins_at_its_end(collector):
    address, got = collector
    env = _environment(OTEL_EXPORTER_OTLP_ENDPOINT=address, OTEL_TRACES_EXPORTER="otlp, console")
    done = subprocess.run([sys.executable, "-P", "-c", AT_ITS_END], capture_output=True, text=True, check=True, env=env)
    assert not done.stderr and {path for path, _ in got} == {"/v1/traces", "/v1/metrics"}
    assert '"name": "last"' in done.stdout, "the second exporter of the list has it too"


def test_a_variable_with_a_wrong_value_costs_the_telemetry_and_no_traceback(collector):
    address, got = collector
    env = _environment(OTEL_EXPORTER_OTLP_ENDPOINT=address, OTEL_BSP_MAX_QUEUE_SIZE="0")
    code = "from flows.observability.providers import providers; print(providers())"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, env=env)
    assert done.stdout == "None\n" and not got
    assert "max_queue_size must be a positive integer" in done.stderr and "OTEL_* variables" in done.stderr


def test_without_a_variable_nothing_of_opentelemetry_is_imported():
    code = "import sys; from flows.observability.reporting import reporter; reporter(); print('opentelemetry' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, env=_environment()
    )
    assert done.stdout.strip() == "False"
