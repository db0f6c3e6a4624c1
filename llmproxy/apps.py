from accounts.columns import ENCRYPTED, PERSONAL_ROWS, Column, PersonalRows
from config.platform import declarations


class ModelProxyConfig(declarations.DeclaringApp):
    name = "llmproxy"
    verbose_name = "model proxy"
    declaring = (
        "acts",
        "admin.finders",
        "admin.usage_groups",
        "attention",
        "catalogue.member_names",
        "catalogue.unpriced",
    )
    metrics = ("calls.metrics",)

    def ready(self) -> None:
        super().ready()
        PERSONAL_ROWS.add(PersonalRows("personal keys", self.get_model("PersonalKey")))
        ENCRYPTED.add(Column(self.get_model("Provider"), "api_key"))
