"""The metrics of the service: every name, label and bucket.

Loaded only where a port for them is set. The code and the catalogue bound the labels, and none names a person. What
OpenTelemetry's conventions for generative AI have a name for has that name.
"""

from prometheus_client import Counter, Gauge, Histogram

REQUESTS = Counter("shell_requests", "Requests.", ("route", "status"))
REQUEST_SECONDS = Histogram(
    "shell_request_seconds", "Time.", ("route",),
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60),
)  # fmt: skip
REFUSALS = Counter("shell_refusals", "Refused requests.", ("code",))
SIGN_INS_REFUSED = Counter("shell_sign_ins_refused", "Wrong passwords.")

CALLS = Counter("shell_calls", "Model calls that ended.", ("surface", "model", "provider", "end"))
COST = Counter("shell_cost_dollars", "Cost of calls.", ("model", "provider"))
ABANDONED = Counter("shell_abandoned_attempts", "Attempts given up.", ("provider",))
UNKNOWN_ENDS = Counter("shell_unknown_finish_reasons", "Taken for a stop.", ("provider",))
OPEN = Gauge("shell_calls_open", "Under way.", ("kind",), multiprocess_mode="livesum")
ASKED = ("gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model")
TOKENS = Histogram(
    "gen_ai_client_token_usage", "Tokens.", (*ASKED, "gen_ai_token_type"),
    buckets=tuple(4**power for power in range(12)),
)  # fmt: skip
DURATION = Histogram(
    "gen_ai_client_operation_duration_seconds", "Time.", ASKED,
    buckets=(0.01, 0.04, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92),
)  # fmt: skip
FIRST_CHUNK = Histogram(
    "gen_ai_client_operation_time_to_first_chunk_seconds", "Time.", ASKED,
    buckets=(0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30),
)  # fmt: skip
PER_CHUNK = Histogram(
    "gen_ai_client_operation_time_per_output_chunk_seconds", "Mean of a stream.", ASKED,
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5),
)  # fmt: skip

# Labels keep the process that only forks from having a value, which would be the least.
UP = Gauge("shell_dependency_up", "1: it answers.", ("name",), multiprocess_mode="livemin")
WAITING = Gauge("shell_waiting", "Waits now.", ("for_what",), multiprocess_mode="livesum")
WAITS = Counter("shell_waits", "Waits begun.", ("for_what",))
WAIT_SECONDS = Counter("shell_wait_seconds", "Time waited.", ("for_what",))
WAITS_FAILED = Counter("shell_waits_failed", "Waits in vain.", ("for_what",))
PAUSES = Counter("shell_gc_pauses", "Runs of the garbage collector.", ("generation",))
PAUSE_SECONDS = Counter("shell_gc_pause_seconds", "Their time.", ("generation",))
