"""Composition of the apps: extensions of lower apps, pages that cross apps, and background work.

``config.apps`` loads it once every app's models are loaded.
"""

from functools import partial

from django.conf import settings

from accounts import hooks
from config.composition import client_page, configured, finders, jobs, person_page
from config.composition.attention import alerts_page, operation, watch
from config.composition.operation import acts
from config.platform.edge import request_log
from config.platform.runtime import serving
from licensing.callers import claims_of, load_caller
from licensing.licences import licensed, seats_of
from llmproxy.calls import outbox
from llmproxy.calls import watch as calls
from releases.admin import version_tags
from releases.delivery import conditional_writes
from releases.models import MicroApp
from telemetry.volumes import last_by_shell_version
from usage import refusal_log

if settings.SENTRY_DSN:
    # A large library that most installations never use.
    from config.platform.observability import reports

    reports.start(settings.SENTRY_DSN, settings.VERSION)

if settings.OTLP_ENDPOINT:
    # Likewise.
    from config.platform.observability import tracing

    tracing.register()

if settings.METRICS_PORT is not None or settings.WORKER_METRICS_PORT is not None:
    # Likewise.
    from config.composition.operation import measuring

    measuring.register()

# An exiting process waits this long for its last settlements.
SETTLING_SECONDS = 10.0
# Each module registers its pages with the console, after every app's own.
PAGES = (alerts_page, client_page, configured, jobs, person_page)
# Declares what no app owns.
DECLARED = (acts, finders, operation)

hooks.register(
    hooks.Extensions(
        load_caller=load_caller,
        claims_of=claims_of,
        licensed=licensed,
        seats_of=seats_of,
        unknown_apps=lambda slugs: {*slugs} - set(MicroApp.objects.in_bulk(slugs)),
    )
)
version_tags.counts.append(last_by_shell_version)
request_log.refused.append(refusal_log.note)
serving.started.extend((watch.start, refusal_log.start))
serving.first_started.append(conditional_writes.start)
serving.grace_over.append(calls.end_all)
# Settlements first: the process may be killed before the refusals are written.
serving.exits.extend((partial(outbox.finish, seconds=SETTLING_SECONDS), refusal_log.finish))
