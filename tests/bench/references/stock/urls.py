"""The views of the stock project, at the service's addresses."""

from typing import Any

from django.urls import path
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import ModelSerializer
from rest_framework.views import APIView
from rest_framework_simplejwt.authentication import JWTAuthentication
from rest_framework_simplejwt.views import TokenObtainPairView, TokenRefreshView

from tests.bench.references.stock.models import Licence


class LicenceSerializer(ModelSerializer[Any]):
    class Meta:
        model = Licence
        fields = ("status", "plan", "entitlements", "grace_until")


class LicenceView(APIView):
    authentication_classes = (JWTAuthentication,)
    permission_classes = (IsAuthenticated,)

    def get(self, request: Request) -> Response:
        return Response(LicenceSerializer(Licence.objects.get(user=request.user.pk)).data)


urlpatterns = [
    path("v1/auth/login", TokenObtainPairView.as_view()),
    path("v1/auth/refresh", TokenRefreshView.as_view()),
    path("v1/license/status", LicenceView.as_view()),
]
