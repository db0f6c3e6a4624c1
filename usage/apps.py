from accounts.columns import PERSONAL_COLUMNS, PERSONAL_ROWS, PersonalColumn, PersonalRows
from config.platform import declarations


class UsageConfig(declarations.DeclaringApp):
    name = "usage"
    declaring = ("acts", "admin.finders", "attention")
    metrics = ("metrics",)

    def ready(self) -> None:
        super().ready()
        PERSONAL_ROWS.add(
            # Overrides have operators' reasons, which may name people.
            PersonalRows("overrides", self.get_model("Override")),
            PersonalRows("stops of model calls", self.get_model("Stop")),
            PersonalRows("usage alerts", self.get_model("Alert")),
            PersonalRows("refusals", self.get_model("Refusal")),
        )
        # Callers choose labels, and providers may quote a request that they refuse; the ledger stays.
        calls = self.get_model("UsageRecord")
        PERSONAL_COLUMNS.add(
            PersonalColumn("labels of calls", calls, "labels"),
            PersonalColumn("errors of calls", calls, "failures"),
        )
