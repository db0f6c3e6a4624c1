"""What a shell is offered when it asks for an update."""

from config.problems import Fault, InvalidRequest, NotFound
from releases.models import Publication
from releases.platforms import base_of
from releases.storage import POINTER_CACHE
from releases.versions import NotAVersion, Version


class NoSuchUpdate(NotFound):
    """404 that a CDN keeps no longer than an answer, so that a new channel is seen soon."""

    default_detail = "There is no release for this channel and platform."

    def __init__(self) -> None:
        super().__init__(headers={"Cache-Control": POINTER_CACHE})


def offered(
    *, channel: str, system: str, arch: str | None, current_version: str | None
) -> Publication | None:
    """The publication that a channel serves, or None where the shell has it or a newer one.

    ``arch`` None is any. Raises ``NoSuchUpdate`` for an unknown channel or a platform without an artifact, and
    ``InvalidRequest`` for a version that is none.
    """
    current = _version(current_version) if current_version is not None else None
    publication = Publication.objects.of(channel).stored().first()
    if publication is None or not _has(publication.release.platforms, system, arch):
        raise NoSuchUpdate
    if current is not None and not current < publication.release.parsed_version:
        return None
    return publication


def _has(platforms: list[str], system: str, arch: str | None) -> bool:
    bases = {base_of(each) for each in platforms}
    if arch is None:
        return any(each.startswith(f"{system}-") for each in bases)
    return f"{system}-{arch}" in bases


def _version(text: str) -> Version:
    try:
        # A plus that was not escaped arrives as a space, which no version holds.
        return Version.parse(text.replace(" ", "+"))
    except NotAVersion as error:
        raise InvalidRequest(
            errors=[Fault("/current_version", "invalid_version", str(error))]
        ) from None
