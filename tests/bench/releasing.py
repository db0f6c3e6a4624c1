"""Releases published in this process, by the rule that the view calls, from a pipeline and to a CDN of their own."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from django.conf import settings
from django.test import override_settings

from accounts.audit import Actor
from releases.pipeline.identity_tokens import OneTime
from releases.pipeline.submissions import Submission
from releases.publishing import publish
from tests.releases.conftest import PLATFORMS, Pipeline
from tests.releases.signing import Signer
from tests.standins.cdn import running_cdn

BY = Actor(name="release pipeline of the bench", request_id="bench")
TOKEN_LIVES = timedelta(minutes=5)


@contextmanager
def publisher() -> Iterator[Callable[[str], None]]:
    """Publishes what is newer than anything before it, on the channel that is named.

    With everything that costs a statement: an identity token that serves once, and a CDN that is purged and read
    back. Storage is a folder that goes with the block, so a transaction around it can be taken back.
    """
    with TemporaryDirectory(prefix="releases-") as name, running_cdn() as cdn:
        cdn.origin = Path(name)
        pipeline = Pipeline(Signer(), cdn, cdn.origin, signed_at=int(time.time()))
        storage = {"BACKEND": "releases.delivery.storage.Files", "OPTIONS": {"location": name}}
        with override_settings(
            UPDATE_PUBLIC_KEY=pipeline.signer.public,
            CDN_URL=cdn.url,
            CDN_PURGE="purge",
            PUBLISH_PLATFORMS=list(PLATFORMS),
            STORAGES={**settings.STORAGES, "default": storage},
        ):
            yield partial(_publish, pipeline)


def _publish(pipeline: Pipeline, channel: str) -> None:
    now, version = datetime.now(UTC), f"{time.time_ns()}.0.0"
    release = pipeline.release(version, channel)
    token = OneTime(id_sha256=sha256(version.encode()).hexdigest(), ends=now + TOKEN_LIVES)
    submission = Submission(
        channel=channel,
        body=release.body,
        document=release.document,
        signature=release.signature,
        token=token,
    )
    done = publish(submission=submission, by=BY, now=now)
    assert done.created, done
    assert done.purged, done
