"""The one form of emails and passwords."""

from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.platform.text.forms import (
    email_form,
    email_spellings,
    mail_address,
    password_form,
    password_tries,
)

# By the number of a public report of the kind: texts that are one mailbox, and others that are not that one.
MAILBOXES = [
    # mailcow/mailcow-dockerized#7395
    (
        ["test@exümple.org", "test@xn--exmple-4ya.org", "test@exu\u0308mple.org"],
        ["test@exumple.org", "test@xn--exmple-cua.org", "tést@exümple.org"],
    ),
    # Mailu/Mailu#446
    (
        ["test@dömäin.org", "TEST@XN--DMIN-MOA0I.ORG", "Test@DÖMÄIN.org", "test@dömäin。org"],
        ["test@domain.org", "test@doemaein.org"],
    ),
    # keycloak/keycloak#18409
    (
        ["max@maßanfertigung.de", "max@xn--maanfertigung-cdb.de", "MAX@MAẞANFERTIGUNG.DE"],
        ["max@massanfertigung.de", "max@masanfertigung.de"],
    ),
    # flora-pm/flora-server#561
    (
        ["me@bücher.example", "me@ｂücher.example", "me@xn--bcher-kva.example"],
        ["me@buecher.example", "me@bücher.example.org"],
    ),
    # mozilla/persona#1370
    (
        ["test@παράδειγμα.δοκιμή", "test@xn--hxajbheg2az3al.xn--jxalpdlp"],
        ["test@παραδειγμα.δοκιμη", "test@xn--hxajbheg2az3al"],
    ),
    # omnara-ai/omnara#409
    (
        ["rené@example.com", "rene\u0301@EXAMPLE.com", "RENÉ@example.com"],
        ["rene@example.com", "renè@example.com"],
    ),
    # stalwartlabs/stalwart#207
    (
        ["cornelius_strauß@straß6.de", "cornelius_strauß@xn--stra6-oqa.de"],
        ["cornelius_strauss@straß6.de", "cornelius_strauß@strass6.de"],
    ),
    # Local parts are not folded, whatever looks alike.
    (["ﬁn@example.com", "ﬁn@EXAMPLE.COM"], ["fin@example.com", "Ｆin@example.com"]),
    # Domains without an A-label stand as they are.
    (["lea@i❤.ws", "LEA@I❤.WS"], ["lea@xn--i-7iq.ws", "lea@i.ws"]),
    (["lea@foo_bar.example", "lea@FOO_bar.example"], ["lea@foobar.example"]),
    (["lea@r3---sn.example", "lea@R3---SN.example"], ["lea@r3-sn.example"]),
    (["lea@xn--zzzzzz99.de", "LEA@XN--ZZZZZZ99.DE"], ["lea@zzzzzz99.de"]),
    (["lea@[192.0.2.7]", "LEA@[192.0.2.7]"], ["lea@192.0.2.7"]),
]


@pytest.mark.parametrize(("same", "others"), MAILBOXES)
def test_texts_of_one_mailbox_have_one_form_and_no_others_have_it(
    same: list[str], others: list[str]
) -> None:
    assert len({email_form(each) for each in same}) == 1
    assert email_form(same[0]) not in {email_form(each) for each in others}


def test_a_form_is_a_local_part_in_small_letters_and_an_a_label() -> None:
    assert email_form("Strauß@Straße.example") == "strauß@xn--strae-oqa.example"
    assert email_form("no address") == "no address"
    assert email_form("") == ""


EMAILS = st.tuples(st.text(), st.text() | st.sampled_from(["bücher.example", "xn--a.de"])).map(
    "@".join
)


@given(EMAILS | st.text())
def test_a_form_has_itself_as_its_form(text: str) -> None:
    form = email_form(text)
    assert email_form(form) == form


@given(EMAILS | st.text())
def test_a_text_in_lower_case_as_it_is_stored_has_the_same_form(text: str) -> None:
    assert email_form(text.lower()) == email_form(text)


@given(st.text(alphabet=st.characters(categories=["L", "N", "M"])))
def test_normal_forms_of_a_local_part_have_one_form(text: str) -> None:
    composed, decomposed = (normalize(form, text) for form in ("NFC", "NFD"))
    assert email_form(f"{decomposed}@a.example") == email_form(f"{composed}@a.example")


def test_every_character_with_forms_has_one_form_alone_and_beside_another() -> None:
    every = map(chr, range(0x110000))
    many = [c for c in every if len({c, c.lower(), normalize("NFC", c), normalize("NFD", c)}) > 1]
    assert len(many) > 10_000
    for text in (text for c in many for text in (c, f"A{c}", f"{c}\u0301", f"\u03a3{c}")):
        form = email_form(text)
        assert email_form(form) == email_form(text.lower()) == form
        assert email_form(normalize("NFD", text)) == form
        assert mail_address(f"{text.lower()}@a") == email_form(f"{text}@a")


@pytest.mark.parametrize(("same", "others"), MAILBOXES)
def test_mail_goes_to_the_form_of_what_is_stored(same: list[str], others: list[str]) -> None:
    assert {mail_address(each.lower()) for each in same} == {email_form(same[0])}
    assert mail_address("Ops@Straße.example") == "Ops@xn--strae-oqa.example"
    assert mail_address("no address") == "no address"


def test_spellings_are_the_text_its_form_and_that_in_letters() -> None:
    both = {"lea@bücher.example", "lea@xn--bcher-kva.example"}
    assert email_spellings("lea@bücher.example") == both
    assert email_spellings("Lea@xn--bcher-kva.example") == both
    assert email_spellings("lea@acme.test") == {"lea@acme.test"}
    assert email_spellings("lea@i❤.ws") == {"lea@i❤.ws"}


# By the number of a public report of the kind: a password as it is set, and as it is typed.
PASSWORDS = [
    # ory/hydra#2882
    ("Crème-Brûlée über Äpfel 47", "Cre\u0300me-Bru\u0302le\u0301e u\u0308ber A\u0308pfel 47"),
    # mattermost/mattermost#36877
    ("E acute long password 1! é", "E acute long password 1! e\u0301"),
    # ulsklyc/yuvomi#608
    ("Straßenbahn fährt über Größe", "Straßenbahn fa\u0308hrt u\u0308ber Gro\u0308ße"),
    # usnistgov/800-63-3#301
    ("mañana siempre mañana", "man\u0303ana siempre mañana"),
    # Neighbours: a syllable of Hangul, a sign that stands for a letter, marks in another order.
    ("비밀번호는 길어야 합니다", normalize("NFD", "비밀번호는 길어야 합니다")),
    ("zehn Ångström sind viel", "zehn \u212bngström sind viel"),
    ("o\u0323\u0302 sole mio quanto", "o\u0302\u0323 sole mio quanto"),
]


@pytest.mark.parametrize(("one", "other"), PASSWORDS)
def test_a_password_has_one_form_however_it_is_typed(one: str, other: str) -> None:
    assert one != other
    assert password_form(one) == password_form(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("strauß und co", "strauss und co"),
        ("Groß", "groß"),
        ("ﬁn", "fin"),
        ("２", "2"),
        (" a", "a"),
    ],
)
def test_other_passwords_have_other_forms(one: str, other: str) -> None:
    assert password_form(one) != password_form(other)


@given(st.text())
def test_the_form_of_a_password_is_its_own_form_and_tried_first(text: str) -> None:
    form, tries = password_form(text), password_tries(text)
    assert password_form(form) == form == tries[0]
    assert {text, normalize("NFD", text)} <= set(tries)
    assert len(tries) == len(set(tries)) <= 3


def test_a_text_without_accents_is_tried_once() -> None:
    assert password_tries("correct horse ß 日本") == ("correct horse ß 日本",)
    assert len(password_tries("über")) == len(password_tries("u\u0308ber")) == 2
    assert len(password_tries("übe\u0301r")) == 3
