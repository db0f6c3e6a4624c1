"""Prices of routes: what is published, what an operator has set, and what the command writes."""

from datetime import UTC, datetime
from io import StringIO
from typing import Any

import pytest
from django.core import checks
from django.core.management import call_command
from django.db import IntegrityError, connection, transaction
from django.urls import reverse

from accounts.audit import Actor
from accounts.models import AuditEvent, Session, User
from accounts.sessions.sign_in import TokenPair
from config.platform.problems.problem import InvalidRequest
from licensing.callers import load_caller
from llmproxy.catalogue.choosing import as_offered
from llmproxy.catalogue.offering import ModelTerms, change_model
from llmproxy.catalogue.prices import FIELDS, free_prices, price_text, prices_of, set_prices
from llmproxy.catalogue.published_prices import compare, update_prices
from llmproxy.catalogue.unpriced import models_have_prices
from llmproxy.models import LanguageModel, Provider, Route
from llmproxy.requests.chat import parse
from tests.conftest import Browser
from tests.llmproxy.calling import admit
from tests.races import race
from usage.costs import UNKNOWN, Prices
from usage.models import UsageRecord

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
DEAR = Prices(input=9_000_000, cached_input=None, output=9_000_000)
COMMAND = Actor.command("update_prices")


@pytest.fixture(autouse=True)
def _openai(settings: Any, db: None) -> None:
    settings.LLM_PROVIDER = "openai"
    settings.LLM_BASE_URL = "http://127.0.0.1:9/v1"
    settings.LLM_DEFAULT_MODEL = "gpt-4o"
    Route.objects.all().delete()


def route(named: str, *, at: str = Provider.DEFAULT, **members: Any) -> Route:
    model, _ = LanguageModel.objects.get_or_create(name=named, provider_name=named)
    provider, _ = Provider.objects.get_or_create(name=at)
    return Route.objects.create(model=model, provider=provider, provider_name=named, **members)


def run(*options: str) -> list[str]:
    out = StringIO()
    call_command("update_prices", *options, stdout=out)
    return out.getvalue().splitlines()


def prices(of: Route) -> Prices:
    of.refresh_from_db()
    return prices_of(of)


@pytest.mark.django_db
class TestPublished:
    @pytest.mark.parametrize(
        ("name", "known"),
        [
            ("gpt-4o", Prices(2_500_000, 1_250_000, 10_000_000)),
            ("gpt-4o-mini", Prices(150_000, 75_000, 600_000)),
            # A family without a price of cached input, and one that makes no text.
            ("gpt-4", Prices(30_000_000, None, 60_000_000)),
            ("text-embedding-3-small", Prices(20_000, None, 0)),
        ],
    )
    def test_a_model_has_the_prices_of_its_provider(self, name: str, known: Prices) -> None:
        route(name)
        [found] = compare(now=NOW)
        assert found.published is not None
        assert found.published.prices == known

    def test_the_first_of_tiered_prices_counts(self, settings: Any) -> None:
        settings.LLM_PROVIDER = "anthropic"
        route("claude-sonnet-4-5")
        [found] = compare(now=NOW)
        assert found.published is not None
        assert found.published.prices == Prices(3_000_000, 300_000, 15_000_000, 3_750_000)
        assert found.published.is_tiered

    def test_the_address_of_a_known_provider_counts_before_its_dialect(self, settings: Any) -> None:
        settings.LLM_BASE_URL = "https://openrouter.ai/api/v1"
        route("openai/gpt-4o")
        [found] = compare(now=NOW)
        assert found.published is not None
        assert found.published.name == "openrouter openai/gpt-4o"

    def test_another_provider_is_known_by_its_name(self) -> None:
        route("mistral-large", at="mistral")
        route("mistral-large", at="ours")
        one, other = compare(now=NOW)
        assert one.published is not None
        assert one.published.prices.cached_input is None
        assert other.published is None

    def test_another_provider_is_known_by_its_address_before_its_name(self) -> None:
        made = route("gpt-4o", at="backup")
        Provider.objects.filter(pk=made.provider_id).update(base_url="https://api.openai.com/v1")
        [found] = compare(now=NOW)
        assert found.published is not None
        assert found.published.name == "openai gpt-4o"

    def test_every_published_price_fits_a_route(self, settings: Any) -> None:
        """The list is another project's: whatever it says can be written."""
        for name in ("gpt-5", "o3", "gpt-4.1-nano", "gpt-3.5-turbo", "o1-pro", "gpt-5-codex"):
            route(name)
        assert update_prices(compare(now=NOW), by=COMMAND, now=NOW) == 6


@pytest.mark.django_db
class TestCommand:
    def test_the_command_shows_the_difference_and_writes_nothing(self) -> None:
        one = route("gpt-4o")
        lines = run()
        assert lines == [
            (
                "gpt-4o at default: none -> input $2.5000, cached $1.2500, output $10.0000 (openai gpt-4o); "
                "context none -> 128,000"
            ),
            "update_prices: 1 differ, nothing written (--write)",
            "Budgets do not count calls to models without prices: gpt-4o.",
        ]
        assert prices(one) == UNKNOWN

    def test_the_command_writes_and_audits_prices_with_its_option(self) -> None:
        one = route("gpt-4o")
        assert run("--write")[-1] == "update_prices: 1 written, for calls from now on"
        assert prices(one) == Prices(2_500_000, 1_250_000, 10_000_000)
        event = AuditEvent.objects.get(action="route:prices_updated")
        assert (event.actor, event.target) == ("manage.py update_prices", "gpt-4o at default")
        assert (event.before, event.after) == (
            {"prices": "none"},
            {"prices": "input $2.5000, cached $1.2500, output $10.0000"},
        )
        assert run("--write")[-1] == "update_prices: no difference"

    def test_context_lengths_are_written_beside_prices_that_an_operator_has_set(
        self, by: Actor
    ) -> None:
        one, other = route("gpt-4o"), route("house-model", context_length=9_000)
        set_prices(route_id=one.pk, prices=DEAR, reason="Agreed.", by=by, now=NOW)
        line, _, last = run("--write")[:3]
        assert line.endswith("; context none -> 128,000")
        assert last == "update_prices: 1 written, for calls from now on"
        for each, length in ((one, 128_000), (other, 9_000)):
            each.refresh_from_db()
            assert each.context_length == length
        assert prices(one) == DEAR
        assert run("--write")[2] == "update_prices: no difference"

    def test_a_price_set_by_an_operator_is_named_and_left(self, by: Actor) -> None:
        one = route("gpt-4o", context_length=128_000)
        set_prices(route_id=one.pk, prices=DEAR, reason="Agreed.", by=by, now=NOW)
        line, last = run("--write")
        assert "set by an operator and left: input $9.0000, output $9.0000" in line
        assert last == "update_prices: no difference"
        assert prices(one) == DEAR
        free_prices(route_id=one.pk, reason="It ended.", by=by, now=NOW)
        assert prices(one) == DEAR
        run("--write")
        assert prices(one).input == 2_500_000

    def test_an_unknown_model_is_named_and_left(self, settings: Any) -> None:
        settings.LLM_DEFAULT_MODEL = "house-model"
        one = route("house-model", input_price=1, output_price=2)
        line, *_ = run("--write")
        assert line.startswith(
            "house-model at default: unknown to the list by the name house-model"
        )
        assert prices(one) == Prices(1, None, 2)

    def test_a_model_without_a_route_is_named(self) -> None:
        """A release without routes may have added it."""
        LanguageModel.objects.create(name="older", provider_name="gpt-4o")
        assert run()[1].startswith("older: no route")

    def test_models_whose_calls_no_budget_counts_are_named(self) -> None:
        for name, is_on in (("house-model", True), ("retired", False)):
            LanguageModel.objects.create(name=name, provider_name=name, is_on=is_on)
        route("second", order=1, input_price=1, output_price=2)
        # The default model has no row.
        assert run()[-1].endswith("without prices: gpt-4o, house-model.")
        assert run("--write")[-1].endswith("without prices: house-model.")
        LanguageModel.objects.get(name="house-model").delete()
        assert run("--write")[-1] == "update_prices: no difference"

    def test_a_new_installation_gets_its_default_model_with_prices(self) -> None:
        assert run()[0] == "gpt-4o: no row yet, so its calls have no prices; --write adds one"
        assert not LanguageModel.objects.exists()
        lines = run("--write")
        assert lines[0] == "gpt-4o: added, for every plan"
        assert lines[-1] == "update_prices: 1 written, for calls from now on"
        assert prices(Route.objects.get()) == Prices(2_500_000, 1_250_000, 10_000_000)
        assert AuditEvent.objects.filter(action="language_model:added").count() == 1
        assert run("--write")[-1] == "update_prices: no difference"

    def test_a_default_model_of_no_list_stays_as_it_is(self, settings: Any) -> None:
        settings.LLM_DEFAULT_MODEL = "house-model"
        assert run("--write")[-1].endswith("without prices: house-model.")
        assert not LanguageModel.objects.exists()

    def test_the_check_names_them_and_how_to_mend_it(self) -> None:
        [told] = models_have_prices(None, ["default"])
        assert (told.id, told.level < checks.WARNING) == ("llmproxy.I001", True)
        assert "update_prices --write" in str(told.hint)
        assert "gpt-4o" in str(told.msg)
        run("--write")
        assert models_have_prices(None, ["default"]) == models_have_prices(None, None) == []

    def test_the_check_passes_over_a_database_that_is_yet_to_be_migrated(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE llmproxy_route RENAME TO not_yet")
        assert models_have_prices(None, ["default"]) == []

    @pytest.mark.parametrize(("answer", "written"), [("y", True), ("", False), ("n", False)])
    def test_the_command_asks_for_confirmation_at_a_terminal(
        self, monkeypatch: pytest.MonkeyPatch, answer: str, written: bool
    ) -> None:
        one = route("gpt-4o")
        terminal = StringIO(f"{answer}\n")
        terminal.isatty = lambda: True  # type: ignore[method-assign]
        monkeypatch.setattr("sys.stdin", terminal)
        run()
        assert (prices(one) != UNKNOWN) is written


@pytest.mark.django_db
class TestSetting:
    def test_a_call_keeps_the_prices_of_its_admission(
        self, pair: TokenPair, user: User, by: Actor, now: datetime
    ) -> None:
        one, dear = route("house-model"), DEAR._replace(cache_write=11_250_000)
        set_prices(route_id=one.pk, prices=dear, reason="Agreed.", by=by, now=NOW)
        caller = load_caller(user_id=user.pk, session_id=Session.objects.get().pk)
        assert caller is not None
        body = {"model": "house-model", "messages": [{"role": "user", "content": "hello"}]}
        admit(caller=caller, request=parse(body, stream=False), request_id="request-1", now=now)
        free_prices(route_id=one.pk, reason="It ended.", by=by, now=NOW)
        Route.objects.update(input_price=1, output_price=1)
        record = UsageRecord.objects.get()
        found = tuple(getattr(record, name) for name in FIELDS)
        assert found == tuple(dear)

    @pytest.mark.parametrize(
        ("given", "where"),
        [
            (Prices(None, None, 1), "/input_price"),
            (Prices(1, None, None), "/output_price"),
            (Prices(1, 2, 1), "/cached_input_price"),
            (Prices(-1, None, 1), "/input_price"),
            (Prices(1, None, 10**13), "/output_price"),
            (Prices(1, None, 1, -1), "/cache_write_price"),
        ],
    )
    def test_a_number_that_is_no_price_is_refused_at_its_field(
        self, by: Actor, given: Prices, where: str
    ) -> None:
        one = route("house-model")
        with pytest.raises(InvalidRequest) as refused:
            set_prices(route_id=one.pk, prices=given, reason="Agreed.", by=by, now=NOW)
        assert [fault.pointer for fault in refused.value.errors] == [where]
        assert prices(one) == UNKNOWN

    def test_setting_and_freeing_prices_need_a_reason(self, by: Actor) -> None:
        one = route("house-model")
        with pytest.raises(InvalidRequest):
            set_prices(route_id=one.pk, prices=DEAR, reason=" ", by=by, now=NOW)
        with pytest.raises(InvalidRequest):
            free_prices(route_id=one.pk, reason="", by=by, now=NOW)

    def test_half_a_price_cannot_be_stored(self) -> None:
        with pytest.raises(IntegrityError, match="route_prices_are_whole"), transaction.atomic():
            route("house-model", input_price=1)

    def test_an_operator_sets_and_clears_them_on_the_page_of_a_route(
        self, console: Browser
    ) -> None:
        one = route("house-model")
        page = f"/admin/llmproxy/route/{one.pk}"
        given = {"input_price": "2.5", "output_price": "0.000001", "reason": "Agreed."}
        assert console.post(f"{page}/prices/", given).status_code == 302
        assert prices(one) == Prices(2_500_000, None, 1)
        assert "set by an operator" in console.get(f"{page}/change/").content.decode()
        assert console.post(f"{page}/published_prices/", {"reason": "Ended."}).status_code == 302
        one.refresh_from_db()
        assert not one.prices_are_set

    @pytest.mark.parametrize(("is_set", "left"), [(False, UNKNOWN), (True, DEAR)])
    def test_a_routes_new_model_does_not_keep_the_old_prices(
        self, by: Actor, is_set: bool, left: Prices
    ) -> None:
        one = route("gpt-4o", input_price=9_000_000, output_price=9_000_000, prices_are_set=is_set)
        offer = ModelTerms(
            name="gpt-4o", provider_name="gpt-5", output_limit=4_096, is_on=True, plans=[]
        )
        change_model(model_id=one.model_id, terms=offer, by=by, now=NOW)
        assert prices(one) == left

    def test_prices_are_said_for_people(self) -> None:
        assert price_text(Prices(37_500, None, 150_000)) == "input $0.0375, output $0.1500"
        written = Prices(37_500, None, 150_000, 46_875)
        assert price_text(written) == "input $0.0375, cache writes $0.0469, output $0.1500"


@pytest.mark.django_db(transaction=True)
def test_an_operator_wins_over_a_command_of_the_same_moment(by: Actor) -> None:
    one = route("gpt-4o")
    compared = compare(now=NOW)
    race(
        lambda: update_prices(compared, by=COMMAND, now=NOW),
        lambda: set_prices(route_id=one.pk, prices=DEAR, reason="Agreed.", by=by, now=NOW),
    )
    assert prices(one) == DEAR


@pytest.mark.django_db
class TestOffered:
    """The context and modalities in the list of models, and their source for operators."""

    def page(self, console: Browser, model: LanguageModel) -> str:
        address = reverse("admin:llmproxy_languagemodel_change", args=[model.pk])
        return console.get(address).content.decode()

    def test_an_operators_context_length_replaces_the_shortest_published_one(
        self, console: Browser
    ) -> None:
        model = route("gpt-4o").model
        assert as_offered(model).context_length is None
        assert "unknown" in self.page(console, model)
        route("gpt-4o", at="ours", context_length=64_000)
        run("--write")
        assert as_offered(model).context_length == 64_000
        assert "64,000 (published)" in self.page(console, model)
        model.context_length = 32_000
        model.save()
        assert as_offered(model).context_length == 32_000
        assert "(published)" not in self.page(console, model)

    def test_another_name_at_the_provider_has_no_published_context(
        self, by: Actor, now: datetime
    ) -> None:
        one = route("gpt-4o", context_length=128_000)
        offer = ModelTerms(
            name="gpt-4o", provider_name="grand", output_limit=4096, is_on=True, plans=[]
        )
        change_model(model_id=one.model_id, terms=offer, by=by, now=now)
        one.refresh_from_db()
        assert one.context_length is None

    def test_a_model_claims_the_modalities_that_are_known(self, console: Browser) -> None:
        model = route("gpt-4o").model
        assert as_offered(model).input_modalities == ["text"]
        assert "text (not set here)" in self.page(console, model)
        model.image_tokens = 1_000
        assert as_offered(model).input_modalities == ["text", "image"]
        model.input_modalities = ["text", "file"]
        model.save()
        assert as_offered(model).input_modalities == ["text", "file"]
        assert "not set here" not in self.page(console, model)
        embedding = route("text-embedding-3-small").model
        embedding.image_tokens = 1
        assert as_offered(embedding).input_modalities == ["text"]
