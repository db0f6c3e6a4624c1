"""The act on telemetry, and its page."""

from config.platform.acts import Act, Page, Right, declare

PAGES = (Page("telemetry.event", ("support", "release")),)

ACTS = (
    Act(
        "telemetry:exported",
        "exported telemetry",
        "operator exported events",
        (Right("telemetry.event_export", ("auditor", "release")),),
    ),
)

declare(ACTS, PAGES)
