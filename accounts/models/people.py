"""Customer organisations and the people who work for them."""

from collections.abc import Collection
from typing import Any, ClassVar
from uuid import uuid4

from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.contrib.auth.hashers import UNUSABLE_PASSWORD_PREFIX, make_password
from django.contrib.auth.models import Group, PermissionsMixin
from django.db import models
from django.db.models import Case, OuterRef, Q, Subquery, Value, When
from django.db.models.functions import Coalesce, Lower
from django.utils import timezone
from django.utils.crypto import salted_hmac
from django.utils.functional import cached_property

from accounts.hashers import check_password
from config.platform.text.forms import email_form, password_form, password_tries


class EmailAddressField(models.EmailField):  # type: ignore[type-arg]
    """An email stored in lower case."""

    def get_prep_value(self, value: Any) -> Any:
        value = super().get_prep_value(value)
        return value.lower() if isinstance(value, str) else value

    def to_python(self, value: Any) -> Any:
        value = super().to_python(value)
        return value.lower() if isinstance(value, str) else value


class EmailFormField(models.TextField):  # type: ignore[type-arg]
    """The form of the row's ``email``, made as the row is added.

    Empty where a process of the release before has written the row, until the worker fills it, and where an older
    person has the form.
    """

    def pre_save(self, model_instance: models.Model, add: bool) -> Any:  # noqa: FBT001 - Django's
        if add:
            setattr(model_instance, self.attname, email_form(model_instance.email))  # type: ignore[attr-defined]
        return super().pre_save(model_instance, add)


class Client(models.Model):
    """A customer organisation. ``licensing`` creates it together with its licence."""

    id = models.UUIDField(primary_key=True, default=uuid4, editable=False)
    name = models.CharField(max_length=200)
    alert_email = EmailAddressField(
        blank=True,
        default="",
        db_default="",
        help_text="Mailed, as operators are, when one of its people has used up a monthly cap.",
    )
    contract = models.CharField(
        max_length=200, blank=True, default="", db_default="", help_text="As in CRM-2041, 3 years."
    )
    manager = models.CharField(
        "account manager", max_length=200, blank=True, default="", db_default="",
        help_text="A colleague, by name or email.",
    )  # fmt: skip
    notes = models.CharField(
        max_length=4000, blank=True, default="", db_default="",
        help_text="Plain text for colleagues. Nothing about single people: erasing a person does not search it.",
    )  # fmt: skip
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ("name", "id")

    def __str__(self) -> str:
        return self.name


class Role(models.TextChoices):
    """An operator's roles: names of groups. Each app's ``acts`` declare what each may look at and do."""

    SUPPORT = (
        "support",
        "Support: helps people and looks after their sessions, calls and connections",
    )
    LICENSING = "licensing", "Licensing: clients, plans, licences, budgets, models and prices"
    RELEASE = "release", "Release: the shell's channels and micro apps"
    AUDITOR = "auditor", "Auditor: sees everything and changes nothing"
    OWNER = "owner", "Owner: everything, including operators and their roles"


class UserManager(BaseUserManager["User"]):
    """Makes people; ``createsuperuser`` makes the first operator, an owner."""

    def create_user(self, email: str, password: str | None = None, **fields: Any) -> "User":
        user = self.model(email=email.lower(), **fields)
        user.set_password(password)
        user.save(using=self._db)
        return user

    def create_superuser(self, email: str, password: str | None = None, **fields: Any) -> "User":
        user = self.create_user(email, password, is_staff=True, is_superuser=True, **fields)
        user.put_roles({Role.OWNER})
        return user

    def owners(self) -> models.QuerySet["User"]:
        """The owners who may sign in."""
        named = models.Q(is_superuser=True) | models.Q(groups__name=Role.OWNER)
        return self.filter(named, is_staff=True, is_active=True).distinct()

    def number_of(self, client: str) -> Coalesce:
        """The number of people, erased ones left out, of the client in this column, counted for the returned rows."""
        theirs = self.filter(client=OuterRef(client), erased_at=None).order_by()
        number = theirs.values("client").annotate(number=models.Count("pk")).values("number")
        return Coalesce(Subquery(number), 0)

    def by_email(self, typed: str) -> models.QuerySet["User"]:
        """The people of a typed email, the one who is meant first, in one query.

        That is the person with this very text, who may be the younger of two with one mailbox, or whose form has not
        been filled in yet; else the one who has its form.
        """
        text = typed.lower()
        last = Case(When(email=text, then=Value(False)), default=Value(True))
        return self.filter(Q(email=text) | Q(email_form=email_form(typed))).order_by(last)

    def get_by_natural_key(self, username: str | None) -> "User":
        """The operator who signs in to the console."""
        user = self.by_email(username or "").first()
        if user is None:
            raise User.DoesNotExist
        return user


class User(AbstractBaseUser, PermissionsMixin):
    """A person. Operators are people with ``is_staff`` and roles; people of the shell belong to a client.

    ``epoch`` counts revocations: an access token carries the epoch of its issue (claim ``ver``) and is refused as
    soon as the epoch moves. An erased person's row stays for the ledger, without personal data.
    """

    id = models.UUIDField(primary_key=True, default=uuid4, editable=False)
    email = EmailAddressField(unique=True)
    # Made for each new email, and emptied by a trigger where an email changes without it.
    email_form = EmailFormField(null=True, editable=False)
    client = models.ForeignKey(
        Client, null=True, blank=True, on_delete=models.PROTECT, related_name="users"
    )
    is_active = models.BooleanField("enabled", default=True)
    is_staff = models.BooleanField("operator", default=False)
    epoch = models.PositiveIntegerField(default=0, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    invited_at = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="when an invitation was last asked for"
    )
    erased_at = models.DateTimeField(null=True, blank=True, editable=False)

    USERNAME_FIELD = "email"
    REQUIRED_FIELDS: ClassVar[list[str]] = []

    objects: ClassVar[UserManager] = UserManager()

    class Meta:
        verbose_name, verbose_name_plural = "person", "people"
        ordering = ("email",)
        indexes = (
            models.Index(
                fields=("email",), condition=models.Q(is_staff=True), name="user_operators"
            ),
            models.Index(
                fields=("id",),
                condition=models.Q(email_form=None, erased_at=None),
                name="user_without_email_form",
            ),
        )
        constraints = (
            models.UniqueConstraint(
                fields=("email_form",),
                condition=models.Q(email_form__isnull=False),
                name="user_one_mailbox_is_one_person",
            ),
            models.CheckConstraint(
                condition=models.Q(email=Lower("email")), name="user_email_is_lower_case"
            ),
            models.CheckConstraint(
                condition=models.Q(erased_at=None)
                | models.Q(
                    is_active=False,
                    is_staff=False,
                    is_superuser=False,
                    last_login=None,
                    invited_at=None,
                    email__endswith="@erased.invalid",
                    password__startswith=UNUSABLE_PASSWORD_PREFIX,
                ),
                name="user_erased_is_nobody",
            ),
        )

    def __str__(self) -> str:
        return str(self.email)

    def set_password(self, raw_password: str | None) -> None:
        """Hashes the one form of a password, and every other that a check would try.

        Django's backend calls it for an unknown email, in place of a check: it has to take as long.
        """
        super().set_password(None if raw_password is None else password_form(raw_password))
        for other in password_tries(raw_password or "")[1:]:
            make_password(other)

    def check_password(self, raw_password: str | None) -> bool:
        """Returns whether this is the password. Replaces a hash with old settings, unless it changed meanwhile."""
        checked = self.password

        def upgrade(password: str) -> None:
            # Saving the whole row could restore an old password after a concurrent change.
            upgraded = make_password(password)
            if User.objects.filter(pk=self.pk, password=checked).update(password=upgraded):
                self.password = upgraded

        return raw_password is not None and check_password(raw_password, checked, upgrade)

    @cached_property
    def roles(self) -> frozenset[str]:
        """An operator's roles; a superuser is an owner."""
        if not self.is_staff:
            return frozenset()
        named = {group.name for group in self.groups.all()} & set(Role.values)
        return frozenset(named | ({Role.OWNER.value} if self.is_superuser else set()))

    @property
    def is_owner(self) -> bool:
        """Returns whether an operator may do everything, operators included. No query for a superuser."""
        return self.is_superuser or Role.OWNER in self.roles

    def put_roles(self, roles: Collection[str]) -> None:
        """Replaces everything that an operator may do by these roles; no rule: ``accounts.people.roles`` checks."""
        self.is_superuser = Role.OWNER in roles
        self.save(update_fields=["is_staff", "is_superuser"])
        # Made by a migration; a database that was emptied has none.
        self.groups.set(Group.objects.get_or_create(name=str(role))[0] for role in roles)
        self.user_permissions.clear()
        self.__dict__.pop("roles", None)

    @property
    def may_be_invited(self) -> bool:
        """Returns whether a client's person may sign in and has no password; ``NOT_ACCEPTED`` in a query."""
        return self.is_active and self.client_id is not None and not self.has_usable_password()

    def get_session_auth_hash(self) -> str:
        """The value that an operator's console session is bound to: it ends with a new password or a revocation."""
        bound_to = f"{self.password}:{self.epoch}"
        return salted_hmac("accounts.User.session", bound_to, algorithm="sha256").hexdigest()
