from accounts.columns import SIGNED_BY_EMAIL, Column
from config.platform import declarations


class ReleasesConfig(declarations.DeclaringApp):
    name = "releases"
    declaring = ("acts", "admin.finders", "attention")

    def ready(self) -> None:
        super().ready()
        SIGNED_BY_EMAIL.add(
            Column(self.get_model("AppChannel"), "moved_by"),
            Column(self.get_model("AppPin"), "pinned_by"),
        )
