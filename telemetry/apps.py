from config.platform import declarations


class TelemetryConfig(declarations.DeclaringApp):
    name = "telemetry"
    declaring = (
        "acts",
        "attention",
    )
