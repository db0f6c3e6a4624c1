from config.platform import declarations


class LicensingConfig(declarations.DeclaringApp):
    name = "licensing"
    declaring = ("acts", "admin.finders", "attention")
