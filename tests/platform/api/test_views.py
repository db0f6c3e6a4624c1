"""Views of the API have our base, and so leave nothing for the garbage collector."""

from django.urls import resolve

from config.platform.api.docs import DocsView
from config.platform.api.views import APIView
from tests.addresses import addresses


def test_every_view_of_the_api_but_a_librarys_page_has_our_base() -> None:
    views = {getattr(resolve(each).func, "cls", None) for each in addresses()} - {None}
    assert len(views) > 10
    assert {view for view in views if not issubclass(view, APIView)} == {DocsView}
