"""Chooses a client's version of an app in one query: its own pin, else its plan's pin, else the channel."""

from typing import NamedTuple
from urllib.parse import quote
from uuid import UUID

from django.conf import settings
from django.db.models import F, Q, Value

from accounts.models import Client, User
from config.platform.problems.problem import NotFound
from releases.micro_apps.publishing import bundle_path
from releases.models import AppChannel, AppPin

BY_CLIENT, BY_PLAN, BY_CHANNEL = "client", "plan", "channel"
_COLUMNS = ("version__version", "version__sha256", "version__signature")


class NoSuchVersion(NotFound):
    default_detail = "This channel offers no version of the app."


class AppOffer(NamedTuple):
    """A version and the rule that chose it: ``client``, ``plan`` or ``channel``. ``signature``: a minisign file."""

    slug: str
    version: str
    sha256: str
    signature: bytes
    chosen_by: str

    @property
    def url(self) -> str:
        """The bundle's address at the CDN."""
        return f"{settings.CDN_URL}/{quote(bundle_path(self.slug, self.version))}"


def offered(*, slug: str, client_id: UUID, plan_id: int, channel: str) -> AppOffer:
    """Raises ``NoSuchVersion`` if no rule chooses one. The caller checks entitlements."""
    pins = AppPin.objects.order_by().filter(app=slug)
    choices = (
        (BY_CLIENT, pins.filter(client=client_id)),
        (BY_PLAN, pins.filter(plan=plan_id)),
        (BY_CHANNEL, AppChannel.objects.order_by().filter(app=slug, name=channel)),
    )
    first, *others = (
        rows.annotate(rank=Value(rank), chosen_by=Value(name)).values_list(
            "rank", "chosen_by", *_COLUMNS
        )
        for rank, (name, rows) in enumerate(choices)
    )
    row = first.union(*others, all=True).order_by("rank").first()
    if row is None:
        raise NoSuchVersion
    _, chosen_by, version, sha256, signature = row
    return AppOffer(slug, version, sha256, bytes(signature), chosen_by)


class Reach(NamedTuple):
    """The reach of an app's channels: clients that may use it without a pin, their people, and the pinned ones."""

    clients: int
    people: int
    pinned: int


def reach(*, slug: str) -> Reach:
    """Counts by licences as they are now. Which of them a channel reaches is each shell's choice."""
    entitled = Q(licence__entitlements__contains=[slug])
    entitled |= Q(licence__plan__entitlements__contains=[slug])
    pinned = Q(apppin__app=slug) | Q(licence__plan__apppin__app=slug)
    clients = Client.objects.filter(entitled)
    free = clients.exclude(pk__in=clients.filter(pinned).values("pk"))
    people = User.objects.filter(client__in=free, is_active=True).count()
    return Reach(free.count(), people, clients.count() - free.count())


class Explained(NamedTuple):
    """The version of an app that a client gets on each channel, and the rule that chooses it."""

    slug: str
    chosen_by: str
    versions: dict[str, str]


def explain(*, slugs: list[str], client_id: UUID, plan_id: int) -> list[Explained]:
    """Explains the versions of several apps to operators; an app may have no version."""
    pins = AppPin.objects.filter(Q(client=client_id) | Q(plan=plan_id), app__in=slugs)
    # A client's own pin comes last and replaces its plan's.
    held = {
        pin.app_id: pin
        for pin in pins.select_related("version").order_by(F("client").asc(nulls_first=True))
    }
    moved: dict[str, dict[str, str]] = {}
    for channel in AppChannel.objects.filter(app__in=slugs).select_related("version"):
        moved.setdefault(channel.app_id, {})[channel.name] = channel.version.version
    return [_explained(slug, held.get(slug), moved.get(slug, {})) for slug in sorted(slugs)]


def _explained(slug: str, held: AppPin | None, channels: dict[str, str]) -> Explained:
    if held is None:
        return Explained(slug, BY_CHANNEL, channels)
    every = dict.fromkeys(AppChannel.Name.values, held.version.version)
    return Explained(slug, BY_CLIENT if held.client_id else BY_PLAN, every)
