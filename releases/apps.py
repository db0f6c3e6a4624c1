from config.platform import declarations


class ReleasesConfig(declarations.DeclaringApp):
    name = "releases"
    declaring = ("admin.finders", "attention")
