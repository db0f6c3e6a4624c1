"""An operator's browser, as far as forms need one: cookies, hidden fields, and where it comes from."""

from html.parser import HTMLParser

import requests

from tests.served.shell import PATIENCE


class Browser:
    """On the pages of one service."""

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.headers["Accept"] = "text/html"

    def get(self, path: str) -> requests.Response:
        """A page, as it comes."""
        return self._session.get(f"{self.base_url}{path}", timeout=PATIENCE)

    def submit(self, path: str, **fields: str) -> requests.Response:
        """Opens a page and sends its form with these fields; the page that follows. Fails where the form comes back."""
        page = self._session.get(f"{self.base_url}{path}", timeout=PATIENCE)
        assert page.status_code == 200, page.text
        answer = self._session.post(
            page.url,
            data={**hidden_fields(page.text), **fields},
            headers={"Referer": page.url, "Origin": self.base_url},
            timeout=PATIENCE,
        )
        assert answer.status_code == 200, answer.text
        assert [each.status_code for each in answer.history] == [302], answer.text
        return answer


class _Hidden(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.fields: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "input" and given.get("type") == "hidden" and given.get("name"):
            self.fields[given["name"] or ""] = given.get("value") or ""


def hidden_fields(page: str) -> dict[str, str]:
    parser = _Hidden()
    parser.feed(page)
    return parser.fields
