from accounts.columns import SIGNED_BY_EMAIL, Column
from config.platform import declarations


class LicensingConfig(declarations.DeclaringApp):
    name = "licensing"
    declaring = ("acts", "attention")

    def ready(self) -> None:
        super().ready()
        SIGNED_BY_EMAIL.add(Column(self.get_model("HeldSuspension"), "confirmed_by"))
