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
        # Callers choose the labels of their calls; the ledger stays.
        PERSONAL_COLUMNS.add(
            PersonalColumn("labels of calls", self.get_model("UsageRecord"), "labels")
        )
