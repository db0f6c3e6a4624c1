from config.platform import declarations


class ReleasesConfig(declarations.DeclaringApp):
    name = "releases"
    declaring = ("acts", "admin.finders", "attention")
